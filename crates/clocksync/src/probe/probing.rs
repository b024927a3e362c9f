//! Probes of one other host: coded pairs, in bursts and, between them, at a steady rate. Whose
//! thread it is calls [`Probing::turn`] when something has come or is due.

mod answers;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use loopscope_time::Frequency;

use super::load::Load;
use super::local_clocks::LocalClocks;
use super::outcome::{Assembly, Outcome};
use super::pace::{PAIR, Pace, Rhythm};
use super::packet::{Kind, Packet, Stamped};
use super::reply_statistics::ReplyStatistics;
use super::socket::StampedSocket;
use super::{Cause, Counts, PATIENCE, ProbeError, Side, entropy};
use crate::key::Key;
use crate::online::Online;
use crate::record::{Moment, Observation, ProbeWriter, Source};
use crate::synthetic::SplitMix64;
use crate::{Span, skew};

/// How far apart they leave: more than a packet takes on a link of 100 Mbit/s, little enough that
/// they meet the same queue.
const PAIR_DISTANCE: Duration = Duration::from_micros(10);
/// From one burst for load to the next, at least.
const BURST_PAUSE: Duration = Duration::from_secs(5);
/// How long the first answer is waited for.
pub(super) const FIRST_ANSWER: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Asks for the reference's session.
    Greeting,
    /// `left` more to send, then wait for what is out.
    First { left: u32 },
    /// At the usual rate, or `extra` more at that of a burst.
    Steady { extra: u32 },
    /// The last packets, with the same fields as `First`.
    Last { left: u32 },
}

/// A probe that waits for its stamp, its reply, or both.
struct Pending {
    key: u32,
    user: Span,
    deadline: Instant,
    stamped: bool,
    answered: bool,
    /// Sent at the usual rate.
    steady: bool,
}

pub(super) struct Probing {
    socket: StampedSocket,
    log: ProbeWriter,
    /// `None`: somebody else on this host looks at them.
    local_clocks: Option<(LocalClocks, Arc<Mutex<Online>>)>,
    key: Key,
    assembly: Assembly,
    counts: Counts,
    reply_statistics: Arc<Mutex<ReplyStatistics>>,
    frequency: Frequency,
    reference: SocketAddr,
    client: u32,
    nonce: u64,
    /// The reference's; 0 before it is known.
    session: u64,
    random: SplitMix64,
    /// By sequence number, and so by deadline.
    pending: BTreeMap<u64, Pending>,
    /// The last probe that asked for the session.
    asked: Option<u64>,
    /// Even: the first of a pair.
    next_seq: u64,
    next_send: Instant,
    rhythm: Rhythm,
    stage: Stage,
    /// `None`: no bursts for it.
    load: Option<Load>,
    /// Exchanges of such a burst.
    load_burst: u32,
    /// Before that no burst for load.
    next_extra: Instant,
    /// When not to begin another first burst.
    give_up: Instant,
    /// Until the first burst is complete, where somebody waits for it.
    report: Option<Sender<u64>>,
}

impl Probing {
    /// `report` receives the outcome of each probe.
    pub(super) fn new(
        socket: StampedSocket,
        side: Side,
        reference: SocketAddr,
        pace: Pace,
        report: Box<dyn FnMut(&Outcome) + Send>,
    ) -> Result<Probing, ProbeError> {
        let system = |source| ProbeError::System { address: socket.address(), source };
        let mut random = SplitMix64::new(entropy().map_err(system)?);
        let frequency = side.identity.frequency;
        let mut log = ProbeWriter::create(side.directory.as_deref(), &side.identity, side.filter)?;
        log.log_processors(skew::of_this_machine().within())?;
        let now = Instant::now();
        let client = side.key.follower().unwrap_or(random.next() as u32);
        Ok(Probing {
            socket,
            log,
            local_clocks: None,
            key: side.key,
            assembly: Assembly::of(frequency, report),
            counts: Counts::default(),
            reply_statistics: Arc::default(),
            frequency,
            reference,
            client,
            nonce: random.next(),
            session: 0,
            random,
            pending: BTreeMap::new(),
            asked: None,
            next_seq: 0,
            next_send: now,
            rhythm: Rhythm::new(pace),
            stage: Stage::Greeting,
            load: None,
            load_burst: 0,
            next_extra: now,
            give_up: now + FIRST_ANSWER,
            report: None,
        })
    }

    /// A host's clock rests on it: it looks at other clocks too, sends more under load, and tells
    /// how many exchanges the first burst completed.
    pub(super) fn of_a_clock(
        self,
        report: Sender<u64>,
        online: Arc<Mutex<Online>>,
        load_burst: u32,
    ) -> Probing {
        let local_clocks = Some((LocalClocks::new(self.frequency), online));
        let load = (load_burst > 0).then(Load::default);
        let load_burst = load_burst.next_multiple_of(PAIR);
        Probing { local_clocks, load, load_burst, report: Some(report), ..self }
    }

    pub(super) fn socket(&self) -> &StampedSocket {
        &self.socket
    }

    /// Round trips and the standing of UTC, from the replies.
    pub(super) fn reply_statistics(&self) -> Arc<Mutex<ReplyStatistics>> {
        self.reply_statistics.clone()
    }

    /// Does what is due; until when it wants to wait then, `None` after the last burst.
    pub(super) fn turn(&mut self) -> Result<Option<Instant>, ProbeError> {
        loop {
            self.take_in()?;
            let now = Instant::now();
            self.expire(now)?;
            if let Some((local_clocks, online)) = &mut self.local_clocks {
                local_clocks.look_if_due(now, &mut self.socket, &mut self.log, online)?;
            }
            self.log.flush_if_due(now)?;
            let sending = match self.stage {
                Stage::Greeting => {
                    if self.session != 0 {
                        self.stage = Stage::First { left: self.rhythm.pace.burst };
                        self.next_send = now;
                    } else if now >= self.give_up {
                        self.notify_starter();
                    }
                    true
                }
                Stage::First { left: 0 } if self.pending.is_empty() => {
                    if self.counts.answered > 0 || now >= self.give_up {
                        self.stage = Stage::Steady { extra: 0 };
                        self.notify_starter();
                    } else {
                        self.stage = Stage::First { left: self.rhythm.pace.burst };
                    }
                    true
                }
                Stage::Last { left: 0 } if self.pending.is_empty() => return Ok(None),
                Stage::First { left } | Stage::Last { left } => left > 0,
                Stage::Steady { .. } => true,
            };
            if sending && self.next_send <= now {
                self.send(now)?;
                // Their stamps are there already on most devices.
                continue;
            }
            let deadline = self.pending.first_key_value().map(|(_, probe)| probe.deadline);
            let next_send = sending.then_some(self.next_send);
            let look = self.local_clocks.as_ref().map(|(local_clocks, _)| local_clocks.due());
            let dues = [deadline, next_send, self.log.due(), look];
            // There is one: where nothing is sent, something is pending.
            return Ok(Some(dues.into_iter().flatten().min().unwrap_or(now)));
        }
    }

    /// Begins it, if there is anybody to answer it.
    pub(super) fn last_burst(&mut self) {
        let left = if self.session == 0 { 0 } else { self.rhythm.pace.burst };
        self.stage = Stage::Last { left };
        self.next_send = Instant::now();
    }

    /// Probes `reference` from now on, from another socket. It may be who answered before; where it
    /// is not, its session tells.
    pub(super) fn redirect(
        &mut self,
        socket: StampedSocket,
        reference: SocketAddr,
    ) -> Result<(), ProbeError> {
        if matches!(self.stage, Stage::Last { .. }) {
            return Ok(());
        }
        self.expire_all()?;
        self.assembly.forget();
        let before = std::mem::replace(&mut self.socket, socket);
        self.counts.traffic = self.counts.traffic.and(before.traffic());
        let now = Instant::now();
        (self.reference, self.session, self.asked) = (reference, 0, None);
        (self.stage, self.next_send, self.give_up) = (Stage::Greeting, now, now + FIRST_ANSWER);
        self.rhythm.answered(0);
        Ok(())
    }

    /// Completes the log.
    pub(super) fn end(mut self) -> Result<Counts, ProbeError> {
        self.expire_all()?;
        self.assembly.end();
        self.log.flush()?;
        self.counts.traffic = self.counts.traffic.and(self.socket.traffic());
        Ok(self.counts)
    }

    /// The first burst is over, or was never answered.
    fn notify_starter(&mut self) {
        if let Some(report) = self.report.take() {
            // The starter waits for it.
            let _ = report.send(self.counts.answered);
        }
    }

    /// Sends what is due, and plans what comes next.
    fn send(&mut self, now: Instant) -> Result<(), ProbeError> {
        let lateness = now.saturating_duration_since(self.next_send).as_nanos() as u64;
        let (steady_gap, burst_gap) = (self.rhythm.steady(), self.rhythm.burst());
        let gap = match &mut self.stage {
            Stage::Greeting => {
                // A peer that is absent for so long may still come.
                self.next_send = now + self.rhythm.greeting(now < self.give_up);
                // The one before came to nothing, or this one was not needed.
                self.rhythm.unanswered();
                return self.ask();
            }
            Stage::First { left } | Stage::Last { left } => {
                *left -= PAIR;
                burst_gap
            }
            Stage::Steady { extra: 0 } => {
                if self.load.as_mut().is_some_and(|load| load.sent_late(lateness)) {
                    self.loaded(now);
                }
                steady_gap
            }
            Stage::Steady { extra } => {
                *extra -= PAIR;
                burst_gap
            }
        };
        // Between half and one and a half: a fixed rhythm could beat with something else's.
        let jitter = Duration::from_nanos(self.random.below(gap.as_nanos() as u64));
        self.next_send = now + gap / 2 + jitter;
        self.pair(now)
    }

    /// Load has been seen: there may be few undisturbed exchanges among the usual ones.
    fn loaded(&mut self, now: Instant) {
        if let Stage::Steady { extra } = &mut self.stage
            && now >= self.next_extra
        {
            *extra = self.load_burst;
            self.next_extra = now + BURST_PAUSE;
            self.next_send = now;
        }
    }

    fn pair(&mut self, now: Instant) -> Result<(), ProbeError> {
        let seq = self.next_seq;
        self.next_seq += u64::from(PAIR);
        self.probe(seq, now)?;
        let first = Instant::now();
        while first.elapsed() < PAIR_DISTANCE {
            std::hint::spin_loop();
        }
        self.probe(seq + 1, now)
    }

    fn packet(&self, seq: u64) -> Packet {
        let Probing { client, nonce, session, .. } = *self;
        Packet { kind: Kind::Probe, client, nonce, session, seq }
    }

    /// Asks for the reference's session. Such a probe is in no log.
    fn ask(&mut self) -> Result<(), ProbeError> {
        let packet = self.packet(self.next_seq);
        self.asked = Some(self.next_seq);
        self.next_seq += u64::from(PAIR);
        if self.socket.send(&packet.encode(&self.key), self.reference).is_err() {
            self.counts.lose(Cause::SendFailed);
        }
        Ok(())
    }

    fn probe(&mut self, seq: u64, now: Instant) -> Result<(), ProbeError> {
        let packet = self.packet(seq).encode(&self.key);
        let Ok(sent) = self.socket.send(&packet, self.reference) else {
            self.counts.lose(Cause::SendFailed);
            return self.give_up_stamps();
        };
        self.counts.sent += 1;
        self.assembly.begin(seq, now);
        let pending = Pending {
            key: sent.key.unwrap_or_default(),
            user: sent.user,
            deadline: now + PATIENCE,
            stamped: false,
            answered: false,
            steady: self.stage == Stage::Steady { extra: 0 },
        };
        self.pending.insert(seq, pending);
        if sent.key.is_none() { self.give_up_stamps() } else { Ok(()) }
    }

    fn expire(&mut self, now: Instant) -> Result<(), ProbeError> {
        while let Some((&seq, probe)) = self.pending.first_key_value() {
            if probe.deadline > now {
                break;
            }
            let (user, stamped, answered) = (probe.user, probe.stamped, probe.answered);
            self.pending.remove(&seq);
            if !stamped {
                self.unstamped(seq, user)?;
            }
            if !answered {
                self.counts.lose(Cause::NoReply);
                self.rhythm.unanswered();
                let unstamped = self.assembly.give_up(seq, now);
                self.miss(unstamped);
            }
        }
        Ok(())
    }

    fn expire_all(&mut self) -> Result<(), ProbeError> {
        match self.pending.last_key_value().map(|(_, probe)| probe.deadline) {
            Some(last) => self.expire(last),
            None => Ok(()),
        }
    }

    /// Takes the program's own stamps for all probes that wait for others.
    fn give_up_stamps(&mut self) -> Result<(), ProbeError> {
        let waiting: Vec<(u64, Span)> = self
            .pending
            .iter()
            .filter(|(_, p)| !p.stamped)
            .map(|(&seq, p)| (seq, p.user))
            .collect();
        for (seq, user) in waiting {
            if let Some(probe) = self.pending.get_mut(&seq) {
                probe.stamped = true;
            }
            self.unstamped(seq, user)?;
            self.settle(seq);
        }
        Ok(())
    }

    /// A probe's stamp will not come: the program's own is taken.
    fn unstamped(&mut self, seq: u64, user: Span) -> Result<(), ProbeError> {
        self.counts.lose(Cause::NoTxStamp);
        self.sent(seq, Stamped { span: user, source: Source::User })
    }

    fn sent(&mut self, seq: u64, sent: Stamped) -> Result<(), ProbeError> {
        if let Some(row) = self.assembly.row(seq) {
            row.exchange.t1 = Some(self.log.shown(sent.span));
        }
        self.see(Moment::ProbeSent, seq, sent)
    }

    fn see(
        &mut self,
        moment: Moment,
        seq: u64,
        Stamped { span, source }: Stamped,
    ) -> Result<(), ProbeError> {
        Ok(self.log.log(&Observation { moment, peer: self.client, seq, span, source })?)
    }
}
