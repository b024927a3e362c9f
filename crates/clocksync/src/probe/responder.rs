//! The side of the reference, and of a follower that its peers probe: answers every probe of who
//! has the key.
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
use nix::time::ClockId;

use super::arrival::Arrival;
use super::demand::{self, Demand};
use super::local_clocks::LocalClocks;
use super::packet::{Answer, Kind, Packet, Stamped};
use super::replay::ReplayWindow;
use super::socket::{self, Departure, Sent, StampedSocket, TURN};
use super::{Cause, Counts, Order, PATIENCE, ProbeError, Side, Worker, entropy};
use crate::Span;
use crate::key::Key;
use crate::loops::Reckoning;
use crate::online::Online;
use crate::record::{Moment, Observation, ProbeWriter, Source};
use crate::skew::{self, require_one};
use crate::stamp::nanoseconds_of;
use crate::utc::{Standing, Watch};

/// Sessions of followers that are remembered: some 30 MB if there are so many.
const SESSIONS: usize = 65_536;
/// Greetings a second. An ask may be a recorded one, which anybody can send again: at this pace
/// greetings take some hundredths of a processor, and to keep newcomers waiting somebody would have
/// to send faster than that. All followers of a reference that is started anew ask at the same
/// time: ten thousand of them know its session within seconds.
const GREETINGS_HZ: u32 = 10_000;
/// Greetings that may follow each other at once, as asks are read in turns.
const GREETINGS_AT_ONCE: u32 = 256;
/// Stamps of replies that wait for a follower's next probe: older ones come too late for it.
const PENDING_STAMPS: usize = 8;

/// The time that replies carry besides their stamps.
#[derive(Clone, Debug)]
pub enum ReplyTime {
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
    online: Arc<Mutex<Online>>,
    worker: Worker,
}

impl Responder {
    /// Begins to answer on `side.address`.
    pub fn start(side: Side) -> Result<Responder, ProbeError> {
        Responder::with_time(side, ReplyTime::Nothing)
    }

    /// Starts a responder as [`Self::start`] does; its replies also report what is known of other
    /// times.
    pub fn with_time(side: Side, time: ReplyTime) -> Result<Responder, ProbeError> {
        require_one(side.identity.frequency)?;
        Responder::on(StampedSocket::bind(&side)?, side, time)
    }

    pub(super) fn on(
        socket: StampedSocket,
        side: Side,
        time: ReplyTime,
    ) -> Result<Responder, ProbeError> {
        let address = socket.address();
        let system = |source| ProbeError::System { address, source };
        let session = entropy().map_err(system)?;
        let frequency = side.identity.frequency;
        let mut log = ProbeWriter::create(side.directory.as_deref(), &side.identity, side.filter)?;
        let apart = skew::of_this_machine().within();
        log.log_processors(apart)?;
        // A follower's prober knows more.
        let online = Arc::new(Mutex::new(skew::reference(frequency)));
        let answering = Answering {
            socket,
            online: online.clone(),
            log,
            // A follower's prober looks at them.
            local_clocks: (!matches!(time, ReplyTime::Global(_)))
                .then(|| LocalClocks::new(frequency)),
            key: side.key,
            counts: Counts::default(),
            session,
            frequency,
            time,
            followers: HashMap::new(),
            greeted: Instant::now(),
            demand: Demand::default(),
            apart,
            looked: (Instant::now(), 0),
            unstamped: VecDeque::new(),
        };
        let worker =
            Worker::spawn("clock-responder", move |control| answering.run(control, address))
                .map_err(system)?;
        Ok(Responder { address, online, worker })
    }

    /// What a reference, whose counter is the global clock, knows of that: when it was disturbed.
    pub fn online(&self) -> Arc<Mutex<Online>> {
        self.online.clone()
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

/// Nanoseconds that this thread has run.
fn own_time() -> i64 {
    nanoseconds_of(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// A follower's session.
#[derive(Default)]
struct Follower {
    window: ReplayWindow,
    /// Its replies' stamps that it does not know yet, oldest first.
    pending: VecDeque<(u64, Stamped)>,
    reply_statistics: Option<Instant>,
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
    local_clocks: Option<LocalClocks>,
    online: Arc<Mutex<Online>>,
    key: Key,
    counts: Counts,
    session: u64,
    frequency: Frequency,
    time: ReplyTime,
    followers: HashMap<Session, Follower>,
    /// Until when the greetings so far have used up what may be sent of them.
    greeted: Instant,
    demand: Demand,
    /// How far the counters of two processors may be apart, in ticks.
    apart: u64,
    /// When the demand was looked at, and the thread's own time then.
    looked: (Instant, i64),
    /// By deadline.
    unstamped: VecDeque<Unstamped>,
}

impl Answering {
    fn run(mut self, mut control: PipeReader, address: SocketAddr) -> Result<Counts, ProbeError> {
        let system = |source: io::Error| ProbeError::System { address, source };
        self.looked = (Instant::now(), own_time());
        let mut ordered = None;
        loop {
            self.take_in()?;
            let now = Instant::now();
            while self.unstamped.front().is_some_and(|reply| reply.deadline <= now) {
                self.give_up_first()?;
            }
            if let Some(local_clocks) = &mut self.local_clocks {
                local_clocks.look_if_due(now, &mut self.socket, &mut self.log, &self.online)?;
            }
            self.log.flush_if_due(now)?;
            self.look_at_demand(now);
            match ordered {
                Some(Order::Abandon) => break,
                Some(Order::Stop) if self.unstamped.is_empty() => break,
                _ => {}
            }
            let deadline = self.unstamped.front().map(|reply| reply.deadline);
            let until =
                [deadline, self.log.due(), self.local_clocks.as_ref().map(LocalClocks::due)];
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

    /// Decides once in a while whether followers are to slow down.
    fn look_at_demand(&mut self, now: Instant) {
        let (last, own) = self.looked;
        let passed = now.saturating_duration_since(last);
        if passed >= demand::WINDOW {
            self.looked = (now, own_time());
            self.demand.decide((self.looked.1 - own) as f64 / passed.as_nanos() as f64);
        }
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
        follower.reply_statistics = Some(Instant::now());
        let previous = follower.pending.pop_front();

        let limits = Span { lo: Counter(0), hi: arrival.read };
        let user = Span { lo: arrival.read, hi: arrival.read };
        let received =
            self.socket.place(arrival.stamp, limits, user, Cause::NoRxStamp, &mut self.counts);
        if arrival.stamp.is_some() {
            let ticks = arrival.read.ticks_since(received.span.hi).max(0).cast_unsigned();
            let ns = self.frequency.scale(Counter(ticks)).0.unsigned_abs();
            // A stamp that is too old to be placed has waited for longer than any other.
            let placed = received.source != Source::User;
            self.demand.read(if placed { Duration::from_nanos(ns) } else { Duration::MAX });
        }
        self.see(Moment::ProbeReceived, to, probe.seq, received)?;

        let received = Stamped { span: self.log.shown(received.span), ..received };
        let frequency = self.frequency;
        let (utc, reckoning) = match &self.time {
            ReplyTime::Nothing => (Standing::default(), None),
            ReplyTime::Utc(watch) => (watch.standing(frequency), None),
            ReplyTime::Global(online) => {
                let online = online.lock().unwrap_or_else(PoisonError::into_inner);
                (Standing::default(), Reckoning::of(&online, received.span))
            }
        };
        let (slower, apart) = (self.demand.slower(), self.apart);
        let answer = Answer { frequency, received, previous, utc, reckoning, slower, apart };
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
        let gap = Duration::from_secs(1) / GREETINGS_HZ;
        let too_many = self.greeted > now + gap * GREETINGS_AT_ONCE;
        // One that knows none asks for it.
        if too_many || probe.session != 0 {
            self.counts.lose(Cause::UnknownSession);
        }
        if too_many {
            return Ok(());
        }
        self.greeted = self.greeted.max(now) + gap;
        let greeting = Packet { kind: Kind::Greeting, session: self.session, ..probe };
        // The greeting's stamp is not used.
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

    /// The follower's session; a new one may push out the one whose last message is the oldest.
    fn follower(&mut self, session: Session) -> &mut Follower {
        if self.followers.len() >= SESSIONS && !self.followers.contains_key(&session) {
            let oldest =
                self.followers.iter().min_by_key(|(_, follower)| follower.reply_statistics);
            if let Some(oldest) = oldest.map(|(session, _)| *session) {
                self.followers.remove(&oldest);
            }
        }
        self.followers.entry(session).or_default()
    }

    fn stamped(&mut self, departure: &Departure) -> Result<(), ProbeError> {
        // Their numbers rise: where thousands wait, few are looked at.
        let first = self.unstamped.front().map_or(0, |reply| reply.key);
        let after = |key: u32| key.wrapping_sub(first);
        let found = self.unstamped.binary_search_by_key(&after(departure.key), |r| after(r.key));
        let Some(reply) = found.ok().and_then(|at| self.unstamped.remove(at)) else {
            // The reply to a greeting; or it came after its deadline and is counted.
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
            if follower.pending.len() == PENDING_STAMPS {
                follower.pending.pop_front();
            }
            follower.pending.push_back((reply.seq, shown));
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

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use super::super::packet;
    use super::*;
    use crate::record::Identity;

    /// What the schema promises is what the code does.
    #[test]
    fn the_limits_are_those_of_the_schema() {
        let schema = include_str!("../../../../schema/clock-log.md");
        for promise in
            [format!("at most {GREETINGS_HZ} a second"), format!("remembers {SESSIONS} of these")]
        {
            assert!(schema.contains(&promise), "{promise}");
        }
    }

    /// Sends a probe; the reply, or none where the responder has counted the packet after it.
    fn ask(socket: &UdpSocket, key: &Key, probe: Packet) -> Packet {
        socket.send(&probe.encode(key)).unwrap();
        let mut bytes = [0; packet::SIZE];
        let length = socket.recv(&mut bytes).unwrap();
        Packet::decode(&bytes[..length], key).unwrap()
    }

    /// Thousands of followers, each with a session: the first one's is known after the last one's,
    /// so that a recorded probe of it is not answered again.
    #[test]
    fn thousands_of_followers_have_their_sessions_at_the_same_time() {
        const FOLLOWERS: u32 = 3000;
        let key = Key::new(&[7; 32]).unwrap();
        let frequency = Frequency::from_hz(1_000_000_000).unwrap();
        let identity =
            Identity { host: "ref".into(), trace_uuid: [1; 16], clock_uuid: [2; 16], frequency };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let side = Side {
            address,
            directory: None,
            identity,
            key: key.clone(),
            filter: None,
            faults: None,
            own_interface: false,
            before_stamps: None,
        };
        let responder = Responder::start(side).unwrap();
        let socket = UdpSocket::bind(address).unwrap();
        socket.connect(responder.address()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let probe = |client: u32, session, seq| {
            let nonce = u64::from(client) + 1;
            Packet { kind: Kind::Probe, client, nonce, session, seq }
        };
        let session = ask(&socket, &key, probe(0, 0, 0)).session;
        for client in 0..FOLLOWERS {
            let reply = ask(&socket, &key, probe(client, session, 0));
            assert!(matches!(reply.kind, Kind::Reply(_)));
        }
        // The replayed one gets no answer: the next that comes is to the new one.
        for client in [0, FOLLOWERS / 2] {
            socket.send(&probe(client, session, 0).encode(&key)).unwrap();
            assert_eq!(ask(&socket, &key, probe(client, session, 1)).seq, 1);
        }
        let counts = responder.stop().unwrap();
        assert_eq!(counts.answered, u64::from(FOLLOWERS) + 2);
        assert_eq!(counts.lost.get(&Cause::ReplayedPacket), Some(&2));
    }
}
