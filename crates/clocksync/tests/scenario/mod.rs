//! The clocks of a testbed in virtual time: hidden clocks, probes between them, and everything that
//! happens to probes. Seeded; the same everywhere.
//!
//! Noise is as it was measured between kernel stamps over a bare veth pair: a stamp-to-stamp round
//! trip of 0.5 µs, its p99 at 1.1 µs idle and 12.6 µs with both CPUs busy and a saturating stream;
//! half the difference of the legs' minima over ten exchanges up to 220 ns. The last of these is
//! far more than independent stamps would leave, so the error of a stamp's conversion to the
//! counter goes on from exchange to exchange.

use loopscope_clocksync::Span;
use loopscope_clocksync::exchange::Exchange;
use loopscope_clocksync::synthetic::{Step, SyntheticClock};
use loopscope_time::{Counter, Frequency};

/// The rate of the true counter, and the nominal one of all hosts' counters.
pub const HZ: u64 = 2_600_000_000;
/// When everything begins, on the true counter.
const BEGIN: u64 = 40_000 * HZ;

/// splitmix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + self.unit() * (high - low)
    }

    pub fn chance(&mut self, share: f64) -> bool {
        self.unit() < share
    }

    /// Exponential.
    pub fn tail(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// Near enough to normal.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }
}

/// What a message meets on its way.
#[derive(Clone, Copy, Debug)]
pub enum Network {
    Idle,
    /// Bulk data forward, its acknowledgements back, no CPU free.
    Loaded,
    /// Delays as probes had them, 100 a second, over veth pairs and a bridge: a program that sends
    /// after a pause finds its caches cold.
    Cold,
    /// The same with every CPU busy.
    ColdBusy,
}

/// Shares of messages and what they took at most, ns. The least one of 6000 is no delay of its own:
/// 500 ns, and some tens for both stamps.
const COLD: [[(f64, f64); 9]; 2] = [
    [
        (0.0, 500.0),
        (0.001, 530.0),
        (0.01, 600.0),
        (0.05, 855.0),
        (0.1, 1330.0),
        (0.25, 3160.0),
        (0.5, 3890.0),
        (0.9, 7500.0),
        (1.0, 60e3),
    ],
    [
        (0.0, 490.0),
        (0.001, 500.0),
        (0.01, 520.0),
        (0.05, 600.0),
        (0.1, 710.0),
        (0.25, 860.0),
        (0.5, 1020.0),
        (0.9, 1810.0),
        (1.0, 60e3),
    ],
];
const COLD_BUSY: [[(f64, f64); 9]; 2] = [
    [
        (0.0, 500.0),
        (0.001, 512.0),
        (0.01, 533.0),
        (0.05, 565.0),
        (0.1, 625.0),
        (0.25, 1100.0),
        (0.5, 4500.0),
        (0.9, 14e3),
        (1.0, 4e6),
    ],
    [
        (0.0, 480.0),
        (0.001, 485.0),
        (0.01, 510.0),
        (0.05, 533.0),
        (0.1, 553.0),
        (0.25, 700.0),
        (0.5, 1100.0),
        (0.9, 2300.0),
        (1.0, 4e6),
    ],
];

/// A delay between the shares' own.
fn between(shares: &[(f64, f64)], random: &mut Random) -> f64 {
    let share = random.unit();
    let above = shares.partition_point(|(s, _)| *s <= share);
    let ((a, low), (b, high)) = (shares[above - 1], shares[above]);
    // Tails are long: most are near the lower end.
    let part = (share - a) / (b - a);
    low + (high - low) * if b == 1.0 { part.powi(8) } else { part }
}

/// What happens on the way from the follower to the reference.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asymmetry {
    pub ns: f64,
    /// From this second on.
    pub since: f64,
}

#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub followers: usize,
    pub seconds: f64,
    pub rate_hz: f64,
    pub network: Network,
    /// Probability that a message is lost; a transmit stamp is lost with half of it.
    pub loss: f64,
    /// Messages that something holds up for up to 30 ms.
    pub reordered: f64,
    pub asymmetry: Asymmetry,
    /// No answers between these seconds.
    pub outage: Option<[f64; 2]>,
    /// What every message takes longer, ns: to the reference, and from it.
    pub longer: [f64; 2],
    /// A step of the follower's counter: second, nanoseconds, parts per billion. Negative
    /// nanoseconds are those that the reference's jumps ahead, as a counter never goes back.
    pub step: Option<(f64, f64, i64)>,
    /// Share of exchanges whose reference stamps are lies.
    pub impossible: f64,
}

pub const QUIET: Scenario = Scenario {
    name: "idle",
    followers: 1,
    seconds: 120.0,
    rate_hz: 100.0,
    network: Network::Idle,
    loss: 0.0,
    reordered: 0.0,
    asymmetry: Asymmetry { ns: 0.0, since: 0.0 },
    outage: None,
    longer: [0.0; 2],
    step: None,
    impossible: 0.0,
};

/// The scenarios that `loopscope clock verify` has, but for what only processes can do.
pub const SCENARIOS: [Scenario; 15] = [
    QUIET,
    Scenario { name: "cold caches", network: Network::Cold, ..QUIET },
    Scenario { name: "cold caches, busy", network: Network::ColdBusy, ..QUIET },
    Scenario { name: "loaded", network: Network::Loaded, ..QUIET },
    Scenario { name: "eight hosts", followers: 7, seconds: 60.0, ..QUIET },
    Scenario { name: "loss", loss: 0.3, reordered: 0.1, ..QUIET },
    Scenario { name: "loss, loaded", loss: 0.3, network: Network::Loaded, ..QUIET },
    Scenario { name: "asymmetry", asymmetry: Asymmetry { ns: 100e3, since: 0.0 }, ..QUIET },
    Scenario { name: "asymmetry step", asymmetry: Asymmetry { ns: 100e3, since: 60.0 }, ..QUIET },
    Scenario { name: "reference stopped", outage: Some([50.0, 70.0]), ..QUIET },
    Scenario { name: "counter step", step: Some((61.0, 1e6, 0)), ..QUIET },
    Scenario { name: "counter step, 5 us", step: Some((61.0, 5e3, 0)), ..QUIET },
    Scenario { name: "rate step", step: Some((61.0, 0.0, 100_000)), ..QUIET },
    Scenario {
        name: "rate step, loaded",
        step: Some((61.0, 0.0, -100_000)),
        network: Network::Loaded,
        ..QUIET
    },
    Scenario { name: "impossible stamps", impossible: 0.002, ..QUIET },
];

/// A follower and what passed between it and the reference.
pub struct Follower {
    pub own: SyntheticClock,
    pub reference: SyntheticClock,
    /// By the true counter at which the follower knows of them, with what it knows by then; the
    /// logs tell all.
    pub completed: Vec<(Counter, Exchange)>,
    /// With everything that both logs hold.
    pub exchanges: Vec<Exchange>,
    /// True counters between which probes went.
    pub begin: Counter,
    pub end: Counter,
}

pub fn frequency() -> Frequency {
    Frequency::from_hz(HZ).unwrap()
}

/// True counter after so many nanoseconds.
pub fn at(ns: f64) -> Counter {
    Counter(BEGIN + (ns * HZ as f64 / 1e9) as u64)
}

/// Error of stamps of one kind, going on from one to the next.
struct Conversion {
    error: f64,
    last: f64,
}

impl Conversion {
    /// How far off a stamp at `ns` is within its span, and the halves of that.
    fn next(&mut self, random: &mut Random, ns: f64, loaded: bool) -> [f64; 2] {
        // Half of it is new after 70 ms.
        let kept = (-(ns - self.last).abs() / 100e6).exp();
        self.last = ns;
        self.error = kept * self.error + (1.0 - kept * kept).sqrt() * 40.0 * random.normal();
        let extra = if loaded { random.tail(60.0) } else { 0.0 };
        let width = random.between(70.0, 120.0) + extra;
        let off = (self.error + 20.0 * random.normal()).clamp(-width, width);
        [width - off, width + off]
    }
}

impl Network {
    fn delay(self, random: &mut Random, forward: bool) -> f64 {
        let least = 230.0;
        match self {
            Network::Idle => {
                let rare = if random.chance(0.02) { random.tail(600.0) } else { 0.0 };
                least + random.tail(70.0) + rare
            }
            Network::Cold => between(&COLD[usize::from(!forward)], random),
            Network::ColdBusy => between(&COLD_BUSY[usize::from(!forward)], random),
            Network::Loaded => {
                let share = if forward { 0.15 } else { 0.05 };
                let often = if random.chance(share) { random.tail(4_200.0) } else { 0.0 };
                let rare = if random.chance(0.005) { random.tail(100e3) } else { 0.0 };
                least + random.tail(if forward { 300.0 } else { 150.0 }) + often + rare
            }
        }
    }
}

impl Scenario {
    pub fn run(&self, seed: u64) -> Vec<Follower> {
        (0..self.followers).map(|number| self.follower(seed, number)).collect()
    }

    fn follower(&self, seed: u64, number: usize) -> Follower {
        self.edge(seed, number, [&format!("h{}", number + 2), "h1"])
    }

    /// What passes between any two hosts, the second answering, as the `number`th edge.
    pub fn edge(&self, seed: u64, number: usize, [own, reference]: [&str; 2]) -> Follower {
        let mut random = Random(seed ^ (number as u64) << 32);
        for byte in self.name.bytes() {
            random = Random(random.next() ^ u64::from(byte));
        }
        let mut own = SyntheticClock::new(seed, own);
        let mut reference = SyntheticClock::new(seed, reference);
        if let Some((second, ns, rate_ppb)) = self.step {
            let step = Step { at: at(second * 1e9), ticks: at(ns.abs()).0 - BEGIN, rate_ppb };
            let stepped = if ns < 0.0 { &mut reference } else { &mut own };
            *stepped = stepped.with_step(step);
        }
        let mut stamps: [Conversion; 4] =
            std::array::from_fn(|_| Conversion { error: 0.0, last: 0.0 });
        let (mut completed, mut exchanges) = (Vec::new(), Vec::new());
        let end = self.seconds * 1e9;
        let mut sent = 0.0;
        while sent < end {
            let (known, logged, when) =
                self.exchange(&mut random, &mut stamps, &own, &reference, sent);
            completed.extend(known.map(|exchange| (at(when), exchange)));
            exchanges.push(logged);
            let burst = sent < 100e6 || sent > end - 100e6;
            let gap = if burst { 1e6 } else { 1e9 / self.rate_hz };
            sent += gap * random.between(0.5, 1.5);
        }
        completed.sort_by_key(|c| c.0);
        Follower { own, reference, completed, exchanges, begin: at(0.0), end: at(end) }
    }

    /// What the follower knows in the end, what the logs hold, and when the reply came.
    fn exchange(
        &self,
        random: &mut Random,
        stamps: &mut [Conversion; 4],
        own: &SyntheticClock,
        reference: &SyntheticClock,
        sent: f64,
    ) -> (Option<Exchange>, Exchange, f64) {
        let delay = |random: &mut Random, forward: bool| {
            let held = if random.chance(self.reordered) { random.between(0.0, 30e6) } else { 0.0 };
            self.network.delay(random, forward) + held
        };
        let asymmetric = sent >= self.asymmetry.since * 1e9;
        let more = if asymmetric { self.asymmetry.ns } else { 0.0 };
        let t2 = sent + delay(random, true) + more + self.longer[0];
        let t3 = t2 + 5e3 + random.tail(10e3);
        let t4 = t3 + delay(random, false) + self.longer[1];
        let stopped = self.outage.is_some_and(|[from, to]| (from * 1e9..to * 1e9).contains(&sent));
        let (probe_lost, reply_lost) =
            (stopped || random.chance(self.loss), random.chance(self.loss));
        let loaded = matches!(self.network, Network::Loaded);
        let lie = if random.chance(self.impossible) {
            let size = random.between(20e3, 5e6);
            if random.chance(0.5) { size } else { -size }
        } else {
            0.0
        };
        let mut span = |i: usize, clock: &SyntheticClock, ns: f64, lie: f64| {
            let [before, after] = stamps[i].next(random, ns, loaded);
            Span { lo: clock.apply(at(ns - before + lie)), hi: clock.apply(at(ns + after + lie)) }
        };
        let spans = [
            span(0, own, sent, 0.0),
            span(1, reference, t2, lie),
            span(2, reference, t3, lie),
            span(3, own, t4, 0.0),
        ];
        let mut stamped = |of: Span| (!random.chance(self.loss / 2.0)).then_some(of);
        let logged = Exchange {
            t1: stamped(spans[0]),
            t2: (!probe_lost).then_some(spans[1]),
            t3: if probe_lost { None } else { stamped(spans[2]) },
            t4: (!probe_lost && !reply_lost).then_some(spans[3]),
            ..Exchange::default()
        };
        // Only a reply brings the reference's stamps.
        (logged.t4.map(|_| logged), logged, t4)
    }
}
