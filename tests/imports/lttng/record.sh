#!/bin/sh
# record.sh OUT PROGRAM COUNT: LTTng traces of PROGRAM. OUT gets one directory for each way of
# recording.
set -eu
out=$1 program=$2 count=$3

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
