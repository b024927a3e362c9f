//! Where tests record the kernel.

#![allow(dead_code, reason = "each test program uses its part")]

pub mod programs;
#[path = "../../../../tests/skip.rs"]
pub mod skip;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use loopscope_ctf::{EventClass, Metadata, Packets, Record, Records};
use loopscope_kernel::recorder::{Recorder, Request};
use loopscope_kernel::tracefs::{self, Instance};
use loopscope_time::Frequency;
use loopscope_time::source::counter_kind;

/// A mount of tracefs for the test's time, and instances in it.
pub struct Place {
    tracefs: PathBuf,
    mounted: Option<tempfile::TempDir>,
    instances: Vec<PathBuf>,
}

/// A name that other runs leave alone.
fn point(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("ls-tracefs")
}

impl Place {
    /// `None`, loudly, without the right.
    pub fn make() -> Option<Place> {
        let found = tracefs::find().unwrap();
        let mounted = if found.is_some() { None } else { Some(tempfile::tempdir().unwrap()) };
        if let Some(folder) = &mounted {
            fs::create_dir(point(folder)).unwrap();
            if let Err(error) = tracefs::mount_on(&point(folder)) {
                skip::skipped(&format!("tracefs cannot be mounted: {error}"));
                return None;
            }
        }
        let tracefs = found.unwrap_or_else(|| point(mounted.as_ref().unwrap()));
        let place = Place { tracefs, mounted, instances: vec![] };
        let clocks = fs::read_to_string(place.tracefs.join("trace_clock"));
        let clock = tracefs::clock_of(counter_kind());
        if clocks.as_ref().is_ok_and(|clocks| clocks.contains(clock)) {
            return Some(place);
        }
        skip::skipped(&format!("no tracing by {clock}: {clocks:?}"));
        None
    }

    fn instance(&mut self, name: &str) -> PathBuf {
        let name = format!("ls-test-{name}-{}", std::process::id());
        let path = self.tracefs.join("instances").join(name);
        Instance::make(&path).unwrap();
        self.instances.push(path.clone());
        path
    }

    pub fn request(&mut self, folder: &Path, test: &str, buffer: u64, events: &[&str]) -> Request {
        let instance = self.instance(test);
        let events = events.iter().map(|event| (*event).to_owned()).collect();
        Request {
            tracefs: self.tracefs.clone(),
            folder: folder.to_owned(),
            host: "h1".to_owned(),
            clock_uuid: [7; 16],
            frequency: Frequency::from_hz(1_000_000_000).unwrap(),
            classes: BTreeMap::from([("sched".to_owned(), (instance, events))]),
            programs: None,
            histograms: None,
            buffer,
            flight: None,
        }
    }
}

/// What an event costs hangs on the machine, and on what else runs there; but it is a time.
pub fn check_cost(recorder: &Recorder, class: &str) {
    match &recorder.event_ns[class] {
        Ok(ns) => assert!((1.0..1e6).contains(ns), "an event of {class} costs {ns} ns"),
        Err(why) => assert!(why.contains("noise"), "{why}"),
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for instance in &self.instances {
            Instance::remove(instance).unwrap();
        }
        if let Some(folder) = &self.mounted {
            assert!(tracefs::unmount(&point(folder)).unwrap());
        }
    }
}

/// Gives each event of a trace to `each`, with its processor, its class and its fields; those of a
/// processor in order.
pub fn records(trace: &Path, mut each: impl FnMut(u32, &EventClass, &Record, &[u8])) {
    let metadata = Metadata::parse(&fs::read_to_string(trace.join("metadata")).unwrap()).unwrap();
    for entry in fs::read_dir(trace).unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with("metadata") {
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        for packet in Packets::new(&bytes) {
            let (context, records) = packet.unwrap();
            let stream = &metadata.streams[&context.stream_id];
            let take = |record: Record| {
                let fields = &records[record.offset + loopscope_ctf::packet::RECORD..];
                each(context.pid, &stream.events[record.class], &record, fields);
            };
            Records::new(stream).decode(&context, records, take).unwrap();
        }
    }
}
