//! What the load came to.

use std::fmt;

use anyhow::Result;
use serde_json::{Value, json};

use super::Kind;
use super::compile::Processes;
use super::cpu::Thread;
use super::disk::Disk;
use super::load::{Done, Report};
use crate::result;

impl Report<'_> {
    pub(super) fn print(&self) -> Result<()> {
        result::report(self.load.json, &self.to_json(), self)
    }

    fn threads(&self) -> impl Iterator<Item = &Thread> {
        self.done.iter().filter_map(|done| match done {
            Done::Thread(thread) => Some(thread),
            _ => None,
        })
    }

    fn rows(&self) -> impl Iterator<Item = &Processes> {
        self.done.iter().filter_map(|done| match done {
            Done::Processes(row) => Some(row),
            _ => None,
        })
    }

    fn disk(&self) -> Option<&Disk> {
        self.done.iter().find_map(|done| match done {
            Done::Disk(disk) => Some(disk),
            _ => None,
        })
    }

    /// Share of one CPU used by all of them.
    fn share(&self) -> f64 {
        (self.own.total_s() + self.children.total_s()) / self.wall_s
    }

    fn processes(&self) -> Option<Processes> {
        if self.load.kind != Kind::Compile {
            return None;
        }
        Some(self.rows().fold(Processes::default(), |sum, row| Processes {
            processes: sum.processes + row.processes,
            cut: sum.cut + row.cut,
            written_bytes: sum.written_bytes + row.written_bytes,
            wall_s: sum.wall_s.max(row.wall_s),
        }))
    }

    fn to_json(&self) -> Value {
        json!({
            "version": 1,
            "program": "burn",
            "kind": self.load.kind.name(),
            "asked_share": self.load.share,
            "wall_s": self.wall_s,
            "cpu": {"own": self.own, "processes": self.children, "share": self.share()},
            "threads": self.threads().collect::<Vec<_>>(),
            "compile": self.processes(),
            "disk": self.disk(),
        })
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.load.kind.name();
        for (number, thread) in self.threads().enumerate() {
            write!(f, "{kind} {number}: {:.3} s of CPU in {:.3} s", thread.cpu_s, thread.wall_s)?;
            if thread.wall_s > 0.0 {
                write!(f, ", share {:.2} %", thread.cpu_s / thread.wall_s * 100.0)?;
            }
            if let Some(deviation) = thread.shares.deviation {
                write!(f, " (deviation {:.2} % from period to period)", deviation * 100.0)?;
            }
            if let Some(lines) = thread.lines {
                write!(f, ", {:.1} million cache lines/s", lines as f64 / thread.wall_s * 1e-6)?;
            }
            writeln!(f, ", asked for {:.2} %", self.load.share * 100.0)?;
        }
        if let Some(all) = self.processes() {
            let rate = all.processes as f64 / self.wall_s;
            writeln!(
                f,
                "compile: {} processes, {rate:.1}/s, {} cut off by the end, {:.3} MB/s written, \
                 {:.3} s of CPU",
                all.processes,
                all.cut,
                all.written_bytes as f64 / self.wall_s * 1e-6,
                self.children.total_s()
            )?;
        }
        if let Some(disk) = self.disk() {
            let rate = |bytes: u64| bytes as f64 / disk.wall_s * 1e-6;
            write!(
                f,
                "disk: {:.3} MB/s written, {:.3} MB/s read, {} fsync, {:.1}/s",
                rate(disk.written_bytes),
                rate(disk.read_bytes),
                disk.syncs,
                disk.syncs as f64 / disk.wall_s
            )?;
            if disk.syncs > 0 {
                write!(
                    f,
                    ", {:.3} ms each, longest {:.3} ms",
                    disk.sync_s / disk.syncs as f64 * 1e3,
                    disk.longest_sync_s * 1e3
                )?;
            }
            writeln!(f)?;
        }
        write!(f, "burn: {:.3} s, {:.1} % of a CPU in all", self.wall_s, self.share() * 100.0)
    }
}
