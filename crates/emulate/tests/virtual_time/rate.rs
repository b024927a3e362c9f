//! What passes a rate or opportunities: never more, and nothing later than it could.

use std::collections::VecDeque;
use std::io::Write as _;

use crate::links::{Event, What, arrivals, departed, packets, run, settings};
use loopscope_emulate::model::Fate;
use loopscope_emulate::settings::Settings;
use proptest::prelude::*;
use serde_json::json;

/// Nanobits of a byte: bits per second times nanoseconds.
const BYTE: u128 = 8_000_000_000;

fn rated(bps: u64, burst: u64) -> Settings {
    settings(json!({"rate_bps": bps, "burst_bytes": burst,
        "queue": {"limit": {"packets": 1_000_000}}}))
}

/// Rates and bursts by the instant from which they hold.
struct Asked(Vec<(u64, u64, u64)>);

impl Asked {
    /// What may pass from `from` to `to`, in nanobits, without the burst.
    fn rate(&self, from: u64, to: u64) -> u128 {
        let ends = self.0.iter().skip(1).map(|next| next.0).chain([u64::MAX]);
        let each = self.0.iter().zip(ends).map(|(&(begin, bps, _), end)| {
            u128::from(to.min(end).saturating_sub(from.max(begin))) * u128::from(bps)
        });
        each.sum()
    }

    /// The largest that held in that time.
    fn burst(&self, from: u64, to: u64) -> u128 {
        let ends = self.0.iter().skip(1).map(|next| next.0).chain([u64::MAX]);
        let within =
            self.0.iter().zip(ends).filter(|((begin, ..), end)| *begin <= to && *end >= from);
        within.map(|((.., burst), _)| u128::from(*burst) * BYTE).max().unwrap_or(0)
    }
}

proptest! {
    #[test]
    fn no_window_has_more_than_rate_and_burst(
        first in (100_000u64..1_000_000_000, 1514u64..9_000),
        later in prop::collection::vec(
            (any::<prop::sample::Index>(), 0u64..3_000_000, 100_000u64..1_000_000_000, 1514u64..9_000),
            0..3,
        ),
        arrivals in arrivals(100),
    ) {
        let mut events = packets(&arrivals);
        for (index, gap, bps, burst) in later {
            let set = Event { gap, what: What::Set(Box::new(rated(bps, burst))) };
            events.insert(index.index(events.len()), set);
        }
        let mut asked = Asked(vec![(0, first.0, first.1)]);
        let mut now = 0;
        for event in &events {
            now += event.gap;
            if let What::Set(settings) = &event.what {
                let burst = settings.burst_bytes.expect("a burst");
                asked.0.push((now, settings.rate_bps.expect("a rate"), burst));
            }
        }
        let outcomes = run(&rated(first.0, first.1), 1, &events);
        let passed = departed(&outcomes);
        prop_assert_eq!(passed.len(), arrivals.len());
        for (index, from) in passed.iter().enumerate() {
            let mut bits = 0;
            for to in &passed[index..] {
                bits += to.packet.size as u128 * BYTE;
                let most = asked.rate(from.due.0, to.due.0) + asked.burst(from.due.0, to.due.0);
                prop_assert!(bits <= most, "from {} to {}", from.due.0, to.due.0);
            }
        }
    }

    /// Each packet that had to wait would have broken the rate a nanosecond earlier.
    #[test]
    fn the_rate_is_used(
        bps in 100_000u64..1_000_000_000, burst in 1514u64..9_000, arrivals in arrivals(100),
    ) {
        let outcomes = run(&rated(bps, burst), 1, &packets(&arrivals));
        for (index, last) in outcomes.iter().enumerate().filter(|(_, last)| last.due > last.enqueued) {
            let mut bits = 0;
            let too_early = outcomes[..=index].iter().rev().any(|first| {
                bits += first.packet.size as u128 * BYTE;
                let window = u128::from(last.due.0.saturating_sub(1 + first.due.0));
                bits > window * u128::from(bps) + u128::from(burst) * BYTE
            });
            prop_assert!(too_early, "number {} at {}", last.number, last.due.0);
        }
    }

    #[test]
    fn opportunities_are_mahimahis(
        gaps in prop::collection::vec(0u64..4, 1..30), arrivals in arrivals(100),
    ) {
        let mut at_ms: Vec<u64> = gaps.iter().scan(0, |at, gap| { *at += gap; Some(*at) }).collect();
        if at_ms.last() == Some(&0) {
            at_ms.push(1);
        }
        let file = trace(&at_ms);
        let settings = settings(json!({"opportunities": file.path(),
            "queue": {"limit": {"packets": 1_000_000}}}));
        let outcomes = run(&settings, 1, &packets(&arrivals));
        // The trace begins with the first packet.
        let mut now = 0;
        let times: Vec<(u64, u64)> = arrivals.iter().map(|(gap, size)| {
            now += gap;
            (now, *size as u64 - 14 + 4)
        }).collect();
        let dues: Vec<u64> = outcomes.iter().map(|outcome| outcome.due.0).collect();
        prop_assert_eq!(dues, mahimahi(&at_ms, arrivals[0].0, &times));
    }
}

fn trace(at_ms: &[u64]) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    for ms in at_ms {
        writeln!(file, "{ms}").expect("written");
    }
    file
}

/// Its `LinkQueue::rationalize` (`src/frontend/link_queue.cc`), packet sizes as its tunnel sees them;
/// when each packet's last byte is delivered.
fn mahimahi(schedule: &[u64], base: u64, arrivals: &[(u64, u64)]) -> Vec<u64> {
    let mut delivered = Vec::new();
    let mut coming = arrivals.iter().peekable();
    let mut queue = VecDeque::new();
    let mut in_transit = 0;
    let (mut base, mut next) = (base, 0);
    while delivered.len() < arrivals.len() {
        let now = base + schedule[next] * 1_000_000;
        next = (next + 1) % schedule.len();
        if next == 0 {
            base += schedule[schedule.len() - 1] * 1_000_000;
        }
        while let Some((_, size)) = coming.next_if(|(at, _)| *at <= now) {
            queue.push_back(*size);
        }
        let mut left: u64 = 1504;
        while left > 0 {
            if in_transit == 0 {
                match queue.pop_front() {
                    Some(size) => in_transit = size,
                    None => break,
                }
            }
            let sent = left.min(in_transit);
            in_transit -= sent;
            left -= sent;
            if in_transit == 0 {
                delivered.push(now);
            }
        }
    }
    delivered
}

#[test]
fn a_packet_may_need_several_opportunities_and_small_ones_share_one() {
    let file = trace(&[10, 20, 20]);
    let settings = settings(json!({"opportunities": file.path()}));
    // 3000 bytes of packet, then three of 494 bytes.
    let arrivals = [(5, 3010), (0, 504), (0, 504), (0, 504)];
    let dues: Vec<u64> =
        run(&settings, 1, &packets(&arrivals)).iter().map(|outcome| outcome.due.0 - 5).collect();
    assert_eq!(dues, [20_000_000, 20_000_000, 20_000_000, 20_000_000]);
    let arrivals = [(0, 1514), (0, 1514), (0, 1514), (0, 1514)];
    let dues: Vec<u64> =
        run(&settings, 1, &packets(&arrivals)).iter().map(|outcome| outcome.due.0).collect();
    assert_eq!(dues, [10_000_000, 20_000_000, 20_000_000, 30_000_000]);
}

#[test]
fn a_packet_above_the_burst_waits_for_a_full_bucket_and_leaves_it_in_debt() {
    let settings = rated(8_000_000, 1514);
    let arrivals = [(0, 1514), (0, 6056), (0, 1000)];
    let dues: Vec<u64> =
        run(&settings, 1, &packets(&arrivals)).iter().map(|outcome| outcome.due.0).collect();
    assert_eq!(dues, [0, 1_514_000, 1_514_000 + (6056 - 1514 + 1000) * 1000]);
}

/// In virtual time a rate is exact in the long run, also where a bit takes no whole nanoseconds.
#[test]
fn no_rate_is_rounded() {
    let settings = rated(999_999_937, 1514);
    let outcomes = run(&settings, 1, &packets(&vec![(0, 1001); 100_000]));
    let last = outcomes.last().expect("packets").due.0;
    let bits = 100_000u128 * 1001 * BYTE - 1514 * BYTE;
    assert_eq!(u128::from(last), bits.div_ceil(999_999_937));
    assert!(outcomes.iter().all(|outcome| outcome.fate == Fate::Departs));
}
