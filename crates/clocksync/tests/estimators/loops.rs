//! Loops of three hosts in virtual time: h2 and h3 follow h1, and h3 probes h2 too.

use crate::scenario::{Asymmetry, Follower, HZ, Network, QUIET, Scenario, frequency};
use loopscope_clocksync::Span;
use loopscope_clocksync::exchange::Exchange;
use loopscope_clocksync::loops::{Edge, Reckoning, Residual, Survey};
use loopscope_clocksync::offline::{CLAIM, DEFAULT_WANDER, Solution, solve};
use loopscope_clocksync::online::Online;
use loopscope_time::Counter;

const FORWARD: Asymmetry = Asymmetry { ns: 100e3, since: 0.0 };

/// What passed on the edges h2-h1, h3-h1 and h3-h2.
struct Triangle([Follower; 3]);

impl Triangle {
    /// A triangle with one scenario for each edge; the edge between the followers is probed seldom.
    fn of(seed: u64, [second, third, between]: [Scenario; 3]) -> Triangle {
        let between = Scenario { rate_hz: 10.0, ..between };
        Triangle([
            second.edge(seed, 0, ["h2", "h1"]),
            third.edge(seed, 1, ["h3", "h1"]),
            between.edge(seed, 2, ["h3", "h2"]),
        ])
    }

    fn survey(&self) -> Survey {
        let [second, third, between] = self.0.each_ref().map(|edge| solved(&edge.exchanges));
        let edge = Edge {
            host: &third.map,
            peer: &second.map,
            peer_frequency: frequency(),
            between: &between.map,
        };
        edge.survey()
    }

    /// The residual of each exchange between the followers, as it is known then.
    fn online(&self) -> Vec<Option<Residual>> {
        let [second, third, between] = &self.0;
        let mut known = [second, third].map(|follower| {
            let online = Online::follower(frequency(), frequency(), DEFAULT_WANDER);
            (online, follower.completed.iter().peekable())
        });
        let mut residual = |when: Counter, exchange: &Exchange| {
            for (online, next) in &mut known {
                while let Some((_, exchange)) = next.next_if(|(known, _)| *known <= when) {
                    online.see(exchange);
                }
            }
            let [peer, own] = [&known[0].0, &known[1].0];
            let theirs = Reckoning::of(peer, exchange.t2?)?;
            Residual::of(own, exchange, theirs, frequency())
        };
        between.completed.iter().map(|(when, exchange)| residual(*when, exchange)).collect()
    }
}

fn solved(exchanges: &[Exchange]) -> Solution {
    solve(exchanges, &[], frequency(), frequency(), DEFAULT_WANDER).unwrap()
}

fn median(residuals: &[Option<Residual>]) -> f64 {
    let mut all: Vec<f64> = residuals.iter().flatten().map(|r| r.ns).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Where all is as it is assumed to be there is no contradiction, whatever the paths do; and the
/// calibrated widths cover what they claim.
#[test]
fn residuals_are_inside_their_widths() {
    let (mut covered, mut known) = (0, 0);
    let networks = [Network::Idle, Network::Cold, Network::ColdBusy, Network::Loaded];
    for (seed, network) in (1..).zip(networks.into_iter().cycle().take(12)) {
        let lossy = Scenario { loss: 0.3, network, seconds: 30.0, ..QUIET };
        let triangle = Triangle::of(seed, [lossy; 3]);
        let survey = triangle.survey();
        assert_eq!((survey.instants, survey.unknown), (10_000, 0), "{network:?}");
        assert_eq!(survey.contradictions, 0, "{network:?}: {survey:?}");
        let figures = survey.figures.unwrap();
        assert!(figures.p99_ns < 1_000.0 && figures.max_ns < figures.hard_ns, "{figures:?}");
        covered += survey.covered;
        known += survey.instants;

        let online = triangle.online();
        let told = online.iter().flatten().count();
        // Without a stamp of its sending, or before the first exchanges of both, there is none.
        assert!(4 * told > 3 * online.len(), "{told} of {}", online.len());
        let wrong = online.iter().flatten().filter(|r| r.is_contradiction()).count();
        assert_eq!(wrong, 0, "{network:?}");
    }
    let share = covered as f64 / known as f64;
    assert!(share >= CLAIM, "{share}");
}

/// An edge whose one way takes 100 µs longer is not known by anybody, but shows by half of that:
/// the loop cannot tell which of its edges it is.
#[test]
fn half_of_an_asymmetry_shows_whichever_edge_has_it() {
    for asymmetric in 0..3 {
        let mut edges = [Scenario { seconds: 30.0, ..QUIET }; 3];
        edges[asymmetric].asymmetry = FORWARD;
        let triangle = Triangle::of(7, edges);
        let survey = triangle.survey();
        let figures = survey.figures.unwrap();
        assert!((figures.p50_ns - 50e3).abs() < 500.0, "{asymmetric}: {figures:?}");
        assert_eq!((survey.contradictions, survey.covered), (0, 0), "{asymmetric}: {survey:?}");
        let online = triangle.online();
        let median = median(&online).abs();
        assert!((median - 50e3).abs() < 1e3, "{asymmetric}: {median}");
        assert!(online.iter().flatten().all(|r| !r.is_contradiction()), "{asymmetric}");
    }
}

/// Stamps of the reference that lie all along make a map that agrees with itself. Only the loop
/// tells.
#[test]
fn a_wrong_clock_is_a_contradiction() {
    let mut triangle = Triangle::of(11, [Scenario { seconds: 30.0, ..QUIET }; 3]);
    let lie = |span: &mut Option<Span>| {
        if let Some(span) = span {
            // 5 µs, a few of the three widths.
            let ticks = HZ / 200_000;
            *span = Span { lo: Counter(span.lo.0 + ticks), hi: Counter(span.hi.0 + ticks) };
        }
    };
    let third = &mut triangle.0[1];
    let known = third.completed.iter_mut().map(|(_, exchange)| exchange);
    for exchange in third.exchanges.iter_mut().chain(known) {
        lie(&mut exchange.t2);
        lie(&mut exchange.t3);
    }
    assert!(solved(&triangle.0[1].exchanges).disturbances.is_empty());
    let survey = triangle.survey();
    assert_eq!((survey.unknown, survey.contradictions), (0, survey.instants), "{survey:?}");
    let span = survey.contradicted.unwrap();
    assert!(span.width() > 29 * HZ as i64, "{span:?}");
    let online = triangle.online();
    let wrong = online.iter().flatten().filter(|r| r.is_contradiction()).count();
    assert!(wrong > online.len() / 2, "{wrong} of {}", online.len());
}

/// Where one of the three was disturbed there is no residual, and no contradiction is made up.
#[test]
fn a_disturbed_clock_leaves_instants_unknown() {
    let calm = Scenario { seconds: 30.0, ..QUIET };
    let step = Scenario { step: Some((15.0, 1e6, 0)), ..calm };
    let survey = Triangle::of(3, [calm, step, step]).survey();
    assert!(survey.unknown > 0 && survey.unknown < survey.instants / 20, "{survey:?}");
    assert_eq!(survey.contradictions, 0, "{survey:?}");
}
