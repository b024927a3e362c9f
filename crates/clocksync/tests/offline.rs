//! The solver in virtual time: a follower whose rate wanders, delays that nobody promises anything
//! about, losses. Truth must lie inside the hard width, everywhere.

use loopscope_clocksync::Span;
use loopscope_clocksync::offline::{Exchange, Solution, SolveError, solve};
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
    /// Of the piece's begin: ticks after `START`, nanoseconds after the first; and its rate.
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
    solve(exchanges, hz(FOLLOWER_HZ), hz(REFERENCE_HZ), WANDER).unwrap()
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

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn truth_is_inside_the_hard_width_everywhere(scenario in scenario()) {
        let (truth, exchanges) = scenario.run();
        prop_assume!(enough(&exchanges));
        let solution = solved(&exchanges);
        prop_assert_eq!(solution.contradictions, 0);
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

    /// Without load, and an oscillator as calm as they are, the half-width is half of the least round trip, and what the wander adds over
    /// half a gap: once for the interval, once for a guess that is not in its middle.
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
        prop_assert!(solution.map.drift() <= 1.1 * drift, "{}", solution.map.drift());
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

fn symmetric(seconds: f64) -> Scenario {
    let path = Path { least: 1e3, jitter: 1e3 };
    Scenario {
        seed: 5,
        ppm: 30.0,
        seconds,
        wander: WANDER,
        forth: path,
        back: path,
        loss: 0.0,
        stamp: 50.0,
    }
}

/// A reference that jumps in mid-run breaks the assumption: it is said, and the width reaches from
/// what was true before to what is true after.
#[test]
fn a_contradiction_is_counted_and_widens() {
    let (truth, mut exchanges) = symmetric(20.0).run();
    let quiet = solved(&exchanges);
    assert_eq!(quiet.contradictions, 0);
    let middle = exchanges.len() / 2;
    let jump = REFERENCE_HZ / 1_000;
    for exchange in &mut exchanges[middle..] {
        for span in [&mut exchange.t2, &mut exchange.t3].into_iter().flatten() {
            span.lo.0 += jump;
            span.hi.0 += jump;
        }
    }
    let jumped = solved(&exchanges);
    assert!(jumped.contradictions > 0);
    // Up to the messages' own delays and stamps.
    let own_ns = 5_000.0;
    for exchange in &exchanges[middle - 1..=middle] {
        let counter = exchange.t1.unwrap().lo;
        let (ts, bound) = jumped.map.map(counter);
        let (old, new) = (truth.at(counter), truth.at(counter) + 1e6);
        // Half of the gap between the two is spanned at the allowed change of rate.
        let slope_ns = 500e-6 * 151e6;
        let (low, high) = (
            ts.0 as f64 - START_NS - bound.ns() as f64,
            ts.0 as f64 - START_NS + bound.ns() as f64,
        );
        assert!(low <= old + own_ns + slope_ns, "{low} for {old}");
        assert!(high >= new - own_ns - slope_ns, "{high} for {new}");
    }
}

/// One exchange against all: stamps that cannot be are not averaged away.
#[test]
fn a_single_impossible_exchange_is_counted() {
    let (_, mut exchanges) = symmetric(20.0).run();
    let middle = exchanges.len() / 2;
    let span = exchanges[middle].t2.as_mut().unwrap();
    // Received 20 µs before it was sent.
    span.lo.0 -= 60_000;
    span.hi.0 -= 60_000;
    let solution = solved(&exchanges);
    assert!(solution.contradictions > 0);
    let counter = exchanges[middle].t1.unwrap().lo;
    let widened = solution.map.map(counter).1.ns();
    assert!(widened >= 8_000, "±{widened} ns holds not both sides");
}

#[test]
fn a_rate_beyond_belief_is_counted() {
    let (_, exchanges) = Scenario { ppm: 700.0, ..symmetric(20.0) }.run();
    assert!(solved(&exchanges).contradictions > 0);
}

#[test]
fn too_little_is_an_error_that_says_what_to_do() {
    let (_, exchanges) = symmetric(20.0).run();
    let hz = |hz| Frequency::from_hz(hz).unwrap();
    let few = |exchanges: &[Exchange]| {
        solve(exchanges, hz(FOLLOWER_HZ), hz(REFERENCE_HZ), WANDER).unwrap_err()
    };
    assert_eq!(few(&[]), SolveError::TooFew { probes: 0, replies: 0 });
    assert_eq!(few(&exchanges[..1]), SolveError::TooFew { probes: 1, replies: 1 });
    let one_way: Vec<Exchange> =
        exchanges.iter().map(|e| Exchange { t3: None, t4: None, ..*e }).collect();
    let error = few(&one_way);
    assert_eq!(error, SolveError::TooFew { probes: exchanges.len(), replies: 0 });
    assert!(error.to_string().contains("let the probes run longer"));
    let wander = solve(&exchanges, hz(FOLLOWER_HZ), hz(REFERENCE_HZ), f64::NAN).unwrap_err();
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
