//! One stream of the trace: the packets of one ring as they are persisted.

use std::fs::File;
use std::io::{self, IoSlice};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loopscope_ctf::packet::{self, Context, RECORDS};
use loopscope_time::Counter;
use nix::errno::Errno;
use nix::sys::uio::pwritev;

use crate::Error;
use crate::packets::Packet;

/// Files that stay open between two batches; the others are opened for each. A host may have more
/// rings than a process may have files.
const KEPT_OPEN: usize = 256;
/// Packets that one system call takes: two slices each, of the 1024 that it may have.
const PACKETS_PER_CALL: usize = 512;

/// What the stream files of one recording have in common.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenFiles(Arc<AtomicUsize>);

/// Where a stream file stands. Of what lies behind `offset` in the file nothing counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position {
    /// Bytes of whole packets.
    pub(crate) offset: u64,
    /// Packets.
    pub(crate) sequence: u64,
    /// Discarded hits that the last packet tells.
    pub(crate) discarded: u64,
    /// Stamp at the end of the last packet.
    pub(crate) end: Counter,
    /// Records that found no room on the disk.
    pub(crate) lost: u64,
}

/// Writer of a stream file; the file appears with its first packet.
#[derive(Debug)]
pub(crate) struct StreamFile {
    path: PathBuf,
    uuid: [u8; 16],
    stream_id: u32,
    pid: u32,
    pub(crate) at: Position,
    file: Option<File>,
    open_files: OpenFiles,
    heads: Vec<[u8; RECORDS]>,
}

/// Whether an error says that there is no room, which may pass.
pub(crate) fn is_full(error: &io::Error) -> bool {
    let full = [Errno::ENOSPC, Errno::EDQUOT, Errno::EFBIG].map(|errno| errno as i32);
    error.raw_os_error().is_some_and(|code| full.contains(&code))
}

impl StreamFile {
    pub(crate) fn new(
        path: PathBuf,
        uuid: [u8; 16],
        stream_id: u32,
        pid: u32,
        open_files: OpenFiles,
    ) -> StreamFile {
        let at = Position::default();
        StreamFile { path, uuid, stream_id, pid, at, file: None, open_files, heads: Vec::new() }
    }

    /// Its name in the trace.
    pub(crate) fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Writes packets behind the ones that are there. Returns how many there was room for on the
    /// disk; the records of the rest are lost, and counted as discarded in later packets.
    pub(crate) fn write(&mut self, packets: &[Packet]) -> Result<usize, Error> {
        let mut done = 0;
        for batch in packets.chunks(PACKETS_PER_CALL) {
            let written = self.write_batch(batch)?;
            done += written;
            if written < batch.len() {
                break;
            }
        }
        self.at.lost += packets[done..].iter().map(|packet| packet.records).sum::<u64>();
        Ok(done)
    }

    fn write_batch(&mut self, packets: &[Packet]) -> Result<usize, Error> {
        let mut next = self.at;
        let mut positions = Vec::with_capacity(packets.len());
        self.heads.clear();
        for packet in packets {
            // Cumulative, so never less than in the packet before.
            next.discarded = next.discarded.max(packet.discarded.unwrap_or(0) + next.lost);
            next.end = packet.end;
            let context = Context {
                uuid: self.uuid,
                stream_id: self.stream_id,
                begin: packet.begin,
                end: packet.end,
                content_size: packet.size(),
                packet_size: packet.size(),
                sequence: next.sequence,
                discarded: next.discarded,
                pid: self.pid,
                tid: packet.tid,
            };
            let mut head = [0; RECORDS];
            packet::put_context(&mut head, &context);
            self.heads.push(head);
            next.sequence += 1;
            next.offset += packet.size() as u64;
            positions.push(next);
        }
        let file = match self.file.take() {
            Some(file) => {
                self.open_files.0.fetch_sub(1, Ordering::Relaxed);
                Ok(file)
            }
            None => self.open(),
        };
        let file = match file {
            Ok(file) => file,
            Err(error) if is_full(&error) => return Ok(0),
            Err(error) => return Err(Error::file("write", &self.path)(error)),
        };
        let mut slices: Vec<IoSlice> = Vec::with_capacity(2 * packets.len());
        for (head, packet) in self.heads.iter().zip(packets) {
            slices.push(IoSlice::new(head));
            slices.push(IoSlice::new(&packet.body));
        }
        let mut rest = slices.as_mut_slice();
        let mut offset = self.at.offset;
        let written = loop {
            if rest.is_empty() {
                break Ok(());
            }
            match pwritev(&file, rest, offset.cast_signed()) {
                Ok(0) => break Err(Errno::ENOSPC.into()),
                Ok(n) => {
                    offset += n as u64;
                    IoSlice::advance_slices(&mut rest, n);
                    while rest.first().is_some_and(|slice| slice.is_empty()) {
                        rest = &mut rest[1..];
                    }
                }
                Err(Errno::EINTR) => {}
                Err(errno) => break Err(io::Error::from(errno)),
            }
        };
        self.keep_open(file);
        let done = positions.partition_point(|position| position.offset <= offset);
        if done > 0 {
            self.at = positions[done - 1];
        }
        match written {
            Err(error) if !is_full(&error) => Err(Error::file("write", &self.path)(error)),
            _ => Ok(done),
        }
    }

    fn open(&self) -> io::Result<File> {
        File::options().write(true).create(true).truncate(false).open(&self.path)
    }

    fn keep_open(&mut self, file: File) {
        // Relaxed: a count, nothing is published with it.
        let kept = self.open_files.0.fetch_add(1, Ordering::Relaxed);
        if kept < KEPT_OPEN {
            self.file = Some(file);
        } else {
            self.open_files.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Ends the file: if it does not say so yet, an empty packet carries the final count of
    /// discarded hits, because readers learn of drops from the packets' contexts alone; what a full
    /// disk left of a packet is cut off.
    pub(crate) fn close(&mut self, tid: u32, discarded: u64) -> Result<(), Error> {
        if self.at.sequence > 0 && discarded + self.at.lost > self.at.discarded {
            let packet = Packet {
                begin: self.at.end,
                end: self.at.end,
                discarded: Some(discarded),
                tid,
                records: 0,
                body: [][..].into(),
            };
            self.write(&[packet])?;
        }
        self.cut()
    }

    /// Cuts off what lies behind the last whole packet.
    pub(crate) fn cut(&mut self) -> Result<(), Error> {
        let length = match std::fs::metadata(&self.path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(Error::file("read", &self.path)(error)),
        };
        if length > self.at.offset {
            File::options()
                .write(true)
                .open(&self.path)
                .and_then(|file| file.set_len(self.at.offset))
                .map_err(Error::file("cut", &self.path))?;
        }
        if self.at.offset == 0 {
            std::fs::remove_file(&self.path).map_err(Error::file("remove", &self.path))?;
        }
        Ok(())
    }
}

impl Drop for StreamFile {
    fn drop(&mut self) {
        if self.file.is_some() {
            self.open_files.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
