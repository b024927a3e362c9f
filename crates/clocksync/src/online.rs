//! The clock between hosts while a run goes on: where an instant of a host's counter lies on the
//! global clock now, from the exchanges so far. Wider than [`offline`](crate::offline), which knows
//! what came afterwards, and under the same assumption, within any [`SPAN_S`](crate::bound)
//! seconds.
//!
//! Feed-forward, as the RADclock (Veitch, Ridoux and Korada, "Robust synchronization of absolute
//! and difference clocks over networks", IEEE/ACM ToN 2009): no clock is steered, and what is known
//! of the difference clock (the rate) does not hang on what is known of the absolute one.
//!
//! A message that contradicts the earlier ones puts all in doubt: until some that follow have told
//! whether it was wrong or a clock was disturbed, nothing is known. In the first case it is left
//! out and all is as before; in the second an epoch begins.

mod change;
mod doubt;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use loopscope_time::{Bound, Counter, Frequency, GlobalNs};

use crate::Span;
use crate::bound::{Bounds, SPAN_S};
use crate::constraint::{Constraint, Frame, Message};
use crate::counter::CounterEvent;
use crate::exchange::Exchange;
use crate::follow::Follow;
use crate::offline::Cause;
use crate::state::{State, Status};
use crate::steps::{Seen, Steps, reaches_back};

pub use change::{Change, What};
use doubt::Doubt;

/// Seconds without an exchange after which the reference is thought to be gone.
pub const HOLDOVER_S: f64 = 1.0;

/// Seconds of a new epoch after which its rate is known well enough to say what happened.
const SETTLED_S: f64 = 2.0;
/// What rounding adds to a result, in nanoseconds.
const ROUNDING_NS: f64 = 2.0;
/// Changes that nobody has asked for are forgotten beyond this number.
const CHANGES: usize = 1024;

/// What a host knows of the global clock.
#[derive(Clone, Debug)]
pub struct Online {
    side: Side,
    /// See [`Self::set_apart`].
    wider_ns: f64,
    apart_ns: f64,
}

#[derive(Clone, Debug)]
enum Side {
    /// Its frequency, how often its counter was disturbed, and when it was noticed last.
    Reference(Frequency, u32, Counter),
    Follower(Box<Follower>),
}

#[derive(Clone, Debug)]
struct Follower {
    own: Frequency,
    reference: Frequency,
    wander: f64,
    /// `None` before the first exchange.
    frame: Option<Frame>,
    epoch: u32,
    /// The first message of the epoch, and the last exchange.
    since: f64,
    last: f64,
    steps: Steps,
    follow: Follow,
    /// What it was before the messages that `steps` holds.
    undoubted: Option<Box<Follow>>,
    doubt: Option<Doubt>,
    /// A disturbance whose cause is not known yet: its time, and the clock before it as value,
    /// slope and maximum error of the rate.
    unsettled: Option<([f64; 2], Option<f64>, [f64; 2])>,
    changes: VecDeque<Change>,
    /// Messages from before this reading are of a counter as it was before it was disturbed.
    disturbed: Option<Counter>,
}

impl Online {
    /// The clock of a follower, still without any exchange. Frequencies are of its own counter and
    /// of the reference's; `wander` as in [`crate::offline::solve`].
    pub fn follower(own: Frequency, reference: Frequency, wander: f64) -> Online {
        let nominal = own.ns_per_tick();
        let follower = Follower {
            own,
            reference,
            wander,
            frame: None,
            epoch: 0,
            since: 0.0,
            last: 0.0,
            steps: Steps::new(nominal, wander),
            follow: Follow::new(own.hz() as f64),
            undoubted: None,
            doubt: None,
            unsettled: None,
            changes: VecDeque::new(),
            disturbed: None,
        };
        Online { side: Side::Follower(Box::new(follower)), wider_ns: 0.0, apart_ns: 0.0 }
    }

    /// The reference has been started anew, perhaps on another counter: nothing is known, in
    /// another epoch.
    #[must_use]
    pub fn restarted(&self, reference: Frequency) -> Online {
        match &self.side {
            Side::Reference(..) => self.clone(),
            Side::Follower(before) => {
                let mut online = Online::follower(before.own, reference, before.wander);
                online.set_apart(self.wider_ns, self.apart_ns);
                if let Side::Follower(follower) = &mut online.side {
                    follower.epoch = before.epoch + 1;
                }
                online
            }
        }
    }

    /// The clock of the reference, whose counter is the global clock.
    pub fn reference(frequency: Frequency) -> Online {
        let side = Side::Reference(frequency, 0, Counter(0));
        Online { side, wider_ns: 0.0, apart_ns: 0.0 }
    }

    /// The own counter was disturbed, as somebody has seen who watches it: messages need not show
    /// it. What was known is of an epoch that has ended; in the next one nothing is known before
    /// messages that were sent in it.
    pub fn disturbed(&mut self, event: &CounterEvent) {
        match &mut self.side {
            Side::Reference(_, epoch, since) => {
                *epoch += 1;
                *since = event.after.hi;
            }
            Side::Follower(follower) => follower.disturbed(event),
        }
    }

    /// A follower's exchange, as far as it is known.
    pub fn see(&mut self, exchange: &Exchange) {
        if let Side::Follower(follower) = &mut self.side {
            for message in exchange.messages() {
                follower.see(&message);
            }
        }
    }

    /// What happened since this was asked last.
    pub fn changes(&mut self) -> Vec<Change> {
        match &mut self.side {
            Side::Reference(..) => Vec::new(),
            Side::Follower(follower) => follower.changes.drain(..).collect(),
        }
    }

    /// The counters of two processors are up to `apart_ns` apart ([`crate::skew`]), and nobody says
    /// of a reading whose it is. With those of the reference it adds `wider_ns` to every
    /// maximum error.
    pub fn set_apart(&mut self, wider_ns: f64, apart_ns: f64) {
        (self.wider_ns, self.apart_ns) = (wider_ns, apart_ns);
    }

    /// What is known at `now`, a reading of the own counter, and from there on.
    pub fn state(&self, now: Counter) -> State {
        let state = self.of_one_processor(now);
        let [below_ns, above_ns] = [state.below_ns, state.above_ns].map(|ns| ns + self.wider_ns);
        State { below_ns, above_ns, apart_ns: self.apart_ns, ..state }
    }

    fn of_one_processor(&self, now: Counter) -> State {
        match &self.side {
            Side::Reference(frequency, epoch, since) => {
                let frame = Frame::new((Counter(0), *frequency), (Counter(0), *frequency));
                let (global, fraction_ns) = frame.global(now, 0.0);
                State {
                    status: Status::Synchronised,
                    global,
                    fraction_ns,
                    since: *since,
                    stale: Counter(u64::MAX),
                    expires: Counter(u64::MAX),
                    ..nothing(*epoch, now, frequency.ns_per_tick())
                }
            }
            Side::Follower(follower) => follower.state(now),
        }
    }

    /// An instant of the own counter on the global clock; `None` where nothing is known of it.
    pub fn to_global(&self, own: Counter) -> Option<(GlobalNs, Bound)> {
        let state = self.state(own);
        let hard = state.below_ns.max(state.above_ns);
        (state.status != Status::Unknown).then(|| {
            (GlobalNs(state.global.0 + state.fraction_ns.round() as i64), Bound::of_rounded(hard))
        })
    }

    /// Where an instant that lies within `±within_ns` of `global` is on the own counter; `None`
    /// where nothing is known of it.
    pub fn to_own(&self, global: GlobalNs, within_ns: u64) -> Option<Span> {
        // Twice: the second time from where it is.
        let mut at = self.anchor();
        for _ in 0..2 {
            let state = self.state(at);
            let ns = (global - state.global) as f64 - state.fraction_ns;
            at = Counter(at.0.saturating_add_signed((ns / state.ns_per_tick) as i64));
        }
        let state = self.state(at);
        if state.status == Status::Unknown {
            return None;
        }
        let ns = (global - state.global) as f64 - state.fraction_ns;
        let far = ns.abs() + within_ns as f64 + state.below_ns + state.above_ns;
        let wide = within_ns as f64 + far * 2.0 * state.drift + ROUNDING_NS;
        let ticks = |ns: f64| at.0.saturating_add_signed((ns / state.ns_per_tick) as i64);
        Some(Span {
            lo: Counter(ticks(ns - wide - state.above_ns).saturating_sub(1)),
            hi: Counter(ticks(ns + wide + state.below_ns).saturating_add(1)),
        })
    }

    /// Some counter at which something is known, if anything is.
    fn anchor(&self) -> Counter {
        match &self.side {
            Side::Reference(..) => Counter(0),
            Side::Follower(f) => f.frame.map_or(Counter(0), |frame| frame.counter(f.last)),
        }
    }
}

fn nothing(epoch: u32, now: Counter, ns_per_tick: f64) -> State {
    State {
        epoch,
        status: Status::Unknown,
        anchor: now,
        global: GlobalNs(0),
        fraction_ns: 0.0,
        below_ns: 0.0,
        above_ns: 0.0,
        calibrated_ns: 0.0,
        apart_ns: 0.0,
        ns_per_tick,
        drift: 0.0,
        since: now,
        stale: now,
        expires: now,
    }
}

impl Follower {
    fn see(&mut self, message: &Message) {
        if self.disturbed.is_some_and(|since| self.is_of_before(message, since)) {
            return;
        }
        let frame = *self.frame.get_or_insert_with(|| {
            Frame::new((message.own.lo, self.own), (message.reference.lo, self.reference))
        });
        let constraint = frame.constraint(message);
        self.last = self.last.max(constraint.edge.x);
        self.weigh(constraint);
        self.settle();
    }

    /// Whether a message's reading was taken before `since`, when the counter was disturbed. If it
    /// began anew readings from before are far ahead.
    fn is_of_before(&self, message: &Message, since: Counter) -> bool {
        let ticks = |seconds: f64| (seconds * self.own.hz() as f64) as i64;
        let after = message.own.lo.ticks_since(since);
        let first = self.frame.is_none_or(|frame| self.last < frame.x(since) + ticks(1.0) as f64);
        after < 0 || (first && after > ticks(SPAN_S))
    }

    fn disturbed(&mut self, event: &CounterEvent) {
        if let Some(([from, until], ..)) = self.unsettled.take() {
            self.tell(from, until, What::Disturbed { epoch: self.epoch, cause: Cause::Unclear });
        }
        let CounterEvent { disturbance, within, after, .. } = *event;
        self.epoch += 1;
        self.doubt = None;
        self.undoubted = None;
        let nominal = self.own.ns_per_tick();
        let began_anew = after.hi < within.hi;
        match self.frame {
            Some(frame) if !began_anew => {
                self.since = frame.x(within.hi);
                self.steps = self.steps.anew(Bounds::new(nominal, self.wander));
                self.follow = self.follow.anew();
            }
            // Places on the old counter are none on the new one.
            _ => {
                self.frame = None;
                (self.since, self.last) = (0.0, 0.0);
                self.steps = Steps::new(nominal, self.wander);
                self.follow = Follow::new(self.own.hz() as f64);
            }
        }
        self.disturbed = Some(after.hi);
        let what = What::Disturbed { epoch: self.epoch, cause: Cause::Watched(disturbance) };
        self.push(Change { from: within.lo, until: within.hi, what });
    }

    fn weigh(&mut self, constraint: Constraint) {
        let agrees = self.steps.admits(&constraint);
        match &mut self.doubt {
            None if agrees => match self.steps.see(constraint) {
                Seen::Taken => self.follow(&constraint),
                Seen::HeldFirst => {
                    // The guess goes on: there are few steps, and many a quick message.
                    self.undoubted.get_or_insert_with(|| Box::new(self.follow.clone()));
                    self.follow(&constraint);
                }
                Seen::Held => self.follow(&constraint),
                Seen::Same | Seen::Anew => {
                    self.undoubted = None;
                    self.follow(&constraint);
                }
                Seen::Stepped(step) => {
                    self.forget_held();
                    let recent = self.steps.recent().copied().collect();
                    self.begin_epoch(recent, step.after, step.floor);
                }
            },
            None => {
                // What was held may be of after the disturbance, so it says nothing for either
                // side.
                let mut doubt = Doubt { undecided: self.steps.release(), ..Doubt::default() };
                doubt.hold(constraint, false);
                self.doubt = Some(doubt);
                self.forget_held();
            }
            Some(doubt) => {
                doubt.hold(constraint, agrees);
                if doubt.was_wrong() {
                    self.restore();
                } else if doubt.was_right() {
                    let doubt = self.doubt.take().unwrap_or_default();
                    let recent = self.steps.recent().copied().chain(doubt.undecided).collect();
                    self.begin_epoch(recent, doubt.held, 0.0);
                }
            }
        }
    }

    /// The guess has not seen what is held.
    fn forget_held(&mut self) {
        if let Some(follow) = self.undoubted.take() {
            self.follow = *follow;
        }
    }

    /// Has the guess follow a message.
    fn follow(&mut self, constraint: &Constraint) {
        if let Some(change) = self.follow.see(constraint, self.steps.bounds().rates()) {
            let what = What::Path { forward_ns: change.forward_ns, back_ns: change.back_ns };
            self.tell(change.from, change.until, what);
        }
    }

    fn tell(&mut self, from: f64, until: f64, what: What) {
        let Some(frame) = self.frame else { return };
        let (from, until) = (frame.counter(from.floor()), frame.counter(until.ceil()));
        self.push(Change { from, until, what });
    }

    fn push(&mut self, change: Change) {
        if self.changes.len() == CHANGES {
            self.changes.pop_front();
        }
        self.changes.push_back(change);
    }

    /// The messages that contradicted were wrong.
    fn restore(&mut self) {
        let Some(doubt) = self.doubt.take() else { return };
        let mut rejected = 0;
        let (first, last) = (doubt.held[0].edge.x, self.last);
        for constraint in doubt.undecided.into_iter().chain(doubt.held) {
            if self.steps.admits(&constraint) {
                self.weigh(constraint);
            } else {
                rejected += 1;
            }
        }
        self.tell(first, last, What::Rejected(rejected));
    }

    /// Begins an epoch with the messages of `held`, the first of which was surely in it. A round
    /// trip surely takes `floor` ns.
    fn begin_epoch(&mut self, recent: Vec<Constraint>, held: Vec<Constraint>, floor: f64) {
        let first = held[0].edge.x;
        let bounds = Bounds::new(self.own.ns_per_tick(), self.wander);
        // Backwards from the last one: what does not fit was before.
        let mut all: Vec<&Constraint> = recent.iter().chain(&held).collect();
        all.sort_by(|a, b| a.edge.x.total_cmp(&b.edge.x));
        let numbered: Vec<(usize, &Constraint)> = all.into_iter().enumerate().collect();
        let after = numbered.partition_point(|(_, c)| c.edge.x < first);
        let reached = reaches_back(&numbered, after, floor, bounds.wander());
        let from = reached.checked_sub(1).map_or(self.since, |before| numbered[before].1.edge.x);

        let before = self.follow.at(first).map(|at| at.0);
        if self.unsettled.is_none() {
            self.unsettled = Some(([from, first], before, self.steps.bounds().rates()));
        }
        self.epoch += 1;
        self.since = first;
        self.steps = self.steps.anew(bounds);
        self.follow = self.follow.anew();
        for constraint in held {
            if self.steps.admits(&constraint) {
                self.weigh(constraint);
            }
        }
    }

    /// Says what a disturbance was, once its outcome is known.
    fn settle(&mut self) {
        let Some(([from, until], before, [low, high])) = self.unsettled else { return };
        if (self.last - self.since) < SETTLED_S * self.own.hz() as f64 || self.doubt.is_some() {
            return;
        }
        self.unsettled = None;
        let [now_low, now_high] = self.steps.bounds().rates();
        let cause = if now_low > high || now_high < low {
            let changed = 0.5 * (now_low + now_high - low - high);
            Cause::Rate(changed / self.own.ns_per_tick() * 1e6)
        } else {
            let after = self.follow.at(until).map(|at| at.0);
            before.zip(after).map_or(Cause::Unclear, |(before, after)| Cause::Step(after - before))
        };
        self.tell(from, until, What::Disturbed { epoch: self.epoch, cause });
    }

    fn state(&self, now: Counter) -> State {
        let nominal = self.own.ns_per_tick();
        let nothing = nothing(self.epoch, now, nominal);
        let Some(frame) = self.frame else { return nothing };
        let x = frame.x(now);
        let seconds = (x - self.last) / self.own.hz() as f64;
        // What is known of instants before the epoch went with it, and before a step that may have
        // been nothing is sure any more.
        let epoch = if self.epoch == 0 { f64::NEG_INFINITY } else { self.since };
        let (bounds, [since, until]) = self.steps.bounds_at(x);
        let since = epoch.max(since);
        let known = self.doubt.is_none() && x >= since && seconds <= SPAN_S;
        let Some([low, high]) = bounds.at(x).filter(|_| known) else { return nothing };
        let [slowest, fastest] = bounds.rates();
        let middle = 0.5 * (low + high);
        let (guess, slope, calibrated) = self.follow.at(x).unwrap_or_else(|| {
            let slope = self.follow.first_slope([slowest, fastest]);
            (bounds.middle(x, slope).unwrap_or(middle), slope, f64::INFINITY)
        });
        let best = if low <= high { guess.clamp(low, high) } else { middle };
        let slope = slope.clamp(slowest, fastest);
        let (global, fraction_ns) = frame.global(now, best);
        // The double that holds a place far from the frame's begin is rounded.
        let rounding = 0.01 + 4.0 * f64::EPSILON * (x.abs() + best.abs());
        let (below_ns, above_ns) = ((best - low).abs() + rounding, (high - best).abs() + rounding);
        State {
            status: if seconds > HOLDOVER_S { Status::Holdover } else { Status::Synchronised },
            global,
            fraction_ns,
            below_ns,
            above_ns,
            calibrated_ns: calibrated.min(below_ns.max(above_ns)),
            ns_per_tick: nominal + slope,
            drift: (fastest - slope).max(slope - slowest) / (nominal + slope),
            since: if since.is_finite() { frame.counter(since.ceil()) } else { Counter(0) },
            stale: frame.counter(self.last + HOLDOVER_S * self.own.hz() as f64),
            expires: frame.counter(until.min(self.last + SPAN_S * self.own.hz() as f64)),
            ..nothing
        }
    }
}
