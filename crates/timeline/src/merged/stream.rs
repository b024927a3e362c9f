//! One stream of the merged trace: the events of a program on a host, in packets.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use loopscope_ctf::packet::MAGIC;

use crate::import::{ImportError, io};

/// Bytes after which a packet is written.
const PACKET: usize = 128 << 10;
/// Size of header and context, as [`HEADER`] declares them.
const HEAD: usize = 4 + 16 + 4 + 8 + 5 * 8;

/// What metadata says of packets, and of what all events have.
pub(super) const HEADER: &str = "\
stream {
	id = 0;
	packet.context := struct {
		stamp_t timestamp_begin;
		stamp_t timestamp_end;
		uint64_t content_size;
		uint64_t packet_size;
		uint64_t packet_seq_num;
	};
	event.header := struct {
		uint32_t id;
		stamp_t timestamp;
	};
	event.context := struct {
		string _host;
		string _process;
		int64_t _err_ns;
	};
};
";

pub(super) struct Stream {
    path: PathBuf,
    uuid: [u8; 16],
    number: u64,
    packets: u64,
    begin: u64,
    end: u64,
    /// The packet in the making.
    bytes: Vec<u8>,
}

impl Stream {
    pub fn new(path: PathBuf, uuid: [u8; 16], number: u64) -> Stream {
        let bytes = vec![0; HEAD];
        Stream { path, uuid, number, packets: 0, begin: 0, end: 0, bytes }
    }

    /// Begins an event; returns where its values go, from its context on.
    pub fn event(&mut self, class: u32, stamp: u64) -> Result<&mut Vec<u8>, ImportError> {
        if self.bytes.len() >= PACKET {
            self.flush()?;
        }
        if self.bytes.len() == HEAD {
            self.begin = stamp;
        }
        self.end = stamp;
        self.bytes.extend_from_slice(&class.to_le_bytes());
        self.bytes.extend_from_slice(&stamp.to_le_bytes());
        Ok(&mut self.bytes)
    }

    /// Writes the packet, if there is anything in it.
    pub fn flush(&mut self) -> Result<(), ImportError> {
        if self.bytes.len() == HEAD {
            return Ok(());
        }
        let bits = 8 * self.bytes.len() as u64;
        let mut head = Vec::with_capacity(HEAD);
        head.extend_from_slice(&MAGIC.to_le_bytes());
        head.extend_from_slice(&self.uuid);
        head.extend_from_slice(&0u32.to_le_bytes());
        for word in [self.number, self.begin, self.end, bits, bits, self.packets] {
            head.extend_from_slice(&word.to_le_bytes());
        }
        self.bytes[..HEAD].copy_from_slice(&head);
        // Not kept open: there may be more programs than a process may have files.
        let path: &Path = &self.path;
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.and_then(|mut file| file.write_all(&self.bytes)).map_err(io(path))?;
        self.packets += 1;
        self.bytes.truncate(HEAD);
        Ok(())
    }
}
