#!/bin/sh
# Has the soft interrupts of what this host receives served by processor CPU, and then runs COMMAND.
for queue in /sys/class/net/*/queues/rx-0/rps_cpus; do
    printf '%x' $((1 << $1)) > "$queue" || exit
done
shift
exec "$@"
