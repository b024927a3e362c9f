//! The loop of one sending process.

use std::time::Duration;

use anyhow::{Context, Result};
use loopscope_time::MonotonicNs;
use loopscope_timer::{Guard, Timer, Wait, now, pin, real_time};
use loopscope_trace::event;

use super::clocks::offset;
use super::options::{Task, TimerKind};
use super::outlet::Outlet;
use super::pacer::Pacer;
use super::packet::{End, Head, boot};
use super::schedule::{Schedule, Slot};
use super::sent::{Second, Sent};
use super::signals::Signals;

/// How far ahead the kernel gets a packet that it paces.
const LEAD_NS: u64 = 1_000_000;

/// A wait is no longer than this, so that Ctrl-C is heeded.
const NAP_NS: u64 = 100_000_000;

const SECOND_NS: u64 = 1_000_000_000;

/// One process's part.
pub(super) struct Worker<'a> {
    pub(super) task: &'a Task,
    pub(super) process: u16,
    pub(super) run: u32,
    pub(super) signals: &'a Signals,
}

impl Worker<'_> {
    /// Puts the calling thread where it is to run.
    pub(super) fn settle(&self) -> Result<()> {
        if let Some(first) = self.task.cpu {
            let cpu = first + usize::from(self.process);
            pin(cpu).with_context(|| {
                format!(
                    "cannot stay on CPU {cpu}; `cpu` has to be one that this machine has and \
                         this process may use"
                )
            })?;
        }
        if let Some(priority) = self.task.priority {
            real_time(priority).with_context(|| {
                format!(
                    "cannot take real-time priority {priority}; it needs root, CAP_SYS_NICE or \
                         a limit RLIMIT_RTPRIO of {priority}, or leave `priority` away"
                )
            })?;
        }
        Ok(())
    }

    /// Sends this process's packets, the first slot at `start`; `tell` is called for each second.
    pub(super) fn work(
        &self,
        mut outlet: Outlet,
        start: MonotonicNs,
        tell: impl FnMut(u64, Second),
    ) -> Result<Sent> {
        let mut run = Run {
            start,
            start_real: start.0.cast_signed() + offset()?,
            size: self.task.size,
            process: self.process,
            run: self.run,
            sequence: 0,
            sent: Sent::new(),
            told: 0,
            tell,
        };
        let schedule = Schedule::new(&self.task.plan, self.process.into(), self.task.processes);
        if self.task.timer == TimerKind::Naive {
            self.naive(&mut run, &mut outlet, schedule)?;
        } else {
            self.paced(&mut run, &mut outlet, schedule)?;
        }
        run.tell_until(u64::MAX);
        let mut sent = run.sent;
        sent.refused = outlet.refused();
        let end = End {
            process: self.process,
            run: self.run,
            sent: run.sequence,
            processes: self.task.processes,
            boot: boot(),
        };
        let confirmed = outlet.finish(&end)?;
        sent.confirmed = Some(confirmed);
        Ok(sent)
    }

    fn paced(
        &self,
        run: &mut Run<impl FnMut(u64, Second)>,
        outlet: &mut Outlet,
        schedule: Schedule,
    ) -> Result<()> {
        let own_interval = self.task.own_interval_ns();
        let (wait, lead) = match self.task.timer {
            TimerKind::Spin => (Wait::Spin, 0),
            TimerKind::SleepThenSpin => (Wait::SleepThenSpin, 0),
            TimerKind::Kernel => (Wait::Sleep, LEAD_NS),
            TimerKind::Sleep | TimerKind::Naive => (Wait::Sleep, 0),
        };
        // A real-time thread leaves time to others, also while it catches up at twice the rate.
        let guard = match self.task.priority {
            Some(_) => Guard::below((own_interval / 4.0) as u64),
            None => Guard::default(),
        };
        let mut timer = Timer::with(wait, guard);
        let mut pacer = Pacer::new(schedule, self.task.after_stall, own_interval, lead);
        let mut batch: Vec<Slot> = Vec::with_capacity(outlet.most());
        let mut burst = 0;
        while let Some(next) = pacer.next() {
            if self.signals.stop() {
                run.sent.interrupted = true;
                break;
            }
            let instant = run.start.plus(next);
            let before = now();
            if before < instant {
                burst = 0;
                if instant.ns_since(before).cast_unsigned() > NAP_NS {
                    timer.until(before.plus(NAP_NS)).context("cannot wait")?;
                    run.tell_until(run.elapsed(now()));
                    continue;
                }
            }
            let time = timer.until(instant).context("cannot wait")?;
            let elapsed = run.elapsed(time);
            pacer.due(elapsed, outlet.most(), &mut batch);
            let skipped = pacer.skipped() - run.sent.skipped;
            if skipped > 0 {
                run.sent.skip(elapsed, skipped);
            }
            if !batch.is_empty() {
                run.send(outlet, &batch, elapsed)?;
                burst += batch.len() as u64;
                run.sent.longest_burst = run.sent.longest_burst.max(burst);
            }
            run.tell_until(elapsed);
        }
        if wait == Wait::SleepThenSpin {
            run.sent.guard_ns = Some(timer.guard().ns());
            run.sent.without_spinning = timer.without_spinning();
        }
        Ok(())
    }

    /// The loop that drifts: each packet's time is the one before, plus what sending took, plus a
    /// sleep of one interval, plus what that was late by.
    fn naive(
        &self,
        run: &mut Run<impl FnMut(u64, Second)>,
        outlet: &mut Outlet,
        mut schedule: Schedule,
    ) -> Result<()> {
        let Some(mut slot) = schedule.next() else { return Ok(()) };
        // Typical loops work this way: a timer of ours would make this thread's sleeps more exact.
        let first = run.start.plus(slot.offset).ns_since(now()).max(0).cast_unsigned();
        std::thread::sleep(Duration::from_nanos(first));
        run.sent.longest_burst = 1;
        loop {
            let elapsed = run.elapsed(now());
            run.sent.interrupted = self.signals.stop();
            if run.sent.interrupted {
                return Ok(());
            }
            if elapsed >= self.task.plan.duration_ns {
                run.sent.unsent = 1 + schedule.count() as u64;
                return Ok(());
            }
            run.send(outlet, &[slot], elapsed)?;
            run.tell_until(elapsed);
            let Some(next) = schedule.next() else { return Ok(()) };
            std::thread::sleep(Duration::from_nanos(next.offset - slot.offset));
            slot = next;
        }
    }
}

/// What a run has come to.
struct Run<T> {
    start: MonotonicNs,
    /// The same instant in nanoseconds since 1970.
    start_real: i64,
    size: usize,
    process: u16,
    run: u32,
    sequence: u64,
    sent: Sent,
    /// Seconds that were told of.
    told: u64,
    tell: T,
}

impl<T: FnMut(u64, Second)> Run<T> {
    fn elapsed(&self, time: MonotonicNs) -> u64 {
        time.ns_since(self.start).max(0).cast_unsigned()
    }

    /// Sends `batch` at `elapsed` nanoseconds from the start.
    fn send(&mut self, outlet: &mut Outlet, batch: &[Slot], elapsed: u64) -> Result<()> {
        for (place, slot) in batch.iter().enumerate() {
            let head = Head {
                number: slot.number + 1,
                intended: self.start_real.saturating_add_unsigned(slot.offset),
                sent: self.start_real.saturating_add_unsigned(elapsed),
                sequence: self.sequence,
                process: self.process,
                run: self.run,
                size: self.size as u32,
            };
            self.sequence += 1;
            outlet.write(place, &head);
            let late = elapsed.cast_signed() - slot.offset.cast_signed();
            event!("pace", "sent", slot.number + 1, late_ns = late, size = head.size);
        }
        let rejected = outlet.send(batch.len(), self.start.plus(batch[0].offset))?;
        for (place, slot) in batch.iter().enumerate() {
            if rejected >> place & 1 == 1 {
                self.sent.rejected += 1;
            } else {
                let late = elapsed.cast_signed() - slot.offset.cast_signed();
                self.sent.packet(slot.offset, late, self.size as u64);
            }
        }
        Ok(())
    }

    /// Tells of the seconds that are over at `elapsed`; at `u64::MAX` of all that there are.
    fn tell_until(&mut self, elapsed: u64) {
        let over = (elapsed / SECOND_NS).min(self.sent.seconds.len() as u64);
        while self.told < over {
            let second = self.sent.seconds[self.told as usize];
            event!(
                "pace",
                "second",
                self.told,
                packets = second.packets,
                bytes = second.bytes,
                skipped = second.skipped,
                late_max_ns = second.late_max_ns.unwrap_or(0),
                bit_s = 8 * second.bytes
            );
            (self.tell)(self.told, second);
            self.told += 1;
        }
    }
}
