//! Solver and online estimator in virtual time: a follower whose rate wanders, delays that nobody
//! promises anything about, losses. Truth must lie inside the hard width, everywhere.

use std::sync::atomic::{AtomicU32, Ordering};

use loopscope_clocksync::exchange::{Exchange, Pair};
use loopscope_clocksync::offline::{Cause, Solution, SolveError, solve};
use loopscope_clocksync::online::{Change, Online, What};
use loopscope_clocksync::{Message, Span, Way};
use loopscope_time::{Counter, Frequency};
use proptest::prelude::*;

const FOLLOWER_HZ: u64 = 2_596_094_000;
const REFERENCE_HZ: u64 = 3_000_000_000;
const WANDER: f64 = 1e-6;

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + self.unit() * (high - low)
    }
}

/// Global time against the follower's counter: a mean rate, and pieces whose rate differs from it
/// by at most the wander.
struct Truth {
    /// Begin of the piece, in ticks after `START` and in nanoseconds after the first, and its rate.
    pieces: Vec<(f64, f64, f64)>,
}

/// Counters begin somewhere.
const START: u64 = 77_000_000_000_000;
/// Global time there, on the reference's own counter.
const START_NS: f64 = 5_000_000_000_123.0;

impl Truth {
    fn new(random: &mut Random, ppm: f64, seconds: f64, wander: f64) -> Truth {
        let nominal = 1e9 / FOLLOWER_HZ as f64;
        let mean = nominal * (1.0 + ppm * 1e-6);
        let end = (seconds + 10.0) * FOLLOWER_HZ as f64;
        let (mut x, mut y) = (-10.0 * FOLLOWER_HZ as f64, -10.0e9);
        let mut pieces = Vec::new();
        while x < end {
            // A wander that keeps to one side for long is the worst.
            let away = match random.next() % 4 {
                0 => wander,
                1 => -wander,
                _ => random.between(-wander, wander),
            };
            let rate = mean * (1.0 + away * 0.999);
            pieces.push((x, y, rate));
            let ticks = (random.between(0.001, seconds) * FOLLOWER_HZ as f64).floor();
            x += ticks;
            y += ticks * rate;
        }
        Truth { pieces }
    }

    fn at(&self, counter: Counter) -> f64 {
        let x = counter.ticks_since(Counter(START)) as f64;
        let piece = self.pieces.partition_point(|p| p.0 <= x).saturating_sub(1);
        let (x0, y0, rate) = self.pieces[piece];
        y0 + (x - x0) * rate
    }

    /// The follower's reading at an instant.
    fn reading(&self, ns: f64) -> Counter {
        let piece = self.pieces.partition_point(|p| p.1 <= ns).saturating_sub(1);
        let (x0, y0, rate) = self.pieces[piece];
        Counter(START.saturating_add_signed((x0 + (ns - y0) / rate).floor() as i64))
    }
}

/// The reference's reading at an instant.
fn reference(ns: f64) -> Counter {
    Counter(((START_NS + ns) * REFERENCE_HZ as f64 / 1e9).floor() as u64)
}

/// One direction's delays: a least one and what comes on top, in nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Path {
    least: f64,
    jitter: f64,
}

impl Path {
    fn delay(&self, random: &mut Random) -> f64 {
        // Mostly short, sometimes very long.
        let unit = random.unit();
        self.least + self.jitter * unit * unit * unit
    }
}

#[derive(Clone, Copy, Debug)]
struct Scenario {
    seed: u64,
    ppm: f64,
    seconds: f64,
    /// How far the follower's rate strays from its mean.
    wander: f64,
    forth: Path,
    back: Path,
    loss: f64,
    /// Largest width of a stamp, in nanoseconds.
    stamp: f64,
}

impl Scenario {
    fn run(&self) -> (Truth, Vec<Exchange>) {
        let mut random = Random(self.seed);
        let truth = Truth::new(&mut random, self.ppm, self.seconds, self.wander);
        let mut exchanges = Vec::new();
        let mut at = 0.0;
        while at < self.seconds * 1e9 {
            exchanges.push(self.exchange(&mut random, &truth, at));
            // Bursts of 1 ms gaps at both ends, 10/s between.
            let burst = at < 50e6 || at > self.seconds * 1e9 - 50e6;
            at += if burst { 1e6 } else { random.between(50e6, 150e6) };
        }
        (truth, exchanges)
    }

    fn exchange(&self, random: &mut Random, truth: &Truth, t1: f64) -> Exchange {
        let t2 = t1 + self.forth.delay(random);
        let t3 = t2 + random.between(1e3, 1e5);
        let t4 = t3 + self.back.delay(random);
        let mut span = |clock: &dyn Fn(f64) -> Counter, ns: f64| {
            let (before, after) =
                (random.between(0.0, self.stamp), random.between(0.0, self.stamp));
            let span = Span { lo: clock(ns - before), hi: clock(ns + after) };
            (random.unit() >= self.loss / 4.0).then_some(span)
        };
        let follower = |ns| truth.reading(ns);
        let mut exchange = Exchange {
            t1: span(&follower, t1),
            t2: span(&reference, t2),
            t3: span(&reference, t3),
            t4: span(&follower, t4),
            ..Exchange::default()
        };
        if random.unit() < self.loss {
            // The probe never came.
            exchange = Exchange { t1: exchange.t1, ..Exchange::default() };
        } else if random.unit() < self.loss {
            exchange.t4 = None;
        }
        exchange
    }
}

fn solved(exchanges: &[Exchange]) -> Solution {
    let hz = |hz| Frequency::from_hz(hz).unwrap();
    solve(exchanges, &[], hz(FOLLOWER_HZ), hz(REFERENCE_HZ), WANDER).unwrap()
}

/// Whether losses left what a solution needs.
fn enough(exchanges: &[Exchange]) -> bool {
    let probes = exchanges.iter().filter(|e| e.t1.is_some() && e.t2.is_some()).count();
    let replies = exchanges.iter().filter(|e| e.t3.is_some() && e.t4.is_some()).count();
    probes >= 2 && replies >= 2
}

/// How far truth is outside the width at a counter (negative: inside), in nanoseconds.
fn outside(truth: &Truth, solution: &Solution, counter: Counter) -> f64 {
    let (ts, bound) = solution.map.map(counter);
    let error = (ts.0 as f64 - START_NS) - truth.at(counter);
    // Truth itself is computed in floating point.
    error.abs() - bound.ns() as f64 - 0.01
}

fn is_path(change: &Change) -> bool {
    matches!(change.what, What::Path { .. })
}

fn path() -> impl Strategy<Value = Path> {
    // A direction without any delay puts truth at the very edge of the width.
    let least = prop_oneof![Just(0.0), 0.0..1e3f64, 1e3..1e6f64];
    (least, prop_oneof![Just(0.0), 0.0..1e7f64]).prop_map(|(least, jitter)| Path { least, jitter })
}

fn scenario() -> impl Strategy<Value = Scenario> {
    let lossy = prop_oneof![Just(0.0), 0.0..0.6f64];
    let stamp = prop_oneof![Just(0.0), 0.0..2e3f64];
    (any::<u64>(), -450.0..450.0f64, 0.3..20.0f64, path(), path(), lossy, stamp).prop_map(
        |(seed, ppm, seconds, forth, back, loss, stamp)| Scenario {
            seed,
            ppm,
            seconds,
            wander: WANDER,
            forth,
            back,
            loss,
            stamp,
        },
    )
}

/// Scenarios in which a step was seen that was none. Whether a clock stepped is decided by statistics
/// (`steps.rs`), and delays that vary by milliseconds can look like a step of a microsecond: in about
/// one of 8000 such scenarios. That costs an epoch; the bounds hold all the same.
static FALSE_STEPS: AtomicU32 = AtomicU32::new(0);

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn truth_is_inside_the_hard_width_everywhere(scenario in scenario()) {
        let (truth, exchanges) = scenario.run();
        prop_assume!(enough(&exchanges));
        let solution = solved(&exchanges);
        prop_assert_eq!(&solution.rejected[..], &[][..]);
        if !solution.disturbances.is_empty() {
            let so_far = FALSE_STEPS.fetch_add(1, Ordering::Relaxed) + 1;
            let most = 1 + ProptestConfig::default().cases / 1000;
            prop_assert!(so_far <= most, "{so_far} false steps: {:?}", solution.disturbances);
        }
        prop_assert_eq!(solution.unbelievable_ppm, None);
        let mut random = Random(scenario.seed ^ 1);
        let end = scenario.seconds * 1e9;
        let anywhere = (0..400).map(|_| truth.reading(random.between(-5e9, end + 5e9)));
        let at_knots = solution.map.knots().iter().map(|k| k.counter);
        let probed = exchanges.iter().filter_map(|e| e.t1).map(|span| span.lo);
        for counter in anywhere.chain(at_knots).chain(probed) {
            let ns = outside(&truth, &solution, counter);
            prop_assert!(ns <= 0.0, "{ns} ns outside the width at {counter:?}");
        }
    }

    /// And while the run goes on, at any instant that is asked for with what was known by then, and
    /// some time after.
    #[test]
    fn truth_is_inside_the_width_online(scenario in scenario()) {
        let (truth, exchanges) = scenario.run();
        let mut online = Online::follower(
            Frequency::from_hz(FOLLOWER_HZ).unwrap(),
            Frequency::from_hz(REFERENCE_HZ).unwrap(),
            WANDER,
        );
        let mut random = Random(scenario.seed ^ 3);
        for exchange in &exchanges {
            online.see(exchange);
            let Some(seen) = exchange.t4.or(exchange.t1) else { continue };
            let state = online.state(seen.hi);
            prop_assert_eq!(state.epoch, 0);
            for later_s in [0.0, 0.1, random.between(0.0, 20.0)] {
                let own = Counter(seen.hi.0 + (later_s * FOLLOWER_HZ as f64) as u64);
                let Some((told, bound)) = online.to_global(own) else { continue };
                let true_ns = START_NS + truth.at(own);
                let error = told.0 as f64 - true_ns;
                prop_assert!(error.abs() <= bound.ns() as f64 + 0.01, "{error} for {bound}");
                // The state of before says the same of this instant, no more exactly.
                let since = own.ticks_since(state.anchor) as f64 * state.ns_per_tick;
                let best = state.global.0 as f64 + state.fraction_ns + since;
                let wide = since.abs() * state.drift + 0.01;
                prop_assert!(true_ns >= best - state.below_ns - wide);
                prop_assert!(true_ns <= best + state.above_ns + wide);
            }
        }
        prop_assert_eq!(online.changes().iter().filter(|c| !is_path(c)).count(), 0);
    }

    /// An interval measured on the follower alone differs from the truth by no more than the map's
    /// bound on it.
    #[test]
    fn intervals_of_one_host_keep_their_bound(scenario in scenario()) {
        let (truth, exchanges) = scenario.run();
        prop_assume!(enough(&exchanges));
        let map = solved(&exchanges).map;
        let mut random = Random(scenario.seed ^ 2);
        for _ in 0..100 {
            let begin = random.between(0.0, scenario.seconds * 1e9);
            let end = begin + random.between(0.0, 1e9);
            let (a, b) = (truth.reading(begin), truth.reading(end));
            let measured = map.map(b).0 - map.map(a).0;
            let error = measured as f64 - (truth.at(b) - truth.at(a));
            prop_assert!(error.abs() <= map.interval_bound(measured).ns() as f64 + 0.5);
        }
    }

    /// Without load, and an oscillator as calm as they are, the maximum error is half of the least
    /// round trip, and what the wander adds over half a gap: once for the interval, once for a
    /// guess that is not in its middle.
    #[test]
    fn a_quiet_network_gives_a_narrow_width(
        seed: u64, ppm in -100.0..100.0f64, forth in 0.0..1e5f64, back in 0.0..1e5f64,
    ) {
        let quiet = |least| Path { least, jitter: 0.0 };
        let scenario = Scenario {
            seed,
            ppm,
            seconds: 20.0,
            wander: 1e-8,
            forth: quiet(forth),
            back: quiet(back),
            loss: 0.0,
            stamp: 0.0,
        };
        let (truth, exchanges) = scenario.run();
        prop_assume!(enough(&exchanges));
        let solution = solved(&exchanges);
        let gap_ns = 150e6 + 1e6;
        // The range of mean rates: the least round trip over the run, and the wander.
        let drift = 2.0 * WANDER + (forth + back) / 20e9;
        let found = solution.map.drift().unwrap();
        prop_assert!(found <= 1.1 * drift, "{found}");
        let widest = (forth + back) / 2.0 + 2.0 * 1.1 * drift * gap_ns / 2.0 + 3.0;
        let mut random = Random(seed ^ 1);
        for _ in 0..200 {
            let counter = truth.reading(random.between(0.0, 20e9 - 1e8));
            let (_, bound) = solution.map.map(counter);
            prop_assert!((bound.ns() as f64) <= widest, "{bound} for {widest}");
        }
    }

    /// The estimates say the same as the map.
    #[test]
    fn estimates_are_the_knots(scenario in scenario()) {
        let (_, exchanges) = scenario.run();
        prop_assume!(enough(&exchanges));
        let solution = solved(&exchanges);
        prop_assert_eq!(solution.estimates.len(), solution.map.knots().len());
        let rows = solution.estimates.iter();
        for (row, next) in rows.clone().zip(rows.skip(1)) {
            let (ts, bound) = solution.map.map(row.counter);
            let scaled = row.counter.0 as f64 * 1e9 / FOLLOWER_HZ as f64;
            // Some days of nanoseconds in a double are good to 1/64 ns.
            prop_assert!((scaled + row.offset_ns - ts.0 as f64).abs() <= 0.6);
            prop_assert!((row.err_ns - bound.ns() as f64).abs() <= 1.6);
            let ns = next.counter.ticks_since(row.counter) as f64 * 1e9 / FOLLOWER_HZ as f64;
            let step = next.offset_ns - row.offset_ns;
            prop_assert!((step - row.rate_ppm * 1e-6 * ns).abs() <= 0.1);
        }
    }
}

/// With an oscillator as calm as they are.
fn symmetric(seconds: f64) -> Scenario {
    let path = Path { least: 1e3, jitter: 1e3 };
    Scenario {
        seed: 5,
        ppm: 30.0,
        seconds,
        wander: 2e-8,
        forth: path,
        back: path,
        loss: 0.0,
        stamp: 50.0,
    }
}

/// Shifts what the reference says of exchanges.
fn lie(exchanges: &mut [Exchange], ticks: i64) {
    for exchange in exchanges {
        for span in [&mut exchange.t2, &mut exchange.t3].into_iter().flatten() {
            span.lo.0 = span.lo.0.saturating_add_signed(ticks);
            span.hi.0 = span.hi.0.saturating_add_signed(ticks);
        }
    }
}

/// Share of a run's instants whose time is not known; asserts that the others are right.
fn unknown(truth: &dyn Fn(Counter) -> f64, own: &[Counter], solution: &Solution) -> f64 {
    let mut unknown = 0;
    for &counter in own {
        let (ts, bound) = solution.map.map(counter);
        unknown += usize::from(!bound.is_known());
        let error = (ts.0 as f64 - START_NS) - truth(counter);
        assert!(error.abs() <= bound.ns() as f64 + 0.01, "{error} ns at {counter:?}, {bound}");
    }
    unknown as f64 / own.len() as f64
}

/// A reference that jumps in mid-run: two epochs, and between the probes that tell them apart
/// nothing is mapped. Forwards and back, far and near.
#[test]
fn a_jump_of_the_reference_begins_an_epoch() {
    for jump_ns in [1e6, -1e6, 15e3, -15e3] {
        let (truth, mut exchanges) = symmetric(20.0).run();
        let middle = exchanges.len() / 2;
        let ticks = (jump_ns * REFERENCE_HZ as f64 / 1e9) as i64;
        lie(&mut exchanges[middle..], ticks);
        let solution = solved(&exchanges);
        let [disturbance] = solution.disturbances[..] else {
            panic!("{:?}", solution.disturbances);
        };
        assert!(solution.rejected.is_empty());
        let Cause::Step(ns) = disturbance.cause else { panic!("{disturbance:?}") };
        assert!((ns - jump_ns).abs() < 1e3, "{ns} for {jump_ns}");
        let jumped = exchanges[middle].t1.unwrap().lo;
        assert!(disturbance.from < jumped && jumped <= disturbance.until, "{disturbance:?}");
        assert_eq!(solution.map.epoch(disturbance.from), Some(0));
        assert_eq!(solution.map.epoch(disturbance.until), Some(1));
        let own: Vec<Counter> = (0..20_000).map(|i| truth.reading(i as f64 * 1e6)).collect();
        let global = |c: Counter| truth.at(c) + if c < jumped { 0.0 } else { jump_ns };
        let unknown = unknown(&global, &own, &solution);
        // At 10 exchanges a second.
        assert!(unknown > 0.0 && unknown < 0.03, "{unknown}");
    }
}

/// Exchanges that cannot be, among good ones: left out, and nothing else changes.
#[test]
fn impossible_exchanges_are_rejected_and_change_nothing() {
    let (truth, exchanges) = symmetric(20.0).run();
    let own: Vec<Counter> = (0..20_000).map(|i| truth.reading(i as f64 * 1e6)).collect();
    let plain = solved(&exchanges);
    for at in [0, 1, 70, exchanges.len() / 2, exchanges.len() - 20] {
        for ns in [-3_000_000.0, -20_000.0, 20_000.0, 3_000_000.0] {
            let mut exchanges = exchanges.clone();
            lie(&mut exchanges[at..=at], (ns * REFERENCE_HZ as f64 / 1e9) as i64);
            let solution = solved(&exchanges);
            assert_eq!(solution.disturbances, [], "exchange {at} off by {ns} ns");
            assert_eq!(solution.rejected.len(), 1, "exchange {at} off by {ns} ns");
            assert_eq!(unknown(&|c| truth.at(c), &own, &solution), 0.0);
            // But for what this exchange itself would have told.
            let widths = |s: &Solution| own.iter().map(|&c| s.map.map(c).1.ns()).sum::<u64>();
            assert!(widths(&solution) as f64 <= 1.01 * widths(&plain) as f64);
        }
    }
}

/// The last exchange of all might be the first one after a step: who maps on would be guessing.
#[test]
fn a_contradiction_at_the_end_leaves_the_end_open() {
    let (truth, mut exchanges) = symmetric(20.0).run();
    let last = exchanges.len() - 1;
    lie(&mut exchanges[last..], 1_000_000);
    let solution = solved(&exchanges);
    assert_eq!(solution.disturbances.len(), 1);
    assert_eq!(solution.map.epoch(truth.reading(19e9)), Some(0));
    assert!(!solution.map.map(truth.reading(21e9)).1.is_known());
}

#[test]
fn a_rate_beyond_belief_is_said() {
    let (_, exchanges) = Scenario { ppm: 700.0, ..symmetric(20.0) }.run();
    let ppm = solved(&exchanges).unbelievable_ppm.unwrap();
    assert!((ppm - 700.0).abs() < 2.0, "{ppm}");
}

/// Messages of programs are constraints as any other: one whose time of travel is next to nothing
/// narrows the width where it was sent.
#[test]
fn messages_of_programs_narrow_the_width() {
    let path = Path { least: 40e3, jitter: 0.0 };
    let (truth, exchanges) = Scenario { forth: path, back: path, ..symmetric(20.0) }.run();
    let hz = |hz| Frequency::from_hz(hz).unwrap();
    let width = |messages: &[Message]| {
        let solution =
            solve(&exchanges, messages, hz(FOLLOWER_HZ), hz(REFERENCE_HZ), WANDER).unwrap();
        let counter = truth.reading(10.001e9);
        assert!(outside(&truth, &solution, counter) <= 0.0);
        solution.map.map(counter).1.ns()
    };
    let message = |way, sent: f64, received: f64| {
        let (own, there) = if way == Way::Forward { (sent, received) } else { (received, sent) };
        let span = |c: Counter| Span { lo: c, hi: c };
        let (own, reference) = (span(truth.reading(own)), span(reference(there)));
        Message { way, own, reference, quality: Pair::Distorted }
    };
    let there = message(Way::Forward, 10e9, 10e9 + 100.0);
    let back = message(Way::Back, 10.002e9, 10.002e9 + 100.0);
    let (alone, with) = (width(&[]), width(&[there, back]));
    assert!(alone > 39_000 && with < 300, "±{alone} ns, ±{with} ns");
}

/// What arrives distorted bounds, and does not speak for the path.
#[test]
fn distorted_pairs_only_bound() {
    let (truth, mut exchanges) = symmetric(20.0).run();
    // Every second probe overtakes what its pair stood behind: 700 ns less than the path takes.
    for exchange in exchanges.iter_mut().step_by(2) {
        let t2 = exchange.t2.as_mut().unwrap();
        (t2.lo.0, t2.hi.0) = (t2.lo.0 - 2_100, t2.hi.0 - 2_100);
    }
    let mut error = |quality: Pair| {
        for exchange in exchanges.iter_mut().step_by(2) {
            exchange.forward = quality;
        }
        let counter = truth.reading(10e9);
        (solved(&exchanges).map.map(counter).0.0 as f64 - START_NS - truth.at(counter)).abs()
    };
    let (alone, distorted) = (error(Pair::Alone), error(Pair::Distorted));
    assert!(alone > 250.0 && distorted < 150.0, "{alone} ns, {distorted} ns");
}

#[test]
fn too_little_is_an_error_that_says_what_to_do() {
    let (_, exchanges) = symmetric(20.0).run();
    let hz = |hz| Frequency::from_hz(hz).unwrap();
    let few = |exchanges: &[Exchange]| {
        solve(exchanges, &[], hz(FOLLOWER_HZ), hz(REFERENCE_HZ), WANDER).unwrap_err()
    };
    assert_eq!(few(&[]), SolveError::TooFew { probes: 0, replies: 0 });
    assert_eq!(few(&exchanges[..1]), SolveError::TooFew { probes: 1, replies: 1 });
    let one_way: Vec<Exchange> =
        exchanges.iter().map(|e| Exchange { t3: None, t4: None, ..*e }).collect();
    let error = few(&one_way);
    assert_eq!(error, SolveError::TooFew { probes: exchanges.len(), replies: 0 });
    assert!(error.to_string().contains("let the probes run longer"));
    let wander = solve(&exchanges, &[], hz(FOLLOWER_HZ), hz(REFERENCE_HZ), f64::NAN).unwrap_err();
    assert!(matches!(wander, SolveError::BadWander(_)));
}

/// Lost replies leave their probes to use: with no complete exchange at all there is a map.
#[test]
fn one_way_messages_count() {
    let (truth, exchanges) = symmetric(20.0).run();
    let halves: Vec<Exchange> = exchanges
        .iter()
        .enumerate()
        .map(|(i, e)| match i % 2 {
            0 => Exchange { t3: None, t4: None, ..*e },
            _ => Exchange { t1: None, t2: None, ..*e },
        })
        .collect();
    let solution = solved(&halves);
    assert_eq!(solution.exchanges, halves.len());
    let counter = truth.reading(10e9);
    assert!(outside(&truth, &solution, counter) <= 0.0);
    assert!(solution.map.map(counter).1.ns() < 3_000);
}
