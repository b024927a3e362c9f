//! The reference's side: answers every probe.

use std::collections::VecDeque;
use std::io::{self, PipeReader};
use std::net::SocketAddr;
use std::time::Instant;

use super::packet::{Kind, Packet};
use super::socket::{Arrival, Departure, StampedSocket};
use super::{Cause, Counts, Order, PATIENCE, ProbeError, Side, Worker};
use crate::Span;
use crate::record::{Filter, Moment, Observation, ProbeWriter, Source};
use crate::stamp::ordered_counter;
use loopscope_time::{Counter, Frequency};

/// A running responder. Dropping it ends it at once.
#[derive(Debug)]
pub struct Responder {
    address: SocketAddr,
    worker: Worker,
}

impl Responder {
    /// Begins to answer on `side.address`, at a port that the system chooses.
    pub fn start(side: Side) -> Result<Responder, ProbeError> {
        Responder::on(StampedSocket::bind(&side)?, side)
    }

    pub(super) fn on(socket: StampedSocket, side: Side) -> Result<Responder, ProbeError> {
        let address = socket.address();
        let frequency = side.identity.frequency;
        let log = ProbeWriter::create(&side.directory, &side.identity, side.filter.clone())?;
        let (counts, unstamped) = (Counts::default(), VecDeque::new());
        let answering =
            Answering { socket, log, counts, unstamped, frequency, filter: side.filter };
        let worker =
            Worker::spawn("clock-responder", move |control| answering.run(control, address))
                .map_err(|source| ProbeError::System { address, source })?;
        Ok(Responder { address, worker })
    }

    /// Where it answers.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it and completes the log.
    pub fn stop(self) -> Result<Counts, ProbeError> {
        self.worker.stop()
    }
}

/// A reply whose kernel stamp is still out.
struct Unstamped {
    key: u32,
    peer: u32,
    seq: u64,
    user: Span,
    deadline: Instant,
}

struct Answering {
    socket: StampedSocket,
    log: ProbeWriter,
    counts: Counts,
    /// By deadline.
    unstamped: VecDeque<Unstamped>,
    frequency: Frequency,
    filter: Option<Filter>,
}

impl Answering {
    fn run(mut self, mut control: PipeReader, address: SocketAddr) -> Result<Counts, ProbeError> {
        let system = |source: io::Error| ProbeError::System { address, source };
        let mut ordered = None;
        loop {
            self.take_in()?;
            let now = Instant::now();
            while self.unstamped.front().is_some_and(|reply| reply.deadline <= now) {
                self.give_up_first()?;
            }
            self.log.flush_if_due(now)?;
            match ordered {
                Some(Order::Abandon) => break,
                Some(Order::Stop) if self.unstamped.is_empty() => break,
                _ => {}
            }
            let deadline = self.unstamped.front().map(|reply| reply.deadline);
            let until = deadline.into_iter().chain(self.log.due()).min();
            ordered = self.socket.wait(&mut control, until).map_err(system)?.or(ordered);
        }
        while !self.unstamped.is_empty() {
            self.give_up_first()?;
        }
        self.log.flush()?;
        Ok(self.counts)
    }

    fn take_in(&mut self) -> Result<(), ProbeError> {
        self.take_departures()?;
        while let Some(arrival) = self.socket.next_arrival(&mut self.counts) {
            self.answer(&arrival)?;
            // A stamp's interval widens with its age.
            self.take_departures()?;
        }
        Ok(())
    }

    fn take_departures(&mut self) -> Result<(), ProbeError> {
        while let Some(departure) = self.socket.next_departure(&mut self.counts) {
            self.stamped(&departure)?;
        }
        Ok(())
    }

    fn answer(&mut self, arrival: &Arrival) -> Result<(), ProbeError> {
        let Some(probe) = Packet::decode(&arrival.bytes[..arrival.length]) else {
            self.counts.lose(Cause::MalformedPacket);
            return Ok(());
        };
        let (Kind::Probe, Some(from)) = (probe.kind, arrival.from) else {
            self.counts.lose(Cause::ForeignPacket);
            return Ok(());
        };
        let limits = Span { lo: Counter(0), hi: arrival.read };
        let user = Span { lo: arrival.read, hi: arrival.read };
        let (span, source) =
            self.socket.place(arrival.kernel, limits, user, Cause::NoRxStamp, &mut self.counts);
        let (peer, seq) = (probe.client, probe.seq);
        self.log.log(&Observation { moment: Moment::ProbeReceived, peer, seq, span, source })?;

        let now = ordered_counter();
        let now = self.filter.as_ref().map_or(now, |filter| filter(now));
        let global = self.frequency.scale(now);
        let reply = Packet { kind: Kind::Reply, global, ..probe };
        let Ok(sent) = self.socket.send(&reply.encode(), from) else {
            self.counts.lose(Cause::SendFailed);
            // Their keys are void.
            while !self.unstamped.is_empty() {
                self.give_up_first()?;
            }
            return Ok(());
        };
        self.counts.sent += 1;
        self.counts.answered += 1;
        let deadline = Instant::now() + PATIENCE;
        let key = sent.key.unwrap_or_default();
        self.unstamped.push_back(Unstamped { key, peer, seq, user: sent.user, deadline });
        if sent.key.is_none() {
            self.give_up_first()?;
        }
        Ok(())
    }

    fn stamped(&mut self, departure: &Departure) -> Result<(), ProbeError> {
        let found = self.unstamped.iter().rposition(|reply| reply.key == departure.key);
        let Some(reply) = found.and_then(|at| self.unstamped.remove(at)) else {
            // Came after its deadline and is counted.
            return Ok(());
        };
        let limits = Span { lo: reply.user.lo, hi: departure.read };
        let kernel = Some(departure.kernel);
        let (span, source) =
            self.socket.place(kernel, limits, reply.user, Cause::NoTxStamp, &mut self.counts);
        self.log_reply(&reply, span, source)
    }

    /// Takes the program's own stamp for the oldest reply without one.
    fn give_up_first(&mut self) -> Result<(), ProbeError> {
        let Some(reply) = self.unstamped.pop_front() else { return Ok(()) };
        self.counts.lose(Cause::NoTxStamp);
        self.log_reply(&reply, reply.user, Source::User)
    }

    fn log_reply(
        &mut self,
        reply: &Unstamped,
        span: Span,
        source: Source,
    ) -> Result<(), ProbeError> {
        let Unstamped { peer, seq, .. } = *reply;
        Ok(self.log.log(&Observation { moment: Moment::ReplySent, peer, seq, span, source })?)
    }
}
