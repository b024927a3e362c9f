//! Metadata in packets, as tracers write it: headers between pieces of the text.

use super::{ParseError, Place, Warnings};

const MAGIC: u32 = 0x75D1_1D57;

/// Magic, UUID, checksum, content and packet size in bits, compression, encryption, checksum
/// scheme, version.
const HEADER: usize = 37;

/// What a text without packets begins with.
const SIGNATURE: &str = "/* CTF 1.8";

/// The text in `bytes`, which may be the text itself.
pub(super) fn text(bytes: &[u8], warnings: &mut Warnings) -> Result<Vec<u8>, ParseError> {
    let first = bytes.first_chunk().copied().unwrap_or_default();
    let big = u32::from_be_bytes(first) == MAGIC;
    if !big && u32::from_le_bytes(first) != MAGIC {
        check_signature(bytes, warnings)?;
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

/// Refuses a text that does not say that it is of CTF 1.8, in its first characters.
fn check_signature(bytes: &[u8], warnings: &mut Warnings) -> Result<(), ParseError> {
    let begin = Place { line: 1, column: 1 };
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]);
    let said = text.strip_prefix("/*").and_then(|text| text.trim_start().strip_prefix("CTF"));
    let is_version = |c: char| c.is_ascii_digit() || c == '.';
    let version = said.and_then(|said| said.trim_start().split(|c| !is_version(c)).next());
    let mut parts = version.unwrap_or_default().split('.').map(str::parse::<u32>);
    match (version, parts.next(), parts.next()) {
        (_, Some(Ok(1)), Some(Ok(8))) => {}
        (Some(version), ..) => {
            return Err(begin.error(format!("CTF of version {version:?}, known is 1.8")));
        }
        (None, ..) => {
            return Err(begin.error(format!(
                "a metadata text begins with `{SIGNATURE}`, and this does not: it is not CTF's, or \
                 something stands before its beginning"
            )));
        }
    }
    if !bytes.starts_with(SIGNATURE.as_bytes()) {
        warnings.push(begin.error(format!("the text does not begin with `{SIGNATURE}`")));
    }
    Ok(())
}
