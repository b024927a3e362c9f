//! Reading values from the bits of a packet.

use std::ffi::CStr;

use super::Fault;
use crate::tsdl::{Float, Integer, Order, Role};

/// A place in the bits of a packet.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: u64,
    pub(super) end: u64,
    /// Byte order of the latest field that was not whole bytes, if there was one.
    order: Option<Order>,
}

impl<'a> Cursor<'a> {
    /// From bit `at` to bit `end` of `bytes`.
    ///
    /// # Panics
    /// If there are not so many.
    pub fn new(bytes: &'a [u8], at: u64, end: u64) -> Cursor<'a> {
        assert!(at <= end && end.div_ceil(8) <= bytes.len() as u64, "the bits are there");
        Cursor { bytes, at, end, order: None }
    }

    /// The bit that comes next.
    pub fn at(&self) -> u64 {
        self.at
    }

    pub(super) fn short(&self, what: impl Into<String>) -> Fault {
        Fault { short: true, ..Fault::new(self.at, what) }
    }

    /// Goes on to the next multiple of `align` bits.
    #[inline]
    pub fn align(&mut self, align: u64) -> Result<(), Fault> {
        let at = (self.at + (align - 1)) & !(align - 1);
        if at > self.end {
            let left = self.end - self.at;
            return Err(self.short(format!("{left} bits are left, and it is aligned to {align}")));
        }
        self.at = at;
        Ok(())
    }

    /// So many bits more, from a place that is aligned; returns where they begin.
    #[inline]
    pub(super) fn take(&mut self, bits: u64) -> Result<u64, Fault> {
        let at = self.at;
        if bits > self.end - at {
            let left = self.end - at;
            return Err(self.short(format!("{left} bits are left, it has {bits}")));
        }
        self.at = at + bits;
        Ok(at)
    }

    /// An integer's bits, sign-extended.
    #[inline]
    pub(super) fn integer(&mut self, integer: &Integer) -> Result<u64, Fault> {
        self.align(integer.align)?;
        let size = integer.size;
        let at = self.take(size.into())?;
        let first = (at / 8) as usize;
        let little = integer.order == Order::Little;
        macro_rules! whole {
            ($t:ty) => {{
                let raw = self.bytes[first..first + (size / 8) as usize].try_into();
                let raw = raw.expect("so many bytes");
                u64::from(if little { <$t>::from_le_bytes(raw) } else { <$t>::from_be_bytes(raw) })
            }};
        }
        let value = match (at % 8, size) {
            (0, 8) => u64::from(self.bytes[first]),
            (0, 16) => whole!(u16),
            (0, 32) => whole!(u32),
            (0, 64) => whole!(u64),
            _ => self.bits(at, integer)?,
        };
        // Left and then, signed, right extends the sign.
        let spare = 64 - size;
        Ok(if integer.signed {
            ((value << spare).cast_signed() >> spare).cast_unsigned()
        } else {
            value
        })
    }

    #[inline(never)]
    pub(super) fn bits(&mut self, at: u64, integer: &Integer) -> Result<u64, Fault> {
        let before = self.order.replace(integer.order);
        if !at.is_multiple_of(8) && before.is_some_and(|order| order != integer.order) {
            return Err(Fault::new(at, "the byte order changes within a byte"));
        }
        let (first, skip) = ((at / 8) as usize, (at % 8) as u32);
        let size = integer.size;
        let count = (skip + size).div_ceil(8);
        let mut raw = [0; 16];
        let bytes = &self.bytes[first..first + count as usize];
        let value = match integer.order {
            Order::Little => {
                raw[..bytes.len()].copy_from_slice(bytes);
                u128::from_le_bytes(raw) >> skip
            }
            Order::Big => {
                raw[16 - bytes.len()..].copy_from_slice(bytes);
                u128::from_be_bytes(raw) >> (8 * count - skip - size)
            }
        };
        Ok((value & ((1 << size) - 1)) as u64)
    }

    pub(super) fn float(&mut self, float: &Float) -> Result<f64, Fault> {
        let integer = Integer {
            size: float.size,
            align: float.align,
            order: float.order,
            signed: false,
            text: false,
            clock: None,
            slot: None,
            role: Role::Data,
        };
        let bits = self.integer(&integer)?;
        Ok(match float.size {
            32 => f64::from(f32::from_bits(bits as u32)),
            _ => f64::from_bits(bits),
        })
    }

    /// Whole bytes up to a NUL, which is left out.
    pub(super) fn string(&mut self) -> Result<&'a [u8], Fault> {
        self.align(8)?;
        let rest = &self.bytes[(self.at / 8) as usize..(self.end / 8) as usize];
        let Ok(text) = CStr::from_bytes_until_nul(rest) else {
            return Err(self.short("the string has no end"));
        };
        self.at += 8 * (text.count_bytes() as u64 + 1);
        Ok(text.to_bytes())
    }
}
