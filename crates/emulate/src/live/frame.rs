//! Ethernet frames in buffers that are used again.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;

use crate::address::Address;
use crate::live::headers::Headers;
use crate::model::Packet;
use crate::settings::{ByteOrder, MessageField};

/// Bytes of an Ethernet header.
pub const HEADER: usize = 14;

/// Sizes of buffers: small datagrams, frames of the usual MTU, jumbo frames, the rest.
const CLASSES: [usize; 4] = [256, 2048, 9216, 1 << 16];

/// Buffers for frames, as many as were ever in use at once. One thread's.
#[derive(Clone, Debug, Default)]
pub struct Pool(Rc<RefCell<[Vec<Vec<u8>>; CLASSES.len()]>>);

/// A frame; dropping it gives its buffer back.
#[derive(Debug)]
pub struct Frame {
    bytes: Vec<u8>,
    pool: Pool,
}

impl Pool {
    /// A frame of these bytes.
    pub fn frame(&self, bytes: &[u8]) -> Frame {
        let class = CLASSES.iter().position(|size| bytes.len() <= *size);
        let free = class.and_then(|class| self.0.borrow_mut()[class].pop());
        let size = class.map_or(bytes.len(), |class| CLASSES[class]);
        let mut buffer = free.unwrap_or_else(|| Vec::with_capacity(size));
        buffer.extend_from_slice(bytes);
        Frame { bytes: buffer, pool: self.clone() }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        if let Some(class) = CLASSES.iter().position(|size| bytes.capacity() == *size) {
            bytes.clear();
            self.pool.0.borrow_mut()[class].push(bytes);
        }
    }
}

impl Frame {
    /// From the destination's address on.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What its headers say of the packet of UDP or TCP in it; `None` where there is none.
    pub(crate) fn headers(&self) -> Option<Headers<'_>> {
        Headers::of(&self.bytes)
    }

    /// The message's number, which stands in `field` of the payload of UDP or TCP, without the sign's
    /// bit. Of a little-endian field that the payload's end cuts off, the missing bytes are 0. 0 where
    /// there is no field.
    pub fn message(&self, field: MessageField) -> u64 {
        let payload = self.headers().and_then(|found| found.payload()).unwrap_or_default();
        let field_bytes = payload.get(usize::from(field.offset)..).unwrap_or_default();
        let width = usize::from(field.width).min(8);
        let found = &field_bytes[..field_bytes.len().min(width)];
        let mut number = [0; 8];
        let number = match field.order {
            ByteOrder::Little => {
                number[..found.len()].copy_from_slice(found);
                u64::from_le_bytes(number)
            }
            ByteOrder::Big if found.len() == width => {
                number[8 - width..].copy_from_slice(found);
                u64::from_be_bytes(number)
            }
            ByteOrder::Big => 0,
        };
        number & i64::MAX as u64
    }
}

impl Packet for Frame {
    fn size(&self) -> usize {
        self.bytes.len()
    }

    fn duplicate(&self) -> Frame {
        self.pool.frame(&self.bytes)
    }

    fn flip(&mut self, bit: u64) {
        let Some(packet) = self.bytes.get_mut(HEADER..).filter(|packet| !packet.is_empty()) else {
            return;
        };
        let bit = bit % (packet.len() as u64 * 8);
        packet[(bit / 8) as usize] ^= 1 << (bit % 8);
    }
}

/// Where a frame goes; `None` of what is too short to be one.
pub fn destination(frame: &[u8]) -> Option<Address> {
    address(frame, 0)
}

/// Where it comes from.
pub fn source(frame: &[u8]) -> Option<Address> {
    address(frame, 6)
}

/// Has it come from there; nothing happens to what is too short to be a frame.
pub fn set_source(frame: &mut [u8], from: Address) {
    if let Some(place) = frame.get_mut(6..12) {
        place.copy_from_slice(&from.0);
    }
}

/// The IP address that its packet comes from.
pub fn source_ip(frame: &[u8]) -> Option<IpAddr> {
    match u16::from_be_bytes(*frame.get(12..)?.first_chunk()?) {
        0x0800 => Some(IpAddr::from(*frame.get(HEADER + 12..)?.first_chunk::<4>()?)),
        0x86dd => Some(IpAddr::from(*frame.get(HEADER + 8..)?.first_chunk::<16>()?)),
        _ => None,
    }
}

fn address(frame: &[u8], at: usize) -> Option<Address> {
    (frame.len() >= HEADER).then(|| Address(part(frame, at)))
}

/// The `N` bytes from `at` on, which must be there.
fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    fn udp(payload: &[u8], vlan: bool, fragment: u16) -> Vec<u8> {
        let mut frame = vec![2; 12];
        if vlan {
            frame.extend([0x81, 0, 0, 7]);
        }
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((28 + payload.len() as u16).to_be_bytes());
        frame.extend([0, 0]);
        frame.extend(fragment.to_be_bytes());
        frame.extend([64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([0, 1, 0, 2, 0, 0, 0, 0]);
        frame.extend(payload);
        frame
    }

    #[test]
    fn the_message_is_the_payloads_beginning() {
        let pool = Pool::default();
        let message = |bytes: &[u8]| pool.frame(bytes).message(MessageField::default());
        let number = 0x1234_5678_9abc_u64;
        assert_eq!(message(&udp(&number.to_le_bytes(), false, 0)), number);
        assert_eq!(message(&udp(&number.to_le_bytes(), true, 0)), number);
        assert_eq!(message(&udp(&u64::MAX.to_le_bytes(), false, 0)), i64::MAX as u64);
        let mut padded = udp(&[7, 1, 0, 0, 0, 0], false, 0);
        padded.extend([9; 12]);
        assert_eq!(message(&padded), 0x107);
        assert_eq!(message(&udp(b"", false, 0)), 0);
        assert_eq!(message(&udp(&number.to_le_bytes(), false, 1)), 0);
        // Whatever is cut off, nothing is read that is not there.
        let whole = udp(&number.to_le_bytes(), true, 0);
        for end in 0..whole.len() {
            assert_eq!(message(&whole[..end]), 0);
        }
    }

    #[test]
    fn the_message_is_where_the_field_says() {
        let frame = Pool::default().frame(&udp(&[1, 2, 3, 4, 5, 6], false, 0));
        let number = |offset, width, order| frame.message(MessageField { offset, width, order });
        assert_eq!(number(2, 2, ByteOrder::Little), 0x0403);
        assert_eq!(number(2, 2, ByteOrder::Big), 0x0304);
        assert_eq!(number(5, 1, ByteOrder::Big), 6);
        assert_eq!(number(4, 4, ByteOrder::Little), 0x0605);
        assert_eq!(number(4, 4, ByteOrder::Big), 0);
        assert_eq!(number(6, 2, ByteOrder::Little), 0);
        assert_eq!(number(u16::MAX, 8, ByteOrder::Little), 0);
    }

    #[test]
    fn the_packets_source_is_read_as_far_as_it_is_there() {
        let v4 = udp(b"", false, 0);
        assert_eq!(source_ip(&v4), Some([10, 0, 0, 1].into()));
        let mut v6 = vec![2; 12];
        v6.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 17, 64]);
        v6.extend(1..=16);
        let wanted: [u8; 16] = std::array::from_fn(|i| i as u8 + 1);
        assert_eq!(source_ip(&v6), Some(wanted.into()));
        assert!((0..v6.len()).all(|end| source_ip(&v6[..end]).is_none()));
        assert!((0..HEADER + 16).all(|end| source_ip(&v4[..end]).is_none()));
        let mut other = v4.clone();
        set_source(&mut other, Address([7; 6]));
        assert_eq!(
            (source(&other), destination(&other)),
            (Some(Address([7; 6])), destination(&v4))
        );
    }

    #[test]
    fn buffers_come_back_and_one_bit_flips() {
        let pool = Pool::default();
        let frame = pool.frame(&[1; 100]);
        let at = frame.bytes().as_ptr();
        let mut copy = frame.duplicate();
        drop(frame);
        let again = pool.frame(&[2; 250]);
        assert_eq!((again.bytes().as_ptr(), again.bytes()), (at, &[2; 250][..]));
        for bit in [0, 687, 688, u64::MAX] {
            copy.flip(bit);
            let flipped = |(a, b): (&u8, &u8)| (a ^ b).count_ones();
            assert_eq!(copy.bytes().iter().zip(&[1; 100]).map(flipped).sum::<u32>(), 1);
            assert_eq!(copy.bytes()[..HEADER], [1; HEADER]);
            copy.flip(bit);
        }
        let mut bare = pool.frame(&[3; HEADER]);
        bare.flip(5);
        assert_eq!(bare.bytes(), [3; HEADER]);
    }
}
