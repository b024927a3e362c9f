#!/bin/sh
# Has the TCP of this host use ALGORITHM for congestion control, and then runs COMMAND.
echo "$1" > /proc/sys/net/ipv4/tcp_congestion_control || exit
shift
exec "$@"
