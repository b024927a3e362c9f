//! Steps of a clock that are smaller than the hard interval, which does not contradict them.
//!
//! The interval is as wide as a round trip: from the highest that replies say to the lowest that
//! probes say. A clock that steps by less leaves the two in order, so no message contradicts
//! another one, and yet truth may lie outside: by the step, less the time of travel of the message
//! that made the end which truth passed.
//!
//! What gives a step away is that it shortens one way by as much as it lengthens the other one.
//! *Room* is by how much a message misses the other end of the interval: what it and the message
//! that made that end took together. Room has a floor, which is the least round trip. A message
//! with less room than ever before is the first sign: either it was quicker than all others, or the
//! path is, or a clock stepped. From then on it and all later messages are *held*: the interval is
//! made of them alone, which is right in all three cases, because what is forgotten can only widen
//! it. The other direction decides, as soon as it shows more than its noise:
//!
//! - it takes as long as before: no step, all messages go together again;
//! - it takes longer, by what the first direction seems to take less: a step;
//! - neither can be told after [`LONGEST`] messages: what came before is not used any more.
//!
//! Two things are not seen. A step that is smaller than the noise: [`MARGIN`] of the least round
//! trip, what delays scatter, and what the wander allows while messages are gathered. And a step
//! for which the least delays of the direction that it shortens are hidden, because each of its
//! messages waits for as long in a queue. A path whose one way becomes shorter and whose other way
//! becomes longer at the same moment cannot be told from a step, and counts as one.

use std::collections::VecDeque;
use std::ops::Range;

use crate::bound::Bounds;
use crate::constraint::{Constraint, Way};
use crate::epoch::reaching_back;

/// By what share of the least round trip a message must have less room than that.
const MARGIN: f64 = 1.0 / 64.0;
/// Messages of each direction that are needed before a step, and that decide after it; twice as
/// many are asked where these do not tell, and so on.
const FEWEST: usize = 24;
const LONGEST: usize = 8 * FEWEST;
/// Messages that decide at the end of a run, where no more come.
const LAST: usize = 6;
/// Messages with as little room as the first one that show that it was no accident.
const REPEATED: usize = 3;
/// Standard errors that a delay must have moved by; of a step more, if few messages tell it.
const SIGNIFICANT: f64 = 4.0;
/// Stretches of messages before a step, at least, that tell by how much a stretch's delays differ from
/// those of the next one.
const STRETCHES: usize = 4;
/// Shares of a direction's messages, the quickest ones, whose longest delay is compared.
const SHARES: [f64; 2] = [0.125, 0.25];
/// Stamps' errors go on from one message to the next, so that messages count for fewer than they
/// are: by this factor errors are larger.
const CORRELATED: f64 = 1.75;
/// Messages that are kept to find out when a step was.
const KEPT: usize = 512;
/// Seconds between the messages of a round trip at most, for one to stand in for the next of its
/// way.
const ROUND_TRIP_S: f64 = 0.005;
/// Seconds after which the least round trip begins to be forgotten: a path may have become longer.
const MEMORY_S: f64 = 100.0;

/// What became of a message.
pub(crate) enum Seen {
    /// It is part of the interval.
    Taken,
    /// It is held; the first one after a step, if there was one.
    HeldFirst,
    /// It is held.
    Held,
    /// There was no step: what was held is part of the interval.
    Same,
    /// The interval is now made of what was held alone, this one among them.
    Anew,
    /// There was a step.
    Stepped(Step),
}

/// A step.
pub(crate) struct Step {
    /// Messages after it.
    pub(crate) after: Vec<Constraint>,
    /// What the two messages of a round trip surely take together, ns.
    pub(crate) floor: f64,
}

/// The hard interval, and what is needed to notice a step within it. Good for one epoch.
#[derive(Clone, Debug)]
pub(crate) struct Steps {
    ticks_per_second: f64,
    bounds: Bounds,
    /// The last messages that the interval is made of.
    recent: VecDeque<Constraint>,
    floor: Floor,
    /// The interval says nothing of what was before.
    since: f64,
    held: Option<Held>,
    /// The message before.
    previous: Option<Constraint>,
}

/// The least room, of late.
#[derive(Clone, Copy, Debug)]
struct Floor {
    older: f64,
    newer: f64,
    newer_since: f64,
}

/// Messages since one that had too little room.
#[derive(Clone, Debug)]
struct Held {
    /// Its direction.
    way: Way,
    /// By how much rooms of its direction were too little at most, descending.
    sizes: [f64; REPEATED],
    /// The interval that these messages make.
    bounds: Bounds,
    messages: Vec<Constraint>,
    /// The same with the message of the other way that came just before the first one, until one
    /// comes after it: else nothing would be known for a moment whenever a message is quick. It
    /// says nothing of what was after a step between these two. As good as the interval is at any
    /// time, that knows of no step since the last message.
    until_answered: Option<Bounds>,
    /// Others that came before and are not decided on.
    earlier: Vec<Constraint>,
    /// Messages of each direction that are to decide.
    wanted: usize,
}

/// What held messages say.
enum Verdict {
    Open,
    Same,
    Stepped,
}

impl Steps {
    /// `nominal` in nanoseconds a tick, `wander` as a ratio.
    pub(crate) fn new(nominal: f64, wander: f64) -> Steps {
        Steps {
            ticks_per_second: 1e9 / nominal,
            bounds: Bounds::new(nominal, wander),
            recent: VecDeque::new(),
            floor: Floor { older: f64::INFINITY, newer: f64::INFINITY, newer_since: 0.0 },
            since: f64::NEG_INFINITY,
            held: None,
            previous: None,
        }
    }

    /// The state for a new epoch over the same path.
    pub(crate) fn anew(&self, bounds: Bounds) -> Steps {
        let (ticks_per_second, floor) = (self.ticks_per_second, self.floor);
        let (recent, since) = (VecDeque::new(), f64::NEG_INFINITY);
        Steps { ticks_per_second, bounds, recent, floor, since, held: None, previous: None }
    }

    /// The interval.
    pub(crate) fn bounds(&self) -> &Bounds {
        self.held.as_ref().map_or(&self.bounds, |held| &held.bounds)
    }

    /// The interval at `x`, and between which places it is that one: what is held says nothing of
    /// what was before a step, and the other messages nothing of what was after it.
    pub(crate) fn bounds_at(&self, x: f64) -> (&Bounds, [f64; 2]) {
        match &self.held {
            Some(held) if x >= held.first() => (held.since_first(), [held.first(), f64::INFINITY]),
            Some(held) => (&self.bounds, [self.since, held.first()]),
            None => (&self.bounds, [self.since, f64::INFINITY]),
        }
    }

    /// Whether a message agrees with all before a step that may have been.
    pub(crate) fn admits(&self, constraint: &Constraint) -> bool {
        self.bounds.admits(constraint)
    }

    /// The last messages before those that are held.
    pub(crate) fn recent(&self) -> impl Iterator<Item = &Constraint> {
        self.recent.iter()
    }

    /// Gives up what is held, for others to decide on.
    pub(crate) fn release(&mut self) -> Vec<Constraint> {
        let held = self.held.take();
        held.map_or(Vec::new(), |held| held.earlier.into_iter().chain(held.messages).collect())
    }

    /// Takes in a message that is admitted.
    pub(crate) fn see(&mut self, constraint: Constraint) -> Seen {
        let stand_in = self.previous.replace(constraint).filter(|previous| {
            let apart = constraint.edge.x - previous.edge.x;
            previous.way != constraint.way && apart.abs() < ROUND_TRIP_S * self.ticks_per_second
        });
        let Some(mut held) = self.held.take() else {
            let Some(size) = self.too_little(&constraint) else {
                self.take(constraint);
                return Seen::Taken;
            };
            let bounds = self.bounds.without_places();
            self.held = Some(Held::new(constraint, size, bounds, Vec::new(), stand_in));
            return Seen::HeldFirst;
        };
        let room = self.bounds.room(&constraint).map_or(f64::INFINITY, |[_, middle]| middle);
        let size = self.floor.value() - room;
        // What was held before was chance compared with this.
        if size > 2.0 * held.sizes[0] {
            held.earlier.append(&mut held.messages);
            let bounds = self.bounds.without_places();
            self.held = Some(Held::new(constraint, size, bounds, held.earlier, stand_in));
            return Seen::HeldFirst;
        }
        held.take(constraint, size);
        let fewer = [Way::Forward, Way::Back].map(|way| held.count(way)).into_iter().min();
        // A direction may fall silent.
        let many = held.messages.len() >= 4 * LONGEST;
        if fewer < Some(held.wanted) && !many {
            self.held = Some(held);
            return Seen::Held;
        }
        match self.judge(&held, FEWEST) {
            Verdict::Same => {
                for constraint in held.earlier.into_iter().chain(held.messages) {
                    // Each of them agreed with those before.
                    if self.bounds.admits(&constraint) {
                        self.take(constraint);
                    }
                }
                Seen::Same
            }
            Verdict::Stepped => {
                let floor = (self.floor.value() - 0.5 * held.sizes[REPEATED - 1]).max(0.0);
                for constraint in held.earlier {
                    self.keep(constraint);
                }
                Seen::Stepped(Step { after: held.messages, floor })
            }
            Verdict::Open if held.wanted < LONGEST && !many => {
                held.wanted *= 2;
                self.held = Some(held);
                Seen::Held
            }
            Verdict::Open => {
                self.since = held.first();
                self.bounds = held.bounds;
                for constraint in held.earlier.into_iter().chain(held.messages) {
                    self.keep(constraint);
                }
                Seen::Anew
            }
        }
    }

    /// By how much a message has too little room, whatever the rate is; if it has.
    fn too_little(&self, constraint: &Constraint) -> Option<f64> {
        let [hard, _] = self.bounds.room(constraint)?;
        let floor = self.floor.value();
        let enough = |way| self.recent.iter().filter(|c| c.way == way).take(FEWEST).count();
        let size = floor - hard;
        let known = floor.is_finite() && size > MARGIN * floor;
        (known && [Way::Forward, Way::Back].into_iter().all(|way| enough(way) == FEWEST))
            .then_some(size)
    }

    fn take(&mut self, constraint: Constraint) {
        if let Some([_, middle]) = self.bounds.room(&constraint) {
            let memory = MEMORY_S * self.ticks_per_second;
            self.floor.add(constraint.edge.x, middle.max(0.0), memory);
        }
        self.bounds.add(&constraint);
        self.keep(constraint);
    }

    fn keep(&mut self, constraint: Constraint) {
        if self.recent.len() == KEPT {
            self.recent.pop_front();
        }
        self.recent.push_back(constraint);
    }

    /// Whether the direction that a step would have lengthened takes longer.
    fn judge(&self, held: &Held, fewest: usize) -> Verdict {
        let [slowest, fastest] = self.bounds.rates();
        let slope = 0.5 * (slowest + fastest);
        let other = if held.way == Way::Forward { Way::Back } else { Way::Forward };
        let all_before = self.recent.iter().chain(&held.earlier).rev();
        let all_before: Vec<&Constraint> = all_before.filter(|c| c.way == other).collect();
        let all_after: Vec<&Constraint> =
            held.messages.iter().filter(|c| c.way == other).take(held.wanted).collect();
        let before = &all_before[..all_before.len().min(held.wanted)];
        if before.len().min(all_after.len()) < fewest {
            return Verdict::Open;
        }
        let (before, after) = (Delays::new(before, slope), Delays::new(&all_after, slope));
        let [moved, error] = after.since(&before);
        // What the wander allows is no step.
        let wander = 0.5 * (fastest - slowest) * (after.x - before.x).abs();
        let beyond_chance = SIGNIFICANT * error + wander;
        let [first, .., size] = held.sizes;
        if moved + beyond_chance < if size > 0.0 { size } else { first } {
            return Verdict::Same;
        }
        // A load that comes and goes shifts the delays of successive messages together. Where one
        // direction becomes quicker and the other slower by chance, that looks like a step. So a
        // step has to move the delays by more than they move from stretch to stretch without one,
        // and by more still if only few messages show it.
        let length = all_after.len().min(all_before.len() / STRETCHES);
        let usual = error.max(usual_move(&all_before, length, slope));
        let short = 1.0 + FEWEST as f64 / all_after.len() as f64;
        let least = (short * SIGNIFICANT * usual + wander).max(0.5 * size);
        if size > 0.0 && moved >= least && moved <= 2.0 * size + beyond_chance {
            Verdict::Stepped
        } else {
            Verdict::Open
        }
    }
}

impl Held {
    fn new(
        first: Constraint,
        size: f64,
        bounds: Bounds,
        earlier: Vec<Constraint>,
        stand_in: Option<Constraint>,
    ) -> Held {
        let (way, sizes, messages) = (first.way, [0.0; REPEATED], Vec::new());
        let (wanted, until_answered) = (FEWEST, None);
        let mut held = Held { way, sizes, bounds, until_answered, messages, earlier, wanted };
        held.take(first, size);
        held.until_answered = stand_in.map(|stand_in| {
            let mut bounds = held.bounds.clone();
            bounds.add(&stand_in);
            bounds
        });
        held
    }

    /// The interval since the first message.
    fn since_first(&self) -> &Bounds {
        self.until_answered.as_ref().unwrap_or(&self.bounds)
    }

    fn take(&mut self, constraint: Constraint, size: f64) {
        if self.bounds.admits(&constraint) {
            self.bounds.add(&constraint);
        }
        if constraint.way != self.way {
            self.until_answered = None;
        } else {
            let place = self.sizes.partition_point(|larger| *larger >= size);
            if let Some(smaller) = self.sizes.get_mut(place..).filter(|s| !s.is_empty()) {
                smaller.rotate_right(1);
                smaller[0] = size;
            }
        }
        self.messages.push(constraint);
    }

    /// The place of the first message.
    fn first(&self) -> f64 {
        self.messages[0].edge.x
    }

    fn count(&self, way: Way) -> usize {
        self.messages.iter().filter(|c| c.way == way).count()
    }
}

impl Floor {
    fn value(&self) -> f64 {
        self.older.min(self.newer)
    }

    fn add(&mut self, x: f64, room: f64, memory: f64) {
        if x - self.newer_since > memory {
            (self.older, self.newer) = (self.newer, f64::INFINITY);
            self.newer_since = x;
        }
        self.newer = self.newer.min(room);
    }
}

/// How long the quicker messages of a direction take, but for a constant that is the same for all.
struct Delays {
    /// By [`SHARES`]: so long at most, and the standard error of that, ns.
    quick: [[f64; 2]; SHARES.len()],
    /// Mean of the messages' places.
    x: f64,
}

impl Delays {
    /// Delays of messages of one direction; there is at least one.
    fn new(of: &[&Constraint], slope: f64) -> Delays {
        let mut sum = 0.0;
        let mut delays: Vec<f64> = of
            .iter()
            .map(|c| {
                sum += c.edge.x;
                let left = c.edge.y - slope * c.edge.x;
                if c.way == Way::Forward { left } else { -left }
            })
            .collect();
        delays.sort_unstable_by(f64::total_cmp);
        let count = delays.len() as f64;
        let quick = SHARES.map(|share| {
            let of = |share: f64| delays[(count * share) as usize];
            // Between the two lies as large a share of the messages again: their density there.
            let density = share / (of(2.0 * share) - of(share)).max(f64::MIN_POSITIVE);
            let error = (share * (1.0 - share) / count).sqrt() / density;
            [of(share), CORRELATED * error]
        });
        Delays { quick, x: sum / count }
    }

    /// By how much they became longer, and the standard error of that, ns.
    fn since(&self, before: &Delays) -> [f64; 2] {
        let all = self.quick.iter().zip(&before.quick);
        let moved = all.map(|(now, then)| [now[0] - then[0], now[1].hypot(then[1])]);
        moved.min_by(|a, b| a[1].total_cmp(&b[1])).expect("there are shares")
    }
}

/// Root mean square of what the delays move by from one stretch of `length` messages to the next, ns;
/// 0 where a stretch would have too few to say.
fn usual_move(messages: &[&Constraint], length: usize, slope: f64) -> f64 {
    if length < LAST {
        return 0.0;
    }
    let stretches: Vec<Delays> =
        messages.chunks_exact(length).map(|stretch| Delays::new(stretch, slope)).collect();
    let moves: Vec<f64> = stretches.windows(2).map(|pair| pair[0].since(&pair[1])[0]).collect();
    (moves.iter().map(|moved| moved * moved).sum::<f64>() / moves.len() as f64).sqrt()
}

impl Constraint {
    /// If a message of the other direction takes `floor` with it at least.
    fn shrunk(&self, floor: f64) -> Constraint {
        let mut shrunk = *self;
        shrunk.edge.y -= if self.way == Way::Forward { 0.5 * floor } else { -0.5 * floor };
        shrunk
    }
}

/// The number of the first message that may have come after a disturbance, given messages by
/// ascending `x` of which those from number `after` on surely came after it; the others were before
/// it. A round trip surely takes `floor` ns. `wander` in nanoseconds a tick.
pub(crate) fn reaches_back(
    all: &[(usize, &Constraint)],
    after: usize,
    floor: f64,
    wander: f64,
) -> usize {
    let shrunk: Vec<(usize, Constraint)> =
        all.iter().map(|(number, c)| (*number, c.shrunk(floor))).collect();
    let back = shrunk.iter().rev().map(|(number, c)| (*number, c));
    reaching_back(back, wander).map_or(after, |number| number.min(after))
}

/// Cuts an epoch where a clock stepped: the numbers of the messages of each part. `kept` are the
/// epoch's messages with their numbers, by ascending `x`; `wander` as a ratio.
pub(crate) fn cut(
    epoch: Range<usize>,
    kept: &[(usize, &Constraint)],
    nominal: f64,
    wander: f64,
) -> Vec<Range<usize>> {
    let mut steps = Steps::new(nominal, wander);
    let (mut parts, mut begin) = (Vec::new(), epoch.start);
    let mut at = 0;
    // The first one that is held.
    let mut held_from = 0;
    while let Some((_, constraint)) = kept.get(at) {
        at += 1;
        if !steps.admits(constraint) {
            continue;
        }
        let seen = steps.see(**constraint);
        if matches!(seen, Seen::HeldFirst) {
            held_from = at - 1;
        }
        if let Seen::Stepped(step) = seen {
            let hard = steps.bounds.wander();
            let first = kept[..at].partition_point(|(number, _)| *number < begin);
            let back = reaches_back(&kept[first..at], kept[held_from].0, step.floor, hard);
            parts.push(begin..back);
            begin = kept[held_from].0;
            steps = steps.anew(Bounds::new(nominal, wander));
            at = held_from;
        }
    }
    // At the end fewer have to do.
    if let Some(held) = &steps.held
        && matches!(steps.judge(held, LAST), Verdict::Stepped)
    {
        parts.push(begin..kept[held_from].0);
        begin = kept[held_from].0;
    }
    parts.push(begin..epoch.end);
    parts
}
