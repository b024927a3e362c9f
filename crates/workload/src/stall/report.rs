//! What became of the stalls.

use std::fmt;

use anyhow::Result;
use serde_json::{Value, json};

use super::taking::{Stall, Taken};
use crate::result;

pub(super) struct Report {
    pub(super) stalls: Vec<Stall>,
    pub(super) length_ns: u64,
    pub(super) cpu: Option<usize>,
    /// 0: ordinary.
    pub(super) priority: i32,
}

impl Report {
    pub(super) fn print(&self, json: bool) -> Result<()> {
        result::report(json, &self.to_json(), self)
    }

    fn to_json(&self) -> Value {
        json!({
            "version": 1,
            "program": "stall",
            "cpu": self.cpu,
            "policy": if self.priority > 0 { "fifo" } else { "other" },
            "priority": self.priority,
            "length_ns": self.length_ns,
            "skipped": self.skipped(),
            "stalls": self.stalls,
        })
    }

    fn skipped(&self) -> usize {
        self.stalls.iter().filter(|stall| stall.taken.is_none()).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ns: u64| ns as f64 / 1e6;
        for Stall { id, intended_ns, taken } in &self.stalls {
            write!(f, "stall {id}: due at {:.3} ms", ms(*intended_ns))?;
            match taken {
                Some(Taken { begin_ns, end_ns, cpu_ns }) => writeln!(
                    f,
                    ", began {:.3} ms late, took {:.3} ms, {:.3} ms of them on the CPU",
                    ms(begin_ns - intended_ns),
                    ms(end_ns - begin_ns),
                    ms(*cpu_ns)
                )?,
                None => writeln!(f, ", skipped: the thread woke too late")?,
            }
        }
        let done = self.stalls.len() - self.skipped();
        write!(f, "stall: {done} of {:.3} ms, {} skipped, ", ms(self.length_ns), self.skipped())?;
        match self.priority {
            0 => f.write_str("by an ordinary thread")?,
            priority => write!(f, "at SCHED_FIFO priority {priority}")?,
        }
        match self.cpu {
            Some(cpu) => write!(f, " on CPU {cpu}"),
            None => Ok(()),
        }
    }
}
