//! Loops of three hosts: two that follow the same reference, and the edge between the two.
//!
//! What both take global time to be at one instant has to be the same, within their widths and that
//! of the edge which says that it is one instant. What is left is the loop's residual. No map rests
//! on it, so it judges all three: half of what makes one way of an edge longer than the other is
//! in it. What a host does to each packet of its own goes round the loop and cancels.
//!
//! A residual beyond its hard maximum error is a contradiction: of three clocks and the stamps
//! between them something broke the assumption of [`offline`](crate::offline).
//!
//! The calibrated error bound of a residual is the root of the sum of squares of those of its three
//! sides. They share no packet, and what their stamps have in common is a host's and cancels, so
//! their errors are independent; the plain sum would hold for more than is claimed, and would hide
//! widths that claim too much.

use loopscope_time::{Bound, ClockMap, Counter, Frequency, GlobalNs};

use crate::Span;
use crate::bound::MAX_RATE_PPM;
use crate::exchange::Exchange;
use crate::online::Online;

/// What a host takes global time to be at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reckoning {
    /// Its guess.
    pub global: GlobalNs,
    /// Hard: it is surely within so many nanoseconds of that.
    pub half_width_ns: u64,
}

impl Reckoning {
    /// The global time of an instant that is surely within `span` on the own counter; `None` if the
    /// clock is unknown there.
    pub fn of(online: &Online, span: Span) -> Option<Reckoning> {
        let guess = middle(online, span)?;
        let (least, most) = reach(online, span)?;
        Some(Reckoning::within(guess, least, most))
    }

    fn within(guess: i64, least: i64, most: i64) -> Reckoning {
        let half = (guess - least).max(most - guess);
        Reckoning { global: GlobalNs(guess), half_width_ns: half.unsigned_abs() }
    }
}

/// The guess for the middle of `span`.
fn middle(online: &Online, Span { lo, hi }: Span) -> Option<i64> {
    let (guess, _) = online.to_global(Counter(lo.0 + hi.0.saturating_sub(lo.0) / 2))?;
    Some(guess.0)
}

/// Global time was surely not before the one and not after the other.
fn reach(online: &Online, Span { lo, hi }: Span) -> Option<(i64, i64)> {
    let ((first, below), (last, above)) = (online.to_global(lo)?, online.to_global(hi)?);
    Some((first.0 - below.ns().cast_signed(), last.0 + above.ns().cast_signed()))
}

/// By how much a follower's time is after a peer's at one instant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Residual {
    /// In nanoseconds.
    pub ns: f64,
    /// Hard: without a contradiction it is within so many of zero.
    pub hard_ns: f64,
    /// With the claimed probability it is within so many; none while a run goes on, when a peer
    /// does not tell its own.
    pub calibrated_ns: Option<f64>,
}

impl Residual {
    /// Whether no clock and no stamp can have been right that made it.
    pub fn is_contradiction(&self) -> bool {
        self.ns.abs() > self.hard_ns
    }

    /// The residual of an exchange with a peer that read global time `peer` when it received the
    /// probe; `None` if too little is known. `online` is the prober's own time.
    ///
    /// The probe arrived between its sending and the arrival of the reply, and so much before the
    /// latter as the peer took to answer. Halfway of what is left is the guess.
    pub fn of(
        online: &Online,
        exchange: &Exchange,
        peer: Reckoning,
        frequency: Frequency,
    ) -> Option<Residual> {
        let (sent, returned) = (exchange.t1?, exchange.t4?);
        let took = |ticks: i64| ticks as f64 * frequency.ns_per_tick();
        // The least and the middle of the time to answer; nothing of it if its end is not known.
        let (least, turn) = exchange.t2.zip(exchange.t3).map_or((0.0, 0.0), |(t2, t3)| {
            let least = took(t3.lo.ticks_since(t2.hi)).max(0.0);
            let most = took(t3.hi.ticks_since(t2.lo)).max(0.0);
            (least * (1.0 - 2e-6 * MAX_RATE_PPM), 0.5 * (least + most))
        });
        let (begin, end) = (middle(online, sent)?, middle(online, returned)?);
        let guess = begin + (0.5 * ((end - begin) as f64 - turn)).round() as i64;
        let (first, _) = reach(online, sent)?;
        let (_, last) = reach(online, returned)?;
        let own = Reckoning::within(guess, first, last - least.floor() as i64);
        Some(Residual {
            ns: (own.global - peer.global) as f64,
            hard_ns: own.half_width_ns as f64 + peer.half_width_ns as f64,
            calibrated_ns: None,
        })
    }
}

/// The residuals of an edge while its exchange goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Residuals {
    /// The last one.
    pub newest: Option<Residual>,
    /// Exchanges that had one.
    pub known: u64,
    /// And those that had none: one of the two hosts did not know the time.
    pub unknown: u64,
    /// Residuals outside their hard maximum error, among those that had a residual.
    pub contradictions: u64,
}

impl Residuals {
    pub(crate) fn take(&mut self, residual: Option<Residual>) {
        match residual {
            None => self.unknown += 1,
            Some(residual) => {
                self.known += 1;
                self.contradictions += u64::from(residual.is_contradiction());
                self.newest = Some(residual);
            }
        }
    }
}

/// An edge between two followers after the run.
#[derive(Clone, Copy, Debug)]
pub struct Edge<'a> {
    /// The prober's map: its counter to global time.
    pub host: &'a ClockMap,
    /// The peer's map: its counter to global time.
    pub peer: &'a ClockMap,
    /// Nominal frequency of the peer's counter.
    pub peer_frequency: Frequency,
    /// What [`solve`](crate::offline::solve) makes of the edge's exchanges, the peer being the
    /// reference: from the prober's counter to the peer's, scaled to nanoseconds.
    pub between: &'a ClockMap,
}

impl Edge<'_> {
    /// The residual at a reading of the prober's counter; `None` where one of the three sides knows
    /// nothing, having been disturbed.
    pub fn residual(&self, at: Counter) -> Option<Residual> {
        let known = |(ts, bound): (GlobalNs, Bound)| {
            bound.is_known().then(|| (ts.0, bound.ns().cast_signed()))
        };
        let (own, own_width) = known(self.host.map(at))?;
        let (there, width) = known(self.between.map(at))?;
        let counter = |ns: i64| self.peer_frequency.unscale(GlobalNs(ns));
        // Cut to whole ticks.
        let (lo, hi) = (counter(there - width), Counter(counter(there + width).0 + 1));
        if self.peer.epoch(lo) != self.peer.epoch(hi) {
            return None;
        }
        let ((least, below), (most, above)) =
            (known(self.peer.map(lo))?, known(self.peer.map(hi))?);
        let best = counter(there);
        let (theirs, _) = known(self.peer.map(best))?;
        let width = (theirs - (least - below)).max(most + above - theirs);
        let sides =
            [self.host.calibrated(at), self.between.calibrated(at), self.peer.calibrated(best)];
        let squares = sides.map(|bound| (bound.ns() as f64).powi(2));
        Some(Residual {
            ns: (own - theirs) as f64,
            hard_ns: (own_width + width) as f64,
            calibrated_ns: Some(squares.iter().sum::<f64>().sqrt()),
        })
    }

    /// Residuals from the first to the last of what the edge's map rests on.
    pub fn survey(&self) -> Survey {
        let knots = self.between.knots();
        let (begin, end) = (knots[0].counter, knots[knots.len() - 1].counter);
        let mut survey = Survey::default();
        let (mut sizes, mut hard, mut calibrated) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..=STEPS {
            let ticks = u128::from(end.0 - begin.0) * u128::from(number) / u128::from(STEPS);
            let at = Counter(begin.0 + ticks as u64);
            survey.instants += 1;
            let Some(residual) = self.residual(at) else {
                survey.unknown += 1;
                continue;
            };
            let claimed = residual.calibrated_ns.unwrap_or(f64::INFINITY);
            survey.covered += u64::from(residual.ns.abs() <= claimed);
            sizes.push(residual.ns.abs());
            hard.push(residual.hard_ns);
            calibrated.push(claimed);
            if residual.is_contradiction() {
                survey.contradictions += 1;
                let first = survey.contradicted.map_or(at, |before| before.lo);
                survey.contradicted = Some(Span { lo: first, hi: at });
            }
        }
        for all in [&mut sizes, &mut hard, &mut calibrated] {
            all.sort_unstable_by(f64::total_cmp);
        }
        let rank = |all: &[f64], share: f64| {
            let rank = (all.len() as f64 * share).ceil() as usize;
            all[rank.saturating_sub(1)]
        };
        survey.figures = (!sizes.is_empty()).then(|| Figures {
            p50_ns: rank(&sizes, 0.5),
            p99_ns: rank(&sizes, 0.99),
            max_ns: rank(&sizes, 1.0),
            hard_ns: rank(&hard, 0.5),
            calibrated_ns: rank(&calibrated, 0.5),
        });
        survey
    }
}

/// Instants of a survey, evenly spaced, less one.
const STEPS: u64 = 9_999;

/// An edge's residuals over a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Survey {
    /// Instants that were looked at.
    pub instants: u64,
    /// Exchanges without a residual, because a clock was disturbed.
    pub unknown: u64,
    /// Exchanges with a residual inside its calibrated error bound.
    pub covered: u64,
    /// Exchanges with a residual outside its hard maximum error.
    pub contradictions: u64,
    /// From the first to the last of these, on the prober's counter.
    pub contradicted: Option<Span>,
    /// None where no instant has a residual.
    pub figures: Option<Figures>,
}

/// In nanoseconds, by nearest rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// The median of the residuals' absolute values.
    pub p50_ns: f64,
    /// The 99th percentile.
    pub p99_ns: f64,
    /// The largest.
    pub max_ns: f64,
    /// The median of their hard maximum errors.
    pub hard_ns: f64,
    /// And of the calibrated ones.
    pub calibrated_ns: f64,
}
