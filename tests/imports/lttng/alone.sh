#!/bin/sh
# alone.sh HOME COMMAND…: with a session daemon of its own, in a mount namespace where no other one of
# the machine is met.
set -eu
export LTTNG_HOME="$1" HOME="$1"
shift
mount -t tmpfs none /run
mount -t tmpfs none /dev/shm
lttng-sessiond --no-kernel >"$LTTNG_HOME/sessiond" 2>&1 &
daemon=$!
trap 'kill $daemon; wait $daemon || true' EXIT
tries=0
until lttng list >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] || { cat "$LTTNG_HOME/sessiond" >&2; exit 1; }
    sleep 0.1
done
"$@"
