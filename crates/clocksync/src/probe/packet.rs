//! The probe on the wire: 36 bytes, little-endian, the same in both directions.

use loopscope_time::GlobalNs;

const MAGIC: [u8; 4] = *b"lscp";
const VERSION: u8 = 2;
pub(super) const SIZE: usize = 36;

/// Direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// Follower to reference.
    Probe = 1,
    /// Back.
    Reply = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) kind: Kind,
    /// Tells followers apart.
    pub(super) client: u32,
    /// Chosen anew by each prober: a reply must bring it back.
    pub(super) nonce: u64,
    pub(super) seq: u64,
    /// Of a reply: the reference's clock when it was made, so that the follower knows of it while
    /// the run goes on. The logs have better stamps. Of a probe 0.
    pub(super) global: GlobalNs,
}

impl Packet {
    /// Magic (4), version, kind, two zero bytes, client (4), nonce (8), sequence number (8),
    /// global clock (8).
    pub(super) fn encode(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = self.kind as u8;
        bytes[8..12].copy_from_slice(&self.client.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.nonce.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.seq.to_le_bytes());
        bytes[28..].copy_from_slice(&self.global.0.to_le_bytes());
        bytes
    }

    /// `None` if these bytes are no packet of this version.
    pub(super) fn decode(bytes: &[u8]) -> Option<Packet> {
        let bytes: &[u8; SIZE] = bytes.try_into().ok()?;
        let kind = match bytes[5] {
            1 => Kind::Probe,
            2 => Kind::Reply,
            _ => return None,
        };
        let u64_at = |at: usize| {
            let mut raw = [0; 8];
            raw.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(raw)
        };
        let packet = Packet {
            kind,
            client: u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]),
            nonce: u64_at(12),
            seq: u64_at(20),
            global: GlobalNs(u64_at(28).cast_signed()),
        };
        // Magic, version and the zero bytes are right if encoding gives the same.
        (packet.encode() == *bytes).then_some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn packets_survive_the_wire_and_nothing_else_is_one(
            reply: bool, client: u32, nonce: u64, seq: u64, ns: i64,
            at in 0..SIZE, flip in 1u8..,
        ) {
            let kind = if reply { Kind::Reply } else { Kind::Probe };
            let packet = Packet { kind, client, nonce, seq, global: GlobalNs(ns) };
            let mut bytes = packet.encode();
            prop_assert_eq!(Packet::decode(&bytes), Some(packet));
            prop_assert_eq!(Packet::decode(&bytes[..at]), None);
            bytes[at] ^= flip;
            let damaged = Packet::decode(&bytes);
            prop_assert_ne!(damaged, Some(packet));
            prop_assert!(damaged.is_none() || at == 5 || at >= 8);
        }
    }
}
