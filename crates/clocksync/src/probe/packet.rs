//! The probe on the wire: 144 bytes, little-endian, the same in both directions, so that both legs
//! carry as much and an answer is never larger than the question.

use loopscope_time::{Counter, Frequency, GlobalNs};

use crate::Span;
use crate::key::{CODE, Key};
use crate::loops::Reckoning;
use crate::record::Source;
use crate::utc::{Reason, Standing};

const MAGIC: [u8; 4] = *b"lscp";
const VERSION: u8 = 6;
const CODED: usize = 128;
pub(super) const SIZE: usize = CODED + CODE;

/// What a packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Follower to reference.
    Probe,
    /// Back.
    Reply(Answer),
    /// Back, to a follower that does not know the reference's session: it tells it and nothing
    /// else.
    Greeting,
}

/// A stamp on the reference's counter, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamped {
    pub(super) span: Span,
    pub(super) source: Source,
}

/// What a reply tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// Nominal frequency of the reference's counter.
    pub(super) frequency: Frequency,
    /// When the probe was received.
    pub(super) received: Stamped,
    /// The client's last reply before this one, by its sequence number, and when it was sent; if
    /// that is known.
    pub(super) previous: Option<(u64, Stamped)>,
    /// What the reference knows of UTC.
    pub(super) utc: Standing,
    /// What a host that follows another takes global time to have been when the probe was received;
    /// `None` where it does not know, or is the reference.
    pub(super) reckoning: Option<Reckoning>,
    /// The follower is to stretch its probes' distances by two to this power.
    pub(super) slower: u8,
    /// How far the counters of two of the sender's processors may be apart, in its ticks.
    pub(super) apart: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) kind: Kind,
    /// Tells followers apart.
    pub(super) client: u32,
    /// The follower's session, chosen anew by each prober: a reply must bring it back.
    pub(super) nonce: u64,
    /// The reference's session, chosen anew by each responder. Of a probe what the follower knows
    /// of it; 0 before the first answer.
    pub(super) session: u64,
    /// Probes 2n and 2n + 1 are a coded pair.
    pub(super) seq: u64,
}

impl Packet {
    /// Magic (4), version, kind, sources of both stamps (1 each, 0: none), client (4), nonce (8),
    /// session (8), sequence number (8); of a reply frequency (8), span of reception (16), sequence
    /// number of the previous reply (8), its span of sending (16), UTC less global time (8), the
    /// error of that (8), why it is not known (1, 0: it is), the stratum (1), whether global time
    /// is told (1), by how much to slow down (1), global time (8) and its maximum error (8), how
    /// far processors are apart (8), else zeros; code (16).
    pub(super) fn encode(&self, key: &Key) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &MAGIC);
        put(4, &[VERSION]);
        put(8, &self.client.to_le_bytes());
        for (at, value) in [(12, self.nonce), (20, self.session), (28, self.seq)] {
            put(at, &value.to_le_bytes());
        }
        let mut stamped = |source_at: usize, at: usize, stamped: &Stamped| {
            put(source_at, &[stamped.source as u8]);
            put(at, &stamped.span.lo.0.to_le_bytes());
            put(at + 8, &stamped.span.hi.0.to_le_bytes());
        };
        let kind = match &self.kind {
            Kind::Probe => 1,
            Kind::Reply(answer) => {
                stamped(6, 44, &answer.received);
                if let Some((seq, sent)) = &answer.previous {
                    stamped(7, 68, sent);
                    put(60, &seq.to_le_bytes());
                }
                put(36, &answer.frequency.hz().to_le_bytes());
                match answer.utc {
                    Standing::Known { offset_ns, error_ns, stratum } => {
                        put(84, &offset_ns.to_le_bytes());
                        put(92, &error_ns.to_le_bytes());
                        put(101, &[stratum]);
                    }
                    Standing::Unsynchronised(reason) => put(100, &[reason as u8]),
                }
                put(103, &[answer.slower]);
                put(120, &answer.apart.to_le_bytes());
                if let Some(Reckoning { global, half_width_ns }) = answer.reckoning {
                    put(102, &[1]);
                    put(104, &global.0.to_le_bytes());
                    put(112, &half_width_ns.to_le_bytes());
                }
                2
            }
            Kind::Greeting => 3,
        };
        put(5, &[kind]);
        let code = key.with(self.client).code(&bytes[..CODED]);
        bytes[CODED..].copy_from_slice(&code);
        bytes
    }

    /// The packet of these bytes, if it was coded by `key`.
    pub(super) fn decode(bytes: &[u8], key: &Key) -> Result<Packet, Refusal> {
        let bytes: &[u8; SIZE] = bytes.try_into().map_err(|_| Refusal::Malformed)?;
        if bytes[..4] != MAGIC || bytes[4] != VERSION {
            return Err(Refusal::Malformed);
        }
        // Only the follower's number is used before the code is verified: it selects the key.
        let mut client = [0; 4];
        client.copy_from_slice(&bytes[8..12]);
        if !key.with(u32::from_le_bytes(client)).agrees(&bytes[..CODED], &bytes[CODED..]) {
            return Err(Refusal::Forged);
        }
        let u64_at = |at: usize| {
            let mut raw = [0; 8];
            raw.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(raw)
        };
        let stamped = |source_at: usize, at: usize| {
            let span = Span { lo: Counter(u64_at(at)), hi: Counter(u64_at(at + 8)) };
            Source::of(bytes[source_at].into()).map(|source| Stamped { span, source })
        };
        let kind = match bytes[5] {
            1 => Kind::Probe,
            2 => Kind::Reply(Answer {
                frequency: Frequency::from_hz(u64_at(36)).ok_or(Refusal::Malformed)?,
                received: stamped(6, 44).ok_or(Refusal::Malformed)?,
                previous: stamped(7, 68).map(|sent| (u64_at(60), sent)),
                utc: match bytes[100] {
                    0 => Standing::Known {
                        offset_ns: u64_at(84).cast_signed(),
                        error_ns: u64_at(92),
                        stratum: bytes[101],
                    },
                    number => {
                        Standing::Unsynchronised(Reason::of(number).ok_or(Refusal::Malformed)?)
                    }
                },
                reckoning: match bytes[102] {
                    0 => None,
                    1 => Some(Reckoning {
                        global: GlobalNs(u64_at(104).cast_signed()),
                        half_width_ns: u64_at(112),
                    }),
                    _ => return Err(Refusal::Malformed),
                },
                slower: bytes[103],
                apart: u64_at(120),
            }),
            3 => Kind::Greeting,
            _ => return Err(Refusal::Malformed),
        };
        let client = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
        Ok(Packet { kind, client, nonce: u64_at(12), session: u64_at(20), seq: u64_at(28) })
    }
}

/// Why a packet is not listened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No packet of this protocol and version.
    Malformed,
    /// Its code is not by the key.
    Forged,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn span() -> impl Strategy<Value = Stamped> {
        let source = prop::sample::select(vec![Source::Kernel, Source::User, Source::Hardware]);
        (any::<u64>(), any::<u64>(), source).prop_map(|(lo, hi, source)| Stamped {
            span: Span { lo: Counter(lo), hi: Counter(hi) },
            source,
        })
    }

    fn kind() -> impl Strategy<Value = Kind> {
        let known =
            (any::<i64>(), any::<u64>(), any::<u8>()).prop_map(|(offset_ns, error_ns, stratum)| {
                Standing::Known { offset_ns, error_ns, stratum }
            });
        let unknown = prop::sample::select(vec![Reason::NotTold, Reason::Words]);
        let utc = prop_oneof![known, unknown.prop_map(Standing::Unsynchronised)];
        let reckoning = (any::<i64>(), any::<u64>()).prop_map(|(global, half_width_ns)| {
            Reckoning { global: GlobalNs(global), half_width_ns }
        });
        let previous = prop::option::of((any::<u64>(), span()));
        let answer = (1u64.., span(), previous, utc, prop::option::of(reckoning));
        let answer = (answer, any::<u8>(), any::<u64>());
        prop_oneof![
            Just(Kind::Probe),
            Just(Kind::Greeting),
            answer.prop_map(|((hz, received, previous, utc, reckoning), slower, apart)| {
                Kind::Reply(Answer {
                    frequency: Frequency::from_hz(hz).unwrap(),
                    received,
                    previous,
                    utc,
                    reckoning,
                    slower,
                    apart,
                })
            }),
        ]
    }

    /// The layout of schema/clock-log.md.
    #[test]
    fn fields_are_where_the_format_says() {
        let key = Key::new(b"0123456789abcdef").unwrap();
        let at = |lo, hi| Span { lo: Counter(lo), hi: Counter(hi) };
        let answer = Answer {
            frequency: Frequency::from_hz(0x11).unwrap(),
            received: Stamped { span: at(0x22, 0x33), source: Source::Kernel },
            previous: Some((0x44, Stamped { span: at(0x55, 0x66), source: Source::Hardware })),
            utc: Standing::Known { offset_ns: 0xbb, error_ns: 0xcc, stratum: 0xdd },
            reckoning: Some(Reckoning { global: GlobalNs(0xee), half_width_ns: 0xff }),
            slower: 0x5a,
            apart: 0x6b,
        };
        let kind = Kind::Reply(answer);
        let packet = Packet { kind, client: 0x77, nonce: 0x88, session: 0x99, seq: 0xaa };
        let bytes = packet.encode(&key);
        let mut expected = [0; CODED];
        expected[..8].copy_from_slice(b"lscp\x06\x02\x01\x03");
        let fields = [
            (8, 0x77),
            (12, 0x88),
            (20, 0x99),
            (28, 0xaa),
            (36, 0x11),
            (44, 0x22),
            (52, 0x33),
            (60, 0x44),
            (68, 0x55),
            (76, 0x66),
            (84, 0xbb),
            (92, 0xcc),
            (101, 0xdd),
            (102, 1),
            (103, 0x5a),
            (104, 0xee),
            (112, 0xff),
            (120, 0x6b),
        ];
        for (at, value) in fields {
            expected[at] = value;
        }
        assert_eq!(bytes[..CODED], expected);
        assert_eq!(bytes.len(), 144);
        assert_eq!(bytes[CODED..], key.code(&expected));
    }

    proptest! {
        /// A packet survives the wire; cut, lengthened, changed in any bit or coded by another key
        /// it is none.
        #[test]
        fn packets_survive_the_wire_and_nothing_else_is_one(
            kind in kind(), client: u32, nonce: u64, session: u64, seq: u64,
            at in 0..SIZE, flip in 1u8..,
        ) {
            let key = Key::new(&[7; 32]).unwrap();
            let packet = Packet { kind, client, nonce, session, seq };
            let mut bytes = packet.encode(&key);
            prop_assert_eq!(Packet::decode(&bytes, &key), Ok(packet));
            let other = Key::new(&[8; 32]).unwrap();
            prop_assert_eq!(Packet::decode(&bytes, &other), Err(Refusal::Forged));
            // With a root, a packet is accepted from the follower whose number it has only.
            let root = Key::root(&[3; 32]).unwrap();
            let own = packet.encode(&root.with(packet.client));
            prop_assert_eq!(Packet::decode(&own, &root), Ok(packet));
            let foreign = packet.encode(&root.with(packet.client ^ 1));
            prop_assert_eq!(Packet::decode(&foreign, &root), Err(Refusal::Forged));
            prop_assert_eq!(Packet::decode(&bytes[..at], &key), Err(Refusal::Malformed));
            let longer = [&bytes[..], &[0]].concat();
            prop_assert_eq!(Packet::decode(&longer, &key), Err(Refusal::Malformed));
            bytes[at] ^= flip;
            let refusal = if at < 5 { Refusal::Malformed } else { Refusal::Forged };
            prop_assert_eq!(Packet::decode(&bytes, &key), Err(refusal));
        }
    }
}
