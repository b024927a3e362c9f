//! The producer: every message at its time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use loopscope_messages::MessageType;
use loopscope_phase::{Config, Phase, Values};
use loopscope_time::MonotonicNs;
use loopscope_timer::{Timer, now};
use loopscope_trace::event;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::args::ProduceArgs;
use super::flow::{Flow, Part, TABLE_KEYS};
use super::outlet::{Outlet, Stream, connect};
use super::report::{self, Tally};
use crate::departures::Departures;
use crate::program::NOT_CONNECTED;
use crate::settings::Settings;
use crate::stop::Stop;

loopscope_trace::describe!("pattern", "sent", "", "A message is handed to the kernel");

/// How close the reading of the clock that tells the lateness is to the event's stamp.
const WITHIN_NS: u32 = 1000;

/// How long before a deadline a program no longer heeds Ctrl-C.
const DEAF: Duration = Duration::from_millis(50);

/// From the begin of the run to the instant that the first deadlines are counted from.
const LEAD_NS: u64 = 10_000_000;

pub(crate) fn phases(
    args: ProduceArgs,
    component: Option<String>,
    stop: Arc<Stop>,
) -> impl FnMut(&Phase, &Config) -> Result<Values> {
    let mut connected = None;
    move |phase, config| {
        let known = [&TABLE_KEYS[..], &["duration", "seed", "timer"]].concat();
        let settings = Settings::new(config, &known)?;
        match phase.name.as_str() {
            "connect" => {
                let part = Part::read(&args.table, &settings, config, component.as_deref())?;
                let duration = settings.duration("duration", args.duration)?;
                let seed = settings.number("seed", args.seed, 0, u64::MAX)?;
                let timer = settings.choice("timer", args.timer)?;
                let outlets = connect(&part, &args.to, phase)?;
                let sender = |(flow, outlet)| Sender::new(flow, part.message_type(flow), outlet);
                let senders: Vec<Sender> = outlets.into_iter().map(sender).collect();
                connected = Some((part, senders, duration, seed, Timer::new(timer.into())));
            }
            _ => {
                let (part, senders, duration, seed, timer) =
                    connected.take().context(NOT_CONNECTED)?;
                stop.heed_signals()?;
                let run = Run { senders, timer, stop: Arc::clone(&stop) };
                let senders = run.send(duration, seed)?;
                let sent = senders.iter().map(|each| (each.flow, each.tally));
                report::sent(&part, sent)?;
            }
        }
        Ok(vec![])
    }
}

/// One producer of one type.
struct Sender {
    flow: Flow,
    period_ns: u64,
    /// The next message's deadline.
    due: MonotonicNs,
    tally: Tally,
    outlet: Outlet,
}

struct Run {
    senders: Vec<Sender>,
    timer: Timer,
    stop: Arc<Stop>,
}

impl Run {
    fn send(mut self, duration: Duration, seed: u64) -> Result<Vec<Sender>> {
        let start = now().plus(LEAD_NS);
        let end = start.plus(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 2));
        for sender in &mut self.senders {
            sender.due = start.plus(offset(seed, sender.flow, sender.period_ns));
        }
        let largest =
            self.senders.iter().filter_map(|each| each.outlet.stream_size()).max().unwrap_or(0);
        let zeros = vec![0; largest];
        let due = |(i, sender): (usize, &Sender)| Reverse((sender.due.0, i));
        let mut order: BinaryHeap<_> = self.senders.iter().enumerate().map(due).collect();
        while let Some(Reverse((due, i))) = order.pop() {
            if due >= end.0 {
                break;
            }
            self.wait(MonotonicNs(due), &zeros)?;
            if self.stop.is_set() {
                break;
            }
            let sender = &mut self.senders[i];
            sender.send(&zeros)?;
            order.push(Reverse((sender.due.0, i)));
        }
        self.finish(&zeros)?;
        Ok(self.senders)
    }

    /// Until a deadline; meanwhile connections that had no room get what is left of their messages.
    fn wait(&mut self, due: MonotonicNs, zeros: &[u8]) -> Result<()> {
        while !self.stop.is_set() {
            let left = Duration::from_nanos(due.ns_since(now()).max(0).cast_unsigned());
            if !self.flush(zeros)? {
                if left.is_zero() {
                    return Ok(());
                }
                self.wait_for_room(Some(left))?;
            } else if left > 2 * DEAF {
                self.stop.sleep_until(Instant::now() + left - DEAF)?;
            } else {
                self.timer.until(due).context("cannot sleep until the next deadline")?;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether nothing is left.
    fn flush(&mut self, zeros: &[u8]) -> Result<bool> {
        let mut empty = true;
        for stream in self.senders.iter_mut().flat_map(|each| each.outlet.streams()) {
            empty &= stream.flush(zeros)?;
        }
        Ok(empty)
    }

    fn wait_for_room(&mut self, left: Option<Duration>) -> Result<()> {
        let streams = self.senders.iter_mut().flat_map(|each| each.outlet.streams());
        let streams: Vec<&Stream> = streams.map(|s| &*s).filter(|s| s.has_waiting()).collect();
        let mut sockets: Vec<PollFd> =
            streams.iter().map(|stream| PollFd::new(stream.as_fd(), PollFlags::POLLOUT)).collect();
        if !self.stop.is_set() {
            // To be woken.
            sockets.push(PollFd::new(self.stop.fd(), PollFlags::empty()));
        }
        match ppoll(&mut sockets, left.map(TimeSpec::from_duration), None) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error).context("cannot wait for a connection"),
        }
    }

    /// Hands over what is left, tells all consumers that there is no more, then waits until they
    /// have everything.
    fn finish(&mut self, zeros: &[u8]) -> Result<()> {
        while !self.flush(zeros)? {
            self.wait_for_room(None)?;
        }
        let what = "the end of the messages";
        for sender in &mut self.senders {
            sender.outlet.end(sender.tally.sent)?;
        }
        for link in self.senders.iter_mut().flat_map(|each| each.outlet.links()) {
            let got = link.receive(&mut [0], what)?;
            ensure!(got == 0, "{} sent something where nothing was due, at {what}", link.peer);
        }
        for sender in &mut self.senders {
            sender.outlet.record_departures()?;
        }
        Ok(())
    }
}

impl Sender {
    fn new(flow: Flow, each: &MessageType, outlet: Outlet) -> Sender {
        let (period_ns, due) = (each.period_ns, MonotonicNs(0));
        Sender { flow, period_ns, due, tally: Tally::default(), outlet }
    }

    /// Sends the message that is due and sets the next deadline.
    fn send(&mut self, zeros: &[u8]) -> Result<()> {
        let number = self.tally.sent.checked_add(1).context("there are no more message numbers")?;
        let id = self.flow.id(number).to_bits();
        let (late_ns, sent) = Departures::sending(id, || stamp(id, self.flow, self.due))?;
        self.outlet.send(id, sent, zeros)?;
        self.tally.sent = number;
        self.tally.largest_late_ns = self.tally.largest_late_ns.max(late_ns);
        self.due = self.due.plus(self.period_ns);
        Ok(())
    }
}

/// Records that a message is sent, and how late; again, with a wider bound each time, where the
/// program was held up between the look at the clock and the stamp. The last record counts.
fn stamp(id: u64, flow: Flow, due: MonotonicNs) -> i64 {
    let Flow { message_type, producer } = flow;
    let mut within_ns = WITHIN_NS;
    loop {
        let before = now();
        let late_ns = before.ns_since(due);
        event!(
            "pattern",
            "sent",
            id,
            message_type = message_type,
            producer = producer,
            late_ns = late_ns,
            within_ns = within_ns
        );
        if now().ns_since(before) <= within_ns.into() {
            return late_ns;
        }
        within_ns = within_ns.saturating_mul(2);
    }
}

/// From the start to a flow's first deadline.
fn offset(seed: u64, flow: Flow, period_ns: u64) -> u64 {
    // Numbers of small seeds and the flow's part of an id do not overlap.
    fastrand::Rng::with_seed(seed ^ flow.id(0).to_bits()).u64(..period_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_deadlines_are_spread_over_the_period_and_follow_from_the_seed() {
        let flows = |seed| {
            (0..48_u16).flat_map(move |message_type| {
                (0..4).map(move |producer| offset(seed, Flow { message_type, producer }, 100))
            })
        };
        assert_eq!(flows(1).collect::<Vec<_>>(), flows(1).collect::<Vec<_>>());
        assert_ne!(flows(1).collect::<Vec<_>>(), flows(2).collect::<Vec<_>>());
        let mut tenths = [0; 10];
        flows(1).for_each(|part| tenths[part as usize / 10] += 1);
        // 19.2 on average.
        assert!(tenths.iter().all(|n| (8..=32).contains(n)), "{tenths:?}");
    }
}
