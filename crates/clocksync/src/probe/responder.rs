//! The side of the reference, and of a follower that its peers probe: answers every probe of who has the key.
//!
//! A probe that does not know this responder's session is told it and changes nothing else, so that
//! what was recorded before the responder was started makes no state. One that does is answered
//! once.

use std::collections::{HashMap, VecDeque};
use std::io::{self, PipeReader};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use loopscope_time::{Counter, Frequency};

use super::packet::{Answer, Kind, Packet, Stamped};
use super::replay::ReplayWindow;
use super::socket::{self, Arrival, Departure, Sent, StampedSocket, TURN};
use super::surroundings::Surroundings;
use super::{Cause, Counts, Order, PATIENCE, ProbeError, Side, Worker, entropy};
use crate::Span;
use crate::counter::require_invariant;
use crate::key::Key;
use crate::loops::Reckoning;
use crate::online::Online;
use crate::record::{Moment, Observation, ProbeWriter, Source};
use crate::utc::{Standing, Watch};

/// Sessions of followers that are remembered.
const SESSIONS: usize = 1024;
/// Between two greetings. An ask may be a recorded one: at this pace, faster than which somebody
/// would have to replay it to keep newcomers waiting, greetings are no load.
const GREETING_GAP: Duration = Duration::from_micros(100);
/// Stamps of replies that wait to be told to a follower: those of two pairs.
const UNTOLD: usize = 4;

/// What replies tell besides their stamps.
#[derive(Clone, Debug)]
pub enum Told {
    /// Nothing.
    Nothing,
    /// UTC, as the reference knows it.
    Utc(Arc<Watch>),
    /// Global time, as a follower knows it, whose prober looks at its other clocks.
    Global(Arc<Mutex<Online>>),
}

/// A running responder. Dropping it ends it at once.
#[derive(Debug)]
pub struct Responder {
    address: SocketAddr,
    worker: Worker,
}

impl Responder {
    /// Begins to answer on `side.address`.
    pub fn start(side: Side) -> Result<Responder, ProbeError> {
        Responder::telling(side, Told::Nothing)
    }

    /// As [`Self::start`]; replies tell what is known of other times.
    pub fn telling(side: Side, told: Told) -> Result<Responder, ProbeError> {
        require_invariant()?;
        Responder::on(StampedSocket::bind(&side)?, side, told)
    }

    pub(super) fn on(
        socket: StampedSocket,
        side: Side,
        told: Told,
    ) -> Result<Responder, ProbeError> {
        let address = socket.address();
        let system = |source| ProbeError::System { address, source };
        let session = entropy().map_err(system)?;
        let frequency = side.identity.frequency;
        let log = ProbeWriter::create(side.directory.as_deref(), &side.identity, side.filter)?;
        let answering = Answering {
            socket,
            log,
            // A follower's prober looks at them.
            surroundings: (!matches!(told, Told::Global(_))).then(|| Surroundings::new(frequency)),
            key: side.key,
            counts: Counts::default(),
            session,
            frequency,
            told,
            followers: HashMap::new(),
            greeted: None,
            unstamped: VecDeque::new(),
        };
        let worker =
            Worker::spawn("clock-responder", move |control| answering.run(control, address))
                .map_err(system)?;
        Ok(Responder { address, worker })
    }

    /// Where it answers.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether it has failed; [`Self::stop`] says why.
    pub fn has_ended(&self) -> bool {
        self.worker.has_ended()
    }

    /// Ends it and completes the log.
    pub fn stop(self) -> Result<Counts, ProbeError> {
        self.worker.stop()
    }
}

/// A follower's session.
#[derive(Default)]
struct Follower {
    window: ReplayWindow,
    /// Its replies' stamps that it does not know yet, oldest first.
    untold: VecDeque<(u64, Stamped)>,
    heard: Option<Instant>,
}

/// Client id and nonce.
type Session = (u32, u64);

/// A reply whose stamp is still out.
struct Unstamped {
    key: u32,
    to: Session,
    seq: u64,
    user: Span,
    deadline: Instant,
}

struct Answering {
    socket: StampedSocket,
    log: ProbeWriter,
    surroundings: Option<Surroundings>,
    key: Key,
    counts: Counts,
    session: u64,
    frequency: Frequency,
    told: Told,
    followers: HashMap<Session, Follower>,
    /// The last greeting.
    greeted: Option<Instant>,
    /// By deadline.
    unstamped: VecDeque<Unstamped>,
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
            if let Some(surroundings) = &mut self.surroundings {
                surroundings.look_if_due(now, &mut self.socket, &mut self.log)?;
            }
            self.log.flush_if_due(now)?;
            match ordered {
                Some(Order::Abandon) => break,
                Some(Order::Stop) if self.unstamped.is_empty() => break,
                _ => {}
            }
            let deadline = self.unstamped.front().map(|reply| reply.deadline);
            let until =
                [deadline, self.log.due(), self.surroundings.as_ref().map(Surroundings::due)];
            let until = until.into_iter().flatten().min();
            ordered =
                socket::wait(&[&self.socket], &mut control, until).map_err(system)?.or(ordered);
        }
        while !self.unstamped.is_empty() {
            self.give_up_first()?;
        }
        self.log.flush()?;
        self.counts.traffic = self.socket.traffic();
        Ok(self.counts)
    }

    fn take_in(&mut self) -> Result<(), ProbeError> {
        self.take_departures()?;
        for _ in 0..TURN {
            let Some(arrival) = self.socket.next_arrival(&mut self.counts) else { break };
            self.answer(&arrival)?;
            // The next reply may tell its stamp.
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
        let probe = match Packet::decode(&arrival.bytes[..arrival.length], &self.key) {
            Ok(packet) => packet,
            Err(refusal) => {
                self.counts.refuse(refusal);
                return Ok(());
            }
        };
        let (Kind::Probe, Some(from)) = (probe.kind, arrival.from) else {
            self.counts.lose(Cause::ForeignPacket);
            return Ok(());
        };
        if probe.session != self.session {
            return self.greet(probe, from);
        }
        let to = (probe.client, probe.nonce);
        let follower = self.follower(to);
        if !follower.window.admit(probe.seq) {
            self.counts.lose(Cause::ReplayedPacket);
            return Ok(());
        }
        follower.heard = Some(Instant::now());
        let previous = follower.untold.pop_front();

        let limits = Span { lo: Counter(0), hi: arrival.read };
        let user = Span { lo: arrival.read, hi: arrival.read };
        let received =
            self.socket.place(arrival.stamp, limits, user, Cause::NoRxStamp, &mut self.counts);
        self.see(Moment::ProbeReceived, to, probe.seq, received)?;

        let received = Stamped { span: self.log.shown(received.span), ..received };
        let frequency = self.frequency;
        let (utc, reckoning) = match &self.told {
            Told::Nothing => (Standing::default(), None),
            Told::Utc(watch) => (watch.standing(frequency), None),
            Told::Global(online) => {
                let online = online.lock().unwrap_or_else(PoisonError::into_inner);
                (Standing::default(), Reckoning::of(&online, received.span))
            }
        };
        let answer = Answer { frequency, received, previous, utc, reckoning };
        let reply = Packet { kind: Kind::Reply(answer), ..probe };
        let Some(sent) = self.send(&reply, from)? else { return Ok(()) };
        self.counts.sent += 1;
        self.counts.answered += 1;
        let deadline = Instant::now() + PATIENCE;
        let key = sent.key.unwrap_or_default();
        self.unstamped.push_back(Unstamped { key, to, seq: probe.seq, user: sent.user, deadline });
        if sent.key.is_none() {
            self.give_up_first()?;
        }
        Ok(())
    }

    /// Tells who does not know it the session, unless too many ask.
    fn greet(&mut self, probe: Packet, to: SocketAddr) -> Result<(), ProbeError> {
        let now = Instant::now();
        let too_many = self.greeted.is_some_and(|last| now < last + GREETING_GAP);
        // One that knows none asks for it.
        if too_many || probe.session != 0 {
            self.counts.lose(Cause::UnknownSession);
        }
        if too_many {
            return Ok(());
        }
        self.greeted = Some(now);
        let greeting = Packet { kind: Kind::Greeting, session: self.session, ..probe };
        // Nobody waits for its stamp.
        self.send(&greeting, to).map(|_| ())
    }

    fn send(&mut self, packet: &Packet, to: SocketAddr) -> Result<Option<Sent>, ProbeError> {
        let sent = self.socket.send(&packet.encode(&self.key), to);
        if sent.is_err() {
            self.counts.lose(Cause::SendFailed);
            // Their keys are void.
            while !self.unstamped.is_empty() {
                self.give_up_first()?;
            }
        }
        Ok(sent.ok())
    }

    /// The follower's session; a new one may push out the one that was heard of longest ago.
    fn follower(&mut self, session: Session) -> &mut Follower {
        if self.followers.len() >= SESSIONS && !self.followers.contains_key(&session) {
            let oldest = self.followers.iter().min_by_key(|(_, follower)| follower.heard);
            if let Some(oldest) = oldest.map(|(session, _)| *session) {
                self.followers.remove(&oldest);
            }
        }
        self.followers.entry(session).or_default()
    }

    fn stamped(&mut self, departure: &Departure) -> Result<(), ProbeError> {
        let found = self.unstamped.iter().rposition(|reply| reply.key == departure.key);
        let Some(reply) = found.and_then(|at| self.unstamped.remove(at)) else {
            // Of a greeting; or it came after its deadline and is counted.
            return Ok(());
        };
        let limits = Span { lo: reply.user.lo, hi: departure.read };
        let (stamp, user) = (Some(departure.stamp), reply.user);
        let sent = self.socket.place(stamp, limits, user, Cause::NoTxStamp, &mut self.counts);
        self.sent(&reply, sent)
    }

    /// Takes the program's own stamp for the oldest reply without one.
    fn give_up_first(&mut self) -> Result<(), ProbeError> {
        let Some(reply) = self.unstamped.pop_front() else { return Ok(()) };
        self.counts.lose(Cause::NoTxStamp);
        self.sent(&reply, Stamped { span: reply.user, source: Source::User })
    }

    fn sent(&mut self, reply: &Unstamped, sent: Stamped) -> Result<(), ProbeError> {
        let shown = Stamped { span: self.log.shown(sent.span), ..sent };
        if let Some(follower) = self.followers.get_mut(&reply.to) {
            if follower.untold.len() == UNTOLD {
                follower.untold.pop_front();
            }
            follower.untold.push_back((reply.seq, shown));
        }
        self.see(Moment::ReplySent, reply.to, reply.seq, sent)
    }

    fn see(
        &mut self,
        moment: Moment,
        (peer, _): Session,
        seq: u64,
        Stamped { span, source }: Stamped,
    ) -> Result<(), ProbeError> {
        Ok(self.log.log(&Observation { moment, peer, seq, span, source })?)
    }
}
