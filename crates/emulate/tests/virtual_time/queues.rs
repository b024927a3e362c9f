//! What waits before a rate: within its limit, and dropped as its discipline says.

use std::collections::VecDeque;

use crate::links::{Probe, arrivals, departed, link, packets, run, settings};
use loopscope_emulate::model::{Drop, Fate, Outcome};
use loopscope_emulate::settings::{Limit, Settings};
use proptest::prelude::*;
use serde_json::json;

fn queued(bps: u64, queue: serde_json::Value) -> Settings {
    settings(json!({"rate_bps": bps, "queue": queue}))
}

proptest! {
    #[test]
    fn limits_are_kept_and_used(
        bps in 1_000_000u64..1_000_000_000,
        limit in prop_oneof![
            (1u64..20).prop_map(Limit::Packets),
            (1514u64..20_000).prop_map(Limit::Bytes),
            (1u64..5_000_000).prop_map(Limit::TimeNs),
        ],
        arrivals in arrivals(150),
    ) {
        let mut outcomes =
            run(&queued(bps, json!({"limit": limit})), 1, &packets(&arrivals));
        outcomes.sort_by_key(|outcome| outcome.number);
        for (index, outcome) in outcomes.iter().enumerate() {
            let now = outcome.enqueued;
            let waiting = outcomes[..index].iter().filter(|before| {
                before.fate == Fate::Departs && before.due > now
            });
            let (count, bytes) = waiting.fold((0, 0), |(count, bytes), before| {
                (count + 1, bytes + before.packet.size as u64)
            });
            let with = bytes + outcome.packet.size as u64;
            match outcome.fate {
                Fate::Departs if outcome.due > now => match limit {
                    Limit::Packets(limit) => prop_assert!(count < limit),
                    Limit::Bytes(limit) => prop_assert!(with <= limit),
                    Limit::TimeNs(limit) => prop_assert!(outcome.due.0 - now.0 <= limit),
                },
                Fate::Departs => {}
                Fate::Dropped(reason) => {
                    prop_assert_eq!(reason, Drop::Queue);
                    prop_assert_eq!(outcome.due, now);
                    match limit {
                        Limit::Packets(limit) => prop_assert_eq!(count, limit),
                        Limit::Bytes(limit) => prop_assert!(with > limit),
                        // It would have waited for what the bucket lacks of all that waits, which
                        // is at most all of it and at least that without a burst.
                        Limit::TimeNs(limit) => prop_assert!(
                            u128::from(with) * 8_000_000_000 > u128::from(limit) * u128::from(bps)
                        ),
                    }
                }
            }
        }
    }

    #[test]
    fn codel_is_that_of_the_rfc(
        bps in 5_000_000u64..200_000_000,
        target_ns in 1u64..2_000_000,
        more_ns in 0u64..4_000_000,
        packets_and_gaps in prop::collection::vec(
            (0u64..300_000, prop_oneof![Just(1514usize), 42usize..1514]), 1..800,
        ),
    ) {
        let interval_ns = target_ns + more_ns;
        let codel = json!({"codel": {"target_ns": target_ns, "interval_ns": interval_ns}});
        let settings = queued(bps, json!({"limit": {"packets": 100_000}, "discipline": codel}));
        let mut outcomes = run(&settings, 1, &packets(&packets_and_gaps));
        outcomes.sort_by_key(|outcome| outcome.number);
        let told = outcomes.iter().map(|outcome| (outcome.due.0, outcome.fate == Fate::Departs));
        let mut now = 0;
        let arrivals = packets_and_gaps.iter().map(|(gap, size)| {
            now += gap;
            (now, *size as u64)
        });
        let expected = Rfc8289::new(bps, target_ns, interval_ns).serve(arrivals.collect());
        prop_assert_eq!(told.collect::<Vec<_>>(), expected);
    }
}

/// RFC 8289, section 5, as it stands there, behind a token bucket of one frame: when each packet
/// left or was dropped, and which of the two.
struct Rfc8289 {
    bps: u128,
    target: i64,
    interval: i64,
    queue: VecDeque<(usize, i64, u64)>,
    fates: Vec<(u64, bool)>,
    first_above_time: i64,
    drop_next: i64,
    count: u32,
    lastcount: u32,
    dropping: bool,
}

struct Dequeued {
    packet: Option<(usize, i64, u64)>,
    ok_to_drop: bool,
}

impl Rfc8289 {
    fn new(bps: u64, target: u64, interval: u64) -> Rfc8289 {
        Rfc8289 {
            bps: bps.into(),
            target: target as i64,
            interval: interval as i64,
            queue: VecDeque::new(),
            fates: Vec::new(),
            first_above_time: 0,
            drop_next: 0,
            count: 0,
            lastcount: 0,
            dropping: false,
        }
    }

    fn serve(mut self, arrivals: Vec<(u64, u64)>) -> Vec<(u64, bool)> {
        const FRAME: u128 = 1514 * 8_000_000_000;
        self.fates = vec![(0, false); arrivals.len()];
        let mut coming = arrivals.into_iter().enumerate().peekable();
        // The bucket and the instant at which it held that.
        let (mut tokens, mut at) = (FRAME, 0u64);
        loop {
            if self.queue.is_empty() {
                let Some((index, (arrived, size))) = coming.next() else {
                    return self.fates;
                };
                self.queue.push_back((index, arrived as i64, size));
            }
            let (_, arrived, size) = self.queue[0];
            let begin = at.max(arrived as u64);
            tokens = FRAME.min(tokens + u128::from(begin - at) * self.bps);
            let wait = self.wait(tokens, size);
            at = begin + wait;
            tokens = FRAME.min(tokens + u128::from(wait) * self.bps);
            while let Some((index, (arrived, size))) = coming.next_if(|(_, next)| next.0 < at) {
                self.queue.push_back((index, arrived as i64, size));
            }
            let (index, _, size) = self.deque(at as i64).expect("a packet goes");
            // What survived may be larger than what was at the head.
            let wait = self.wait(tokens, size);
            at += wait;
            tokens =
                FRAME.min(tokens + u128::from(wait) * self.bps) - u128::from(size) * 8_000_000_000;
            self.fates[index] = (at, true);
            while let Some((index, (arrived, size))) = coming.next_if(|(_, next)| next.0 < at) {
                self.queue.push_back((index, arrived as i64, size));
            }
        }
    }

    fn wait(&self, tokens: u128, size: u64) -> u64 {
        let lacks = (u128::from(size) * 8_000_000_000).saturating_sub(tokens);
        u64::try_from(lacks.div_ceil(self.bps)).expect("it comes in time")
    }

    fn bytes(&self) -> u64 {
        self.queue.iter().map(|(_, _, size)| size).sum()
    }

    fn dodequeue(&mut self, now: i64) -> Dequeued {
        let mut r = Dequeued { packet: self.queue.pop_front(), ok_to_drop: false };
        let Some((_, tstamp, _)) = r.packet else {
            self.first_above_time = 0;
            return r;
        };
        let sojourn_time = now - tstamp;
        if sojourn_time < self.target || self.bytes() <= 1514 {
            self.first_above_time = 0;
        } else if self.first_above_time == 0 {
            self.first_above_time = now + self.interval;
        } else if now >= self.first_above_time {
            r.ok_to_drop = true;
        }
        r
    }

    fn control_law(&self, t: i64, count: u32) -> i64 {
        t + (self.interval as f64 / f64::from(count).sqrt()) as i64
    }

    fn drop(&mut self, now: i64, packet: Option<(usize, i64, u64)>) {
        let (index, ..) = packet.expect("one to drop");
        self.fates[index] = (now as u64, false);
    }

    fn deque(&mut self, now: i64) -> Option<(usize, i64, u64)> {
        let mut r = self.dodequeue(now);
        if self.dropping {
            if !r.ok_to_drop {
                self.dropping = false;
            }
            while now >= self.drop_next && self.dropping {
                self.drop(now, r.packet);
                self.count += 1;
                r = self.dodequeue(now);
                if !r.ok_to_drop {
                    self.dropping = false;
                } else {
                    self.drop_next = self.control_law(self.drop_next, self.count);
                }
            }
        } else if r.ok_to_drop {
            self.drop(now, r.packet);
            r = self.dodequeue(now);
            self.dropping = true;
            let delta = self.count - self.lastcount;
            self.count = 1;
            if delta > 1 && now - self.drop_next < 16 * self.interval {
                self.count = delta;
            }
            self.drop_next = self.control_law(now, self.count);
            self.lastcount = self.count;
        }
        r.packet
    }
}

/// 1000 bytes take a millisecond.
#[test]
fn limits_are_exact() {
    let left = |limit: serde_json::Value, arrivals: &[(u64, usize)]| {
        let settings = queued(8_000_000, json!({"limit": limit}));
        departed(&run(&settings, 1, &packets(arrivals))).len()
    };
    let two = [(0, 1514), (0, 1000)];
    assert_eq!(left(json!({"time-ns": 1_000_000}), &two), 2);
    assert_eq!(left(json!({"time-ns": 999_999}), &two), 1);
    // The place is free at the instant at which the one before leaves.
    assert_eq!(left(json!({"packets": 1}), &[(0, 1514), (0, 1000), (1_000_000, 1000)]), 3);
    assert_eq!(left(json!({"packets": 1}), &[(0, 1514), (0, 1000), (999_999, 1000)]), 2);
    assert_eq!(left(json!({"bytes": 2000}), &[(0, 1514), (0, 1000), (0, 1000), (0, 42)]), 3);
}

fn dropped_by(outcomes: &[Outcome<Probe>], reason: Drop) -> Vec<u64> {
    let dropped = outcomes.iter().filter(|outcome| outcome.fate == Fate::Dropped(reason));
    dropped.map(|outcome| outcome.due.0).collect()
}

/// Twice what the rate takes, without end: dropping begins after one interval above the target, and
/// its intervals shrink with the square root of their number.
#[test]
fn codel_drops_faster_and_faster() {
    let codel = json!({"codel": {"target_ns": 5_000_000, "interval_ns": 100_000_000}});
    let settings = queued(12_112_000, json!({"discipline": codel}));
    let outcomes = run(&settings, 1, &packets(&vec![(500_000, 1514); 1_500]));
    let drops = dropped_by(&outcomes, Drop::Codel);
    // One packet each millisecond: the wait grows by half a millisecond a packet.
    assert!((110_000_000..113_000_000).contains(&drops[0]), "{}", drops[0]);
    for (count, pair) in (1..).zip(drops.windows(2)).take(5) {
        let expected = 100e6 / f64::from(count).sqrt();
        let gap = (pair[1] - pair[0]) as f64;
        // Rounded up to the next packet.
        assert!((gap - expected).abs() <= 1.1e6, "{count}: {gap}");
    }
}

/// A standing queue below the target is nobody's harm.
#[test]
fn codel_lets_a_short_queue_stand() {
    let codel = json!({"codel": {"target_ns": 5_000_000, "interval_ns": 100_000_000}});
    let settings = queued(12_112_000, json!({"discipline": codel}));
    let mut arrivals = vec![(0, 1514); 4];
    arrivals.extend(vec![(1_000_000, 1514); 2_000]);
    let outcomes = run(&settings, 1, &packets(&arrivals));
    assert_eq!(departed(&outcomes).len(), arrivals.len());
}

/// A sender that fills the rate with a window of rate and round trip loses nothing.
#[test]
fn the_default_queue_holds_a_windowful() {
    for (bps, delay_ns) in [(1_000_000, 1_000_000), (720_000_000, 80_000_000), (10_000_000, 0)] {
        let settings = settings(json!({"rate_bps": bps, "delay_ns": delay_ns}));
        let window = (bps / 8 * 2 * delay_ns / 1_000_000_000 / 1514).max(100);
        let outcomes = run(&settings, 1, &packets(&vec![(0, 1514); window as usize]));
        assert_eq!(departed(&outcomes).len() as u64, window, "{bps} {delay_ns}");
        let Some(Limit::Bytes(limit)) = link(&settings, 1).needs().queue else {
            panic!("bytes");
        };
        assert!(limit >= window * 1514 && limit < 2 * window * 1514 + bps / 8, "{limit}");
        // The queue is not unlimited either.
        let flood = vec![(0, 1514); 2 * limit as usize / 1514];
        assert!(!dropped_by(&run(&settings, 1, &packets(&flood)), Drop::Queue).is_empty());
    }
}

/// The last of a flood leaves no later than is said beforehand, whatever holds it up.
#[test]
fn no_packet_stays_longer_than_the_longest() {
    let limits = [json!({"packets": 50}), json!({"bytes": 64_000}), json!({"time-ns": 50_000_000})];
    let queues = limits.map(|limit| json!({"limit": limit})).into_iter().chain([json!({})]);
    for queue in queues {
        let settings = settings(json!({
            "rate_bps": 10_000_000, "queue": queue, "delay_ns": 20_000_000,
            "jitter": {"distribution": "uniform", "ns": 1_000_000}
        }));
        let longest = link(&settings, 1).longest_ns();
        let outcomes = run(&settings, 1, &packets(&vec![(0, 1514); 400]));
        let stays = departed(&outcomes).iter().map(|o| o.due.0 - o.enqueued.0).collect::<Vec<_>>();
        let found = *stays.iter().max().unwrap();
        assert!(found <= longest, "{queue}: {found} > {longest}");
        // The bound is not far above it either: a run waits that long for packets under way at its
        // end.
        assert!(longest < 2 * found, "{queue}: {longest} is far from {found}");
    }
}
