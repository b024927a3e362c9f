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
