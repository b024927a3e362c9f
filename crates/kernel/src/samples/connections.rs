//! TCP connections of some processes, as the kernel tells everybody in the same network namespace
//! (sock_diag(7), `struct tcp_info` of linux/tcp.h).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr as Address};
use std::ops::Range;

use loopscope_ctf::FieldType;
use loopscope_sock_diag::{AF_INET, AF_INET6, Nla, SockDiag, SocketId};
use loopscope_time::source::read_counter;

use super::shape::Shape;
use crate::output::Output;

/// Bytes of a record, and what of them makes a look another one.
const SIZE: usize = 128;
const COUNTS: Range<usize> = 21..88;
/// Bytes of `struct tcp_info` that are copied from, which Linux 4.10 and later have.
const TOLD: usize = 192;
/// In so many searches the owner of a connection is looked for: it may be given to another process
/// meanwhile.
const TRIES: u8 = 3;

pub(crate) static SHAPE: Shape = Shape {
    class: "tcpinfo",
    name: "tcp_info",
    size: SIZE,
    tid: 16,
    numbers: &[
        ("root", FieldType::U32, 16),
        ("congestion_state", FieldType::U8, 21),
        ("retransmits", FieldType::U8, 22),
        ("snd_mss", FieldType::U32, 28),
        ("packets_out", FieldType::U32, 32),
        ("lost", FieldType::U32, 36),
        ("snd_cwnd", FieldType::U32, 40),
        ("total_retrans", FieldType::U32, 44),
        ("notsent_bytes", FieldType::U32, 48),
        ("rtt_us", FieldType::U32, 52),
        ("bytes_acked", FieldType::U64, 56),
        ("busy_us", FieldType::U64, 64),
        ("rwnd_limited_us", FieldType::U64, 72),
        ("sndbuf_limited_us", FieldType::U64, 80),
    ],
    texts: &[
        ("local", |record| end_in(record, 24, 96)),
        ("remote", |record| end_in(record, 26, 112)),
    ],
};

/// Where these are in `struct tcp_info`, and in a record.
const COPIED: [(Range<usize>, usize); 12] = [
    (1..3, 21),     // ca_state, retransmits
    (16..20, 28),   // snd_mss
    (24..28, 32),   // unacked
    (32..36, 36),   // lost
    (80..84, 40),   // snd_cwnd
    (100..104, 44), // total_retrans
    (144..148, 48), // notsent_bytes
    (68..72, 52),   // rtt
    (120..128, 56), // bytes_acked
    (168..176, 64), // busy_time
    (176..184, 72), // rwnd_limited
    (184..192, 80), // sndbuf_limited
];

fn end_in(record: &[u8], port: usize, address: usize) -> String {
    let mut octets = [0; 16];
    octets.copy_from_slice(&record[address..address + 16]);
    let port = u16::from_le_bytes([record[port], record[port + 1]]);
    Address::new(IpAddr::from(Ipv6Addr::from(octets)).to_canonical(), port).to_string()
}

/// A connection that is looked at.
#[derive(Debug)]
struct Connection {
    family: u8,
    id: SocketId,
    root: u32,
    /// The last look, and whether it is in the file.
    last: Option<([u8; SIZE], bool)>,
}

/// The connections of some processes in the network namespace of the thread that made it.
#[derive(Debug)]
pub(crate) struct Connections {
    diagnostics: SockDiag,
    /// By the socket's inode.
    known: BTreeMap<u32, Connection>,
    /// Those of other processes, and how often their owner was looked for.
    others: BTreeMap<u32, u8>,
    pub(crate) file: Output,
    pub(crate) recorded: u64,
}

impl Connections {
    pub(crate) fn open(file: Output) -> io::Result<Connections> {
        let diagnostics = SockDiag::open()?;
        let (known, others) = (BTreeMap::new(), BTreeMap::new());
        Ok(Connections { diagnostics, known, others, file, recorded: 0 })
    }

    /// Looks for connections that are not known yet. `processes` are numbers of processes, each with
    /// that of the first one of its program.
    pub(crate) fn search(&mut self, processes: &[(u32, u32)]) -> io::Result<()> {
        let mut found = vec![];
        for family in [AF_INET, AF_INET6] {
            let all = self.diagnostics.all(family)?;
            found.extend(all.into_iter().map(|answer| answer.header));
        }
        let there: BTreeSet<u32> = found.iter().map(|header| header.inode).collect();
        self.others.retain(|inode, _| there.contains(inode));
        let is_new = |inode: &u32| {
            !self.known.contains_key(inode)
                && self.others.get(inode).is_none_or(|tries| *tries < TRIES)
        };
        found.retain(|header| is_new(&header.inode));
        if found.is_empty() {
            return Ok(());
        }
        let owners = owners(processes);
        for header in found {
            if let Some(&root) = owners.get(&header.inode) {
                let (family, id) = (header.family, header.socket_id);
                self.known.insert(header.inode, Connection { family, id, root, last: None });
            } else {
                *self.others.entry(header.inode).or_default() += 1;
            }
        }
        Ok(())
    }

    /// Looks at all connections. Records are as those of threads: what has changed, and the look
    /// before that.
    pub(crate) fn look(&mut self) -> io::Result<()> {
        for (inode, mut connection) in std::mem::take(&mut self.known) {
            let before = read_counter().0;
            let answers = self.diagnostics.one(connection.family, connection.id.clone())?;
            let took = read_counter().0.saturating_sub(before);
            let own = answers.iter().filter(|answer| answer.header.inode == inode);
            let info = own.flat_map(|answer| &answer.nlas).find_map(|nla| match nla {
                Nla::TcpInfo(info) => Some(info),
                _ => None,
            });
            // One that has ended is gone.
            let Some(info) = info else { continue };
            if info.len() < TOLD {
                let what = format!("this kernel tells {} bytes of {TOLD}", info.len());
                return Err(io::Error::new(io::ErrorKind::Unsupported, what));
            }
            let look = record(&connection, before, took, info);
            let changed = connection.last.is_none_or(|(last, _)| last[COUNTS] != look[COUNTS]);
            if changed {
                let before = connection.last.filter(|(_, written)| !written).map(|(last, _)| last);
                for look in before.into_iter().chain([look]) {
                    self.file.put(&look);
                    self.recorded += 1;
                }
            }
            connection.last = Some((look, changed));
            self.known.insert(inode, connection);
        }
        Ok(())
    }
}

/// The first process of the program that has each socket, by the socket's inode.
fn owners(processes: &[(u32, u32)]) -> BTreeMap<u32, u32> {
    let mut found = BTreeMap::new();
    for (pid, root) in processes {
        for file in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            let Ok(target) = fs::read_link(file.path()) else { continue };
            let inode = target.to_str().and_then(|target| {
                target.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
            });
            found.extend(inode.map(|inode: u32| (inode, *root)));
        }
    }
    found
}

/// `info` has [`TOLD`] bytes at least.
fn record(connection: &Connection, counter: u64, took: u64, info: &[u8]) -> [u8; SIZE] {
    let mut record = [0; SIZE];
    record[0..8].copy_from_slice(&counter.to_le_bytes());
    record[8..16].copy_from_slice(&took.to_le_bytes());
    record[16..20].copy_from_slice(&connection.root.to_le_bytes());
    let id = &connection.id;
    record[24..26].copy_from_slice(&id.source_port.to_le_bytes());
    record[26..28].copy_from_slice(&id.destination_port.to_le_bytes());
    for (from, at) in COPIED {
        record[at..at + from.len()].copy_from_slice(&info[from]);
    }
    for (address, at) in [(id.source_address, 96), (id.destination_address, 112)] {
        let octets = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        };
        record[at..at + 16].copy_from_slice(&octets);
    }
    record
}
