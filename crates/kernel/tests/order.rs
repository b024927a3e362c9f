//! A program's events and the kernel's are in the order in which they happened: over a million calls.
//! Needs root and tracefs, and says so where it cannot.

mod place;

use std::net::UdpSocket;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use loopscope_kernel::recorder::Recorder;
use loopscope_kernel::transcode::transcode;
use loopscope_time::source::read_counter;
use place::{Place, skip};

const CALLS: usize = 1_000_000;
/// Between pauses in which the buffers are emptied.
const TOGETHER: usize = 20_000;
const ENTER: &str = "sys_enter";
const TRANSMIT: &str = "net_dev_start_xmit";
const EXIT: &str = "sys_exit";

/// Each datagram that a thread sends is between its readings of the counter: the call's entry after
/// the first one, the transmission in the call, the call's exit before the second one.
#[test]
fn a_call_and_its_transmission_lie_between_the_callers_readings_of_the_counter() {
    let Some(mut place) = Place::make() else { return };
    let folder = tempfile::tempdir().unwrap();
    let wanted = ["raw_syscalls/sys_enter", "net/net_dev_start_xmit", "raw_syscalls/sys_exit"];
    let request = place.request(folder.path(), "calls", 32 << 20, &wanted);
    let (receiver, sender) = (UdpSocket::bind("127.0.0.1:0"), UdpSocket::bind("127.0.0.1:0"));
    let (receiver, sender) = (receiver.unwrap(), sender.unwrap());
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    let (recorder, recording) = Recorder::start(&request).unwrap();
    assert_eq!(recording.absent, [""; 0]);
    let own = i64::from(nix::unistd::gettid().as_raw());
    let mut calls = Vec::with_capacity(CALLS);
    while calls.len() < CALLS {
        for _ in 0..TOGETHER {
            let before = read_counter().0;
            // What the receiver has no room for is lost, after it was transmitted.
            sender.send(b"x").unwrap();
            calls.push((before, read_counter().0));
        }
        sleep(Duration::from_millis(60));
    }
    let account = recorder.finish().unwrap();
    if !recording.threads_known {
        skip::skipped("threads have other numbers here than the kernel gives them");
        return;
    }
    let dropped: u64 = account.classes["sched"].values().map(|counts| counts.dropped).sum();
    assert_eq!(dropped, 0, "the buffers were too small for the test");
    transcode(folder.path(), folder.path()).unwrap();
    let found = of_thread(&folder.path().join("trace"), own);
    let mut events = found.iter().peekable();
    for (before, after) in calls {
        // Those of the pauses.
        while events.next_if(|(at, _)| *at < before).is_some() {}
        let within: Vec<_> =
            std::iter::from_fn(|| events.next_if(|(at, _)| *at <= after)).collect();
        let names: Vec<&str> = within.iter().map(|(_, name)| *name).collect();
        // Soft interrupts may send what is others' meanwhile.
        let is_right = matches!(&names[..], [ENTER, sent @ .., EXIT]
            if !sent.is_empty() && sent.iter().all(|name| *name == TRANSMIT));
        assert!(is_right, "{before} {within:?} {after}");
    }
}

/// The counters and names of a thread's events, in order.
fn of_thread(trace: &Path, tid: i64) -> Vec<(u64, &'static str)> {
    let mut found = vec![];
    place::records(trace, |_, class, record, _| {
        let known = [ENTER, TRANSMIT, EXIT].into_iter().find(|known| *known == class.name);
        if let Some(known) = known.filter(|_| record.id == tid) {
            found.push((record.counter.0, known));
        }
    });
    found.sort_by_key(|(at, _)| *at);
    found
}
