//! The loop: receive, route, wait for each packet's time, send.

use std::os::fd::AsFd as _;

use loopscope_time::MonotonicNs;
use loopscope_timer::now;
use serde_json::{Map, Value};

use super::wait::Waiter;
use crate::EmulateError;
use crate::control::{Command, Commands};
use crate::frame::Pool;
use crate::mover::{BATCH, Losses, Mover};
use crate::router::{Departure, Router, Shown};
use crate::settings::{Document, Wait};

/// How long before it is taken a frame's stamp may lie; what lies farther is no stamp of it.
const STAMP_AGE: i64 = 1_000_000_000;

/// A router at work.
#[derive(Debug)]
pub struct Engine<M> {
    mover: M,
    router: Router,
    pool: Pool,
    /// The latest arrival at each port.
    latest: Vec<MonotonicNs>,
    batch: Vec<Departure>,
    /// The document's steps that are to come, the next one last.
    steps: Vec<Due>,
    /// When the first measured phase began.
    measured: Option<MonotonicNs>,
    start: MonotonicNs,
    problems: Vec<String>,
}

#[derive(Debug)]
struct Due {
    at_ns: u64,
    link: (usize, usize),
    set: Map<String, Value>,
}

impl<M: Mover> Engine<M> {
    /// Of the document's links, from `start` on.
    pub fn new(
        document: &Document,
        mover: M,
        start: MonotonicNs,
    ) -> Result<Engine<M>, EmulateError> {
        let router = Router::new(document, start)?;
        let mut steps = Vec::new();
        for link in &document.links {
            let mut settings = link.settings.clone();
            let pair = router.pair(&link.from, &link.to).map_err(EmulateError::Document)?;
            let mut ordered: Vec<_> = link.steps.iter().collect();
            ordered.sort_by_key(|step| step.at_ns);
            for step in ordered {
                let (at_ns, set) = (step.at_ns, step.set.clone());
                let wrong = |what| {
                    let (from, to) = (&link.from, &link.to);
                    EmulateError::Document(format!("step of {from} -> {to} at {at_ns} ns: {what}"))
                };
                settings = settings.changed(&set).map_err(wrong)?;
                steps.push(Due { at_ns, link: pair, set });
            }
        }
        steps.sort_by_key(|step| std::cmp::Reverse(step.at_ns));
        Ok(Engine {
            mover,
            router,
            pool: Pool::default(),
            latest: vec![MonotonicNs(0); document.ports.len()],
            batch: Vec::with_capacity(BATCH),
            steps,
            measured: None,
            start,
            problems: Vec::new(),
        })
    }

    /// Works until told to end.
    pub fn run(&mut self, commands: &Commands, wait: Wait) -> Result<(), EmulateError> {
        let mut waiter = Waiter::new(wait)?;
        loop {
            while let Some(command) = commands.next() {
                match command {
                    Command::End => return Ok(()),
                    Command::Abandon(why) => return Err(EmulateError::Abandoned(why)),
                    command => self.obey(command),
                }
            }
            if self.turn(&now)? {
                continue;
            }
            let due = self.router.next_due();
            let until = [due, self.next_step()].into_iter().flatten().min();
            if waiter.wait(until, [self.mover.ready(), commands.wake.as_fd()])? {
                // Only now: the channel is looked at after this. Nothing to read is as well.
                let _ = commands.wake.read();
            }
        }
    }

    /// Looks once at everything; whether there was anything.
    pub fn turn(&mut self, clock: &impl Fn() -> MonotonicNs) -> Result<bool, EmulateError> {
        self.step(clock());
        let mut any = self.send(clock)?;
        self.mover.look()?;
        for port in 0..self.latest.len() {
            let (router, pool, latest) = (&mut self.router, &self.pool, &mut self.latest[port]);
            let mut time = clock();
            let received = self.mover.receive(port, &mut |stamp, bytes| {
                // It may have come while those before it were taken.
                if stamp.is_none_or(|stamp| stamp > time) {
                    time = clock();
                }
                let age = |stamp: &MonotonicNs| time.ns_since(*stamp);
                let stamp = stamp.filter(|stamp| (0..STAMP_AGE).contains(&age(stamp)));
                *latest = stamp.unwrap_or(time).max(*latest);
                router.arrive(*latest, port, pool.frame(bytes));
            })?;
            if received > 0 {
                any = true;
                self.send(clock)?;
            }
        }
        Ok(any)
    }

    /// Sends what is due; whether anything was.
    fn send(&mut self, clock: &impl Fn() -> MonotonicNs) -> Result<bool, EmulateError> {
        let mut any = false;
        loop {
            self.router.depart(clock(), &mut self.batch, BATCH);
            if self.batch.is_empty() {
                return Ok(any);
            }
            any = true;
            let given = clock();
            self.mover.transmit(&mut self.batch)?;
            // They left before this, never after.
            let left = clock();
            let router = &mut self.router;
            self.batch.drain(..).for_each(|departure| router.departed(&departure, given, left));
        }
    }

    /// The first measured phase began.
    pub fn measured(&mut self, at: MonotonicNs) {
        if self.measured.is_none() {
            self.measured = Some(at);
            self.router.restart(at);
        }
    }

    fn next_step(&self) -> Option<MonotonicNs> {
        Some(self.measured?.plus(self.steps.last()?.at_ns))
    }

    fn step(&mut self, now: MonotonicNs) {
        while self.next_step().is_some_and(|at| at <= now)
            && let Some(step) = self.steps.pop()
        {
            if let Err(problem) = self.router.set(now, step.link, &step.set) {
                self.problems
                    .push(format!("the step at {} ns was not done: {problem}", step.at_ns));
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Measured(at) => self.measured(at),
            Command::Set { from, to, change, reply } => {
                let settings = self
                    .router
                    .pair(&from, &to)
                    .and_then(|link| self.router.set(now(), link, &change))
                    .and_then(|settings| serde_json::to_value(settings).map_err(|e| e.to_string()));
                // Who asked may have gone.
                let _ = reply.send(settings);
            }
            Command::Show { reply } => {
                let links = serde_json::to_value(self.links());
                let _ = reply.send(links.map_err(|error| error.to_string()));
            }
            Command::End | Command::Abandon(_) => {}
        }
    }

    /// What was achieved so far, with times from the first measured phase on, or from the start.
    pub fn links(&self) -> Vec<Shown> {
        self.router.shown(self.measured.unwrap_or(self.start))
    }

    /// The end: what is still on its way is counted, the mover given up. What the ports have lost,
    /// and what went wrong.
    pub fn close(&mut self) -> (Vec<Losses>, Vec<String>) {
        self.router.close();
        (self.mover.losses(), std::mem::take(&mut self.problems))
    }
}
