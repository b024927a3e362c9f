//! Coded pairs: whether two messages that left together came through undisturbed (Huygens,
//! NSDI'18).

use loopscope_time::Frequency;

use crate::Span;
use crate::exchange::{Exchange, Pair};

/// How far a pair's distances of leaving and arriving may differ, beyond the widths of the stamps.
/// On an idle veth pair 99 of 100 differ by less than 100 ns where caches are warm, and by up to
/// 1 µs where the first one found them cold.
pub const THRESHOLD_NS: f64 = 200.0;

/// Distances beyond it say nothing: two counters 200 ppm apart drift by 40 ns meanwhile.
pub const FARTHEST_NS: f64 = 200_000.0;

/// Probes 2n and 2n + 1 are a pair: the other one of `seq`.
pub fn partner(seq: u64) -> u64 {
    seq ^ 1
}

/// Judges both ways of a pair's exchanges, as far as their stamps are known.
pub fn judge(
    first: &mut Exchange,
    second: &mut Exchange,
    follower: Frequency,
    reference: Frequency,
) {
    let forward = leg([first.t1, second.t1], follower, [first.t2, second.t2], reference);
    let back = leg([first.t3, second.t3], reference, [first.t4, second.t4], follower);
    [first.forward, second.forward] = forward;
    [first.back, second.back] = back;
}

/// One way: when the two left and when they arrived. Of a pair that was distorted one was delayed
/// more, which tells nothing of the other.
fn leg(
    left: [Option<Span>; 2],
    sender: Frequency,
    arrived: [Option<Span>; 2],
    receiver: Frequency,
) -> [Pair; 2] {
    let (Some(left), Some(arrived)) = (distance(left, sender), distance(arrived, receiver)) else {
        return [Pair::Alone; 2];
    };
    let known_to = THRESHOLD_NS + left.1 + arrived.1;
    let stretched = arrived.0 - left.0;
    if left.0.abs() > FARTHEST_NS {
        [Pair::Alone; 2]
    } else if stretched > known_to {
        [Pair::Alone, Pair::Distorted]
    } else if stretched < -known_to {
        [Pair::Distorted, Pair::Alone]
    } else {
        [Pair::Clean; 2]
    }
}

/// Nanoseconds from the middle of the first to that of the second, and how well that is known.
fn distance(stamps: [Option<Span>; 2], clock: Frequency) -> Option<(f64, f64)> {
    let [Some(a), Some(b)] = stamps else { return None };
    let (least, most) = (b.lo.ticks_since(a.hi) as f64, b.hi.ticks_since(a.lo) as f64);
    let ns = clock.ns_per_tick();
    Some((0.5 * (least + most) * ns, 0.5 * (most - least) * ns))
}

#[cfg(test)]
mod tests {
    use loopscope_time::Counter;

    use super::*;

    fn hz(hz: u64) -> Frequency {
        Frequency::from_hz(hz).unwrap()
    }

    /// A stamp at `ns` of a counter, ±`width_ns`.
    fn stamp(ns: i64, width_ns: i64, clock: Frequency) -> Option<Span> {
        let ticks = |ns: i64| {
            Counter((ns.unsigned_abs() as u128 * clock.hz() as u128 / 1_000_000_000) as u64)
        };
        Some(Span { lo: ticks(ns - width_ns), hi: ticks(ns + width_ns) })
    }

    /// Two exchanges, 10 µs apart, whose second messages are delayed beyond their firsts'.
    fn pair(forward_ns: i64, back_ns: i64, width_ns: i64) -> [Exchange; 2] {
        let (f, r) = (hz(2_600_000_000), hz(1_000_000_000));
        let exchange = |at: i64, forward: i64, back: i64| Exchange {
            t1: stamp(at, width_ns, f),
            t2: stamp(9_000_000 + at + forward, width_ns, r),
            t3: stamp(9_020_000 + at + forward, width_ns, r),
            t4: stamp(20_500 + at + forward + back, width_ns, f),
            ..Exchange::default()
        };
        let at = 1_000_000_000;
        let mut pair =
            [exchange(at, 500, 500), exchange(at + 10_000, 500 + forward_ns, 500 + back_ns)];
        let [first, second] = &mut pair;
        judge(first, second, f, r);
        pair
    }

    fn judged(forward_ns: i64, back_ns: i64, width_ns: i64) -> ([Pair; 2], [Pair; 2]) {
        let [first, second] = pair(forward_ns, back_ns, width_ns);
        ([first.forward, second.forward], [first.back, second.back])
    }

    const CLEAN: [Pair; 2] = [Pair::Clean; 2];
    const SECOND_LATE: [Pair; 2] = [Pair::Alone, Pair::Distorted];
    const FIRST_LATE: [Pair; 2] = [Pair::Distorted, Pair::Alone];

    #[test]
    fn each_way_is_judged_by_itself() {
        assert_eq!(judged(0, 0, 0), (CLEAN, CLEAN));
        assert_eq!(judged(190, -190, 0), (CLEAN, CLEAN));
        assert_eq!(judged(210, 0, 0), (SECOND_LATE, CLEAN));
        assert_eq!(judged(0, -210, 0), (CLEAN, FIRST_LATE));
    }

    /// Only a distance that surely is another counts: stamps of ±100 ns may hide 400.
    #[test]
    fn wide_stamps_are_given_the_benefit_of_the_doubt() {
        assert_eq!(judged(590, 0, 100).0, CLEAN);
        assert_eq!(judged(610, 0, 100).0, SECOND_LATE);
    }

    #[test]
    fn what_is_not_known_or_too_far_apart_is_alone() {
        let [mut first, mut second] = pair(0, 0, 0);
        let (f, r) = (hz(2_600_000_000), hz(1_000_000_000));
        second.t4 = None;
        judge(&mut first, &mut second, f, r);
        assert_eq!((first.forward, first.back), (Pair::Clean, Pair::Alone));
        first.t1 = stamp(999_700_000, 0, f);
        judge(&mut first, &mut second, f, r);
        assert_eq!(first.forward, Pair::Alone);
        assert_eq!([partner(6), partner(7)], [7, 6]);
    }
}
