//! Links that the kernel makes: a bridge over the ports, a class for each link on the port to its
//! receiver, a queue in it that does what is asked, which is netem. What is seen at the ports is the
//! account.

use std::os::fd::AsFd as _;

use loopscope_time::MonotonicNs;
use loopscope_timer::now;
use serde_json::{Map, Value};

use super::course::{Course, Links};
use super::events;
use super::wait::Waiter;
use crate::EmulateError;
use crate::control::Commands;
use crate::hosts::Hosts;
use crate::iproute::{self, BatchError};
use crate::mover::packet::watch::Watch;
use crate::mover::{BATCH, Losses};
use crate::netem::{self, Class};
use crate::observe::Observer;
use crate::report::Report;
use crate::router::Shown;
use crate::settings::{Document, Mistake, Port, Settings, Wait};

/// The bridge's name.
const BRIDGE: &str = "ls-netem";
/// Rounds of sights before commands are looked for again.
const ROUNDS: usize = 64;
/// How long the end waits for packets that are on their way, so that each is counted as what becomes
/// of it.
const LAST_NS: u64 = 500_000_000;

/// A link's settings as words for `tc`: the queue's kind and what it takes.
pub type Words = fn(&Settings) -> Result<String, Mistake>;

/// Links that the kernel makes.
#[derive(Debug)]
pub struct Kernel {
    shaped: Shaped,
    watch: Watch,
    /// What came before was not for the bridge.
    since: MonotonicNs,
    /// Until when all has been taken that was seen.
    known: MonotonicNs,
    course: Course,
}

/// The ports with all that is on them; dropping it takes that off.
#[derive(Debug)]
struct Shaped {
    ports: Vec<Port>,
    words: Words,
    /// By [`Hosts::index`].
    classes: Vec<Option<Inside>>,
    observer: Observer,
    is_made: bool,
}

/// What is in a class.
#[derive(Clone, Debug)]
struct Inside {
    settings: Settings,
    second: bool,
    has_table: bool,
}

impl Kernel {
    /// Makes the document's links, from `start` on, with queues that `words` says. If that fails
    /// nothing is left.
    pub fn open(
        document: &Document,
        words: Words,
        start: MonotonicNs,
    ) -> Result<Kernel, EmulateError> {
        let observer = Observer::new(document, start)?;
        let hosts = observer.hosts().clone();
        let fits = |settings: &Settings| words(settings).map(drop).map_err(|e| e.to_string());
        let course = Course::new(document, &hosts, start, fits)?;
        let ports = document.ports.clone();
        let classes = vec![None; hosts.count() * hosts.count()];
        let mut shaped = Shaped { ports, words, classes, observer, is_made: false };
        let mut queues = Vec::new();
        hosts.each_link(document, |index, link| {
            let settings = link.settings.clone();
            settings.check().map_err(|mistake| mistake.to_string())?;
            queues.push((
                index,
                words(&settings).map_err(|mistake| mistake.to_string())?,
                settings,
            ));
            Ok(())
        })?;
        // Before anything can come.
        let watch = Watch::open(&document.ports)?;
        let since = shaped.make()?;
        for (index, queue, settings) in queues {
            shaped.add(index, &queue, settings).map_err(|cause| EmulateError::Kernel {
                what: format!("cannot make the link {}", hosts.link(index)),
                cause,
            })?;
        }
        Ok(Kernel { shaped, watch, since, known: since, course })
    }

    /// Watches until told to end.
    pub fn run(&mut self, commands: &Commands) -> Result<(), EmulateError> {
        // No packet waits for this.
        let mut waiter = Waiter::new(Wait::Sleep)?;
        while self.course.hear(commands, &mut self.shaped)? {
            self.course.step(now(), &mut self.shaped);
            if self.look()? {
                continue;
            }
            let until = self.course.next_step();
            if waiter.wait(until, [self.watch.ready(), commands.wake.as_fd()])? {
                // Only now: the channel is looked at after this. Nothing to read is as well.
                let _ = commands.wake.read();
            }
        }
        // What was seen until the end, and then what is on its way.
        let end = now();
        while self.look()? && self.known < end {}
        while now() < end.plus(LAST_NS) && self.shaped.observer.is_waiting() {
            if !self.look()? {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        Ok(())
    }

    /// Takes some of what was seen; whether there was anything.
    fn look(&mut self) -> Result<bool, EmulateError> {
        let (observer, since) = (&mut self.shaped.observer, self.since);
        let mut known = self.known;
        let mut taken = 0;
        for _ in 0..ROUNDS {
            let before = now();
            let received = self.watch.receive(&mut |seen| {
                let at = seen.at.unwrap_or_else(now);
                // Whatever somebody sets the clock to.
                known = known.max(at.min(before));
                if at < since {
                    return;
                }
                if seen.outgoing {
                    observer.left(at, seen.port, seen.bytes);
                } else {
                    observer.came(at, seen.port, seen.bytes);
                }
            })?;
            taken += received;
            if received < BATCH {
                // Then all is known that was until there was no more, else until the latest.
                known = known.max(before);
                break;
            }
        }
        observer.settle(known);
        self.known = known;
        Ok(taken > 0)
    }

    /// The end: takes everything off the ports and closes the account.
    pub fn report(&mut self, document: &Document, mover: (&'static str, String)) -> Report {
        let mut problems = self.course.problems();
        self.shaped.observer.close(self.known);
        problems.extend(self.shaped.unmake());
        let (missed, unseen) = (self.watch.missed(), self.shaped.observer.unseen());
        if missed.is_none() {
            problems.push(
                "the kernel does not say how many sights of frames were missed: what is counted as \
                 dropped may be not exact"
                    .to_owned(),
            );
        } else if let Some(missed @ 1..) = missed {
            problems.push(format!(
                "{missed} sights of frames were missed, for the account was too slow: what it says \
                 was dropped, and shares and delays, is not exact"
            ));
        } else if unseen > 0 {
            problems.push(format!(
                "{unseen} frames left the ports that had not come to them: what is counted as \
                 dropped is not exact"
            ));
        }
        let links = self.course.shown(&self.shaped);
        // Nothing is lost for being watched.
        let lost = vec![Losses::default(); self.shaped.ports.len()];
        Report::new(document, mover, links, &lost, missed, problems)
    }
}

impl Shaped {
    /// The bridge over the ports, with nothing in their queues yet; since when it hands on.
    fn make(&mut self) -> Result<MonotonicNs, EmulateError> {
        let mut links = iproute::up(BRIDGE, "");
        let (mut addresses, mut roots) = (String::new(), String::new());
        for Port { device, address, .. } in &self.ports {
            links += &iproute::up(device, &format!("master {BRIDGE}"));
            if let Some(address) = address {
                // So that the first frame to a host goes to it alone.
                addresses += &format!("fdb add {address} dev {device} master static\n");
            }
            roots += &netem::root(device);
        }
        let wrong = |cause| EmulateError::Kernel {
            what: format!(
                "cannot put a bridge and queues over the ports (if a killed router left its own: ip \
                 link del {BRIDGE}, and tc qdisc del dev DEVICE root)"
            ),
            cause,
        };
        iproute::run("ip", &[], &iproute::bridge(BRIDGE)).map_err(wrong)?;
        self.is_made = true;
        iproute::run("ip", &[], &links)
            .and_then(|()| iproute::run("bridge", &[], &addresses))
            .map_err(wrong)?;
        let since = now();
        iproute::run("tc", &[], &roots).map_err(wrong)?;
        Ok(since)
    }

    /// Takes off what was put on; what went wrong.
    fn unmake(&mut self) -> Vec<String> {
        if !std::mem::take(&mut self.is_made) {
            return vec![];
        }
        let each = |line: fn(&str) -> String| {
            self.ports.iter().map(|port| line(&port.device)).collect::<String>()
        };
        let queues = each(|device| format!("qdisc del dev {device} root\n"));
        let bridge = format!("link del {BRIDGE}\n");
        [("tc", queues), ("ip", bridge)]
            .into_iter()
            .filter_map(|(program, batch)| iproute::run(program, &["-force"], &batch).err())
            .map(|error| format!("not all was taken off the ports: {error}"))
            .collect()
    }

    fn class(&self, index: usize, second: bool) -> Option<Class<'_>> {
        let (from, to) = self.observer.hosts().ports(index);
        let address = self.ports[from].address?;
        Some(Class { device: &self.ports[to].device, from, address, second })
    }

    fn add(&mut self, index: usize, queue: &str, settings: Settings) -> Result<(), BatchError> {
        if let Some(class) = self.class(index, false) {
            iproute::run("tc", &[], &class.add(queue))?;
        }
        let has_table = netem::has_table(&settings);
        self.observer.holds(index, netem::longest_ns(&settings));
        self.classes[index] = Some(Inside { settings, second: false, has_table });
        Ok(())
    }

    /// Other settings for a link that has a class; whether what was in its queue is lost.
    fn change(
        &mut self,
        index: usize,
        now: &Inside,
        queue: &str,
        settings: Settings,
    ) -> Result<bool, String> {
        let has_table = netem::has_table(&settings);
        let discards = now.has_table && settings.jitter.is_some() && !has_table;
        let second = now.second != discards;
        if let Some(class) = self.class(index, second) {
            let batch = if discards { class.replace(queue) } else { class.change(queue) };
            if let Err(error) = iproute::run("tc", &[], &batch) {
                // The kernel may have done a part of it.
                let before = (self.words)(&now.settings).map_err(|mistake| mistake.to_string());
                let back = before.and_then(|before| {
                    let class = Class { second: now.second, ..class };
                    iproute::run("tc", &[], &class.change(&before)).map_err(|e| e.to_string())
                });
                return Err(match back {
                    Ok(()) => error.to_string(),
                    Err(back) => format!("{error}; and what it was is not back: {back}"),
                });
            }
        }
        let has_table = has_table || now.has_table && !discards;
        self.observer.holds(index, netem::longest_ns(&settings));
        self.classes[index] = Some(Inside { settings, second, has_table });
        Ok(discards)
    }
}

impl Drop for Shaped {
    fn drop(&mut self) {
        // Where making it has failed, that is told, and some of it was never there.
        let _ = self.unmake();
    }
}

impl Links for Shaped {
    fn hosts(&self) -> &Hosts {
        self.observer.hosts()
    }

    fn set(
        &mut self,
        _: MonotonicNs,
        (from, to): (usize, usize),
        change: &Map<String, Value>,
    ) -> Result<Settings, String> {
        let index = self.hosts().index(from, to);
        let inside = self.classes[index].clone();
        let before =
            inside.as_ref().map_or_else(Settings::default, |inside| inside.settings.clone());
        let settings = before.changed(change)?;
        let queue = (self.words)(&settings).map_err(|mistake| mistake.to_string())?;
        let discarded = match &inside {
            Some(inside) => self.change(index, inside, &queue, settings.clone())?,
            None => {
                self.add(index, &queue, settings.clone()).map_err(|error| error.to_string())?;
                false
            }
        };
        // The kernel took some time for it: what came meanwhile may have met either.
        let segment = self.observer.set(now(), index, settings.clone(), discarded);
        events::set(segment, from, to);
        Ok(settings)
    }

    /// What the kernel does begins with each link, not with the measured time.
    fn restart(&mut self, _: MonotonicNs) {}

    fn shown(&self, start: MonotonicNs) -> Vec<Shown> {
        self.observer.shown(start)
    }
}
