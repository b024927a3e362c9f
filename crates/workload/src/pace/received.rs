//! The account of what was received. Sans-I/O.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::distribution::Times;
use super::order::{Ranges, Reordering};
use super::packet::{End, Head};

/// At most so many ranges of lost packets are listed.
const LISTED: usize = 1000;

#[derive(Debug, Default)]
struct Process {
    came: Ranges,
    reordering: Reordering,
    received: u64,
    duplicates: u64,
    end: Option<End>,
}

impl Process {
    fn lost(&self) -> Vec<(u64, u64)> {
        self.came.missing(self.end.map_or(0, |end| end.sent).max(self.came.end()))
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Second {
    packets: u64,
    bytes: u64,
}

/// All that came. Times are nanoseconds since 1970.
#[derive(Debug)]
pub(super) struct Received {
    run: Option<u32>,
    processes: BTreeMap<u16, Process>,
    pub(super) packets: u64,
    pub(super) bytes: u64,
    /// Packets that are not ours, or of another run.
    pub(super) foreign: u64,
    /// The kernel's count of what its buffer for this socket had no room for.
    pub(super) socket_drops: u64,
    /// Packets that the kernel did not stamp: the program's own stamp served.
    pub(super) unstamped: u64,
    first: Option<i64>,
    last: Option<i64>,
    /// Arrival and intended time of the packet before.
    before: Option<(i64, i64)>,
    interval_error: Times,
    /// RFC 3550 §6.4.1, in nanoseconds.
    jitter: f64,
    delay: Times,
    least_delay: i64,
    negative_delays: u64,
    burst: u64,
    longest_burst: u64,
    seconds: Vec<Second>,
}

impl Received {
    pub(super) fn new() -> Received {
        Received {
            run: None,
            processes: BTreeMap::new(),
            packets: 0,
            bytes: 0,
            foreign: 0,
            socket_drops: 0,
            unstamped: 0,
            first: None,
            last: None,
            before: None,
            interval_error: Times::new(),
            jitter: 0.0,
            delay: Times::new(),
            least_delay: i64::MAX,
            negative_delays: 0,
            burst: 0,
            longest_burst: 0,
            seconds: Vec::with_capacity(1024),
        }
    }

    /// Whether `run` is the one that is received: the first one that comes.
    fn ours(&mut self, run: u32) -> bool {
        let ours = *self.run.get_or_insert(run) == run;
        self.foreign += u64::from(!ours);
        ours
    }

    /// A packet came at `at`; `false` if it is of another run.
    pub(super) fn packet(&mut self, head: &Head, at: i64) -> bool {
        if !self.ours(head.run) {
            return false;
        }
        let process = self.processes.entry(head.process).or_default();
        process.received += 1;
        if !process.came.add(head.sequence) {
            process.duplicates += 1;
            return true;
        }
        process.reordering.add(head.sequence);
        self.packets += 1;
        self.bytes += u64::from(head.size);
        self.interval(at, head.intended);
        let delay = at.saturating_sub(head.intended);
        self.least_delay = self.least_delay.min(delay);
        self.negative_delays += u64::from(delay < 0);
        self.delay.add(delay.max(0).cast_unsigned());
        let first = *self.first.get_or_insert(at);
        self.last = self.last.max(Some(at));
        // A clock that is set may make this a number of seconds that nobody can list.
        let second = usize::try_from((at - first) / 1_000_000_000).unwrap_or(0).min(1 << 20);
        if self.seconds.len() <= second {
            self.seconds.resize(second + 1, Second::default());
        }
        self.seconds[second].packets += 1;
        self.seconds[second].bytes += u64::from(head.size);
        true
    }

    fn interval(&mut self, at: i64, intended: i64) {
        self.burst += 1;
        if let Some((at_before, intended_before)) = self.before {
            let (was, meant) = (at - at_before, intended - intended_before);
            let error = (was - meant).unsigned_abs();
            self.interval_error.add(error);
            self.jitter += (error as f64 - self.jitter) / 16.0;
            if was.saturating_mul(4) >= meant {
                self.burst = 1;
            }
        }
        self.longest_burst = self.longest_burst.max(self.burst);
        self.before = Some((at, intended));
    }

    /// A process has said what it sent; `false` if it is of another run.
    pub(super) fn end(&mut self, end: End) -> bool {
        let ours = self.ours(end.run);
        if ours {
            self.processes.entry(end.process).or_default().end = Some(end);
        }
        ours
    }

    /// Every process has said its end.
    pub(super) fn ended(&self) -> bool {
        let ends: Vec<End> = self.processes.values().filter_map(|process| process.end).collect();
        ends.first().is_some_and(|end| end.processes == ends.len() as u64)
    }

    /// Nothing is missing of what the ends tell of.
    pub(super) fn complete(&self) -> bool {
        self.ended() && self.processes.values().all(|process| process.lost().is_empty())
    }

    /// The sender's boot, if it has told it.
    fn boot(&self) -> Option<[u8; 16]> {
        self.processes.values().find_map(|process| process.end).map(|end| end.boot)
    }

    /// The result; `boot` is this machine's, `clock_set` whether its clock was set meanwhile.
    pub(super) fn result(&self, boot: [u8; 16], clock_set: bool) -> Value {
        let processes = self.processes.values();
        let lost: Vec<Value> = self
            .processes
            .iter()
            .flat_map(|(number, process)| {
                process.lost().into_iter().map(move |range| json!([number, range.0, range.1]))
            })
            .collect();
        let lost_packets: u64 =
            processes.clone().flat_map(Process::lost).map(|(first, last)| last - first + 1).sum();
        let reordered: u64 = processes.clone().map(|process| process.reordering.count).sum();
        let extent = processes.clone().map(|process| process.reordering.largest_extent).max();
        let span = self.first.zip(self.last).map(|(first, last)| last - first);
        // Between packets: one less than there are.
        let rate = |amount: u64| {
            let seconds = span.filter(|&span| span > 0)? as f64 / 1e9;
            let share = (self.packets - 1) as f64 / self.packets as f64;
            Some(amount as f64 * share / seconds)
        };
        let same_clock = self.boot().map(|theirs| theirs == boot && boot != [0; 16] && !clock_set);
        let mut delay = json!(self.delay.percentiles());
        if let Some(delay) = delay.as_object_mut() {
            delay.insert("min".into(), self.least_delay.into());
            delay.insert("negative".into(), self.negative_delays.into());
            delay.insert("same_clock".into(), same_clock.into());
        }
        let sent: u64 =
            processes.clone().filter_map(|process| process.end).map(|end| end.sent).sum();
        json!({
            "program": "pace receive",
            "version": 1,
            "complete": self.ended(),
            "processes": self.processes.len(),
            "sent": self.ended().then_some(sent),
            "received": self.packets,
            "bytes": self.bytes,
            "lost": lost_packets,
            "lost_ratio": (self.packets + lost_packets > 0)
                .then(|| lost_packets as f64 / (self.packets + lost_packets) as f64),
            "lost_ranges": &lost[..lost.len().min(LISTED)],
            "lost_ranges_omitted": lost.len().saturating_sub(LISTED),
            "duplicates": processes.map(|process| process.duplicates).sum::<u64>(),
            "reordered": {"packets": reordered, "largest_extent": extent.unwrap_or(0)},
            "foreign": self.foreign,
            "socket_drops": self.socket_drops,
            "unstamped": self.unstamped,
            "seconds": span.map(|span| span as f64 / 1e9),
            "packets_s": rate(self.packets),
            "bit_s": rate(8 * self.bytes),
            "interval_error_ns": self.interval_error.percentiles(),
            "longest_burst": self.longest_burst,
            "jitter_ns": self.before.map(|_| self.jitter),
            "delay_ns": delay,
            "per_second": self.seconds.iter().enumerate().map(|(number, second)| json!({
                "second": number, "packets": second.packets, "bytes": second.bytes,
            })).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(process: u16, sequence: u64, intended: i64) -> Head {
        let number = sequence + 1;
        Head { number, intended, sent: intended, sequence, process, run: 1, size: 100 }
    }

    fn end(process: u16, sent: u64, processes: u64) -> End {
        End { process, run: 1, sent, processes, boot: [7; 16] }
    }

    #[test]
    fn losses_duplicates_and_strangers_are_told_apart() {
        let mut received = Received::new();
        for (place, sequence) in [0, 1, 1, 4, 3, 9].into_iter().enumerate() {
            let at = 1_000_000 * place as i64;
            assert!(received.packet(&head(0, sequence, 1_000_000 * sequence as i64), at));
        }
        assert!(!received.packet(&Head { run: 2, ..head(0, 5, 0) }, 0));
        assert!(received.packet(&head(1, 0, 0), 6_000_000));
        assert!(received.end(end(0, 12, 2)));
        assert!(!received.ended());
        received.end(end(1, 1, 2));
        assert!(received.ended() && !received.complete());
        let result = received.result([7; 16], false);
        assert_eq!(result["received"], 6);
        assert_eq!(result["sent"], 13);
        assert_eq!(result["lost"], 7);
        assert_eq!(result["lost_ranges"], json!([[0, 2, 2], [0, 5, 8], [0, 10, 11]]));
        assert_eq!(result["duplicates"], 1);
        assert_eq!(result["foreign"], 1);
        assert_eq!(result["reordered"], json!({"packets": 1, "largest_extent": 1}));
        assert_eq!(result["delay_ns"]["same_clock"], true);
        assert_eq!(received.result([8; 16], false)["delay_ns"]["same_clock"], false);
        assert_eq!(received.result([7; 16], true)["delay_ns"]["same_clock"], false);
    }

    #[test]
    fn intervals_are_compared_with_what_was_meant() {
        let mut received = Received::new();
        // Each packet is 300 ns later than the one before should make it, the third one 10 us more.
        for sequence in 0..100_u64 {
            let intended = 100_000 * sequence as i64;
            let late = 300 * sequence as i64 + if sequence == 3 { 10_000 } else { 0 };
            received.packet(&head(0, sequence, intended), intended + late);
        }
        received.end(end(0, 100, 1));
        assert!(received.complete());
        let result = received.result([7; 16], false);
        assert_eq!(result["interval_error_ns"]["p50"], 300);
        assert_eq!(result["interval_error_ns"]["max"], 10_300);
        assert_eq!(result["delay_ns"]["min"], 0);
        assert_eq!(result["longest_burst"], 1);
        // A constant error of 300 ns is where the filter of RFC 3550 goes.
        let jitter = result["jitter_ns"].as_f64().unwrap();
        assert!((jitter - 300.0).abs() < 5.0, "{jitter}");
    }

    #[test]
    fn a_burst_is_seen() {
        let mut received = Received::new();
        let arrivals = [0, 100, 200, 600, 610, 620, 630, 700, 800];
        for (sequence, at) in arrivals.into_iter().enumerate() {
            received.packet(&head(0, sequence as u64, 100_000 * sequence as i64), 1000 * at);
        }
        assert_eq!(received.result([0; 16], false)["longest_burst"], 4);
    }
}
