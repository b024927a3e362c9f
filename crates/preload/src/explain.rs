//! What became of each socket of TCP and UDP, for a person to read.
//!
//! A socket has a line when its connection is taken over or left to the kernel, and one when it is
//! closed, which replaces those before: a program that is killed has told what it had open.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use loopscope_engine::Counts;
use serde::Serialize;

use crate::descriptor;

/// Why the kernel has a connection whose socket is closed.
pub(crate) const CLOSED: &str = "the program has closed it";

/// Why the kernel has the datagrams of a socket that may come from anywhere.
pub(crate) const NOT_CONNECTED: &str = "it is not connected";

/// Bytes of lines that are kept before they are written.
const MOST: usize = 1 << 16;

/// A line of the file.
#[derive(Clone, Debug, Default, Serialize)]
struct Line {
    process: i32,
    /// Its number among the sockets of the process.
    socket: u64,
    /// `TCP` or `UDP`.
    protocol: &'static str,
    /// Whether the socket was open when this was written.
    open: bool,
    /// This end and the other; None where the socket was never connected.
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
    /// Whether the stack had the connection.
    accelerated: bool,
    /// Why the stack does not, or no longer, have it.
    why: Option<String>,
    /// Bytes of payload that came to the stack, as the kernel has counted them where the packets
    /// are diverted; None where it cannot tell.
    received_by_stack: Option<u64>,
    /// Bytes that the program has read from the stack, and written to it.
    read_from_stack: u64,
    written_to_stack: u64,
    /// Packets that came to the stack and had no room.
    dropped_by_stack: u64,
    /// Bytes of both streams, also of those by the kernel, as its socket tells. It counts one more
    /// as written where this end has connected, for its SYN. None of UDP: it does not count.
    received: Option<u64>,
    written: Option<u64>,
}

/// Whether there is a file. It is set once, before any socket is known.
static IS_ASKED_FOR: AtomicBool = AtomicBool::new(false);

/// Whether what becomes of sockets is to be told.
pub(crate) fn is_asked_for() -> bool {
    IS_ASKED_FOR.load(Ordering::Relaxed)
}

/// The lines of all sockets, if the program's environment asks for them.
#[derive(Debug)]
pub(crate) struct Explain {
    file: Option<PathBuf>,
    open: BTreeMap<i32, Line>,
    /// Sockets so far.
    count: u64,
    lines: Vec<u8>,
}

impl Explain {
    pub(crate) const fn new() -> Explain {
        Explain { file: None, open: BTreeMap::new(), count: 0, lines: vec![] }
    }

    /// Writes the lines to this file.
    pub(crate) fn begin(&mut self, file: Option<PathBuf>) {
        let file = file.filter(|file| !file.as_os_str().is_empty());
        // The program may change its folder.
        self.file = file.and_then(|file| std::path::absolute(file).ok());
        IS_ASKED_FOR.store(self.file.is_some(), Ordering::Relaxed);
    }

    fn line(&mut self, fd: i32) -> Option<&mut Line> {
        self.file.as_ref()?;
        let process = rustix::process::getpid().as_raw_nonzero().get();
        let count = &mut self.count;
        Some(self.open.entry(fd).or_insert_with(|| {
            *count += 1;
            Line { process, socket: *count, protocol: "TCP", open: true, ..Line::default() }
        }))
    }

    /// A socket was made.
    pub(crate) fn opened(&mut self, fd: i32, is_udp: bool) {
        self.open.remove(&fd);
        if let Some(line) = self.line(fd)
            && is_udp
        {
            line.protocol = "UDP";
        }
    }

    /// So many datagrams had no room.
    pub(crate) fn dropped(&mut self, fd: i32, count: u64) {
        if let Some(line) = self.line(fd) {
            line.dropped_by_stack += count;
        }
    }

    /// Whether it is a socket that will have a line.
    pub(crate) fn knows(&self, fd: i32) -> bool {
        self.open.contains_key(&fd)
    }

    /// The stack has its connection.
    pub(crate) fn taken(&mut self, fd: i32) {
        if let Some(line) = self.line(fd) {
            (line.local, line.peer) = descriptor::addresses(fd).unzip();
            line.accelerated = true;
        }
        self.tell(fd);
    }

    /// The kernel has the connection again.
    pub(crate) fn returned(&mut self, fd: i32, [read, written]: [u64; 2], counts: Option<Counts>) {
        if let Some(line) = self.line(fd) {
            line.read_from_stack = read;
            line.written_to_stack = written;
            line.received_by_stack = counts.map(|counts| counts.payload);
            line.dropped_by_stack += counts.map_or(0, |counts| counts.lost);
        }
    }

    /// Bytes of both streams of a connection whose socket will not tell them any more.
    pub(crate) fn counted(&mut self, fd: i32, streams: Option<(u64, u64)>) {
        if let Some(line) = self.line(fd) {
            (line.received, line.written) = streams.unzip();
        }
    }

    /// Why the kernel has the connection. The first reason is the one that counts.
    pub(crate) fn why(&mut self, fd: i32, why: &str) {
        if let Some(line) = self.line(fd) {
            // The other end may reset the connection before it is closed.
            if line.peer.is_none() {
                (line.local, line.peer) = descriptor::addresses(fd).unzip();
            }
            line.why.get_or_insert_with(|| why.to_owned());
        }
        // It is closed at once.
        if why != CLOSED {
            self.tell(fd);
        }
    }

    /// Writes down what is known of a socket that stays open.
    fn tell(&mut self, fd: i32) {
        if let Some(line) = self.open.get(&fd) {
            add(&mut self.lines, line);
            self.flush();
        }
    }

    /// The socket is about to be closed.
    pub(crate) fn closing(&mut self, fd: i32) {
        let Some(mut line) = self.open.remove(&fd) else { return };
        if let Some((local, peer)) = descriptor::addresses(fd) {
            (line.local, line.peer) = (Some(local), Some(peer));
        }
        if line.received.is_none() {
            (line.received, line.written) = descriptor::streams(fd).unzip();
        }
        if !line.accelerated && matches!(line.why.as_deref(), None | Some(CLOSED)) {
            // A connection that both ends have closed has no addresses any more.
            let bytes = line.received.unwrap_or(0) + line.written.unwrap_or(0);
            line.why = Some(match (line.peer, bytes) {
                (None, 0) if line.protocol == "UDP" => NOT_CONNECTED.into(),
                (None, 0) => "it had no connection that transfers data".into(),
                _ => "it ended before a second call that transfers data".into(),
            });
        }
        line.open = false;
        add(&mut self.lines, &line);
        if self.lines.len() > MOST {
            self.flush();
        }
    }

    /// All that are open, when the program ends.
    pub(crate) fn end(&mut self) {
        let open: Vec<i32> = self.open.keys().copied().collect();
        open.into_iter().for_each(|fd| self.closing(fd));
        self.flush();
    }

    /// A process that was forked begins anew.
    pub(crate) fn forget(&mut self) {
        self.open.clear();
        self.lines.clear();
    }

    fn flush(&mut self) {
        if let Some(path) = &self.file
            && !self.lines.is_empty()
        {
            // Nobody can be told where it fails.
            let file = File::options().append(true).create(true).open(path);
            let _ = file.and_then(|mut file| file.write_all(&self.lines));
        }
        self.lines.clear();
    }
}

fn add(lines: &mut Vec<u8>, line: &Line) {
    if serde_json::to_writer(&mut *lines, line).is_ok() {
        lines.push(b'\n');
    }
}
