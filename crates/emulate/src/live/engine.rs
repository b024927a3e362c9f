//! The loop: receive, route, wait for each packet's time, send.

use std::os::fd::AsFd as _;

use loopscope_time::MonotonicNs;
use loopscope_timer::now;

use super::course::{Course, Links as _};
use super::wait::Waiter;
use crate::EmulateError;
use crate::control::Commands;
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
    course: Course,
}

impl<M: Mover> Engine<M> {
    /// An engine for the document's links, from `start` on.
    pub fn new(
        document: &Document,
        mover: M,
        start: MonotonicNs,
    ) -> Result<Engine<M>, EmulateError> {
        let router = Router::new(document, start)?;
        // What a link of this router can be, its settings' own check says.
        let course = Course::new(document, router.hosts(), start, |_| Ok(()))?;
        Ok(Engine {
            mover,
            router,
            pool: Pool::default(),
            latest: vec![MonotonicNs(0); document.ports.len()],
            batch: Vec::with_capacity(BATCH),
            course,
        })
    }

    /// Works until told to end.
    pub fn run(&mut self, commands: &Commands, wait: Wait) -> Result<(), EmulateError> {
        let mut waiter = Waiter::new(wait)?;
        loop {
            if !self.course.hear(commands, &mut self.router)? {
                return Ok(());
            }
            if self.turn(&now)? {
                continue;
            }
            let due = self.router.next_due();
            let until = [due, self.course.next_step()].into_iter().flatten().min();
            if waiter.wait(until, [self.mover.ready(), commands.wake.as_fd()])? {
                // Only now: the channel is looked at after this. Nothing to read is as well.
                let _ = commands.wake.read();
            }
        }
    }

    /// Looks once at everything; whether there was anything.
    pub fn turn(&mut self, clock: &impl Fn() -> MonotonicNs) -> Result<bool, EmulateError> {
        self.course.step(clock(), &mut self.router);
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
        self.course.measured(at, &mut self.router);
    }

    /// What was achieved so far, with times from the first measured phase on, or from the start.
    pub fn links(&self) -> Vec<Shown> {
        self.course.shown(&self.router)
    }

    /// The end: what is still on its way is counted, the mover given up. What the ports have lost,
    /// and what went wrong.
    pub fn close(&mut self) -> (Vec<Losses>, Vec<String>) {
        self.router.close();
        let mut losses = self.mover.losses();
        for (losses, reserved) in losses.iter_mut().zip(self.router.reserved()) {
            losses.reserved = *reserved;
        }
        (losses, self.course.problems())
    }
}
