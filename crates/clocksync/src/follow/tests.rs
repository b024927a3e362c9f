use super::*;
use crate::synthetic::SplitMix64;

/// Minutes of exchanges whose round trips are short for a second, then long and
/// of any length, then of another path: what is kept does not grow.
#[test]
fn what_load_leaves_does_not_grow() {
    const HZ: f64 = 1e9;
    let mut follow = Follow::new(HZ);
    let mut random = SplitMix64::new(7);
    let mut changes = 0;
    let mut most = [0; 5];
    for number in 0..(if cfg!(debug_assertions) { 40_000 } else { 130_000 }) {
        let x = number as f64 * 1e7;
        let minute: u64 = number / 6000;
        let delay = match (number % 6000, minute % 3) {
            (..100, _) => 10_000.0,
            (_, 2) => 5_000_000.0 + random.below(300) as f64,
            _ => 100_000.0 + random.below(100_000_000) as f64,
        };
        for (way, sign) in [(Way::Forward, 1.0), (Way::Back, -1.0)] {
            let middle = Point { x, y: sign * delay };
            let edge = Point { x, y: sign * (delay + 50.0) };
            let constraint = Constraint { way, edge, middle: Some(middle) };
            changes += usize::from(follow.see(&constraint, [-1e-6, 1e-6]).is_some());
        }
        let kept = [
            follow.unusual.len(),
            follow.usual.len(),
            follow.recent.len(),
            follow.widths.len(),
            follow.window.forward.len() + follow.window.back.len(),
        ];
        most = std::array::from_fn(|i| most[i].max(kept[i]));
    }
    assert!(changes > 0, "the path changed");
    let limits = [RECENT, USUAL, RECENT, WIDTHS, 32 * MESSAGES];
    assert!(most.iter().zip(limits).all(|(most, limit)| *most <= limit), "{most:?}");
}

/// Exchanges 10 ms apart, sixteen of which make a window, with the delays of both ways that `delays`
/// gives for an exchange, and up to 2 us more. What is told of the path.
fn told(
    random: &mut SplitMix64,
    exchanges: u64,
    delays: impl Fn(u64, &mut SplitMix64) -> [f64; 2],
) -> Vec<PathChange> {
    let mut follow = Follow::new(1e9);
    let mut changes = Vec::new();
    for number in 0..exchanges {
        let x = number as f64 * EXCHANGE;
        let delays = delays(number, random);
        for (way, sign, delay) in [(Way::Forward, 1.0, delays[0]), (Way::Back, -1.0, delays[1])] {
            let y = sign * (delay + random.below(2000) as f64);
            let (middle, edge) = (Point { x, y }, Point { x, y: y + sign * 50.0 });
            let constraint = Constraint { way, edge, middle: Some(middle) };
            changes.extend(follow.see(&constraint, [-1e-5, 1e-5]));
        }
    }
    changes
}

const EXCHANGE: f64 = 1e7;
const BASE: f64 = 200_000.0;

/// The path changes at any place of a window, and load holds up some windows just before it. None of
/// these may be taken for the new path's: what is told has its size, its direction and its time.
#[test]
fn windows_before_a_change_are_not_of_the_new_path() {
    for seed in 0..200 {
        let mut random = SplitMix64::new(seed);
        let at = 640 + random.below(320);
        let loaded = at - 16 * random.below(4);
        let load: Vec<f64> = (0..8).map(|_| 2_500.0 + random.below(60_000) as f64).collect();
        let larger = if random.below(2) == 0 { 100_000.0 } else { -100_000.0 };
        let way = random.below(2) as usize;
        let changes = told(&mut random, 1600, |number, _| {
            let held =
                if (loaded..at).contains(&number) { load[(number / 16 % 8) as usize] } else { 0.0 };
            let mut delays = [BASE + held; 2];
            delays[way] += if number < at { 0.0 } else { larger };
            delays
        });
        assert_eq!(changes.len(), 1, "seed {seed}: {changes:?}");
        let PathChange { from, until, forward_ns, back_ns } = changes[0];
        let mut found = [forward_ns, back_ns];
        found[way] -= larger;
        assert!(found.iter().all(|left| left.abs() < 3_000.0), "seed {seed}: {changes:?}");
        let at = at as f64 * EXCHANGE;
        assert!(from < at && at <= until, "seed {seed}: {at:e} {changes:?}");
        assert!(until < at + 32.0 * EXCHANGE, "seed {seed}: {at:e} {changes:?}");
    }
}

/// Load makes all messages of many windows slower, each window by another time.
#[test]
fn load_is_no_change_of_the_path() {
    for seed in 0..50 {
        let mut random = SplitMix64::new(seed);
        let load: Vec<f64> = (0..40).map(|_| random.below(300_000) as f64).collect();
        let changes = told(&mut random, 1600, |number, _| {
            let held =
                if (640..1280).contains(&number) { load[(number / 16 - 40) as usize] } else { 0.0 };
            [BASE + held, BASE]
        });
        assert_eq!(changes, [], "seed {seed}");
    }
}
