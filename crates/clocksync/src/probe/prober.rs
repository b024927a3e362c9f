//! A follower's side: sends probes in bursts and, between them, at a steady rate.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, PipeReader, Read as _};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::packet::{Kind, Packet};
use super::socket::{Arrival, Departure, StampedSocket};
use super::{Cause, Counts, Order, PATIENCE, ProbeError, Side, Worker};
use loopscope_time::GlobalNs;

use crate::Span;
use crate::online::Online;
use crate::record::{Filter, Moment, Observation, ProbeWriter, Source};
use crate::synthetic::SplitMix64;

/// Exchanges a second between the bursts.
pub const DEFAULT_RATE_HZ: f64 = 10.0;
/// Exchanges in a burst.
pub const DEFAULT_BURST: u32 = 100;

/// Mean gap in a burst.
const BURST_GAP: Duration = Duration::from_millis(1);
/// How long the first answer is waited for.
pub(super) const FIRST_ANSWER: Duration = Duration::from_secs(3);
const RATES_HZ: RangeInclusive<f64> = 0.01..=1000.0;
const BURSTS: RangeInclusive<u32> = 1..=10_000;

/// A follower's settings.
#[derive(Clone)]
pub struct ProberConfig {
    /// Own side.
    pub side: Side,
    /// Where the reference answers.
    pub reference: SocketAddr,
    /// Exchanges a second between the bursts, 0.01 to 1000; gaps vary by half of the
    /// mean either way.
    pub rate_hz: f64,
    /// Exchanges of the first and the last burst, 1 to 10000, about 1 ms apart.
    pub burst: u32,
}

/// A running prober. Dropping it ends it at once, without the last burst.
#[derive(Debug)]
pub struct Prober {
    answered: u64,
    online: Arc<Mutex<Online>>,
    worker: Worker,
}

impl Prober {
    /// Begins to probe; returns when the first burst is complete. Without any answer the burst is
    /// repeated for some seconds.
    pub fn start(config: ProberConfig) -> Result<Prober, ProbeError> {
        Prober::on(StampedSocket::bind(&config.side)?, config)
    }

    pub(super) fn on(socket: StampedSocket, config: ProberConfig) -> Result<Prober, ProbeError> {
        let ProberConfig { side, reference, rate_hz, burst } = config;
        if !RATES_HZ.contains(&rate_hz) {
            return Err(ProbeError::Setting(format!(
                "a probe rate of {rate_hz} Hz is not between {} Hz and {} Hz",
                RATES_HZ.start(),
                RATES_HZ.end()
            )));
        }
        if !BURSTS.contains(&burst) {
            return Err(ProbeError::Setting(format!(
                "a burst of {burst} probes is not between {} and {}",
                BURSTS.start(),
                BURSTS.end()
            )));
        }
        let address = socket.address();
        let system = |source| ProbeError::System { address, source };
        let mut random = SplitMix64::new(entropy().map_err(system)?);
        let online = Arc::new(Mutex::new(Online::follower(side.identity.frequency)));
        let log = ProbeWriter::create(&side.directory, &side.identity, side.filter.clone())?;
        let (report, first_burst) = mpsc::channel();
        let now = Instant::now();
        let probing = Probing {
            socket,
            log,
            online: online.clone(),
            filter: side.filter,
            counts: Counts::default(),
            reference,
            client: random.next() as u32,
            nonce: random.next(),
            random,
            pending: BTreeMap::new(),
            next_seq: 0,
            next_send: now,
            steady_gap: Duration::from_secs_f64(1.0 / rate_hz),
            burst,
            stage: Stage::First { left: burst },
            give_up: now + FIRST_ANSWER,
            report: Some(report),
        };
        let mut worker =
            Worker::spawn("clock-prober", move |control| probing.run(control, address))
                .map_err(system)?;
        match first_burst.recv() {
            Ok(0) => Err(ProbeError::NoAnswer { address, reference }),
            Ok(answered) => Ok(Prober { answered, online, worker }),
            // The thread has ended before its first report.
            Err(_) => Err(worker.join().err().unwrap_or(ProbeError::Panicked)),
        }
    }

    /// Exchanges answered in the first burst.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// What the follower knows of the global clock while it probes.
    pub fn online(&self) -> Arc<Mutex<Online>> {
        self.online.clone()
    }

    /// Sends the last burst and completes the log.
    pub fn stop(self) -> Result<Counts, ProbeError> {
        self.worker.stop()
    }
}

fn entropy() -> io::Result<u64> {
    let mut bytes = [0; 8];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// `left` more to send, then wait for what is out.
    First {
        left: u32,
    },
    Steady,
    /// As `First`.
    Last {
        left: u32,
    },
}

/// A probe that waits for its kernel stamp, its reply, or both.
struct Pending {
    key: u32,
    user: Span,
    deadline: Instant,
    stamped: bool,
    answered: bool,
}

struct Probing {
    socket: StampedSocket,
    log: ProbeWriter,
    online: Arc<Mutex<Online>>,
    filter: Option<Filter>,
    counts: Counts,
    reference: SocketAddr,
    client: u32,
    nonce: u64,
    random: SplitMix64,
    /// By sequence number, and so by deadline.
    pending: BTreeMap<u64, Pending>,
    next_seq: u64,
    next_send: Instant,
    steady_gap: Duration,
    burst: u32,
    stage: Stage,
    /// When not to begin another first burst.
    give_up: Instant,
    /// Until the first burst is complete.
    report: Option<Sender<u64>>,
}

impl Probing {
    fn run(mut self, mut control: PipeReader, address: SocketAddr) -> Result<Counts, ProbeError> {
        let system = |source: io::Error| ProbeError::System { address, source };
        loop {
            self.take_in()?;
            let now = Instant::now();
            self.expire(now)?;
            self.log.flush_if_due(now)?;
            let sending = match self.stage {
                Stage::First { left: 0 } if self.pending.is_empty() => {
                    let over = self.counts.answered > 0 || now >= self.give_up;
                    self.stage =
                        if over { Stage::Steady } else { Stage::First { left: self.burst } };
                    if over && let Some(report) = self.report.take() {
                        // The starter waits for it.
                        let _ = report.send(self.counts.answered);
                    }
                    true
                }
                Stage::Last { left: 0 } if self.pending.is_empty() => break,
                Stage::First { left } | Stage::Last { left } => left > 0,
                Stage::Steady => true,
            };
            if sending && self.next_send <= now {
                self.probe(now)?;
                // Its stamp is there already on most devices.
                continue;
            }
            let deadline = self.pending.first_key_value().map(|(_, probe)| probe.deadline);
            let next_send = sending.then_some(self.next_send);
            let until = [deadline, next_send, self.log.due()].into_iter().flatten().min();
            match self.socket.wait(&mut control, until).map_err(system)? {
                Some(Order::Stop) => {
                    self.stage = Stage::Last { left: self.burst };
                    self.next_send = Instant::now();
                }
                Some(Order::Abandon) => break,
                None => {}
            }
        }
        self.expire_all()?;
        self.log.flush()?;
        Ok(self.counts)
    }

    fn probe(&mut self, now: Instant) -> Result<(), ProbeError> {
        let gap = match &mut self.stage {
            Stage::First { left } | Stage::Last { left } => {
                *left -= 1;
                BURST_GAP
            }
            Stage::Steady => self.steady_gap,
        };
        // Between half and one and a half: a fixed rhythm could beat with something else's.
        let jitter = Duration::from_nanos(self.random.below(gap.as_nanos() as u64));
        self.next_send = now + gap / 2 + jitter;

        let seq = self.next_seq;
        self.next_seq += 1;
        let (client, nonce) = (self.client, self.nonce);
        let packet = Packet { kind: Kind::Probe, client, nonce, seq, global: GlobalNs(0) };
        let Ok(sent) = self.socket.send(&packet.encode(), self.reference) else {
            self.counts.lose(Cause::SendFailed);
            return self.give_up_stamps();
        };
        self.counts.sent += 1;
        let pending = Pending {
            key: sent.key.unwrap_or_default(),
            user: sent.user,
            deadline: now + PATIENCE,
            stamped: false,
            answered: false,
        };
        self.pending.insert(seq, pending);
        if sent.key.is_none() { self.give_up_stamps() } else { Ok(()) }
    }

    fn take_in(&mut self) -> Result<(), ProbeError> {
        self.take_departures()?;
        while let Some(arrival) = self.socket.next_arrival(&mut self.counts) {
            self.reply(&arrival)?;
        }
        Ok(())
    }

    fn take_departures(&mut self) -> Result<(), ProbeError> {
        while let Some(departure) = self.socket.next_departure(&mut self.counts) {
            self.stamped(&departure)?;
        }
        Ok(())
    }

    fn stamped(&mut self, departure: &Departure) -> Result<(), ProbeError> {
        let Some((&seq, probe)) =
            self.pending.iter_mut().rev().find(|(_, p)| p.key == departure.key && !p.stamped)
        else {
            // Came after its deadline and is counted.
            return Ok(());
        };
        probe.stamped = true;
        let user = probe.user;
        let limits = Span { lo: user.lo, hi: departure.read };
        let kernel = Some(departure.kernel);
        let (span, source) =
            self.socket.place(kernel, limits, user, Cause::NoTxStamp, &mut self.counts);
        self.log(Moment::ProbeSent, seq, span, source)?;
        self.settle(seq);
        Ok(())
    }

    fn reply(&mut self, arrival: &Arrival) -> Result<(), ProbeError> {
        let Some(packet) = Packet::decode(&arrival.bytes[..arrival.length]) else {
            self.counts.lose(Cause::MalformedPacket);
            return Ok(());
        };
        let expected =
            Packet { kind: Kind::Reply, client: self.client, nonce: self.nonce, ..packet };
        if packet != expected || arrival.from != Some(self.reference) {
            self.counts.lose(Cause::ForeignPacket);
            return Ok(());
        }
        let Some(probe) = self.pending.get_mut(&packet.seq).filter(|p| !p.answered) else {
            self.counts.lose(Cause::UnexpectedReply);
            return Ok(());
        };
        probe.answered = true;
        self.counts.answered += 1;
        let limits = Span { lo: probe.user.lo, hi: arrival.read };
        let user = Span { lo: arrival.read, hi: arrival.read };
        let (span, source) =
            self.socket.place(arrival.kernel, limits, user, Cause::NoRxStamp, &mut self.counts);
        let filter = |counter| self.filter.as_ref().map_or(counter, |filter| filter(counter));
        let round_trip = Span { lo: filter(limits.lo), hi: filter(span.hi) };
        let mut online = self.online.lock().unwrap_or_else(PoisonError::into_inner);
        online.see(round_trip, packet.global);
        drop(online);
        self.log(Moment::ReplyReceived, packet.seq, span, source)?;
        self.settle(packet.seq);
        Ok(())
    }

    /// Forgets a probe that waits for nothing more.
    fn settle(&mut self, seq: u64) {
        if self.pending.get(&seq).is_some_and(|p| p.stamped && p.answered) {
            self.pending.remove(&seq);
        }
    }

    fn expire(&mut self, now: Instant) -> Result<(), ProbeError> {
        while let Some((&seq, probe)) = self.pending.first_key_value() {
            if probe.deadline > now {
                break;
            }
            let (user, stamped, answered) = (probe.user, probe.stamped, probe.answered);
            self.pending.remove(&seq);
            if !answered {
                self.counts.lose(Cause::NoReply);
            }
            if !stamped {
                self.counts.lose(Cause::NoTxStamp);
                self.log(Moment::ProbeSent, seq, user, Source::User)?;
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

    /// Takes the program's own stamps for all probes that wait for the kernel's.
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
            self.counts.lose(Cause::NoTxStamp);
            self.log(Moment::ProbeSent, seq, user, Source::User)?;
            self.settle(seq);
        }
        Ok(())
    }

    fn log(
        &mut self,
        moment: Moment,
        seq: u64,
        span: Span,
        source: Source,
    ) -> Result<(), ProbeError> {
        Ok(self.log.log(&Observation { moment, peer: self.client, seq, span, source })?)
    }
}
