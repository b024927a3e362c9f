//! What a link achieved, compared with its settings: links.json (`schema/links.md`) and a table.

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use serde::Serialize;

use crate::mover::Losses;
use crate::router::Shown;
use crate::settings::{Document, Wait};

/// links.json.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// 1.
    pub version: u32,
    /// What moved the packets: `xdp`, `tap` or `netem`.
    pub mover: &'static str,
    /// Why that.
    pub why: String,
    /// How it waited.
    pub wait: Wait,
    /// By port.
    pub hosts: Vec<String>,
    /// What the ports lost before any link could take it.
    pub ports: Vec<PortReport>,
    /// Sights of frames that the account of what the kernel moved does not have; of other movers
    /// `None`: what they move they see.
    pub missed: Option<u64>,
    /// By link.
    pub links: Vec<Shown>,
    /// What went wrong and what to do, for people.
    pub problems: Vec<String>,
}

/// A port's part of the report.
#[derive(Clone, Debug, Serialize)]
pub struct PortReport {
    /// Behind it.
    pub host: String,
    /// The router's end.
    pub device: String,
    /// Lost there.
    pub lost: Losses,
}

impl Report {
    /// The report of a router that has ended.
    pub fn new(
        document: &Document,
        (mover, why): (&'static str, String),
        links: Vec<Shown>,
        lost: &[Losses],
        missed: Option<u64>,
        mut problems: Vec<String>,
    ) -> Report {
        let mut ports = Vec::new();
        for (port, lost) in document.ports.iter().zip(lost) {
            problems.extend(lost.advice(&port.device));
            let (host, device) = (port.host.clone(), port.device.clone());
            ports.push(PortReport { host, device, lost: *lost });
        }
        let hosts = document.ports.iter().map(|port| port.host.clone()).collect();
        let wait = document.wait;
        Report { version: 1, mover, why, wait, hosts, ports, missed, links, problems }
    }

    /// Writes links.json, all of it or nothing.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut text = serde_json::to_vec(self)?;
        text.push(b'\n');
        let mut partial = path.as_os_str().to_owned();
        partial.push(".part");
        std::fs::write(&partial, text)?;
        std::fs::rename(&partial, path)
    }

    /// For a terminal: a line for each link and its settings.
    pub fn table(&self) -> String {
        let mut rows = vec![
            ["link", "asked delay", "p50", "p99", "late p50", "late p99", "in", "out", "dropped"]
                .map(String::from),
        ];
        for link in &self.links {
            for segment in &link.segments {
                let dropped = segment.dropped;
                let reasons = [
                    ("mtu", dropped.mtu),
                    ("loss", dropped.loss),
                    ("queue", dropped.queue),
                    ("codel", dropped.codel),
                    ("moving", dropped.moving),
                    ("kernel", dropped.kernel),
                ];
                let said = reasons.iter().filter(|(_, count)| *count > 0);
                let said: Vec<_> = said.map(|(name, count)| format!("{name} {count}")).collect();
                let (delay, late) = (&segment.delay_ns, &segment.late_ns);
                rows.push([
                    format!("{} -> {}", link.from, link.to),
                    time(Some(segment.asked.delay_ns)),
                    time(delay.p50),
                    time(delay.p99),
                    time(late.p50),
                    time(late.p99),
                    segment.came.packets.to_string(),
                    segment.left.packets.to_string(),
                    if said.is_empty() { "0".into() } else { said.join(", ") },
                ]);
            }
        }
        let width = |i: usize| rows.iter().map(|row| row[i].len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
        let mut text = format!("mover {}: {}\n", self.mover, self.why);
        for row in &rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            let line = cells.collect::<Vec<_>>().join("  ");
            let _ = writeln!(text, "{}", line.trim_end());
        }
        for problem in &self.problems {
            let _ = writeln!(text, "warning: {problem}");
        }
        text
    }
}

/// With the unit that leaves a small number.
fn time(ns: Option<u64>) -> String {
    match ns {
        None => "-".into(),
        Some(ns) if ns < 1_000 => format!("{ns} ns"),
        Some(ns) if ns < 1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        Some(ns) if ns < 1_000_000_000 => format!("{:.3} ms", ns as f64 / 1e6),
        Some(ns) => format!("{:.3} s", ns as f64 / 1e9),
    }
}
