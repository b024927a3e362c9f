//! Recording this machine's kernel. Needs root and tracefs, and says so where it cannot.

mod place;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use loopscope_ctf::Value;
use loopscope_kernel::recorder::{Flight, Recorder};
use loopscope_kernel::recording::{Account, BufferCounts};
use loopscope_kernel::transcode::transcode;
use loopscope_time::source::read_counter;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::resource::{UsageWho, getrusage};
use place::{Place, skip};

/// An event as the streams hold it.
#[derive(Debug)]
struct Event {
    entity: String,
    counter: u64,
    tid: i64,
    fields: BTreeMap<String, String>,
}

/// All events of a trace, of each processor in order.
fn events(trace: &Path) -> BTreeMap<u32, Vec<Event>> {
    let mut found: BTreeMap<u32, Vec<Event>> = BTreeMap::new();
    place::records(trace, |processor, class, record, fields| {
        let text = |value: Value| match value {
            Value::String(text) => String::from_utf8_lossy(text).into_owned(),
            other => format!("{other:?}"),
        };
        found.entry(processor).or_default().push(Event {
            entity: format!("{}:{}", class.group, class.name),
            counter: record.counter.0,
            tid: record.id,
            fields: class
                .values(fields)
                .map(|(name, value)| (name.to_owned(), text(value)))
                .collect(),
        });
    });
    found
}

fn total(account: &Account) -> BufferCounts {
    let mut sum = BufferCounts::default();
    for counts in account.classes.values().flat_map(BTreeMap::values) {
        sum.recorded += counts.recorded;
        sum.overwritten += counts.overwritten;
        sum.dropped += counts.dropped;
    }
    sum
}

/// How often this thread left its processor by itself, and how often it was taken from it.
fn switch_counts() -> [i64; 2] {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
    [usage.voluntary_context_switches(), usage.involuntary_context_switches()]
}

/// A thread that sleeps is switched out after it has read the counter and switched in before it
/// reads it again, on the same clock: the order of a program's events and the kernel's.
#[test]
fn switches_of_a_thread_lie_between_its_own_readings_of_the_counter() {
    let Some(mut place) = Place::make() else { return };
    let folder = tempfile::tempdir().unwrap();
    let wanted = ["sched/sched_switch", "sched/sched_waking", "sched/no_such_event"];
    let request = place.request(folder.path(), "order", 4 << 20, &wanted);
    let (recorder, recording) = Recorder::start(&request).unwrap();
    assert_eq!(recording.absent, ["sched/no_such_event"]);
    place::check_cost(&recorder, "sched");
    let own = i64::from(nix::unistd::gettid().as_raw());
    let mut sleeps = vec![];
    for _ in 0..200 {
        let counts = switch_counts();
        let before = read_counter().0;
        sleep(Duration::from_micros(200));
        let after = read_counter().0;
        let [left, taken] = switch_counts();
        sleeps.push((before, after, [left - counts[0], taken - counts[1]]));
    }
    let account = recorder.finish().unwrap();
    transcode(folder.path(), folder.path()).unwrap();
    let found = events(&folder.path().join("trace"));
    if !recording.threads_known {
        skip::skipped("threads have other numbers here than the kernel gives them");
        return;
    }
    let switches = |key: &str, wanted: &str| {
        let mut at: Vec<u64> = vec![];
        for event in found.values().flatten() {
            let named = event.fields.get(key).is_some_and(|tid| *tid == format!("Signed({own})"));
            if event.entity == "kernel:sched_switch" && named && key == wanted {
                at.push(event.counter);
            }
        }
        at.sort_unstable();
        at
    };
    // Kernels of some virtual machines record nothing that happens in some of their threads, such as
    // the idling one of a processor: of these no switch is told to the next.
    let ends = |events: &Vec<Event>| -> Vec<[String; 2]> {
        let switches = events.iter().filter(|event| event.entity == "kernel:sched_switch");
        switches
            .map(|event| ["prev_tid", "next_tid"].map(|key| event.fields[key].clone()))
            .collect()
    };
    let untold = |events: &Vec<Event>| -> Vec<String> {
        let ends = ends(events);
        let unlike = ends.windows(2).filter(|pair| pair[0][1] != pair[1][0]);
        unlike.map(|pair| pair[0][1].clone()).collect()
    };
    let all_told = found.values().all(|events| untold(events).is_empty());
    let (out, back) = (switches("prev_tid", "prev_tid"), switches("next_tid", "next_tid"));
    // A timer may end before its thread has left the processor: that thread is not switched at all.
    let slept = sleeps.iter().filter(|(.., [left, _])| *left > 0).count();
    assert!(slept > 100, "{slept} of {} sleeps left the processor", sleeps.len());
    for (before, after, [left, taken]) in sleeps {
        let within = |at: &&u64| (before..=after).contains(at);
        let out: Vec<_> = out.iter().filter(within).collect();
        let back: Vec<_> = back.iter().filter(within).collect();
        let told = out.len() as i64;
        assert!((left..=left + taken).contains(&told), "{before} {out:?} {after}: {left}, {taken}");
        assert!(back.len() == out.len() || !all_told, "{before} {out:?} {back:?} {after}");
        assert!(out.is_empty() || back.is_empty() || out[0] < back[back.len() - 1]);
    }
    for events in found.values() {
        assert!(events.is_sorted_by_key(|event| event.counter));
    }
    // What the kernel has counted is what the streams hold.
    let held = found.values().map(|events| events.len() as u64).sum::<u64>();
    let BufferCounts { recorded, overwritten, dropped, .. } = total(&account);
    assert_eq!((recorded, overwritten, dropped), (held, 0, 0));
    // A thread goes from one processor's record to the next: who comes is who goes.
    for events in found.values() {
        for thread in untold(events) {
            let went = ends(events).iter().filter(|[prev, _]| *prev == thread).count();
            assert_eq!(went, 0, "{thread} did not always go as it came");
        }
        for event in events.iter().filter(|event| event.entity == "kernel:sched_switch") {
            assert_eq!(format!("Signed({})", event.tid), event.fields["prev_tid"]);
        }
    }
}

/// Buffers that are too small lose events; each is counted, with the time when.
#[test]
fn what_finds_no_room_is_counted() {
    let Some(mut place) = Place::make() else { return };
    let folder = tempfile::tempdir().unwrap();
    let events_of = ["raw_syscalls/sys_enter", "raw_syscalls/sys_exit"];
    let request = place.request(folder.path(), "loss", 4096, &events_of);
    let (recorder, _) = Recorder::start(&request).unwrap();
    let begun = read_counter().0;
    for _ in 0..300_000 {
        // A system call.
        let _ = nix::unistd::getppid();
    }
    let account = recorder.finish().unwrap();
    let BufferCounts { recorded, dropped, .. } = total(&account);
    assert!(recorded > 0 && dropped > 0, "{recorded} {dropped}");
    assert!(recorded + dropped >= 600_000, "{recorded} {dropped}");
    let gaps = account.classes["sched"].values().flat_map(|counts| &counts.gaps);
    let gaps: Vec<_> = gaps.collect();
    assert_eq!(gaps.iter().map(|(_, _, count)| count).sum::<u64>(), dropped);
    assert!(gaps.iter().all(|(from, until, _)| from < until && *until > begun));
    transcode(folder.path(), folder.path()).unwrap();
    let held: usize = events(&folder.path().join("trace")).values().map(Vec::len).sum();
    assert_eq!(held as u64, recorded);
    let loss = fs::read_to_string(folder.path().join("loss.json")).unwrap();
    let loss: serde_json::Value = serde_json::from_str(&loss).unwrap();
    assert_eq!(loss["emitted"], recorded + dropped);
    assert_eq!(loss["dropped"], dropped);
}

/// A small file system of its own, for the test's time.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn make(size: &str) -> SmallDisk {
        let folder = tempfile::tempdir().unwrap();
        let size = format!("size={size}");
        mount(Some("tmpfs"), folder.path(), Some("tmpfs"), MsFlags::empty(), Some(size.as_str()))
            .unwrap();
        SmallDisk(folder)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        umount2(self.0.path(), MntFlags::MNT_DETACH).unwrap();
    }
}

/// What a full disk has no room for is lost, in the buffers and on the way to the disk: the rest is
/// read, and every event is counted once.
#[test]
fn what_cannot_be_written_is_counted() {
    let Some(mut place) = Place::make() else { return };
    let disk = SmallDisk::make("1M");
    let events_of = ["raw_syscalls/sys_enter", "raw_syscalls/sys_exit"];
    let request = place.request(disk.0.path(), "full", 1 << 20, &events_of);
    let (recorder, _) = Recorder::start(&request).unwrap();
    for _ in 0..20 {
        for _ in 0..5_000 {
            let _ = nix::unistd::getppid();
        }
        sleep(Duration::from_millis(10));
    }
    let account = recorder.finish().unwrap();
    assert!(account.problems[0].contains("No space left"), "{:?}", account.problems);
    let BufferCounts { recorded, dropped, .. } = total(&account);
    assert!(recorded + dropped >= 200_000, "{recorded} {dropped}");
    let desk = tempfile::tempdir().unwrap();
    transcode(disk.0.path(), desk.path()).unwrap();
    let held: usize = events(&desk.path().join("trace")).values().map(Vec::len).sum();
    assert_eq!(held as u64, recorded);
    assert!(held > 0 && dropped > 0, "{held} {dropped}");
    let gaps = account.classes["sched"].values().flat_map(|counts| &counts.gaps);
    assert_eq!(gaps.map(|(_, _, count)| count).sum::<u64>(), dropped);
}

/// A recorder that was killed leaves pages that can be read, and no account.
#[test]
fn a_recording_that_was_not_ended_is_read_as_far_as_it_goes() {
    let Some(mut place) = Place::make() else { return };
    let folder = tempfile::tempdir().unwrap();
    let request = place.request(folder.path(), "killed", 1 << 20, &["sched/sched_switch"]);
    let (recorder, recording) = Recorder::start(&request).unwrap();
    sleep(Duration::from_millis(200));
    recorder.finish().unwrap();
    fs::remove_file(Account::path(folder.path())).unwrap();
    // The last page of the busiest processor is cut short.
    let processors = &recording.classes["sched"].processors;
    let pages = |processor: &u32| folder.path().join(format!("sched/cpu{processor}"));
    let size = |processor: &&u32| fs::metadata(pages(processor)).unwrap().len();
    let busiest = processors.iter().max_by_key(size).unwrap();
    let bytes = fs::read(pages(busiest)).unwrap();
    fs::write(pages(busiest), &bytes[..bytes.len() - 3]).unwrap();
    transcode(folder.path(), folder.path()).unwrap();
    let loss = fs::read_to_string(folder.path().join("loss.json")).unwrap();
    let loss: serde_json::Value = serde_json::from_str(&loss).unwrap();
    let accounts = loss["processes"].as_array().unwrap();
    let account = accounts.iter().find(|account| account["pid"] == *busiest).unwrap();
    let unknown = account["unknown"].to_string();
    assert!(unknown.contains("not ended") && unknown.contains("cut short"), "{unknown}");
    assert!(!events(&folder.path().join("trace")).is_empty());
}

/// Two recorders record the same, one as a flight recorder: it has what came some time before each
/// trigger and after it, and the rest is counted, with the time when.
#[test]
fn a_flight_recorder_has_what_came_about_its_triggers() {
    let Some(mut place) = Place::make() else { return };
    let wanted = ["sched/sched_switch"];
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut requests = folders
        .iter()
        .zip(["whole", "flight"])
        .map(|(folder, name)| place.request(folder.path(), name, 4 << 20, &wanted));
    let (whole, mut flight) = (requests.next().unwrap(), requests.next().unwrap());
    drop(requests);
    // The counter is taken for one of 1 GHz there.
    const POST: Duration = Duration::from_millis(200);
    let keep = Duration::from_millis(200);
    let keep_ticks = 200_000_000;
    flight.flight = Some(Flight { keep, at_end: false });
    let (recorder, _) = Recorder::start(&flight).unwrap();
    let (whole, _) = Recorder::start(&whole).unwrap();
    let doze = |times: u32| (0..times).for_each(|_| sleep(Duration::from_micros(500)));
    let mut windows = vec![];
    doze(800);
    for _ in 0..2 {
        let begin = read_counter().0;
        let since = Instant::now();
        recorder.trigger(POST);
        doze(150);
        let end = read_counter().0;
        // On a busy machine it may take longer.
        let end = if since.elapsed() < POST { end } else { begin };
        windows.push((begin.saturating_sub(keep_ticks), end));
        doze(800);
    }
    let last = read_counter().0;
    let account = recorder.finish().unwrap();
    whole.finish().unwrap();
    let mut found = folders.iter().map(|folder| {
        transcode(folder.path(), folder.path()).unwrap();
        events(&folder.path().join("trace"))
    });
    let (all, kept) = (found.next().unwrap(), found.next().unwrap());
    let counts = total(&account);
    assert_eq!(counts.recorded, kept.values().map(|events| events.len() as u64).sum::<u64>());
    assert_eq!(counts.dropped, 0);
    for (cpu, counts) in &account.classes["sched"] {
        let of = |found: &BTreeMap<u32, Vec<Event>>, begin: u64, end: u64| {
            let within = |event: &&Event| (begin..=end).contains(&event.counter);
            found.get(cpu).map_or(0, |events| events.iter().filter(within).count() as u64)
        };
        // The stamps of the two are taken one after the other: at either end one may be elsewhere.
        let same = |a: u64, b: u64| a.abs_diff(b) <= 2;
        for &(begin, end) in &windows {
            assert!(same(of(&all, begin, end), of(&kept, begin, end)), "{cpu} {windows:?}");
        }
        assert_eq!(counts.overwritten, counts.gaps.iter().map(|gap| gap.2).sum::<u64>());
        assert!((2..=3).contains(&counts.gaps.len()), "{:?}", counts.gaps);
        // The other one had not begun when the first of them did.
        for &(begin, end, count) in &counts.gaps[1..] {
            let kept = of(&kept, begin, end);
            // The other one goes on after the last gap.
            let (least, all) = (of(&all, begin, end.min(last)), of(&all, begin, end));
            let told = format!("{cpu} {begin} {end} {count}: {least} {all} {kept}");
            assert!(least <= kept + count + 2 && kept + count <= all + 2, "{told}");
            assert!(kept < all / 10 + 5, "{kept} {all}");
        }
    }
    let own = all.values().map(Vec::len).sum::<usize>() as u64;
    assert!(own > 2000 && counts.recorded > 500 && counts.overwritten > 1000, "{counts:?}");
}
