#!/bin/sh
# record-events.sh SESSION EVENT: records an event into lttng/ here until it is told to end. There is
# one session daemon for the machine, so each host has a session of its own.
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
