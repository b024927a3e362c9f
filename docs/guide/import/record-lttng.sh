#!/bin/sh
# record-lttng.sh SESSION EVENTS: records EVENTS into lttng/ here until it is told to end. A machine
# has one session daemon, so hosts that are on one machine have a session each.
set -eu
{
    lttng create "$1" --output="$PWD/lttng"
    lttng enable-channel --userspace --session="$1" events
    lttng enable-event --userspace --session="$1" --channel=events "$2"
    lttng add-context --userspace --session="$1" --channel=events -t vpid -t vtid -t procname
    lttng start "$1"
} >&2
trap 'lttng destroy "$1" >&2; exit 0' TERM
echo recording
while :; do
    sleep 1 &
    wait $! || true
done
