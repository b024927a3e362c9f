//! What a program and the service tell each other ([`loopscope_unix_lines`]): each request has one
//! answer.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// What a program asks for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Be a program of the service, with devices. It comes first, and once.
    Begin,
    /// Take the connection of a socket over, whose descriptor comes with it.
    Take {
        /// Bytes that the program may write before they are acknowledged.
        send: usize,
        /// Bytes that may come before the program reads them.
        receive: usize,
    },
    /// Give a connection back to the kernel, as its memory has it.
    GiveBack {
        /// Its number.
        connection: u64,
    },
    /// What came for a connection meanwhile was given to the kernel, too: nothing more of it is the
    /// program's.
    Forget {
        /// Its number.
        connection: u64,
    },
}

/// What the service answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Answer {
    /// The program's devices. With it come the AF_XDP socket, its memory, and the TAP device.
    Welcome {
        /// Bytes of a chunk of the memory ([`loopscope_frames::Layout`]).
        chunk: u32,
        /// Chunks that frames are received into.
        receive: u32,
        /// The name of the TAP device.
        inlet: String,
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
    /// The kernel has it again.
    GivenBack,
    /// It is forgotten; what came of it.
    Forgotten {
        /// Packets; None: its socket had been closed or disconnected.
        packets: Option<u64>,
        /// Bytes of data.
        payload: Option<u64>,
    },
    /// Why not. The kernel goes on with the connection.
    Refused(String),
}
