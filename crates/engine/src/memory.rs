//! The memory of a connection: a file without a name, with the connection's outline and the rings of
//! its streams. The program maps it; the service maps its first page, and reads and writes the rest
//! as a file.
//!
//! The outline is there twice. The program writes the one that is not valid, and then says that it is,
//! in one step that fails when the service has taken the connection. So what is taken is whole,
//! wherever the program is killed or stopped, and what the program does later is not part of it: its
//! call fails, and it does the same again by the kernel.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;

use loopscope_stack::{Outline, State, in_ring};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::shared::{HEAD, Head, WORD, outline_at};

/// A file of zeros, whose size cannot change.
fn file(bytes: usize) -> io::Result<File> {
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let file = File::from(memfd_create("loopscope connection", flags)?);
    file.set_len(bytes as u64)?;
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(file)
}

/// The memory of a connection, for the service.
#[derive(Debug)]
pub struct Memory {
    /// The file.
    pub file: File,
    /// Bytes of the ring of what is sent.
    pub send: usize,
    /// Bytes of the ring of what comes, behind it.
    pub receive: usize,
}

impl Memory {
    /// That of a connection as it was taken over. The rings have so many bytes, or more where it needs
    /// them.
    pub fn of(state: &State, send: usize, receive: usize) -> io::Result<Memory> {
        let outline = Outline::of(state);
        let send = send.max(state.queued.len()).max(1);
        let receive = receive.max(outline.edge.since(outline.read)).max(1);
        let file = file(HEAD + send + receive)?;
        let memory = Memory { file, send, receive };
        let [sending, receiving] = memory.pieces(&outline);
        for (pieces, bytes) in [(sending, &state.queued), (receiving, &state.unread)] {
            let mut rest = &bytes[..];
            for piece in pieces {
                let (now, later) = rest.split_at(piece.len());
                memory.file.write_all_at(now, piece.start as u64)?;
                rest = later;
            }
        }
        let words = outline.to_words().into_iter().flat_map(u64::to_ne_bytes);
        let words: Vec<u8> = words.collect();
        memory.file.write_all_at(&words, (outline_at(0) * WORD) as u64)?;
        Ok(memory)
    }

    /// Takes the connection from the program, as it has saved it last. Refused where no connection can
    /// be so.
    pub fn take(&self) -> io::Result<State> {
        let valid = Head::map(&self.file)?.take();
        let outline = self.outline(valid)?;
        let outline = outline
            .ok_or_else(|| io::Error::other("the program has left what no connection can be"))?;
        let [sending, receiving] = self.pieces(&outline);
        let read = |pieces: [Range<usize>; 2]| {
            let mut bytes = vec![];
            for piece in pieces {
                let begin = bytes.len();
                bytes.resize(begin + piece.len(), 0);
                self.file.read_exact_at(&mut bytes[begin..], piece.start as u64)?;
            }
            io::Result::Ok(bytes)
        };
        Ok(outline.into_state(read(sending)?, read(receiving)?))
    }

    /// Where the connection is, as the program has saved it last. None: it saves it at this moment, or
    /// has saved what no connection can be.
    pub fn look(&self) -> io::Result<Option<Outline>> {
        let head = Head::map(&self.file)?;
        let valid = head.valid();
        let outline = self.outline(valid)?;
        Ok(outline.filter(|_| head.valid() == valid))
    }

    /// The outline that a word [`crate::shared::VALID`] is of. None: no connection can be so.
    fn outline(&self, valid: u64) -> io::Result<Option<Outline>> {
        let mut bytes = [0; Outline::WORDS * WORD];
        self.file.read_exact_at(&mut bytes, (outline_at(valid) * WORD) as u64)?;
        let mut words = bytes.chunks_exact(WORD);
        let mut next = || words.next().and_then(|word| word.try_into().ok()).expect("a word");
        let outline = Outline::from_words(&std::array::from_fn(|_| u64::from_ne_bytes(next())));
        Ok(outline.fits(self.send, self.receive).then_some(outline))
    }

    /// Tells the program that the kernel has the connection: it may use its socket again.
    pub fn set_returned(&self) -> io::Result<()> {
        Head::map(&self.file).map(|head| head.set_returned())
    }

    /// Whether it was told.
    pub fn has_returned(&self) -> io::Result<bool> {
        Head::map(&self.file).map(|head| head.has_returned())
    }

    /// Where the bytes that are not acknowledged, and those that were not read, are in the file.
    fn pieces(&self, outline: &Outline) -> [[Range<usize>; 2]; 2] {
        let queued = in_ring(outline.queued(), outline.send_origin, self.send);
        let unread = in_ring(outline.unread(), outline.receive_origin, self.receive);
        [(queued, HEAD), (unread, HEAD + self.send)]
            .map(|(pieces, begin)| pieces.map(|piece| begin + piece.start..begin + piece.end))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use loopscope_stack::Seq;

    use super::*;

    pub(crate) fn state() -> State {
        State {
            unacknowledged: Seq(995),
            queued: (0..200).collect(),
            sent: 100,
            peer_window: 5000,
            expected: Seq(1990),
            unread: (100..150).collect(),
            window: 900,
            segment: 1448,
            scale: 7,
            peer_scale: 7,
            selective: true,
            ecn: false,
            round_trip: None,
            timestamps: None,
        }
    }

    #[test]
    fn what_was_written_is_read_again() {
        for sizes in [(1000, 1000), (200, 950), (0, 0)] {
            let memory = Memory::of(&state(), sizes.0, sizes.1).unwrap();
            assert!(memory.send >= 200 && memory.receive >= 950);
            assert_eq!(memory.take().unwrap(), state());
        }
    }

    #[test]
    fn bytes_that_go_round_the_end_of_a_ring_are_read_again() {
        let memory = Memory::of(&state(), 1000, 1000).unwrap();
        // The program has its rings begin before, so that the same bytes are elsewhere in them.
        let outline = Outline::of(&state());
        let moved = Outline {
            send_origin: outline.unacknowledged.back(900),
            receive_origin: outline.read.back(980),
            ..outline.clone()
        };
        for (pieces, bytes) in memory.pieces(&moved).iter().zip([state().queued, state().unread]) {
            let [one, other] = pieces.clone();
            assert!(!other.is_empty() && other.start < one.start);
            memory.file.write_all_at(&bytes[..one.len()], one.start as u64).unwrap();
            memory.file.write_all_at(&bytes[one.len()..], other.start as u64).unwrap();
        }
        let words: Vec<u8> = moved.to_words().into_iter().flat_map(u64::to_ne_bytes).collect();
        memory.file.write_all_at(&words, (outline_at(0) * WORD) as u64).unwrap();
        assert_eq!(memory.take().unwrap(), state());
    }

    #[test]
    fn what_no_connection_can_be_is_refused() {
        let memory = Memory::of(&state(), 1000, 1000).unwrap();
        memory.file.write_all_at(&[0xff; HEAD], 0).unwrap();
        let error = memory.take().unwrap_err();
        assert_eq!(error.to_string(), "the program has left what no connection can be");
    }

    #[test]
    fn its_size_cannot_change() {
        let memory = Memory::of(&state(), 1000, 1000).unwrap();
        assert!(memory.file.set_len(10).is_err());
        assert!(memory.file.set_len(1 << 20).is_err());
    }
}
