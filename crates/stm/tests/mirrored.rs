//! Mirrors of a channel on other hosts, in a simulation: messages take their time, and links break.
//!
//! The home may also begin anew, without anything, and its producers put again some of what they had put.
//!
//! Whatever is done in whichever order: nothing is collected at the home that a mirror's reader may ask
//! for, everything else is, each item comes or is told to be gone, and a reader that was told so of a time
//! is never given an item of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::error::Error;
use std::sync::atomic::AtomicU64;

use fastrand::Rng;
use loopscope_stm::{
    Channel, Config, Feed, From, Full, GetError, InputId, Mirror, NewItem, Orphans, OutputId,
    PutError, Slot, Time, ToHome, ToMirror, Which,
};

type Memory = Channel<Vec<AtomicU64>>;

/// Slots that a reader may hold.
const HOLDS: u32 = 2;

fn channel(config: &Config) -> Memory {
    let words = Memory::words_needed(config).unwrap();
    let zeros = (0..words).map(|_| AtomicU64::new(0)).collect();
    let mut channel = Channel::create(config, zeros).unwrap();
    channel.tell_collected(true);
    channel
}

/// A reader of a mirror, and the times of which it was told that no item comes.
#[derive(Default)]
struct Reader {
    over: BTreeSet<Time>,
    /// Times below the bound of the home, as long as that does not begin anew.
    never: BTreeSet<Time>,
    /// Single times that it has consumed.
    consumed: BTreeSet<Time>,
    holds: BTreeSet<Time>,
}

/// A reader that is about to join, and waits until the home has told what is so there.
struct Joining {
    from: From,
    lossy: bool,
    /// The lowest time that the home's newest item had since it asked; None: there was a moment without.
    newest: Option<Time>,
    /// One more than the greatest time that was put before.
    next: Time,
}

/// A host that has a mirror, and its link.
struct Host {
    channel: Memory,
    output: OutputId,
    readers: BTreeMap<InputId, Reader>,
    joining: Option<Joining>,
    /// How many times readers have asked, and whether the home has a question that it has not answered.
    questions: u64,
    is_asked: bool,
    mirror: Mirror,
    feed: Feed,
    /// The slot of an item that waits for room.
    lent: Option<Slot>,
    down: VecDeque<ToMirror>,
    up: VecDeque<ToHome>,
    /// Times that the mirror has a right to, since the home knows that it wants something.
    due: Option<BTreeSet<Time>>,
    /// It has told that it wants nothing below this.
    floor: Time,
    /// Times that came, or are told to be gone.
    came: BTreeSet<Time>,
    lost: i64,
    /// Lost times that may not be known: they had come, or no reader wanted them any more.
    passed: i64,
    /// The home has begun anew.
    has_restarted: bool,
}

struct World {
    config: Config,
    rng: Rng,
    home: Memory,
    outputs: Vec<OutputId>,
    readers: Vec<InputId>,
    hosts: Vec<Host>,
    now: Time,
    /// What the home has.
    items: BTreeSet<Time>,
    /// One more than the greatest time that was put.
    next: Time,
    tally: BTreeMap<&'static str, u64>,
}

impl Host {
    fn new(config: &Config) -> Host {
        // It forgets no gone time, so that it is late for nothing but what its readers have consumed.
        let config =
            Config { orphans: Orphans::Discard, outputs: 1, loans: 1, remembered: 2000, ..*config };
        let mut channel = channel(&config);
        let output = channel.join_output(0).unwrap();
        Host {
            channel,
            output,
            readers: BTreeMap::new(),
            joining: None,
            questions: 0,
            is_asked: false,
            mirror: Mirror::new(output),
            feed: Feed::new(0),
            lent: None,
            down: VecDeque::new(),
            up: VecDeque::new(),
            due: None,
            floor: Time::MIN,
            came: BTreeSet::new(),
            lost: 0,
            passed: 0,
            has_restarted: false,
        }
    }

    /// The mirror gets the next message; whether there was one that it could take.
    fn receives(&mut self, rng: &mut Rng) -> bool {
        let Some(message) = self.down.pop_front() else { return false };
        match message {
            ToMirror::Item(got) if self.lent.is_none() && rng.u32(0..20) == 0 => {
                self.loses(got.item.time);
            }
            ToMirror::Item(got) => {
                let lost = |host: &Host, id| host.channel.input_counts(id).unwrap().lost;
                let ids: Vec<_> = self.readers.keys().copied().collect();
                let before: Vec<_> = ids.iter().map(|id| lost(self, *id)).collect();
                let were_over: Vec<_> =
                    ids.iter().map(|id| self.is_over(*id, got.item.time)).collect();
                let slot = self.lent.take();
                let slot = slot.unwrap_or_else(|| self.mirror.loan(&mut self.channel).unwrap());
                let put = self.mirror.put(&mut self.channel, slot, got.item, |_| ());
                if let Err(error) = put {
                    assert_eq!(error, PutError::Full, "a mirror cannot take an item");
                    self.lent = Some(slot);
                    self.down.push_front(message);
                    return false;
                }
                let time = got.item.time;
                // What had come may be gone here, and is sent again to those that want it later.
                let is_new = self.came.insert(time);
                for ((id, before), is_over) in ids.into_iter().zip(before).zip(were_over) {
                    self.may_get(id, time, is_new, is_over || lost(self, id) > before);
                }
            }
            other => {
                match other {
                    ToMirror::Gone { time, .. } => _ = self.came.insert(time),
                    ToMirror::Lost(count) => self.lost += count as i64,
                    _ => (),
                }
                self.mirror.receive(&mut self.channel, other);
                if let ToMirror::Joined(_) = other
                    && self.mirror.is_joined()
                {
                    assert!(self.due.is_some(), "the home has no connection for it");
                }
                if other == ToMirror::Looked(self.questions) {
                    self.joining.take().into_iter().for_each(|joining| self.joins(&joining));
                }
            }
        }
        true
    }

    /// Whether a reader was told of a time that it is gone, which a home that has begun anew does not know.
    fn is_over(&mut self, id: InputId, time: Time) -> bool {
        if !self.has_restarted {
            return false;
        }
        match self.channel.get(id, Which::Exact(time)) {
            Ok(_) => {
                if !self.readers[&id].holds.contains(&time) {
                    self.channel.release(id, time).unwrap();
                }
                false
            }
            Err(error) => error == GetError::Gone,
        }
    }

    /// A reader joins, and wants what it has a right to since it asked the home.
    fn joins(&mut self, joining: &Joining) {
        let Joining { from, lossy, newest, next } = *joining;
        let (id, floor) = self.channel.join_input(3, from, lossy, HOLDS).unwrap();
        match from {
            From::Newest => {
                let is_old = newest.is_some_and(|newest| floor < newest);
                assert!(!is_old, "from newest begins with {floor}, and {newest:?} was there");
            }
            From::Next => {
                assert!(floor >= next, "from next begins with {floor}, and {next} is next");
            }
            _ => (),
        }
        self.readers.insert(id, Reader::default());
    }

    /// An item does not come in time: those that want it have lost it.
    fn loses(&mut self, time: Time) {
        let lost = |host: &Host, id| host.channel.input_counts(id).unwrap().lost;
        let ids: Vec<_> = self.readers.keys().copied().collect();
        let before: Vec<_> = ids.iter().map(|id| lost(self, *id)).collect();
        let were_over: Vec<_> = ids.iter().map(|id| self.is_over(*id, time)).collect();
        let is_new = self.came.insert(time);
        self.mirror.lose(&mut self.channel, time);
        for ((id, before), is_over) in ids.into_iter().zip(before).zip(were_over) {
            let reader = &self.readers[&id];
            let is_its = self.channel.input_counts(id).unwrap().floor <= time
                && !reader.consumed.contains(&time)
                && is_new
                && !is_over;
            let counts = lost(self, id) - before;
            assert_eq!(counts, u64::from(is_its), "{time} was lost for {id:?}");
        }
    }

    /// A reader may get an item that came, unless it did not want it, or was told that none comes.
    fn may_get(&mut self, id: InputId, time: Time, is_new: bool, loses: bool) {
        let reader = &self.readers[&id];
        let is_its = self.channel.input_counts(id).unwrap().floor <= time
            && !reader.consumed.contains(&time)
            && is_new;
        let got = self.channel.get(id, Which::Exact(time));
        let is_there = matches!(got, Ok(_) | Err(GetError::TooManyHolds));
        let is_over = reader.over.contains(&time) || reader.never.contains(&time);
        assert!(!is_there || !is_over, "{time} came, after it was not to come");
        // All that is there is newer, and the lowest has to make room.
        let is_lost = loses && got == Err(GetError::Gone);
        assert!(is_there || is_lost || !is_its, "{time} came, and {id:?} cannot get it: {got:?}");
        if got.is_ok() && !reader.holds.contains(&time) {
            self.channel.release(id, time).unwrap();
        }
    }

    /// A reader does something.
    fn reads(&mut self, rng: &mut Rng, now: Time, tally: &mut BTreeMap<&'static str, u64>) {
        let ids: Vec<_> = self.readers.keys().copied().collect();
        let Some(id) = rng.choice(ids) else { return };
        let reader = self.readers.get_mut(&id).unwrap();
        let near = now - rng.i64(-3..12);
        match rng.u32(0..8) {
            0 => {
                self.channel.leave_input(id).unwrap();
                self.readers.remove(&id);
            }
            1 => _ = self.channel.consume_until(id, near),
            2 => {
                self.channel.consume(id, near).unwrap();
                reader.consumed.insert(near);
            }
            3 => {
                if let Some(time) = reader.holds.pop_first() {
                    self.channel.release(id, time).unwrap();
                }
            }
            kind => {
                let which = match kind {
                    4 => Which::Oldest,
                    5 => Which::Unseen,
                    6 => Which::Newest,
                    _ => Which::Exact(near),
                };
                match self.channel.get(id, which) {
                    Ok(got) => {
                        *tally.entry("got").or_default() += 1;
                        reader.holds.insert(got.item.time);
                        if rng.bool() {
                            self.channel.consume(id, got.item.time).unwrap();
                            reader.consumed.insert(got.item.time);
                        }
                    }
                    Err(error @ (GetError::Gone | GetError::Never)) => {
                        let (name, told) = match error {
                            GetError::Gone => ("gone", &mut reader.over),
                            _ => ("never", &mut reader.never),
                        };
                        *tally.entry(name).or_default() += 1;
                        told.insert(near);
                    }
                    Err(_) => (),
                }
            }
        }
    }

    /// No reader may ask for an item that the home has freed.
    fn may_lose(&mut self, time: Time) {
        if self.due.as_ref().is_some_and(|due| due.contains(&time)) {
            let mut floors =
                self.readers.keys().map(|id| self.channel.input_counts(*id).unwrap().floor);
            let is_over = self.came.contains(&time) || floors.all(|floor| floor > time);
            assert!(is_over, "{time} was collected before it came");
            for id in self.readers.keys() {
                let got = self.channel.get(*id, Which::Exact(time));
                let is_wanted = matches!(got, Ok(_) | Err(GetError::TooManyHolds));
                assert!(!is_wanted, "{time} was collected, and {id:?} wants it");
            }
        }
    }
}

impl World {
    fn new(rng: Rng, config: &Config) -> World {
        let mut home = channel(config);
        let outputs = (0..2).map(|_| home.join_output(1).unwrap()).collect();
        let hosts = (0..2).map(|_| Host::new(config)).collect();
        let (readers, items, tally) = Default::default();
        let (config, next) = (*config, Time::MIN);
        World { config, rng, home, outputs, readers, hosts, now: 100, items, next, tally }
    }

    /// What was collected at the home was not to be kept.
    fn check(&mut self) {
        for collected in self.home.take_collected() {
            self.items.remove(&collected.time);
            if !collected.dropped {
                *self.tally.entry("collected").or_default() += 1;
                self.hosts.iter_mut().for_each(|host| host.may_lose(collected.time));
            }
        }
        let newest = self.items.last().copied();
        for joining in self.hosts.iter_mut().filter_map(|host| host.joining.as_mut()) {
            joining.newest = joining.newest.min(newest);
        }
    }

    fn puts(&mut self) {
        self.now += self.rng.i64(0..3);
        let time = self.now - self.rng.i64(0..5);
        self.puts_at(time);
        if self.rng.u32(0..8) == 0 {
            let bound = self.now - self.rng.i64(0..6);
            self.outputs.iter().for_each(|output| _ = self.home.bound(*output, bound).unwrap());
        }
    }

    fn puts_at(&mut self, time: Time) {
        let item = NewItem { time, half_width: 0, length: 8, put_ns: 0, put_error_ns: 0 };
        let output = self.outputs[self.rng.usize(0..self.outputs.len())];
        let fill = |_| Ok::<_, Box<dyn Error>>(());
        if self.home.put_new(output, item, fill, |_, _| ()).is_ok() {
            *self.tally.entry("put").or_default() += 1;
            self.items.insert(time);
            self.next = self.next.max(time + 1);
            for host in &mut self.hosts {
                if let Some(due) = &mut host.due
                    && time >= host.floor
                {
                    due.insert(time);
                    // It had come from the home before this one.
                    host.passed += i64::from(host.came.contains(&time));
                }
            }
        }
    }

    fn reads_at_home(&mut self) {
        let readers = self.readers.len();
        match self.rng.u32(0..6) {
            0 if readers < 2 => {
                let lossy = self.rng.bool();
                let joined = self.home.join_input(2, From::Next, lossy, HOLDS);
                self.readers.extend(joined.ok().map(|(id, _)| id));
            }
            1 if readers > 0 => {
                let id = self.readers.swap_remove(self.rng.usize(0..readers));
                self.home.leave_input(id).unwrap();
            }
            _ => {
                if let Some(id) = self.rng.choice(self.readers.clone())
                    && let Ok(got) = self.home.get(id, Which::Oldest)
                {
                    // Nothing that is gone is held.
                    self.home.release(id, got.item.time).unwrap();
                    self.home.consume_until(id, got.item.time).unwrap();
                }
            }
        }
    }

    /// The home receives the next message of a host; whether there was one.
    fn receives(&mut self, number: usize) -> bool {
        let host = &mut self.hosts[number];
        let Some(message) = host.up.pop_front() else { return false };
        let began = matches!(message, ToHome::Wants { .. }) && host.due.is_none();
        host.feed.receive(&mut self.home, message).unwrap();
        if let ToHome::Wants { floor, .. } = message {
            host.floor = floor;
        }
        match message {
            ToHome::Wants { floor, .. } if began => {
                host.due = Some(self.items.split_off(&floor));
                self.items.extend(host.due.iter().flatten());
                // What is on its way was lost before.
                let earlier = host.down.iter().map(|message| match message {
                    ToMirror::Lost(count) => *count as i64,
                    _ => 0,
                });
                host.lost = -earlier.sum::<i64>();
                // What has come, or is on its way, is sent again, and may be lost.
                let coming = host.down.iter().filter_map(|message| match message {
                    ToMirror::Item(got) => Some(got.item.time),
                    _ => None,
                });
                let had: BTreeSet<_> = coming.chain(host.came.iter().copied()).collect();
                let due = host.due.iter().flatten();
                host.passed = due.filter(|time| had.contains(time)).count() as i64;
            }
            ToHome::Wants { floor, .. } => {
                if let Some(due) = &mut host.due {
                    let rest = due.split_off(&floor);
                    host.passed += due.difference(&host.came).count() as i64;
                    *due = rest;
                }
            }
            ToHome::WantsNothing => host.due = None,
            ToHome::Looks(_) => host.is_asked = true,
            ToHome::Consumed(_) => (),
        }
        true
    }

    /// A host's link has room for another message of each side.
    fn sends(&mut self, number: usize) -> bool {
        let host = &mut self.hosts[number];
        let down = host.feed.next(&mut self.home);
        let is_idle = host.due.is_none() && !host.is_asked;
        assert!(down.is_none() || !is_idle, "{down:?} is sent though nothing is wanted");
        match down {
            Some(ToMirror::Item(got)) => _ = host.feed.sent(&mut self.home, got.item.time),
            Some(ToMirror::Looked(_)) => host.is_asked = false,
            _ => (),
        }
        host.mirror.look(host.questions);
        let up = host.mirror.next(&host.channel);
        host.down.extend(down);
        host.up.extend(up);
        down.is_some() || up.is_some()
    }

    /// A link breaks, the home notices, and it is made anew.
    fn breaks(&mut self, number: usize) {
        let host = &mut self.hosts[number];
        host.up.clear();
        host.down.clear();
        host.feed.end(&mut self.home);
        host.feed = Feed::new(0);
        host.channel.leave_output(host.output).unwrap();
        host.output = host.channel.join_output(0).unwrap();
        host.mirror = Mirror::new(host.output);
        host.lent = None;
        (host.due, host.is_asked) = (None, false);
        *self.tally.entry("broken").or_default() += 1;
    }

    /// The home begins anew, and its producers put again some of what they had put.
    fn restarts(&mut self) {
        (0..self.hosts.len()).for_each(|number| self.breaks(number));
        self.check();
        self.home = channel(&self.config);
        self.outputs = (0..2).map(|_| self.home.join_output(1).unwrap()).collect();
        self.readers.clear();
        self.next = Time::MIN;
        for host in &mut self.hosts {
            host.has_restarted = true;
            host.readers.values_mut().for_each(|reader| reader.never.clear());
            if let Some(joining) = &mut host.joining {
                (joining.newest, joining.next) = (None, Time::MIN);
            }
        }
        for time in std::mem::take(&mut self.items) {
            if self.rng.bool() {
                self.puts_at(time);
            }
        }
        *self.tally.entry("restarted").or_default() += 1;
    }

    fn steps(&mut self) {
        let number = self.rng.usize(0..self.hosts.len());
        match self.rng.u32(0..100) {
            0..20 => self.puts(),
            20..30 => self.reads_at_home(),
            30..34 => {
                let (near, lossy) = (self.now - self.rng.i64(-3..6), self.rng.bool());
                let from = [From::Oldest, From::Newest, From::Next, From::At(near)];
                let from = self.rng.choice(from).unwrap();
                let (newest, next) = (self.items.last().copied(), self.next);
                let host = &mut self.hosts[number];
                if host.joining.is_some() || host.readers.len() == 2 {
                } else if host.mirror.is_joined() {
                    // The home tells what is so anyway, as soon as it comes.
                    host.joins(&Joining { from, lossy, newest: None, next: Time::MIN });
                } else {
                    host.joining = Some(Joining { from, lossy, newest, next });
                    host.questions += 1;
                }
            }
            34..50 => {
                let now = self.now;
                self.hosts[number].reads(&mut self.rng, now, &mut self.tally);
            }
            50..66 => _ = self.hosts[number].receives(&mut self.rng),
            66..82 => _ = self.receives(number),
            82..99 => _ = self.sends(number),
            _ if self.rng.u32(0..4) == 0 => self.breaks(number),
            _ if self.rng.u32(0..8) == 0 => self.restarts(),
            _ => (),
        }
        self.check();
    }

    /// Everything is told and nobody waits for room: all due items came, or were told to be gone.
    fn settles(&mut self) {
        let mut rounds = 0;
        loop {
            let mut changed = false;
            for number in 0..self.hosts.len() {
                changed |= self.sends(number);
                changed |= self.receives(number);
                changed |= self.hosts[number].receives(&mut self.rng);
                let host = &mut self.hosts[number];
                for (id, reader) in &mut host.readers {
                    while let Some(time) = reader.holds.pop_first() {
                        host.channel.release(*id, time).unwrap();
                        changed = true;
                    }
                    if let Ok(got) = host.channel.get(*id, Which::Oldest) {
                        host.channel.release(*id, got.item.time).unwrap();
                        host.channel.consume(*id, got.item.time).unwrap();
                        reader.consumed.insert(got.item.time);
                        changed = true;
                    }
                }
                self.check();
            }
            for id in self.readers.clone() {
                if let Ok(got) = self.home.get(id, Which::Oldest) {
                    self.home.release(id, got.item.time).unwrap();
                    self.home.consume_until(id, got.item.time).unwrap();
                    changed = true;
                }
            }
            self.check();
            rounds += 1;
            assert!(rounds < 1000, "it does not come to rest");
            if !changed {
                break;
            }
        }
        let mut has_readers = !self.readers.is_empty();
        for host in &mut self.hosts {
            assert_eq!(host.channel.counts().present, 0, "a mirror keeps what nobody wants");
            assert_eq!(host.due.is_some(), !host.readers.is_empty());
            assert_eq!(host.mirror.is_joined(), !host.readers.is_empty());
            has_readers |= host.due.is_some();
            if let Some(due) = &host.due {
                let missing = due.difference(&host.came).count() as i64;
                let told = missing..=missing + host.passed;
                assert!(told.contains(&host.lost), "{missing} {} {}", host.lost, host.passed);
                *self.tally.entry("due").or_default() += due.len() as u64;
                *self.tally.entry("lost").or_default() += host.lost as u64;
            }
        }
        if has_readers {
            assert_eq!(self.home.counts().present, 0, "the home keeps what nobody wants");
        }
    }
}

#[test]
fn readers_of_mirrors_get_what_is_theirs_and_the_home_frees_the_rest() {
    let worlds = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    let worlds: u64 = worlds.unwrap_or(256) * 16;
    let mut tally = BTreeMap::new();
    let begin = fastrand::u64(..);
    for seed in begin..begin.wrapping_add(worlds) {
        println!("seed {seed}");
        let mut rng = Rng::with_seed(seed);
        let config = Config {
            capacity: rng.u32(1..6),
            slots: 8,
            inputs: 4,
            outputs: 2,
            loans: 1,
            ahead: 64,
            remembered: rng.u32(1..24),
            orphans: if rng.bool() { Orphans::Keep } else { Orphans::Discard },
            full: if rng.bool() { Full::Drop } else { Full::Refuse },
        };
        let mut world = World::new(rng, &config);
        for _ in 0..3 {
            (0..400).for_each(|_| world.steps());
            world.settles();
        }
        world.tally.iter().for_each(|(what, times)| *tally.entry(*what).or_insert(0) += times);
    }
    println!("{tally:?}");
    for what in ["put", "got", "gone", "never", "collected", "broken", "restarted", "due", "lost"] {
        assert!(tally[what] >= worlds / 10, "{what}: {tally:?}");
    }
}
