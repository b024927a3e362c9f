//! Hidden clocks and the page. A host of the local testbed with a synthetic clock estimates the
//! synthetic counter; programs read the true one, and cannot be given the hidden map. Nearly
//! straight as it is, the state's line and it make one line.

use loopscope_time::Counter;

use crate::state::State;

/// The same state on the machine's true counter. `apply` is the hidden map from true to synthetic
/// counters, in whole ticks; `invert` gives the first true counter that has at least a synthetic
/// one. `bend`: between the anchor's surroundings and expiry the hidden map's rate changes by no
/// more than this share of itself.
///
/// `None` where the line expires before it begins.
pub fn on_true_counter(
    state: &State,
    apply: impl Fn(Counter) -> Counter,
    invert: impl Fn(Counter) -> Counter,
    bend: f64,
) -> Option<State> {
    let (anchor, expires) = (invert(state.anchor), invert(state.expires));
    let (start, end) = (apply(anchor), apply(expires));
    let (ticks, synthetic) = (expires.ticks_since(anchor), end.ticks_since(start));
    if ticks <= 0 || synthetic <= 0 {
        return None;
    }
    let rate = state.ns_per_tick * (synthetic as f64 / ticks as f64);
    // The start, relative to the anchor, which need not be a value of the map.
    let late = start.ticks_since(state.anchor) as f64;
    let fraction = state.fraction_ns + late * state.ns_per_tick;
    // A synthetic counter is cut to whole ticks, so between any two lies up to a tick more or less
    // than their distance has; the drift is that of a line which begins `late` ticks earlier.
    let cut = state.ns_per_tick * (1.0 + (late.abs() + 2.0) * state.drift);
    // A tick at each end of the chord, spread over it, and the rounding of the rate.
    let chord = 2.0 / synthetic as f64 + 8.0 * f64::EPSILON;
    Some(State {
        anchor,
        since: invert(state.since),
        stale: invert(state.stale.min(state.expires)),
        expires,
        global: loopscope_time::GlobalNs(state.global.0 + fraction.floor() as i64),
        fraction_ns: fraction - fraction.floor(),
        below_ns: state.below_ns + cut,
        above_ns: state.above_ns + cut,
        calibrated_ns: state.calibrated_ns + cut,
        ns_per_tick: rate,
        drift: (state.drift + bend + chord) * (1.0 + bend),
        ..*state
    })
}
