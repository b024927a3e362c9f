//! A full disk: what it has no room for is counted, and the recording goes on.

mod lab;

use std::path::{Path, PathBuf};
use std::process::Command;

use lab::{Lab, Trace};
use loopscope_collect::{Collector, LossReport, MAIN, StreamSpec};

/// A small file system, until this is dropped.
struct Small(PathBuf);

impl Small {
    /// `None`, loudly, where it cannot be mounted.
    fn mount(dir: &Path, kib: u32) -> Option<Small> {
        std::fs::create_dir_all(dir).unwrap();
        let size = format!("size={kib}k");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(dir).output();
        if !mounted.as_ref().is_ok_and(|output| output.status.success()) {
            eprintln!("SKIPPED: needs root to mount a small file system: {mounted:?}");
            return None;
        }
        Some(Small(dir.to_owned()))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

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
    assert!(full > 10_000 && loss.recorded > 10_000, "{full} {}", loss.recorded);
    // The account is on the disk all the same.
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(out.join("loss.json")).unwrap()).unwrap();
    assert_eq!(json["recorded"], loss.recorded);
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
