//! A full disk: what it has no room for is counted, and the recording goes on.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use crate::lab::{self, Lab, Small, Trace};
use loopscope_collect::stream::Kind;
use loopscope_collect::{Collector, LossReport, MAIN, StreamSpec};

fn check(out: &Path, loss: &LossReport) -> Trace {
    let told: Vec<&String> = loss.problems.iter().collect();
    assert!(told.len() == 1 && told[0].contains("was full"), "{told:?}");
    lab::check(out, &LossReport { problems: vec![], ..loss.clone() })
}

#[test]
fn a_full_disk_loses_events_and_counts_them() {
    let stream = StreamSpec { subbuffer: 8192, subbuffers: 64, ..StreamSpec::default() };
    let lab = Lab::new(&stream);
    let small = lab.out().with_file_name("small");
    let Some(_mount) = Small::mount(&small, 1024) else { return };
    let out = small.join("out");
    let mut collector = Collector::new(&out, lab::identity(), None).unwrap();
    collector.add_source(&lab.runtime(), None, &[stream]).unwrap();
    let mut child = lab.tallied(lab::emit(), "pair 300000").spawn().unwrap();
    while child.try_wait().unwrap().is_none() {
        collector.poll().unwrap();
    }
    assert!(child.wait().unwrap().success());
    let loss = collector.finish().unwrap().into_stream(MAIN);
    let trace = check(&out, &loss);
    assert_eq!((loss.emitted, loss.torn), (600_000, 0));
    let sites = &loss.processes[0].sites;
    for entity in ["tally:hit", "tally:second"] {
        let of_entity = sites.iter().filter(|site| site.entity == entity);
        let dropped: u64 = of_entity.flat_map(|site| site.dropped.values()).sum();
        assert_eq!(trace.count(entity), 300_000 - dropped);
    }
    let full: u64 = sites.iter().filter_map(|site| site.dropped.get("disk-full")).sum();
    // What a busy machine drains too late does not come as far as to the disk: its drops are others.
    assert!(full > 0 && loss.recorded > 10_000, "{full} {}", loss.recorded);
    // The account is on the disk all the same.
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out.join("loss.json")).unwrap()).unwrap();
    assert_eq!(json["recorded"], loss.recorded);
}

/// Starts a recording of `streams` on a disk, and leaves only what it has set aside there.
fn on_a_full_disk(lab: &Lab, out: &Path, streams: &[StreamSpec]) -> Collector {
    let mut collector = Collector::new(out, lab::identity(), None).unwrap();
    collector.add_source(&lab.runtime(), None, streams).unwrap();
    assert!(lab.tallied(lab::emit(), "burst 900").status().unwrap().success());
    collector.poll().unwrap();
    fill(out);
    collector
}

/// Takes all the room that is left.
fn fill(out: &Path) {
    let mut ballast = File::options().append(true).create(true).open(out.with_extension("ballast"));
    let filled = ballast.as_mut().unwrap().write_all(&vec![1; 8 << 20]);
    assert!(filled.is_err(), "the disk is not full");
}

/// What is given back to a full disk, others may take: the account does not need it.
#[test]
fn an_account_beside_others_who_take_all_room() {
    let stream = StreamSpec { subbuffer: 8192, subbuffers: 8, ..StreamSpec::default() };
    let lab = Lab::new(&stream);
    let small = lab.out().with_file_name("small");
    let Some(_mount) = Small::mount(&small, 2048) else { return };
    let out = small.join("out");
    let collector = on_a_full_disk(&lab, &out, &[stream]);
    // With a second name nothing of them is free again when they are removed.
    for reserve in [".reserve-account", ".reserve-metadata"] {
        std::fs::hard_link(out.join(reserve), small.join(reserve)).unwrap();
    }
    let loss = collector.finish().unwrap().into_stream(MAIN);
    assert!(loss.unwritten.is_empty(), "{:?}", loss.problems);
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out.join("loss.json")).unwrap()).unwrap();
    assert_eq!((&json["emitted"], loss.emitted), (&900.into(), 900));
    assert!(!out.join(".reserve-account").exists());
}

/// Accounts that there is no room for at all are handed over whole, and no half of them is left.
#[test]
fn accounts_that_find_no_room() {
    let sizes = StreamSpec { subbuffer: 8192, subbuffers: 8, ..StreamSpec::default() };
    let kind = Kind::FlightRecorder;
    let streams = [sizes.clone(), StreamSpec { name: "flight".into(), kind, ..sizes }];
    let lab = Lab::with(&streams);
    let small = lab.out().with_file_name("small");
    let Some(_mount) = Small::mount(&small, 4096) else { return };
    let out = small.join("out");
    let collector = on_a_full_disk(&lab, &out, &streams);
    for folder in [out.clone(), out.join("streams/flight")] {
        for reserve in [".reserve-account", ".reserve-metadata"] {
            std::fs::remove_file(folder.join(reserve)).unwrap();
        }
    }
    fill(&out);
    let loss = collector.finish().unwrap().into_stream(MAIN);
    let names = ["loss.json", "streams/flight/loss.json", "streams/flight/triggers.json"];
    assert!(loss.unwritten.keys().eq(&names), "{:?} {:?}", loss.unwritten.keys(), loss.problems);
    assert!(names.iter().all(|name| !out.join(name).exists()));
    let json = |name: &str| -> serde_json::Value {
        serde_json::from_slice(&loss.unwritten[name]).unwrap()
    };
    let main = json("loss.json");
    assert_eq!((&main["emitted"], &main["recorded"]), (&900.into(), &loss.recorded.into()));
    assert_eq!(json("streams/flight/loss.json")["emitted"], 900);
    assert_eq!(loss.emitted, 900);
}

/// Room comes back: so do the records, and what was lost is told by the packets.
#[test]
fn a_disk_that_has_room_again() {
    let stream = StreamSpec { subbuffer: 1024, subbuffers: 1024, ..StreamSpec::default() };
    let lab = Lab::new(&stream);
    let small = lab.out().with_file_name("small");
    let Some(_mount) = Small::mount(&small, 4096) else { return };
    let out = small.join("out");
    let mut collector = Collector::new(&out, lab::identity(), None).unwrap();
    collector.add_source(&lab.runtime(), None, &[stream]).unwrap();
    // What is left is what the collector has set aside.
    let ballast = small.join("ballast");
    let filled = std::fs::write(&ballast, vec![1; 8 << 20]);
    assert!(filled.is_err(), "the disk is not full");
    let mut child = lab.tallied(lab::emit(), "alarms 2 40000 3000").spawn().unwrap();
    let mut copied = 0;
    while copied < 400 {
        copied += collector.poll().unwrap().copied;
    }
    std::fs::remove_file(&ballast).unwrap();
    for round in 0..2 {
        std::fs::write(format!("{}-go-{round}", lab.tally().display()), "").unwrap();
    }
    while child.try_wait().unwrap().is_none() {
        collector.poll().unwrap();
    }
    let loss = collector.finish().unwrap().into_stream(MAIN);
    let trace = check(&out, &loss);
    let lost: u64 = loss.processes[0].sites.iter().filter_map(|s| s.dropped.get("disk-full")).sum();
    assert!(lost > 0 && trace.count("tally:hit") > 1000);
    assert_eq!((loss.emitted, trace.discarded), (83_002, loss.dropped));
    assert!(trace.ids("tally:hit").contains(&82_999));
}
