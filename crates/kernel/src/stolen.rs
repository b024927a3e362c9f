//! The time in which a hypervisor did not let a processor run though it wanted to (`/proc/stat`,
//! proc(5)). There is no event of it: it is counted, in ticks of 10 ms.

use std::fs;
use std::path::Path;

use loopscope_time::source::read_counter;
use nix::unistd::{SysconfVar, sysconf};
use serde::{Deserialize, Serialize};

const COUNTS: &str = "/proc/stat";

/// Time that was stolen between two looks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stolen {
    /// The processor.
    pub processor: u32,
    /// The counter at the look before.
    pub from: u64,
    /// The counter at the look that found it.
    pub until: u64,
    /// How much, ns: within a tick of the kernel's count.
    pub ns: u64,
}

/// Looks at the counts now and then.
#[derive(Debug)]
pub(crate) struct Stealing {
    tick_ns: u64,
    /// The counter at the last look.
    looked: u64,
    /// Ticks of each processor until then.
    ticks: Vec<(u32, u64)>,
    pub(crate) found: Vec<Stolen>,
}

impl Stealing {
    /// `None` where there is no hypervisor that could, or it is not counted.
    pub(crate) fn begin() -> Option<Stealing> {
        let hypervised = fs::read_to_string("/proc/cpuinfo").ok()?.contains(" hypervisor");
        let in_second = sysconf(SysconfVar::CLK_TCK).ok()??;
        let tick_ns = 1_000_000_000 / u64::try_from(in_second).ok()?.max(1);
        let ticks = hypervised.then(|| counts(Path::new(COUNTS)))??;
        Some(Stealing { tick_ns, looked: read_counter().0, ticks, found: vec![] })
    }

    /// Looks again. What cannot be read is found at the next look.
    pub(crate) fn look(&mut self) {
        if let Some(now) = counts(Path::new(COUNTS)) {
            self.found_now(read_counter().0, now);
        }
    }

    fn found_now(&mut self, at: u64, now: Vec<(u32, u64)>) {
        for &(processor, ticks) in &now {
            // One that was offline at the last look is not known.
            let before = self.ticks.iter().find(|(of, _)| *of == processor);
            let more = before.map_or(0, |(_, before)| ticks.saturating_sub(*before));
            if more > 0 {
                let (from, ns) = (self.looked, more * self.tick_ns);
                self.found.push(Stolen { processor, from, until: at, ns });
            }
        }
        (self.looked, self.ticks) = (at, now);
    }
}

/// Stolen ticks by processor, from the text of `/proc/stat`; `None`: it cannot be read.
fn counts(path: &Path) -> Option<Vec<(u32, u64)>> {
    Some(parsed(&fs::read_to_string(path).ok()?))
}

fn parsed(text: &str) -> Vec<(u32, u64)> {
    // cpuN user nice system idle iowait irq softirq steal …
    const STEAL: usize = 8;
    let of_line = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split_ascii_whitespace();
        let processor = words.next()?.parse().ok()?;
        Some((processor, words.nth(STEAL - 1)?.parse().ok()?))
    };
    // That of all together has no number.
    text.lines().filter(|line| !line.starts_with("cpu ")).filter_map(of_line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "cpu  445871 151 61984 483630 2323 0 3236 304 0 0\n\
                        cpu0 191309 113 30584 273237 733 0 2148 136 0 0\n\
                        cpu1 254562 37 31399 210392 1590 0 1088 168 7 8\n\
                        intr 1234 5 6\nctxt 77\n";

    #[test]
    fn the_kernels_counts_are_read() {
        assert_eq!(parsed(TEXT), [(0, 136), (1, 168)]);
        assert_eq!(parsed("cpu0 1 2 3\n"), []);
    }

    #[test]
    fn what_was_stolen_between_two_looks_is_found() {
        let mut stealing =
            Stealing { tick_ns: 10_000_000, looked: 100, ticks: parsed(TEXT), found: vec![] };
        stealing.found_now(200, parsed(TEXT));
        stealing.found_now(300, vec![(0, 136), (1, 171), (2, 9)]);
        stealing.found_now(400, vec![(0, 137), (1, 171), (2, 10)]);
        let of = |processor, from, until, ns| Stolen { processor, from, until, ns };
        let wanted =
            [of(1, 200, 300, 30_000_000), of(0, 300, 400, 10_000_000), of(2, 300, 400, 10_000_000)];
        assert_eq!(stealing.found, wanted);
    }
}
