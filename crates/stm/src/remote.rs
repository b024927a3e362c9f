//! A channel's items on another host: what a channel at its home and its mirror there tell each other.
//!
//! A mirror is a channel of its own. The home has one input connection for it, which wants what the
//! mirror's input connections want, and consumes what they all have consumed. Messages of one side come to
//! the other in their order, or not at all and nothing after them.

use std::collections::{BTreeSet, VecDeque};

use crate::channel::Channel;
use crate::layout::{BOUND, ELSEWHERE, ID, LATE, LOSSY, LOST, NEXT, Set, VISIBLE};
use crate::types::{
    From, Full, Got, InputCounts, InputId, JoinError, LeaveError, LoanError, NewItem, OutputId,
    PutError, Slot, Time,
};
use crate::words::Words;

/// What a mirror tells its home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToHome {
    /// Some input connection wants items: all have consumed what is below the floor.
    Wants {
        /// The lowest floor of them.
        floor: Time,
        /// Whether all of them are lossy.
        lossy: bool,
    },
    /// No input connection is there.
    WantsNothing,
    /// All of them have consumed an item that came.
    Consumed(Time),
    /// Somebody is about to join, the n-th time, and has to know the horizon before.
    Looks(u64),
}

/// What a home tells a mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToMirror {
    /// The home has made the connection that the mirror has asked for, so many times by now.
    Joined(u64),
    /// An item. Its bytes are in the slot, until `sent` is called.
    Item(Got),
    /// A time is gone of which the mirror gets no item; `lost`: because it had to make room.
    Gone {
        /// The time.
        time: Time,
        /// Whether there was an item that the mirror would have got.
        lost: bool,
    },
    /// So many more items were lost, whose times are forgotten.
    Lost(u64),
    /// What is so of the times that the mirror has no item of.
    Horizon(Horizon),
    /// It has told the horizon, or that is as it was told, since it was asked the n-th time.
    Looked(u64),
}

/// What a home knows of times, as far as a mirror cannot know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Horizon {
    /// No item below it comes to the mirror.
    pub late: Time,
    /// No item below it is put by the output connections that there are.
    pub bound: Time,
    /// One more than the greatest time that was put; the least time: nothing was.
    pub next: Time,
    /// The time of the newest item, or of the last one that there was; the least time: there was none.
    pub newest: Time,
}

impl Horizon {
    const NONE: Horizon =
        Horizon { late: Time::MIN, bound: Time::MIN, next: Time::MIN, newest: Time::MIN };
}

/// A home's side of one mirror.
pub struct Feed {
    owner: u32,
    input: Option<InputId>,
    /// Times of which the mirror was sent the item, or told that they are gone.
    told: BTreeSet<Time>,
    /// Those of them whose item was sent, and that the mirror has not consumed.
    sent: BTreeSet<Time>,
    /// Lost items of the input connection that are accounted for.
    lost: u64,
    news: VecDeque<ToMirror>,
    horizon: Horizon,
    /// How many times it has made the connection.
    joined: u64,
    /// It was asked for the horizon, the n-th time.
    looks: Option<u64>,
}

impl Feed {
    /// The home's side of a new mirror; `owner` is that of its connection.
    pub fn new(owner: u32) -> Feed {
        Feed {
            owner,
            input: None,
            told: BTreeSet::new(),
            sent: BTreeSet::new(),
            lost: 0,
            news: VecDeque::new(),
            horizon: Horizon::NONE,
            joined: 0,
            looks: None,
        }
    }

    /// Whether it has nothing to tell until it receives something: the mirror wants nothing.
    pub fn is_idle(&self) -> bool {
        self.input.is_none() && self.looks.is_none() && self.news.is_empty()
    }

    /// Carries out a message of the mirror; whether there may be a message for it because of that.
    ///
    /// # Errors
    /// The channel has no room for its connection.
    pub fn receive<W: Words>(
        &mut self,
        channel: &mut Channel<W>,
        message: ToHome,
    ) -> Result<bool, JoinError> {
        if let Some(input) = self.input {
            // The message may say that something is consumed that was sent and lost.
            self.account(channel, input);
        }
        match (message, self.input) {
            (ToHome::Wants { floor, lossy }, None) => {
                let (input, joined) = channel.join_input(self.owner, From::At(floor), lossy, 1)?;
                let (joined_before, looks) = (self.joined, self.looks);
                *self = Feed { input: Some(input), looks, ..Feed::new(self.owner) };
                self.joined = joined_before + 1;
                self.news.push_back(ToMirror::Joined(self.joined));
                let gone = channel.gone_from(joined);
                self.told.extend(&gone);
                self.news
                    .extend(gone.iter().map(|time| ToMirror::Gone { time: *time, lost: false }));
                return Ok(true);
            }
            (ToHome::Wants { floor, lossy }, Some(input)) => {
                self.sent = self.sent.split_off(&floor);
                if let Some(below) = floor.checked_sub(1) {
                    _ = channel.consume_until(input, below);
                }
                channel.set_lossy(input, lossy);
            }
            (ToHome::Consumed(time), Some(input)) if self.sent.remove(&time) => {
                _ = channel.consume(input, time);
            }
            // It was told before the connection was made anew.
            (ToHome::Consumed(_), _) => (),
            (ToHome::WantsNothing, _) => self.end(channel),
            (ToHome::Looks(count), _) => self.looks = Some(count),
        }
        Ok(self.looks.is_some() || !self.news.is_empty())
    }

    /// The next message for the mirror, if there is one. After an item, call `sent`.
    pub fn next<W: Words>(&mut self, channel: &mut Channel<W>) -> Option<ToMirror> {
        if let Some(input) = self.input {
            self.account(channel, input);
        }
        // Readers pass over lost times by getting later items, and count them before.
        if let Some(news) = self.news.pop_front() {
            return Some(news);
        }
        if let Some(got) = self.input.and_then(|input| channel.fresh(input)) {
            let time = got.item.time;
            self.told.insert(time);
            self.sent.insert(time);
            // The mirror sees by the item that these are so.
            self.horizon.next = self.horizon.next.max(time + 1);
            self.horizon.newest = self.horizon.newest.max(time);
            return Some(ToMirror::Item(got));
        }
        if self.is_idle() {
            return None;
        }
        let horizon = self.seen(channel);
        if horizon != self.horizon {
            self.horizon = horizon;
            return Some(ToMirror::Horizon(horizon));
        }
        self.looks.take().map(ToMirror::Looked)
    }

    /// Releases an item whose bytes are not needed any more; whether there may be more room then.
    pub fn sent<W: Words>(&mut self, channel: &mut Channel<W>, time: Time) -> bool {
        // It holds none if the connection was made anew meanwhile.
        let held = self.input.map(|input| channel.release(input, time));
        held.is_some_and(|released| released.is_ok()) && channel.may_go(time)
    }

    /// Ends the connection: the mirror is gone, or wants nothing.
    pub fn end<W: Words>(&mut self, channel: &mut Channel<W>) {
        if let Some(input) = self.input.take() {
            _ = channel.leave_input(input);
        }
        self.news.clear();
    }

    /// Makes messages of the items that were lost since the last call.
    fn account<W: Words>(&mut self, channel: &Channel<W>, input: InputId) {
        let Ok(InputCounts { lost, floor, .. }) = channel.input_counts(input) else { return };
        if lost == self.lost {
            return;
        }
        // The mirror has these.
        let had = self.sent.len();
        self.sent.retain(|time| channel.is_wanted(*time));
        let mut missed = (lost - self.lost).saturating_sub((had - self.sent.len()) as u64);
        self.lost = lost;
        // It had the same floor since this was last asked.
        for time in channel.gone_from(floor) {
            if missed > 0 && self.told.insert(time) {
                self.news.push_back(ToMirror::Gone { time, lost: true });
                missed -= 1;
            }
        }
        if missed > 0 {
            self.news.push_back(ToMirror::Lost(missed));
        }
    }

    fn seen<W: Words>(&mut self, channel: &Channel<W>) -> Horizon {
        let mut seen = channel.horizon();
        if seen.newest == Time::MIN {
            // A reader that begins with an item that is gone gets what comes after it.
            seen.newest = self.horizon.newest;
        }
        match self.input.and_then(|input| channel.input_counts(input).ok()) {
            // The mirror knows what is below its own floor.
            Some(counts) if seen.late <= counts.floor => seen.late = self.horizon.late,
            Some(_) => (),
            // What is there may be wanted soon.
            None => {
                let oldest = channel.oldest_visible().unwrap_or(Time::MAX);
                seen.late = seen.late.min(oldest);
                seen.bound = seen.bound.min(oldest);
            }
        }
        // All others are in the items or in the gone times of the channel.
        let late = channel.horizon().late;
        if self.told.first().is_some_and(|first| *first < late) {
            self.told = self.told.split_off(&late);
        }
        seen
    }
}

/// A mirror's side: what of its channel the home has to know.
pub struct Mirror {
    output: OutputId,
    told: Option<ToHome>,
    /// Times of items that came, of which the home does not know that they are consumed.
    came: BTreeSet<Time>,
    /// How many times it has asked for a connection, and how many the home has made.
    asked: u64,
    joined: u64,
    /// How many times it was to ask for the horizon, and up to which it has.
    looks: u64,
    looks_told: u64,
}

impl Mirror {
    /// The mirror's side of a new connection; its items are put by this output connection.
    pub fn new(output: OutputId) -> Mirror {
        let came = BTreeSet::new();
        Mirror { output, told: None, came, asked: 0, joined: 0, looks: 0, looks_told: 0 }
    }

    /// The connection by which its items come.
    pub fn output(&self) -> OutputId {
        self.output
    }

    /// Whether the home has a connection for what is wanted here: nothing of it is collected there.
    pub fn is_joined(&self) -> bool {
        matches!(self.told, Some(ToHome::Wants { .. })) && self.joined == self.asked
    }

    /// Has it ask for the horizon, the n-th time.
    pub fn look(&mut self, count: u64) {
        self.looks = count;
    }

    /// The next message for the home, if there is one.
    pub fn next<W: Words>(&mut self, channel: &Channel<W>) -> Option<ToHome> {
        let wants = channel.wants();
        if self.told != Some(wants) {
            let had_none = self.told.is_none_or(|told| told == ToHome::WantsNothing);
            if had_none && wants != ToHome::WantsNothing {
                self.asked += 1;
            }
            self.told = Some(wants);
            match wants {
                ToHome::Wants { floor, .. } => self.came = self.came.split_off(&floor),
                _ => self.came.clear(),
            }
            return Some(wants);
        }
        if self.looks != self.looks_told {
            self.looks_told = self.looks;
            return Some(ToHome::Looks(self.looks));
        }
        let consumed = *self.came.iter().find(|time| !channel.is_wanted(**time))?;
        self.came.remove(&consumed);
        Some(ToHome::Consumed(consumed))
    }

    /// A slot for an item that comes.
    ///
    /// # Errors
    /// All are in use.
    pub fn loan<W: Words>(&self, channel: &mut Channel<W>) -> Result<Slot, LoanError> {
        channel.loan(self.output)
    }

    /// Puts the item that came into a slot; see `put_shown` of [`Channel`] for `show`. Whether there may
    /// be something to tell the home because of that.
    ///
    /// # Errors
    /// `Full`: there is no room, and the slot is on loan still. Where nobody wants the item, nothing is
    /// done with it.
    pub fn put<W: Words>(
        &mut self,
        channel: &mut Channel<W>,
        slot: Slot,
        item: NewItem,
        show: impl FnOnce(bool),
    ) -> Result<bool, PutError> {
        let dropped = channel.counts().dropped;
        if channel.takes(item.time) {
            channel.put_lent(self.output, None, slot, item, show)?;
        } else {
            // Nobody wants it, or those that do lose it, because all that is there is newer.
            channel.is_gone_elsewhere(item.time, true);
            _ = channel.give_back(self.output, slot);
        }
        channel.was_elsewhere(item.time);
        self.came.insert(item.time);
        Ok(!channel.is_wanted(item.time) || channel.counts().dropped > dropped)
    }

    /// Knows that an item which it was told of does not come: those here that want it have lost it.
    pub fn lose<W: Words>(&mut self, channel: &mut Channel<W>, time: Time) {
        channel.is_gone_elsewhere(time, true);
        channel.was_elsewhere(time);
        self.came.insert(time);
    }

    /// Carries out a message of the home that is not an item.
    pub fn receive<W: Words>(&mut self, channel: &mut Channel<W>, message: ToMirror) {
        match message {
            ToMirror::Joined(count) => self.joined = count,
            ToMirror::Item(_) | ToMirror::Looked(_) => (),
            ToMirror::Gone { time, lost } => channel.is_gone_elsewhere(time, lost),
            ToMirror::Lost(count) => channel.were_lost(count),
            ToMirror::Horizon(horizon) => _ = channel.follow(self.output, horizon),
        }
    }
}

/// What only mirrors and their homes do.
impl<W: Words> Channel<W> {
    /// The item with the lowest time that a connection wants and was not given; it holds it then.
    fn fresh(&mut self, input: InputId) -> Option<Got> {
        self.whole(|channel| {
            let place = channel.input(input).ok_or(())?;
            let fresh = |slot: &usize| {
                channel.has(*slot, Set::Wanted, place) && !channel.has(*slot, Set::Given, place)
            };
            let slot = channel.visible().map(|at| channel.slot_at(at)).find(fresh).ok_or(())?;
            channel.give(place, slot).map_err(|_| ())
        })
        .ok()
    }

    fn set_lossy(&mut self, input: InputId, lossy: bool) {
        if let Some(place) = self.input(input) {
            self.memory.set(self.layout.input(place, LOSSY), lossy.into());
            self.memory.keep();
        }
    }

    /// The gone times that it remembers, from one on.
    fn gone_from(&self, time: Time) -> Vec<Time> {
        let gone = self.gone();
        let first = gone.partition(&self.memory, |each| each.cast_signed() < time);
        let all = first..gone.len(&self.memory);
        all.map(|at| gone.get(&self.memory, at).cast_signed()).collect()
    }

    fn horizon(&self) -> Horizon {
        Horizon {
            late: self.memory.time(LATE),
            bound: self.bound_of_all(),
            next: self.memory.time(NEXT),
            newest: self.newest().map_or(Time::MIN, |(_, item)| item.time),
        }
    }

    fn oldest_visible(&self) -> Option<Time> {
        self.visible().next().map(|at| self.slot_time(self.slot_at(at)))
    }

    /// Whether the item of a time is gone, or may make room for another one.
    fn may_go(&self, time: Time) -> bool {
        let drops = self.layout.config.full == Full::Drop;
        let slot = self.find(time).map(|at| self.slot_at(at));
        slot.map_or(true, |slot| drops || self.is_for_lossy_alone(slot))
    }

    /// Whether there is an item of a time that somebody may get.
    fn is_wanted(&self, time: Time) -> bool {
        let slot = self.find(time).map(|at| self.slot_at(at));
        slot.is_ok_and(|slot| self.state(slot) == VISIBLE && !self.is_empty(slot, Set::Wanted))
    }

    fn wants(&self) -> ToHome {
        let places = 0..self.layout.config.inputs as usize;
        let each = places.filter(|place| self.is_there(*place)).map(|place| {
            let lossy = self.memory.get(self.layout.input(place, LOSSY)) == 1;
            (self.memory.time(self.layout.floor(place)), lossy)
        });
        let all = each.reduce(|a, b| (a.0.min(b.0), a.1 && b.1));
        all.map_or(ToHome::WantsNothing, |(floor, lossy)| ToHome::Wants { floor, lossy })
    }

    /// Whether there is an input connection in a place that may get something.
    fn is_there(&self, place: usize) -> bool {
        self.memory.get(self.layout.input(place, ID)) != 0 && !self.is_retired(place)
    }

    /// Knows that the home had an item of a time, if it has told of none that is later.
    fn was_elsewhere(&mut self, time: Time) {
        for (at, least) in [(ELSEWHERE, time), (NEXT, time.saturating_add(1))] {
            if self.memory.time(at) < least {
                self.memory.set_time(at, least);
            }
        }
        self.memory.keep();
    }

    /// Knows of a time that there will be no item of it here.
    fn is_gone_elsewhere(&mut self, time: Time, lost: bool) {
        // No item has the greatest time, whatever another host says.
        let is_known = time < self.memory.time(LATE) || time == Time::MAX || self.is_gone(time);
        if is_known || self.find(time).is_ok() {
            return;
        }
        for place in 0..self.layout.config.inputs as usize {
            let wants = self.memory.time(self.layout.floor(place)) <= time
                && self.consumed_ahead(place, time).is_none();
            if lost && wants && self.is_there(place) {
                self.add(place, LOST);
            }
        }
        self.remember(&[time]);
        self.memory.keep();
    }

    /// Counts lost items whose times are not known, for all input connections.
    fn were_lost(&mut self, count: u64) {
        for place in 0..self.layout.config.inputs as usize {
            if self.is_there(place) {
                let at = self.layout.input(place, LOST);
                let lost = self.memory.get(at).wrapping_add(count);
                self.memory.set(at, lost);
            }
        }
        self.memory.keep();
    }

    /// Knows what is so at the home; `output` is the connection by which its items come.
    fn follow(&mut self, output: OutputId, horizon: Horizon) -> Result<(), LeaveError> {
        self.whole(|channel| {
            let place = channel.output(output).ok_or(LeaveError::NotConnected)?;
            channel.memory.set_time(channel.layout.output(place, BOUND), horizon.bound);
            let next = channel.memory.time(NEXT).max(horizon.next);
            channel.memory.set_time(NEXT, next);
            channel.memory.set_time(ELSEWHERE, horizon.newest);
            let late = channel.memory.time(LATE).max(horizon.late);
            channel.memory.set_time(LATE, late);
            let gone = channel.gone();
            let count = gone.partition(&channel.memory, |time| time.cast_signed() < late);
            gone.drop_first(&mut channel.memory, count);
            Ok(())
        })
    }
}
