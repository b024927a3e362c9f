#!/bin/sh
# Has the soft interrupts of what this host receives served by processor CPU, and then runs COMMAND.
if ! ls /sys/class/net/*/queues/rx-0/rps_cpus >/dev/null 2>&1; then
    echo "this kernel has no rps_cpus (CONFIG_RPS): nothing can steer packets" >&2
    exit 1
fi
for queue in /sys/class/net/*/queues/rx-0/rps_cpus; do
    printf '%x' $((1 << $1)) > "$queue" || exit
done
shift
exec "$@"
