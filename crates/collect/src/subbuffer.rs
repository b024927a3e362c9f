//! The packets of a sub-buffer, as the program left them.

use loopscope_ctf::packet::{self, RECORDS, get_u32, get_u64};
use loopscope_time::Counter;

/// No counter gets there, so that nothing which is added to a stamp overflows.
pub(crate) const LATEST: u64 = 1 << 62;
/// No count reaches this either.
pub(crate) const MOST_COUNTED: u64 = 1 << 48;

/// A packet in a sub-buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece<'a> {
    pub(crate) begin: Counter,
    /// What the program told when it closed the packet; not of an open one.
    pub(crate) closed: Option<Closed>,
    pub(crate) tid: u32,
    /// Offset of its records in the sub-buffer.
    pub(crate) offset: usize,
    /// Its records.
    pub(crate) body: &'a [u8],
}

/// What a closed packet's context tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Closed {
    pub(crate) end: Counter,
    pub(crate) discarded: u64,
}

/// Calls `each` for the packets of a sub-buffer, of which the first `used` bytes count; in a closed
/// one that is all of them. An error says what is wrong with the packet at which this ends.
pub(crate) fn pieces<'a>(
    subbuffer: &'a [u8],
    used: usize,
    mut each: impl FnMut(Piece<'a>),
) -> Result<(), String> {
    let used = used.min(subbuffer.len());
    let mut at = 0;
    while at < used {
        let head = &subbuffer[at..];
        if used - at < RECORDS || get_u32(head, 0) != packet::MAGIC {
            return Err(format!("there is no packet at byte {at}"));
        }
        let bytes = |field| usize::try_from(get_u64(head, field) / 8).unwrap_or(usize::MAX);
        let (content, size) = (bytes(packet::CONTENT_SIZE), bytes(packet::PACKET_SIZE));
        // An open packet reaches to the sub-buffer's end; its content is not told yet.
        let whole = size <= used - at && content != 0;
        let content = if whole { content } else { used - at };
        let begin = get_u64(head, packet::TIMESTAMP_BEGIN);
        if content < RECORDS || (whole && content > size) || begin > LATEST {
            return Err(format!("the head of the packet at byte {at} is damaged"));
        }
        let closed = whole.then(|| Closed {
            end: Counter(get_u64(head, packet::TIMESTAMP_END).min(LATEST)),
            discarded: get_u64(head, packet::DISCARDED).min(MOST_COUNTED),
        });
        each(Piece {
            begin: Counter(begin),
            closed,
            tid: get_u32(head, packet::TID),
            offset: at + RECORDS,
            body: &head[RECORDS..content],
        });
        at = if whole { at + size } else { used };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use loopscope_ctf::packet::{Context, put_context};

    fn head(bytes: &mut [u8], at: usize, content: usize, size: usize, tid: u32) {
        let context = Context {
            uuid: [0; 16],
            stream_id: 0,
            begin: Counter(10 * u64::from(tid)),
            end: Counter(10 * u64::from(tid) + 5),
            content_size: content,
            packet_size: size,
            sequence: 0,
            discarded: 7,
            pid: 1,
            tid,
        };
        put_context(&mut bytes[at..], &context);
    }

    /// Thread, place and size of the records, and whether the packet is closed.
    type Told = (u32, usize, usize, bool);

    fn all(bytes: &[u8], used: usize) -> (Vec<Told>, Result<(), String>) {
        let mut found = Vec::new();
        let walked = pieces(bytes, used, |p| {
            found.push((p.tid, p.offset, p.body.len(), p.closed.is_some()));
        });
        (found, walked)
    }

    #[test]
    fn packets_of_several_threads_and_the_open_one() {
        let mut bytes = vec![0; 1024];
        head(&mut bytes, 0, 94, 96, 1);
        head(&mut bytes, 96, 108, 112, 2);
        head(&mut bytes, 208, 0, 816, 3);
        let closed = [(1, 80, 14, true), (2, 176, 28, true)];
        assert_eq!(all(&bytes, 316), ([&closed[..], &[(3, 288, 28, false)]].concat(), Ok(())));
        // Nothing of the third is there yet, or only its head.
        assert_eq!(all(&bytes, 208), (closed.to_vec(), Ok(())));
        assert_eq!(all(&bytes, 288).0.last(), Some(&(3, 288, 0, false)));
        // Closed: the last one reaches to the sub-buffer's end.
        head(&mut bytes, 208, 100, 816, 3);
        assert_eq!(all(&bytes, 1024), ([&closed[..], &[(3, 288, 20, true)]].concat(), Ok(())));
        // Killed while the second was being closed: `used` is still its end without padding.
        assert_eq!(all(&bytes, 204).0, [(1, 80, 14, true), (2, 176, 28, false)]);
    }

    #[test]
    fn damage_is_told_with_its_place() {
        let mut bytes = vec![0; 512];
        head(&mut bytes, 0, 94, 96, 1);
        let (found, walked) = all(&bytes, 512);
        assert_eq!(found.len(), 1);
        assert_eq!(walked.unwrap_err(), "there is no packet at byte 96");
        head(&mut bytes, 96, 300, 112, 2);
        assert!(all(&bytes, 512).1.unwrap_err().contains("byte 96 is damaged"));
        assert!(all(&bytes, 120).1.unwrap_err().contains("byte 96"));
        bytes[packet::TIMESTAMP_BEGIN..][..8].fill(0xff);
        assert!(all(&bytes, 96).1.unwrap_err().contains("byte 0 is damaged"));
    }
}
