//! Metadata in packets, as tracers write it: headers between pieces of the text.

use super::{ParseError, Place};

const MAGIC: u32 = 0x75D1_1D57;

/// Magic, UUID, checksum, content and packet size in bits, compression, encryption, checksum
/// scheme, version.
const HEADER: usize = 37;

/// The text in `bytes`, which may be the text itself.
pub(super) fn text(bytes: &[u8]) -> Result<Vec<u8>, ParseError> {
    let Some(first) = bytes.first_chunk().copied() else { return Ok(bytes.to_vec()) };
    let big = u32::from_be_bytes(first) == MAGIC;
    if !big && u32::from_le_bytes(first) != MAGIC {
        return Ok(bytes.to_vec());
    }
    let word = |at: usize| {
        let raw = bytes[at..at + 4].try_into().expect("four bytes");
        if big { u32::from_be_bytes(raw) } else { u32::from_le_bytes(raw) }
    };
    let mut text = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let error = |what: String| {
            Place::default().error(format!("in the metadata packet at byte {at}: {what}"))
        };
        let left = bytes.len() - at;
        if left < HEADER {
            return Err(error(format!("{left} bytes are left, its header has {HEADER}")));
        }
        if word(at) != MAGIC {
            return Err(error(format!("it does not begin with the magic number {MAGIC:#x}")));
        }
        let (major, minor) = (bytes[at + 35], bytes[at + 36]);
        if (major, minor) != (1, 8) {
            return Err(error(format!("version {major}.{minor}, known is 1.8")));
        }
        for (offset, what) in [(32, "compressed"), (33, "encrypted")] {
            if bytes[at + offset] != 0 {
                return Err(error(format!("it is {what}, which CTF 1.8 does not define")));
            }
        }
        let (content, packet) = (word(at + 24) as usize / 8, word(at + 28) as usize / 8);
        if content < HEADER || content > packet || packet > left {
            return Err(error(format!(
                "its sizes do not fit: content {content} B, packet {packet} B, {left} B left"
            )));
        }
        text.extend_from_slice(&bytes[at + HEADER..at + content]);
        at += packet;
    }
    Ok(text)
}
