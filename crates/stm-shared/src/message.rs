//! The head of a message between hosts, which an item's bytes may follow.

use std::io::{self, IoSlice, Read, Write};

/// Bytes of a head: its kind, three numbers of 32 bits, and four of 64, all little-endian.
pub const HEAD: usize = 48;

/// The numbers of a head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// What it says.
    pub kind: u32,
    /// See `schema/stm.md`, as of the others.
    pub small: [u32; 3],
    /// See `small`.
    pub large: [i64; 4],
}

impl Head {
    /// Its bytes, little-endian.
    pub fn bytes(&self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        let [first, second, third] = self.small;
        let small = [self.kind, first, second, third].map(u32::to_le_bytes);
        bytes[..16].copy_from_slice(small.as_flattened());
        bytes[16..].copy_from_slice(self.large.map(i64::to_le_bytes).as_flattened());
        bytes
    }

    /// Reads one.
    ///
    /// # Errors
    /// The stream's.
    pub fn read(stream: &mut impl Read) -> io::Result<Head> {
        let mut bytes = [0; HEAD];
        stream.read_exact(&mut bytes)?;
        let small = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let large = |at: usize| i64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        Ok(Head {
            kind: small(0),
            small: [small(4), small(8), small(12)],
            large: std::array::from_fn(|number| large(16 + 8 * number)),
        })
    }
}

/// Writes some bytes and then others.
///
/// # Errors
/// The stream's.
pub fn write_both(stream: &mut impl Write, first: &[u8], second: &[u8]) -> io::Result<()> {
    let mut parts = [IoSlice::new(first), IoSlice::new(second)];
    let mut parts = &mut parts[..];
    while !parts.is_empty() {
        match stream.write_vectored(parts) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(sent) => IoSlice::advance_slices(&mut parts, sent),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The error of a message that makes no sense.
pub fn unknown(kind: u32) -> io::Error {
    let what = format!("a message of kind {kind}, which this version does not know");
    io::Error::new(io::ErrorKind::InvalidData, what)
}
