//! Histograms that programs in this machine's kernel keep, against the kernel's own counts. Needs root,
//! tracefs and a build with clang, and says so where it cannot.

mod place;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use loopscope_kernel::programs::histograms::{Histogram, Histograms};
use loopscope_kernel::recorder::{HISTOGRAMS, Recorder};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::{Pid, gettid};
use place::{Place, skip};

/// How long the kernel says that a thread of this process waited for a processor, ns.
fn run_delay() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Makes this thread one that takes no processor from another thread when it is woken.
///
/// Where a woken thread takes the processor at once, the kernel counts its wait to the instant of the
/// waking (`rq_clock_skip_update`), as long as a switch takes too little, and too much for the other.
fn wait_for_the_turn() {
    let tid = gettid().to_string();
    let chrt = Command::new("chrt").args(["--batch", "--pid", "0", &tid]).status().unwrap();
    assert!(chrt.success());
}

/// How often each processor has served soft interrupts of a kind.
fn served(kind: &str) -> Vec<u64> {
    let text = fs::read_to_string("/proc/softirqs").unwrap();
    let line = text.lines().find(|line| line.trim_start().starts_with(&format!("{kind}:")));
    line.unwrap().split_whitespace().skip(1).map(|count| count.parse().unwrap()).collect()
}

fn is_whole(of: &Histogram) {
    assert_eq!(of.count, of.slots.iter().map(|slot| u64::from(slot.2)).sum::<u64>());
    let bound = |end: fn(&(u64, u64, u32)) -> u64| -> u64 {
        of.slots.iter().map(|slot| end(slot) * u64::from(slot.2)).sum()
    };
    assert!((bound(|slot| slot.0)..=bound(|slot| slot.1)).contains(&of.sum_ns), "{of:?}");
    let last = of.slots.last().unwrap();
    assert!((last.0..last.1).contains(&of.largest_ns), "{of:?}");
}

/// Two threads want one processor, a third one wakes up often: each waits as long as the kernel counts.
/// Soft interrupts are as many as it counts.
#[test]
fn waits_and_soft_interrupts_are_as_the_kernel_counts_them() {
    let Some(mut place) = Place::make() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut request = place.request(folder.path(), "histograms", 1 << 20, &[]);
    let namespace = fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
    request.histograms = Some(vec![u32::try_from(namespace).unwrap()]);
    let (recorder, recording) = Recorder::start(&request).unwrap();
    if let Some(error) = recorder.without.get(HISTOGRAMS) {
        skip::skipped(&error.to_string());
        return;
    }
    let kinds = ["NET_RX", "TIMER", "SCHED", "RCU"];
    let before = kinds.map(served);
    let end = AtomicBool::new(false);
    let counted: BTreeMap<u32, u64> = thread::scope(|scope| {
        let wants = |sleeps: bool| {
            let end = &end;
            move || {
                let mut first = CpuSet::new();
                first.set(0).unwrap();
                sched_setaffinity(Pid::from_raw(0), &first).unwrap();
                if sleeps {
                    wait_for_the_turn();
                }
                while !end.load(Ordering::Relaxed) {
                    if sleeps {
                        thread::sleep(Duration::from_micros(500));
                    }
                }
                (gettid().as_raw().cast_unsigned(), run_delay())
            }
        };
        let threads = [false, false, true].map(|sleeps| scope.spawn(wants(sleeps)));
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(700) {
            thread::sleep(Duration::from_millis(50));
        }
        end.store(true, Ordering::Relaxed);
        threads.map(|thread| thread.join().unwrap()).into()
    });
    // Another namespace, whose waits are none of ours.
    let other = thread::spawn(|| {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        (0..50).for_each(|_| thread::sleep(Duration::from_micros(100)));
        gettid().as_raw().cast_unsigned()
    });
    let other = other.join().unwrap();
    let after = kinds.map(served);
    let account = recorder.finish().unwrap();
    let Histograms { run_queue, softirq, missed } = account.histograms.unwrap();
    assert_eq!(missed, 0);
    for (kind, (before, after)) in kinds.iter().zip(before.iter().zip(&after)) {
        for (processor, (before, after)) in before.iter().zip(after).enumerate() {
            let mut of = softirq.iter().filter(|each| each.name == *kind);
            let found = of.find(|each| each.processor as usize == processor);
            let found = found.map_or(0, |each| each.times.count);
            // Some came before the first count and after the last one, when one may go on.
            let counted = after - before;
            let (least, most) = (counted.saturating_sub(1), counted + counted / 5 + 50);
            assert!((least..=most).contains(&found), "{kind}: {found} of {counted}");
        }
    }
    softirq.iter().for_each(|each| is_whole(&each.times));
    run_queue.iter().for_each(|each| is_whole(&each.waits));
    if !recording.threads_known {
        skip::skipped("threads have other numbers here than the kernel gives them");
        return;
    }
    for (&tid, &counted) in &counted {
        let of = || run_queue.iter().filter(move |each| each.tid == tid);
        let waited: u64 = of().map(|each| each.waits.sum_ns).sum();
        let times: u64 = of().map(|each| each.waits.count).sum();
        // Other programs' threads may still take the processor as they are woken.
        let apart = counted / 20 + 25_000 * times;
        assert!(waited.abs_diff(counted) <= apart, "{waited} of {counted}, {times}");
        assert!(of().all(|each| each.process == std::process::id()));
        assert!(of().all(|each| each.name.starts_with("waits_and_soft_")));
    }
    let sleeps = run_queue.iter().filter(|each| !each.preempted && each.waits.count > 20);
    assert!(sleeps.count() >= 1, "{run_queue:?}");
    let preempted = run_queue.iter().filter(|each| each.preempted && each.waits.count > 20);
    assert!(preempted.count() >= 2, "{run_queue:?}");
    assert!(run_queue.iter().all(|each| each.tid != other || each.waits.count == 1));
}
