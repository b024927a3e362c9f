#!/bin/sh
# Has every device of this host send at most RATE, with a queue of LIMIT, and then runs COMMAND.
for device in /proc/sys/net/ipv4/conf/*/; do
    name=$(basename "$device")
    case $name in all|default|lo) continue ;; esac
    tc qdisc replace dev "$name" root tbf rate "$1" limit "$2" burst 3000 || exit
done
shift 2
exec "$@"
