#!/bin/sh
# record.sh OUT PROGRAM COUNT: LTTng traces of PROGRAM, in a mount namespace of its own so that no
# other session daemon of the machine is met. OUT gets one directory for each way of recording.
set -eu
out=$1 program=$2 count=$3
mount -t tmpfs none /run
mount -t tmpfs none /dev/shm
export LTTNG_HOME="$out/home" HOME="$out/home"
mkdir -p "$LTTNG_HOME"

lttng-sessiond --no-kernel >"$out/sessiond" 2>&1 &
daemon=$!
trap 'kill $daemon; wait $daemon || true' EXIT
tries=0
until lttng list >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 300 ] || { cat "$out/sessiond" >&2; exit 1; }
    sleep 0.1
done

session() { # NAME BUFFERS, then options of the channel
    name=$1 buffers=$2
    shift 2
    lttng create "$name" --output="$out/$name"
    lttng enable-channel --userspace "$buffers" "$@" events
    lttng enable-event --userspace --channel=events 'sample:*'
    lttng add-context --userspace --channel=events -t vpid -t vtid -t procname
}

session per-user --buffers-uid
lttng start
"$program" "$count"
lttng stop && lttng destroy

session per-process --buffers-pid
lttng start
"$program" "$count"
"$program" 3
lttng stop && lttng destroy

# Small buffers that nobody waits for, in files that are rotated: events and packets get lost.
session rotated --buffers-uid --discard --subbuf-size=4096 --num-subbuf=2 \
    --tracefile-size=8192 --tracefile-count=3
lttng start
"$program" "$((count * 40))"
lttng stop && lttng destroy

session chunks --buffers-uid
lttng start
"$program" "$count"
lttng rotate
"$program" "$count"
lttng stop && lttng destroy
