//! Types of an event's id and fields.

use core::marker::PhantomData;
use core::mem::MaybeUninit;

/// A type that a field of an event can have.
pub trait Field: Copy {
    /// Type code in the call site's description (`loopscope_ctf::FieldType`).
    const CODE: u8;
    /// Size in a record, in bytes; 0: it varies.
    const SIZE: usize;
    /// Appends the value to a payload.
    fn push<'a>(self, payload: &mut Payload<'a>)
    where
        Self: 'a;
}

macro_rules! field {
    ($($type:ty = $code:literal),*) => {$(
        impl Field for $type {
            const CODE: u8 = $code;
            const SIZE: usize = size_of::<$type>();
            #[inline(always)]
            fn push<'a>(self, payload: &mut Payload<'a>)
            where
                Self: 'a,
            {
                payload.append(self.to_le_bytes());
                payload.fields += 1;
            }
        }
    )*};
}

field!(u8 = 1, u16 = 2, u32 = 3, u64 = 4, i8 = 5, i16 = 6, i32 = 7, i64 = 8, f32 = 9, f64 = 10);

/// A string, up to its first NUL.
impl Field for &str {
    const CODE: u8 = 11;
    const SIZE: usize = 0;
    #[inline(always)]
    fn push<'a>(self, payload: &mut Payload<'a>)
    where
        Self: 'a,
    {
        payload.append_pointer(self.as_ptr());
        payload.lengths[payload.fields] = self.len();
        payload.fields += 1;
        payload.varies = true;
    }
}

/// Bytes.
impl Field for &[u8] {
    const CODE: u8 = 12;
    const SIZE: usize = 0;
    #[inline(always)]
    fn push<'a>(self, payload: &mut Payload<'a>)
    where
        Self: 'a,
    {
        payload.append_pointer(self.as_ptr());
        // Too long for a record stays too long.
        payload.append(u32::try_from(self.len()).unwrap_or(u32::MAX).to_le_bytes());
        payload.fields += 1;
        payload.varies = true;
    }
}

/// A type that an id, a key, an amount or a histogram's value can have: any integer. Ids are
/// compared, not computed with, so a 64-bit unsigned one keeps its bits.
pub trait Id: Copy {
    /// The value as recorded.
    fn to_id(self) -> i64;
}

macro_rules! id {
    ($($type:ty),*) => {$(
        impl Id for $type {
            #[inline(always)]
            fn to_id(self) -> i64 {
                self as i64
            }
        }
    )*};
}

id!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize);

/// An event's fields, packed as the C core takes them: a string as a pointer, bytes as a pointer
/// and a length.
#[derive(Debug)]
pub struct Payload<'a> {
    bytes: Packed,
    lengths: Lengths,
    size: usize,
    fields: usize,
    varies: bool,
    borrowed: PhantomData<&'a [u8]>,
}

impl Payload<'_> {
    /// The most fields that an event has.
    pub const FIELDS: usize = 8;
    /// So many of the largest type. A multiple of eight: the core copies whole words.
    pub const CAPACITY: usize = 12 * Payload::FIELDS;

    /// Without fields.
    #[inline(always)]
    #[allow(clippy::new_without_default, reason = "for the macros alone")]
    pub fn new() -> Self {
        Payload {
            bytes: [MaybeUninit::uninit(); Payload::CAPACITY],
            lengths: [0; Payload::FIELDS],
            size: 0,
            fields: 0,
            varies: false,
            borrowed: PhantomData,
        }
    }

    #[inline(always)]
    fn append<const N: usize>(&mut self, value: [u8; N]) {
        self.append_bytes(value.map(MaybeUninit::new));
    }

    #[inline(always)]
    fn append_bytes<const N: usize>(&mut self, value: [MaybeUninit<u8>; N]) {
        self.bytes[self.size..self.size + N].copy_from_slice(&value);
        self.size += N;
    }

    #[inline(always)]
    #[allow(unsafe_code)]
    fn append_pointer(&mut self, pointer: *const u8) {
        // SAFETY: any value is valid as bytes that may be uninitialised; unlike an integer they
        // keep the pointer's provenance.
        self.append_bytes(unsafe {
            core::mem::transmute::<*const u8, [MaybeUninit<u8>; 8]>(pointer)
        });
    }

    /// The packed fields and their size, and the strings' lengths by field if the record's size
    /// varies. Copies, so that the rest stays in registers when the core is given their addresses.
    #[inline(always)]
    pub(crate) fn parts(&self) -> (Packed, u32, Option<Lengths>) {
        (self.bytes, self.size as u32, self.varies.then_some(self.lengths))
    }
}

pub(crate) type Packed = [MaybeUninit<u8>; Payload::CAPACITY];
pub(crate) type Lengths = [usize; Payload::FIELDS];
