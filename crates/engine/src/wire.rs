//! What a program and the service tell each other ([`loopscope_unix_lines`]): each request has one
//! answer.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// The version of what is in here and in the memory that is shared. A service refuses programs with
/// the library of another one.
pub const VERSION: u32 = 1;

/// What a program asks for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Be a program of the service, with devices. It comes first, and once.
    Begin {
        /// That of the program's library: [`VERSION`].
        #[serde(default)]
        version: u32,
    },
    /// Tell what programs and connections there are. It comes in place of [`Request::Begin`].
    Status,
    /// Take the connection of a socket over, whose descriptor comes with it.
    Take {
        /// Bytes that the program may write before they are acknowledged.
        send: usize,
        /// Bytes that may come before the program reads them.
        receive: usize,
    },
    /// Divert the datagrams that come for a connected socket of UDP, whose descriptor comes with
    /// it. The socket stays as it is.
    TakeDatagrams,
    /// Give a connection back to the kernel, as its memory has it; or leave the datagrams of a
    /// socket to the kernel again.
    GiveBack {
        /// Its number.
        connection: u64,
        /// The program is about to close the socket, which nobody else has.
        closing: bool,
    },
    /// What came for a connection, or for a socket of UDP, meanwhile was given to the kernel, too:
    /// nothing more of it is the program's. Of a socket it can come without
    /// [`Request::GiveBack`]: the program closes it.
    Forget {
        /// Its number.
        connection: u64,
    },
}

/// What the service answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Answer {
    /// What the program has of its own. With it come the ring that has what comes
    /// ([`loopscope_frames::packets`]), and the TAP device.
    Welcome {
        /// The name of the TAP device.
        inlet: String,
        /// Bytes of the ring.
        ring: usize,
    },
    /// All connections of programs.
    Status {
        /// Programs that have devices.
        programs: usize,
        /// Their connections.
        connections: Vec<Status>,
    },
    /// The connection is the program's. Its [`crate::memory`] comes with it.
    Taken {
        /// Its number.
        connection: u64,
        /// The other end.
        from: SocketAddr,
        /// This end.
        to: SocketAddr,
        /// Bytes of the ring of what is sent.
        send: usize,
        /// Bytes of the ring of what comes.
        receive: usize,
    },
    /// The program has the datagrams of a socket from now on, and sends its own.
    TakenDatagrams {
        /// Its number.
        connection: u64,
        /// The other end.
        from: SocketAddr,
        /// This end.
        to: SocketAddr,
        /// Bytes of the largest packet of the device, with the header of IP.
        mtu: usize,
    },
    /// The kernel has it again.
    GivenBack,
    /// It is forgotten; what came of it.
    Forgotten {
        /// None: its socket had been closed or disconnected before it was given back.
        counts: Option<Counts>,
    },
    /// Why not. The kernel goes on with the connection.
    Refused(String),
}

/// What came of a connection, or a socket of UDP, as the kernel has counted it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Packets that the program got.
    pub packets: u64,
    /// Bytes of their data.
    pub payload: u64,
    /// Packets that were lost because the program's ring had no room.
    pub lost: u64,
}

/// A connection of a program, or its connected socket of UDP, at the moment in which the service
/// was asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {
    /// The program's process. None: it has no number in the service's namespace.
    pub process: Option<i32>,
    /// Its user. None: the kernel does not tell.
    pub user: Option<u32>,
    /// `TCP` or `UDP`.
    pub protocol: String,
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub peer: SocketAddr,
    /// The device that its packets come from.
    pub device: String,
    /// Packets, and bytes of data, that came of it since it was taken over, as the kernel has counted
    /// them. None: its socket was closed.
    pub packets: Option<u64>,
    /// Bytes of data.
    pub payload: Option<u64>,
    /// Packets that were lost because the program's ring had no room.
    pub lost: Option<u64>,
    /// What the program has saved last. None: it saves it at this moment, or the kernel has the
    /// connection again, or it is of UDP.
    pub streams: Option<Streams>,
}

/// Where the streams of a connection are.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Streams {
    /// Bytes that the program has written and the other end has not acknowledged.
    pub unacknowledged: usize,
    /// Bytes of these that were never sent.
    pub unsent: usize,
    /// Bytes that came and that the program has not read.
    pub unread: usize,
    /// Bytes that the other end may send, and that it takes.
    pub windows: [usize; 2],
    /// Bytes of data of the largest segment.
    pub segment: usize,
    /// The round trip, smoothed, and its variation, in microseconds. None: not measured yet.
    pub round_trip_us: Option<[f64; 2]>,
}
