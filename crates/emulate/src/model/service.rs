//! When packets may leave the queue: a token bucket, or delivery opportunities.

use std::sync::Arc;

use loopscope_time::MonotonicNs;

use crate::traces;

/// Nanobits: what one bit per second gives in one nanosecond, so that no rate is rounded.
const NANOBITS: i128 = 8_000_000_000;
/// What passes at one opportunity.
const OPPORTUNITY: u64 = 1504;

/// How a queue is served.
#[derive(Clone, Debug)]
pub(crate) enum Service {
    /// At once.
    Wire,
    Bucket {
        bps: u64,
        /// In nanobits.
        burst: i128,
    },
    Opportunities {
        /// Milliseconds in a period, which is the last.
        at_ms: Arc<[u64]>,
        origin: MonotonicNs,
    },
}

/// How far a service is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum State {
    Wire {
        /// Nothing goes before.
        since: MonotonicNs,
    },
    Bucket {
        at: MonotonicNs,
        /// In nanobits at that instant; below zero after a packet above the burst.
        tokens: i128,
    },
    Opportunities {
        /// Number of the one in use, counted through all periods.
        number: u64,
        /// Bytes left of it.
        left: u64,
    },
}

impl Service {
    pub(crate) fn bucket(bps: u64, burst_bytes: u64) -> Service {
        Service::Bucket { bps, burst: i128::from(burst_bytes) * NANOBITS }
    }

    pub(crate) fn opportunities(at_ms: Vec<u64>, origin: MonotonicNs) -> Service {
        Service::Opportunities { at_ms: at_ms.into(), origin }
    }

    /// Bits per second of Ethernet frames in the long run; none: no limit.
    pub(crate) fn mean_bps(&self) -> Option<f64> {
        match self {
            Service::Wire => None,
            Service::Bucket { bps, .. } => Some(*bps as f64),
            Service::Opportunities { at_ms, .. } => Some(traces::mean_bps(at_ms)),
        }
    }

    /// Opportunities have their origin at `now`; whether this has any.
    pub(crate) fn restart(&mut self, now: MonotonicNs) -> bool {
        match self {
            Service::Opportunities { origin, .. } => *origin = now,
            Service::Wire | Service::Bucket { .. } => return false,
        }
        true
    }

    /// A full bucket, or the first opportunity.
    pub(crate) fn begin(&self, now: MonotonicNs) -> State {
        match self {
            Service::Wire => State::Wire { since: now },
            Service::Bucket { burst, .. } => State::Bucket { at: now, tokens: *burst },
            Service::Opportunities { .. } => State::Opportunities { number: 0, left: OPPORTUNITY },
        }
    }

    /// A state of this service as `next` has to go on with it.
    pub(crate) fn hand_over(&self, state: State, next: &Service, now: MonotonicNs) -> State {
        match (self, next, state) {
            (
                Service::Bucket { bps, burst },
                Service::Bucket { burst: next, .. },
                State::Bucket { at, tokens },
            ) => {
                State::Bucket { at: now, tokens: filled(tokens, *bps, *burst, at, now).min(*next) }
            }
            (
                Service::Opportunities { at_ms, .. },
                Service::Opportunities { at_ms: next, .. },
                state,
            ) if Arc::ptr_eq(at_ms, next) => state,
            _ => next.begin(now),
        }
    }

    /// When the next packet, there since `from`, may begin to leave.
    pub(crate) fn ready(&self, state: State, size: u64, from: MonotonicNs) -> MonotonicNs {
        match (self, state) {
            (Service::Wire, State::Wire { since }) => from.max(since),
            (Service::Bucket { bps, burst }, State::Bucket { at, tokens }) => {
                let from = from.max(at);
                let needed = (i128::from(size) * NANOBITS).min(*burst);
                from.plus(divided_up(needed - filled(tokens, *bps, *burst, at, from), *bps))
            }
            (Service::Opportunities { at_ms, origin }, State::Opportunities { number, .. }) => {
                instant(at_ms, *origin, first(at_ms, *origin, number, from))
            }
            _ => unreachable!("a state is its service's"),
        }
    }

    /// The packet goes as soon as it may; when its last byte is gone.
    pub(crate) fn serve(&self, state: &mut State, size: u64, from: MonotonicNs) -> MonotonicNs {
        let ready = self.ready(*state, size, from);
        match (self, state) {
            (Service::Wire, State::Wire { .. }) => ready,
            (Service::Bucket { bps, burst }, State::Bucket { at, tokens }) => {
                *tokens = filled(*tokens, *bps, *burst, *at, ready) - i128::from(size) * NANOBITS;
                *at = ready;
                ready
            }
            (Service::Opportunities { at_ms, origin }, State::Opportunities { number, left }) => {
                let begin = first(at_ms, *origin, *number, from);
                if begin != *number {
                    (*number, *left) = (begin, OPPORTUNITY);
                }
                let mut missing = carried(size);
                while missing > *left {
                    missing -= *left;
                    (*number, *left) = (*number + 1, OPPORTUNITY);
                }
                let done = instant(at_ms, *origin, *number);
                *left -= missing;
                if *left == 0 {
                    (*number, *left) = (*number + 1, OPPORTUNITY);
                }
                done
            }
            _ => unreachable!("a state is its service's"),
        }
    }
}

/// Tokens at `now`.
fn filled(tokens: i128, bps: u64, burst: i128, at: MonotonicNs, now: MonotonicNs) -> i128 {
    let passed = i128::from(now.0) - i128::from(at.0);
    burst.min(tokens + passed * i128::from(bps))
}

/// Nanoseconds until so many nanobits have come, rounded up: no packet leaves early.
fn divided_up(nanobits: i128, bps: u64) -> u64 {
    match u64::try_from(nanobits) {
        Ok(nanobits) => nanobits.div_ceil(bps),
        Err(_) if nanobits <= 0 => 0,
        Err(_) => {
            let bps = i128::from(bps);
            u64::try_from((nanobits + bps - 1) / bps).unwrap_or(u64::MAX)
        }
    }
}

/// What a frame takes of opportunities, which count as mahimahi's device sees a packet: without the
/// Ethernet header, with 4 bytes of its own.
fn carried(frame: u64) -> u64 {
    frame.saturating_sub(super::ETHERNET) + 4
}

/// When opportunity `number` is.
fn instant(at_ms: &[u64], origin: MonotonicNs, number: u64) -> MonotonicNs {
    let (count, period) = (at_ms.len() as u64, at_ms[at_ms.len() - 1]);
    let ms =
        (number / count).saturating_mul(period).saturating_add(at_ms[(number % count) as usize]);
    origin.plus(ms.saturating_mul(1_000_000))
}

/// The first opportunity from `number` on that is not before `from`.
fn first(at_ms: &[u64], origin: MonotonicNs, number: u64, from: MonotonicNs) -> u64 {
    if instant(at_ms, origin, number) >= from {
        return number;
    }
    let (count, period) = (at_ms.len() as u64, at_ms[at_ms.len() - 1]);
    let ms = from.0.saturating_sub(origin.0).div_ceil(1_000_000).max(1);
    // A period's last instant is also the next one's 0 ms, and comes first.
    let (whole, rest) = ((ms - 1) / period, (ms - 1) % period + 1);
    let first = whole * count + at_ms.partition_point(|at| *at < rest) as u64;
    first.max(number + 1)
}
