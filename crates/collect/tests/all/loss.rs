//! `emitted = recorded + dropped`, exactly, whatever happens to the program.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use crate::lab::{self, Lab, Trace};
use loopscope_collect::{ClockMap, Collector, LossReport, MAIN, StreamSpec};
use loopscope_ctf::packet::{RECORD, RECORDS};
use loopscope_time::Counter;
use loopscope_time::source::read_counter;

/// Bytes at a sub-buffer's end that records do not use (record.c).
const SLACK: usize = 8;

fn rings(subbuffer: u32, subbuffers: u32) -> StreamSpec {
    StreamSpec { subbuffer, subbuffers, ..StreamSpec::default() }
}

/// Runs emit without collecting meanwhile, then collects.
fn run(lab: &Lab, arguments: &str) -> (Trace, LossReport, Option<i32>) {
    let status = lab.tallied(lab::emit(), arguments).status().unwrap();
    let loss = lab.finish(lab.collector());
    (lab::check(&lab.out(), &loss), loss, status.signal())
}

/// How many records fit into a ring, their sizes repeating.
fn fitting(sizes: &[usize], subbuffer: usize, subbuffers: usize) -> u64 {
    let (mut count, mut packets, mut used) = (0, 1, RECORDS);
    for size in sizes.iter().cycle() {
        if used + size > subbuffer - SLACK {
            (packets, used) = (packets + 1, RECORDS);
        }
        if packets > subbuffers {
            break;
        }
        used += size;
        count += 1;
    }
    count
}

fn record_count(subbuffer: usize) -> u64 {
    fitting(&[RECORD], subbuffer, 1)
}

#[test]
fn a_full_ring_counts_each_sites_drops() {
    let lab = Lab::new(&rings(512, 4));
    let (trace, loss, _) = run(&lab, "pair 1000");
    let drops = lab::check_loss(&loss);
    let hit = trace.count("tally:hit");
    let second = trace.count("tally:second");
    assert_eq!(hit + second, fitting(&[RECORD, RECORD + 9], 512, 4));
    assert_eq!(drops[&("tally:hit".into(), "ring-full".into())], 1000 - hit);
    assert_eq!(drops[&("tally:second".into(), "ring-full".into())], 1000 - second);
    assert_eq!((loss.emitted, loss.torn), (2000, 0));
    // What was kept is the beginning, whole.
    assert_eq!(trace.ids("tally:hit"), (0..hit.cast_signed()).collect::<Vec<_>>());
    // Readers of the stream learn of the drops too, in a last packet of their own.
    assert_eq!((trace.discarded, trace.packets), (loss.dropped, 5));
}

#[test]
fn a_drained_ring_goes_on_after_drops() {
    let lab = Lab::new(&rings(512, 2));
    let mut collector = lab.collector();
    let mut child = lab.tallied(lab::emit(), "burst 300000").spawn().unwrap();
    while child.try_wait().unwrap().is_none() {
        collector.poll().unwrap();
    }
    let loss = lab.finish(collector);
    let trace = lab::check(&lab.out(), &loss);
    assert_eq!((loss.emitted, loss.torn), (300_000, 0));
    assert!(trace.packets > 2, "the collector never got a turn");
    assert_eq!(trace.discarded, loss.dropped);
}

#[test]
fn what_a_killed_program_had_written_is_there() {
    for count in [0, 1, 12, 13, 24, 5000] {
        let lab = Lab::new(&rings(65536, 8));
        let (trace, loss, signal) = run(&lab, &format!("killed {count}"));
        assert_eq!(signal, Some(libc::SIGKILL));
        assert_eq!((loss.emitted, loss.torn), (count, 0));
        assert_eq!(trace.ids("tally:hit"), (0..count.cast_signed()).collect::<Vec<_>>());
    }
}

#[test]
fn killed_in_a_burst_of_threads() {
    let lab = Lab::new(&rings(4096, 4096));
    let (trace, loss, signal) = run(&lab, "killed-in-burst 4 5000");
    assert_eq!(signal, Some(libc::SIGKILL));
    let slots = lab.slots();
    let begun: u64 = slots.iter().map(|s| s.begun).sum();
    let done: u64 = slots.iter().map(|s| s.done).sum();
    assert!((done..=begun).contains(&loss.emitted), "{done} {} {begun}", loss.emitted);
    assert!(loss.torn <= begun - done, "{loss:?}");
    assert!(trace.count("tally:hit") >= 20_000);
}

/// Death after every machine instruction of an event: in an open packet, where it goes on to the
/// next packet, and where the ring is full.
#[cfg(target_arch = "x86_64")]
#[test]
fn killed_at_every_instruction_of_an_event() {
    let per_packet = record_count(256);
    for before in [1, per_packet - 1, per_packet, 2 * per_packet, 2 * per_packet + 3] {
        let recorded_before = before.min(2 * per_packet);
        let (mut torn, mut steps) = (0, 0);
        loop {
            steps += 1;
            let lab = Lab::new(&rings(256, 2));
            let status =
                lab.tallied(lab::emit(), &format!("step {before} 1 {steps}")).status().unwrap();
            let loss = lab.finish(lab.collector());
            let trace = Trace::read(&lab.out());
            lab::check_loss(&loss);
            assert_eq!(trace.events.len() as u64, loss.recorded);
            assert!((before..=before + 1).contains(&loss.emitted), "{before} {steps} {loss:?}");
            assert!((recorded_before..=recorded_before + 1).contains(&loss.recorded));
            assert!(loss.torn <= 1);
            let expected = (0..loss.recorded.cast_signed()).collect::<Vec<_>>();
            assert_eq!(trace.ids("tally:hit"), expected);
            torn += loss.torn;
            if status.success() {
                assert_eq!((loss.emitted, loss.torn), (before + 1, 0));
                break;
            }
            assert_eq!(status.signal(), Some(libc::SIGKILL));
        }
        // The steps did reach the inside of the event.
        assert!(torn > 5 && steps > 30, "{before}: {torn} torn in {steps} steps");
    }
}

/// A signal handler that logs, at every machine instruction of an event.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_handler_that_logs_at_every_instruction() {
    // The stepped events go through open packets and changes of packet.
    for before in 0..record_count(256) + 2 {
        let lab = Lab::new(&rings(256, 512));
        let (trace, loss, _) = run(&lab, &format!("step {before} 3"));
        let drops = lab::check_loss(&loss);
        let handler = lab.slots()[0].handler;
        // The interrupted events are all there.
        assert_eq!(trace.ids("tally:hit"), (0..before.cast_signed() + 3).collect::<Vec<_>>());
        let reentered = drops[&("tally:handler".to_owned(), "signal-reentry".into())];
        assert_eq!(trace.count("tally:handler") + reentered, handler);
        assert_eq!(loss.emitted, before + 3 + handler);
        assert_eq!(drops.len(), 1, "{drops:?}");
        assert!(reentered > 20 && trace.count("tally:handler") > 20);
        assert_eq!(trace.discarded, reentered);
    }
}

/// Threads that come and go hand their rings on: there are as many as threads at once.
#[test]
fn short_threads() {
    let lab = Lab::new(&rings(65536, 64));
    let mut collector = lab.collector();
    let mut child = lab.tallied(lab::emit(), "threads 50 10000").spawn().unwrap();
    while child.try_wait().unwrap().is_none() {
        collector.poll().unwrap();
    }
    assert!(child.wait().unwrap().success());
    let loss = lab.finish(collector);
    let trace = lab::check(&lab.out(), &loss);
    assert_eq!((loss.emitted, loss.recorded), (500_000, 500_000));
    assert!(trace.packets >= 10_000, "each thread has a packet of its own");
    assert!(trace.files <= 16, "{} streams for 4 threads at once", trace.files);
}

/// Children by fork, by the bare system call and by vfork with exec each have their own account.
#[test]
fn a_family_of_processes() {
    let lab = Lab::new(&rings(65536, 64));
    let mut collector = lab.collector();
    let mut child = lab.tallied(lab::emit(), "family 1000").spawn().unwrap();
    let pid = child.id();
    while child.try_wait().unwrap().is_none() {
        collector.poll().unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    let loss = lab.finish(collector);
    let trace = lab::check(&lab.out(), &loss);
    lab::check_against_tally(&lab, &loss);
    // The slots in the order in which they were taken: the endless thread's, the parent's.
    let slots = lab.slots();
    let of = |pid: u32| loss.processes.iter().find(|p| p.pid == pid).unwrap();
    assert_eq!(slots[0].pid, pid);
    assert_eq!(of(slots[2].pid).emitted, 2 * 1001);
    assert_eq!(of(slots[4].pid).emitted, 1002);
    assert_eq!(of(slots[5].pid).emitted, 1003);
    assert_eq!(of(slots[5].pid).process, "executed");
    assert_eq!(loss.processes.len(), 4);
    let tids: std::collections::BTreeSet<u32> = trace.events.iter().map(|e| e.tid).collect();
    assert_eq!(tids.len(), 6);
}

#[test]
fn exec_keeps_both_programs() {
    let lab = Lab::new(&StreamSpec::default());
    let (trace, loss, _) = run(&lab, "execute 40");
    let emitted: BTreeMap<&str, u64> =
        loss.processes.iter().map(|p| (p.process.as_str(), p.emitted)).collect();
    assert_eq!(emitted, BTreeMap::from([("emit", 40), ("executed", 11)]));
    assert_eq!((trace.count("tally:hit"), loss.dropped), (51, 0));
}

/// A process that goes on after the end of recording: what it did before is there, and it goes on
/// without effect.
#[test]
fn a_child_that_outlives_the_recording() {
    let lab = Lab::new(&rings(65536, 64));
    let mut collector = lab.collector();
    let (mut ends, write_end) = std::io::pipe().unwrap();
    let mut child = lab.tallied(lab::emit(), "orphan 1000").stdout(write_end).spawn().unwrap();
    while child.try_wait().unwrap().is_none() {
        collector.poll().unwrap();
    }
    let before = lab.slots()[0].done;
    let loss = lab.finish(collector);
    lab::check(&lab.out(), &loss);
    assert!(loss.emitted >= before && loss.recorded + loss.dropped == loss.emitted);
    assert!(loss.processes[1].torn <= 1);
    // It still runs: events go on, of which nothing is recorded.
    let after = lab.slots()[0].done;
    while lab.slots()[0].done < after + 1000 {
        std::thread::yield_now();
    }
    std::fs::write(lab.tally().with_file_name("tally-stop"), "").unwrap();
    ends.read_to_end(&mut Vec::new()).unwrap();
    assert!(!lab.runtime().exists() && !lab.runtime().with_file_name("runtime-closed").exists());
    assert_eq!(Trace::read(&lab.out()).events.len() as u64, loss.recorded);
}

/// A gap beyond what 32-bit stamps reach closes the packet.
#[test]
fn a_long_gap() {
    let lab = Lab::new(&StreamSpec::default());
    let (trace, loss, _) = run(&lab, "gap");
    assert_eq!((loss.recorded, trace.packets), (3, 2));
    let frequency = loopscope_collect::frequency::nominal().unwrap();
    let gap = (trace.events[1].counter - trace.events[0].counter) as f64;
    let seconds = gap / frequency.hz() as f64;
    assert!((1.99..60.0).contains(&seconds), "{seconds} s");
    assert!(trace.events[2].counter - trace.events[1].counter < 1 << 31);
}

/// A synthetic clock: every stamp goes through the map, and nothing else changes.
#[test]
fn a_synthetic_clock() {
    let lab = Lab::new(&rings(512, 64));
    assert!(lab.tallied(lab::emit(), "gap").status().unwrap().success());
    assert!(lab.tallied(lab::emit(), "burst 100").status().unwrap().success());
    let clock: ClockMap = Box::new(|counter| Counter(3 * counter.0 + 1));
    let mut collector = Collector::new(&lab.out(), lab::identity(), Some(clock)).unwrap();
    let before = read_counter();
    let streams = [rings(512, 64)];
    collector.add_source(&lab.runtime(), Some("node1".into()), &streams).unwrap();
    let loss = collector.finish().unwrap().into_stream(MAIN);
    let trace = lab::check(&lab.out(), &loss);
    assert_eq!(loss.recorded, 103);
    assert!(trace.events.iter().all(|e| e.counter % 3 == 1 && e.counter < 3 * before.0));
    assert!(trace.events.iter().all(|e| e.counter > before.0 && e.process == "node1"));
}
