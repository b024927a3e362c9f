//! Message tables: the messages that a system sends, with producers, consumers, size, period and
//! target.
//!
//! The crate has no I/O: text goes in, message types or problems come out.
//!
//! ```
//! let table = "name,transport,size,period,producers,consumers\n\
//!              position,udp,64B,10ms,sensor,controller\n";
//! let types = loopscope_messages::read(table, "messages.csv").unwrap();
//! assert_eq!(types[0].consumers, ["controller"]);
//! ```
//!
//! A table is CSV whose first line names the columns (`#` begins a comment line), or YAML that is a
//! list of mappings. Columns, in any order:
//!
//! | column | meaning |
//! |---|---|
//! | `name` | name of the type, unique in the table |
//! | `transport` | `tcp`, `tcp-nodelay`, `udp` or `udp-multicast` |
//! | `group` | with `udp-multicast`: group and port, `239.77.2.1:7701` |
//! | `port` | with other transports: port of the consumers; any free port by default |
//! | `size` | size of a message, `500B` |
//! | `datagram` | of UDP: largest datagram; a larger message is a series of them, 65507B by default |
//! | `period` | time between two messages of a producer, `200ms` |
//! | `target` | largest latency allowed; without it there is no verdict |
//! | `producers`, `consumers` | names; in CSV separated by spaces |

mod check;
mod csv;
mod yaml;

use std::net::SocketAddrV4;

/// How a type's messages travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transport {
    /// A connection from each producer to each consumer, as the kernel does it without being told.
    Tcp,
    /// The same with `TCP_NODELAY`.
    TcpNodelay,
    /// Datagrams to each consumer.
    Udp,
    /// Datagrams to a group.
    UdpMulticast,
}

impl Transport {
    /// Every transport, by its name in a table.
    pub const ALL: [(&'static str, Transport); 4] = [
        ("tcp", Transport::Tcp),
        ("tcp-nodelay", Transport::TcpNodelay),
        ("udp", Transport::Udp),
        ("udp-multicast", Transport::UdpMulticast),
    ];

    /// Whether messages are datagrams.
    pub fn is_udp(self) -> bool {
        matches!(self, Transport::Udp | Transport::UdpMulticast)
    }

    /// Its name in a table.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Tcp => "tcp",
            Transport::TcpNodelay => "tcp-nodelay",
            Transport::Udp => "udp",
            Transport::UdpMulticast => "udp-multicast",
        }
    }
}

/// One row of a table.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct MessageType {
    /// Unique in the table.
    pub name: String,
    /// How its messages travel.
    pub transport: Transport,
    /// Group and port; exactly with [`Transport::UdpMulticast`].
    pub group: Option<SocketAddrV4>,
    /// Where the consumers listen; `None`: at any free port.
    pub port: Option<u16>,
    /// Bytes of a message.
    pub size: u32,
    /// Bytes of its largest datagram, of UDP; `None`: what IP allows.
    pub datagram: Option<u32>,
    /// Nanoseconds between two messages of a producer.
    pub period_ns: u64,
    /// Largest latency allowed, in nanoseconds.
    pub target_ns: Option<u64>,
    /// Component that sends it.
    pub producers: Vec<String>,
    /// Components that receive it.
    pub consumers: Vec<String>,
    /// Line of the table, from 1.
    pub line: usize,
}

impl MessageType {
    /// Bytes of its largest datagram, of UDP.
    pub fn largest_datagram(&self) -> u32 {
        self.datagram.unwrap_or(LARGEST_DATAGRAM)
    }
}

/// What is wrong in a table, and where; both places count from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, serde::Serialize)]
#[error("{line}:{column}: {message}")]
pub struct Problem {
    /// Line of the table.
    pub line: usize,
    /// Column of the text; 1 where only the line is known.
    pub column: usize,
    /// What is wrong and what to do.
    pub message: String,
}

/// The smallest message: its number.
pub const SMALLEST: u32 = 8;

/// The largest message.
pub const LARGEST: u32 = 16 << 20;

/// The largest payload of a UDP datagram over IPv4.
pub const LARGEST_DATAGRAM: u32 = 65_507;

/// The smallest that a message may be cut into.
pub const SMALLEST_DATAGRAM: u32 = 64;

/// The most rows of a table.
pub const MOST_TYPES: usize = 1 << 15;

/// Reads a table; YAML where `file` ends in `.yaml` or `.yml`, else CSV. Refuses it with everything
/// that is wrong in it, in the order of the lines.
pub fn read(text: &str, file: &str) -> Result<Vec<MessageType>, Vec<Problem>> {
    let yaml = [".yaml", ".yml"].iter().any(|ending| file.to_ascii_lowercase().ends_with(ending));
    let rows = if yaml { yaml::rows(text)? } else { csv::rows(text)? };
    check::types(&rows)
}

/// A row as given, not looked at yet.
struct Row {
    line: usize,
    column: usize,
    cells: Vec<Cell>,
}

struct Cell {
    key: String,
    line: usize,
    column: usize,
    given: Given,
}

enum Given {
    /// In CSV it may stand for a list.
    Text(String),
    List(Vec<String>),
}

fn problem(line: usize, column: usize, message: impl Into<String>) -> Problem {
    Problem { line, column, message: message.into() }
}
