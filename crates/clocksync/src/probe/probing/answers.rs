//! What comes back for probes: stamps of departures, greetings and replies.

use std::sync::PoisonError;
use std::time::Instant;

use loopscope_time::Counter;

use super::Probing;
use crate::Span;
use crate::probe::arrival::Arrival;
use crate::probe::outcome::{Row, UnstampedReplies};
use crate::probe::packet::{Answer, Kind, Packet};
use crate::probe::socket::{Departure, TURN};
use crate::probe::{Cause, ProbeError};
use crate::record::Moment;

impl Probing {
    pub(super) fn take_in(&mut self) -> Result<(), ProbeError> {
        self.take_departures()?;
        for _ in 0..TURN {
            let Some(arrival) = self.socket.next_arrival(&mut self.counts) else { break };
            self.arrival(&arrival)?;
        }
        Ok(())
    }

    pub(super) fn take_departures(&mut self) -> Result<(), ProbeError> {
        while let Some(departure) = self.socket.next_departure(&mut self.counts) {
            self.stamped(&departure)?;
        }
        Ok(())
    }

    pub(super) fn stamped(&mut self, departure: &Departure) -> Result<(), ProbeError> {
        let Some((&seq, probe)) =
            self.pending.iter_mut().rev().find(|(_, p)| p.key == departure.key && !p.stamped)
        else {
            // The reply to a probe that asked; or it came after its deadline and is counted.
            return Ok(());
        };
        probe.stamped = true;
        let user = probe.user;
        let limits = Span { lo: user.lo, hi: departure.read };
        let stamp = Some(departure.stamp);
        let sent = self.socket.place(stamp, limits, user, Cause::NoTxStamp, &mut self.counts);
        self.sent(seq, sent)?;
        self.settle(seq);
        Ok(())
    }

    pub(super) fn arrival(&mut self, arrival: &Arrival) -> Result<(), ProbeError> {
        let packet = match Packet::decode(&arrival.bytes[..arrival.length], &self.key) {
            Ok(packet) => packet,
            Err(refusal) => {
                self.counts.refuse(refusal);
                return Ok(());
            }
        };
        let ours = packet.client == self.client
            && packet.nonce == self.nonce
            && arrival.from == Some(self.reference);
        match packet.kind {
            Kind::Reply(answer) if ours && packet.session == self.session => {
                self.reply(arrival, packet.seq, &answer)
            }
            Kind::Greeting if ours => {
                self.greeted(packet);
                Ok(())
            }
            _ => {
                self.counts.lose(Cause::ForeignPacket);
                Ok(())
            }
        }
    }

    /// The reference's session, for a probe that did not know it.
    pub(super) fn greeted(&mut self, Packet { session, seq, .. }: Packet) {
        let waited_for = match self.session {
            0 => self.asked == Some(seq),
            _ => self.pending.get(&seq).is_some_and(|probe| !probe.answered),
        };
        if !waited_for {
            self.counts.lose(Cause::UnexpectedReply);
        } else if self.session != session {
            if self.session != 0 {
                self.counts.lose(Cause::ReferenceRestarted);
                self.assembly.forget();
            }
            self.session = session;
        }
        if waited_for {
            self.rhythm.answered(0);
        }
    }

    pub(super) fn reply(
        &mut self,
        arrival: &Arrival,
        seq: u64,
        answer: &Answer,
    ) -> Result<(), ProbeError> {
        let Some(probe) = self.pending.get_mut(&seq).filter(|p| !p.answered) else {
            self.counts.lose(Cause::UnexpectedReply);
            return Ok(());
        };
        probe.answered = true;
        self.counts.answered += 1;
        self.rhythm.answered(answer.slower);
        let steady = probe.steady;
        let limits = Span { lo: probe.user.lo, hi: arrival.read };
        let user = Span { lo: arrival.read, hi: arrival.read };
        let received =
            self.socket.place(arrival.stamp, limits, user, Cause::NoRxStamp, &mut self.counts);
        let round_trip = Span { lo: limits.lo, hi: received.span.hi };
        self.complete(seq, received.span, answer);
        self.see(Moment::ReplyReceived, seq, received)?;
        self.settle(seq);
        let ns = self.frequency.scale(Counter(round_trip.width().max(0).unsigned_abs())).0;
        let (now, ns) = (Instant::now(), ns.unsigned_abs());
        self.reply_statistics
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .record(now, ns, answer.utc);
        if steady && self.load.as_mut().is_some_and(|load| load.answered(ns)) {
            self.loaded(now);
        }
        Ok(())
    }

    /// What a reply adds to exchanges.
    pub(super) fn complete(&mut self, seq: u64, received: Span, answer: &Answer) {
        if let Some(Row { exchange, reckoning }) = self.assembly.row(seq) {
            (exchange.t2, exchange.t4) =
                (Some(answer.received.span), Some(self.log.shown(received)));
            *reckoning = answer.reckoning;
        }
        if let Some((seq, sent)) = answer.previous
            && let Some(row) = self.assembly.row(seq)
        {
            row.exchange.t3 = Some(sent.span);
        }
        let Answer { frequency, apart, .. } = *answer;
        let unstamped = self.assembly.reply(seq, Instant::now(), frequency, self.session, apart);
        self.miss(unstamped);
    }

    pub(super) fn miss(&mut self, UnstampedReplies(unstamped): UnstampedReplies) {
        for _ in 0..unstamped {
            self.counts.lose(Cause::UntoldStamp);
        }
    }

    /// Forgets a probe that waits for nothing more.
    pub(super) fn settle(&mut self, seq: u64) {
        if self.pending.get(&seq).is_some_and(|p| p.stamped && p.answered) {
            self.pending.remove(&seq);
        }
    }
}
