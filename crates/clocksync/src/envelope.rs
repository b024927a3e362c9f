//! Bounds from scattered points for a function whose slope is bounded.
//!
//! `x` is in ticks: whole numbers held in an `f64`, exact up to 2⁵³.

/// A point (ticks, nanoseconds).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
}

impl Point {
    pub(crate) fn negated(self) -> Point {
        Point { y: -self.y, ..self }
    }

    pub(crate) fn slope_to(self, later: Point) -> f64 {
        (later.y - self.y) / (later.x - self.x)
    }
}

/// The function `x ↦ min_i(y_i + rho·|x − x_i|)`: the tightest upper bound that points above a
/// function of slope at most `±rho` give for it. Piecewise linear.
#[derive(Debug)]
pub(crate) struct Envelope {
    rho: f64,
    breaks: Vec<Point>,
}

impl Envelope {
    /// `points`: at least one, by ascending `x`.
    pub(crate) fn new(points: &[Point], rho: f64) -> Envelope {
        // Points that touch the envelope. That a point lies above another one's tent carries over
        // from point to point, so comparing with the last one kept is enough.
        let mut touching: Vec<Point> = Vec::new();
        for &point in points {
            let reach = |from: Point| from.y + rho * (point.x - from.x);
            if touching.last().is_some_and(|&last| point.y >= reach(last)) {
                continue;
            }
            while touching.last().is_some_and(|last| last.y >= point.y + rho * (point.x - last.x)) {
                touching.pop();
            }
            touching.push(point);
        }
        let mut breaks = Vec::with_capacity(2 * touching.len());
        for (i, &b) in touching.iter().enumerate() {
            if let Some(&a) = i.checked_sub(1).and_then(|before| touching.get(before)) {
                // Two points that both touch have rho > 0 between them. The peak goes to a whole
                // tick, which hides at most half a tick's rho of
                // its height.
                let x = (0.5 * (a.x + b.x) + (b.y - a.y) / (2.0 * rho)).round();
                if a.x < x && x < b.x {
                    let y = (a.y + rho * (x - a.x)).min(b.y + rho * (b.x - x));
                    breaks.push(Point { x, y });
                }
            }
            breaks.push(b);
        }
        Envelope { rho, breaks }
    }

    /// Where the slope changes, by ascending `x`.
    pub(crate) fn breaks(&self) -> &[Point] {
        &self.breaks
    }

    /// Its value at `x`.
    pub(crate) fn at(&self, x: f64) -> f64 {
        let after = self.breaks.partition_point(|p| p.x <= x);
        match (after.checked_sub(1).map(|i| self.breaks[i]), self.breaks.get(after)) {
            (Some(a), Some(b)) => a.y + (x - a.x) * a.slope_to(*b),
            (Some(a), None) => a.y + self.rho * (x - a.x),
            (None, Some(b)) => b.y + self.rho * (b.x - x),
            (None, None) => f64::INFINITY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn points(max: usize) -> impl Strategy<Value = Vec<Point>> {
        prop::collection::vec((0u32..2_000, -500.0..500.0f64), 1..max).prop_map(|raw| {
            let mut points: Vec<Point> =
                raw.into_iter().map(|(x, y)| Point { x: f64::from(x), y }).collect();
            points.sort_by(|a, b| a.x.total_cmp(&b.x));
            points
        })
    }

    proptest! {
        #[test]
        fn the_envelope_is_the_lowest_tent(
            points in points(30), rho in 0.001..2.0f64, x in -500i32..2_500,
        ) {
            let envelope = Envelope::new(&points, rho);
            let x = f64::from(x);
            let tent = |p: &Point| p.y + rho * (x - p.x).abs();
            let lowest = points.iter().map(tent).fold(f64::INFINITY, f64::min);
            let value = envelope.at(x);
            // Peaks lie on whole ticks, so one tick's worth of slope may be missing there.
            prop_assert!(value <= lowest + 1e-9, "{value} above {lowest}");
            prop_assert!(value >= lowest - rho - 1e-9, "{value} below {lowest}");
        }
    }
}
