//! A record of a program in the kernel, as that writes it (`struct record` of `bpf/tcp.bpf.c`,
//! `struct datagram` of `bpf/udp.bpf.c`, `struct sleep` of `bpf/sleep.bpf.c`, `struct call` of
//! `bpf/call.bpf.c`).

use std::fmt::Write as _;
use std::net::{Ipv6Addr, SocketAddr};

use loopscope_ctf::FieldType;
use syscalls::x86_64::Sysno;

use super::reasons::Reasons;
use super::symbols::Symbols;
use super::{CALL, DROP, SLEEP, TCP, THROTTLED, UDP};

/// Bytes of a record.
pub(crate) const SIZE: usize = 120;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Send = 1,
    Receive,
    Ready,
    Read,
    Resend,
    Out,
    In,
    Interruptible,
    Uninterruptible,
    Queued,
    DatagramOut,
    DatagramIn,
    DatagramReady,
    DatagramRead,
    Drop,
    Message,
    Throttled,
    Call,
    SegmentQueued,
}

/// What a text of an event is made of.
#[derive(Clone, Copy, Debug)]
enum Text {
    /// The first address and port.
    First,
    Second,
    Syscall,
    /// The names of functions, see [`Record::addresses`].
    Functions,
    Reason,
}

/// A field of the events that are made of records.
#[derive(Clone, Copy, Debug)]
struct Column(&'static str, FieldType, usize);

const SOCKET: [Column; 2] =
    [Column("socket", FieldType::U64, 8), Column("netns", FieldType::U32, 24)];
const RANGE: [Column; 2] = [Column("seq", FieldType::U32, 64), Column("bytes", FieldType::U32, 68)];
const HEADER: [Column; 2] =
    [Column("ack", FieldType::U32, 72), Column("tcp_flags", FieldType::U8, 118)];
const STATE: [Column; 11] = [
    Column("write_seq", FieldType::U32, 76),
    Column("snd_una", FieldType::U32, 80),
    Column("snd_nxt", FieldType::U32, 84),
    Column("snd_wnd", FieldType::U32, 88),
    Column("snd_cwnd", FieldType::U32, 92),
    Column("packets_out", FieldType::U32, 96),
    Column("sacked_out", FieldType::U32, 100),
    Column("mss", FieldType::U32, 112),
    Column("nagle_off", FieldType::U8, 116),
    Column("congestion_state", FieldType::U8, 117),
    Column("pacing", FieldType::U8, 119),
];
const READ_UPTO: [Column; 2] =
    [Column("rcv_nxt", FieldType::U32, 104), Column("copied_seq", FieldType::U32, 108)];
/// The bytes where a message has its number, and how many of them there are.
const NUMBER_SENT: [Column; 2] =
    [Column("word", FieldType::U64, 104), Column("word_bytes", FieldType::U8, 118)];
const NUMBER: [Column; 2] =
    [Column("word", FieldType::U64, 112), Column("word_bytes", FieldType::U8, 108)];
const DATAGRAM: [Column; 8] = [
    Column("bytes", FieldType::U32, 64),
    Column("length", FieldType::U32, 104),
    Column("fragment_id", FieldType::U32, 68),
    Column("fragment_offset", FieldType::U32, 80),
    Column("fragments_follow", FieldType::U8, 90),
    Column("hash", FieldType::U64, 72),
    Column("hashed", FieldType::U16, 88),
    Column("segment", FieldType::U16, 110),
];
const DEVICE: [Column; 1] = [Column("device", FieldType::U32, 84)];
const DROPPED: [Column; 2] =
    [Column("protocol", FieldType::U8, 91), Column("seq", FieldType::U32, 112)];
const SLEEP_STATE: [Column; 1] = [Column("prev_state", FieldType::U32, 8)];
/// The thread that holds what one waits for in a futex; 0: it is not known.
const HOLDER: [Column; 1] = [Column("holder", FieldType::U32, 24)];
const CALLED: [Column; 2] =
    [Column("duration_ns", FieldType::U64, 24), Column("result", FieldType::I64, 32)];
/// What follows is the error that placing a record on the counter adds, and comes first: the time
/// line looks for it among fields of fixed size.
const WITHIN: &str = "within_ns";

impl Kind {
    pub(crate) const ALL: [Kind; 19] = [
        Kind::Send,
        Kind::Receive,
        Kind::Ready,
        Kind::Read,
        Kind::Resend,
        Kind::Out,
        Kind::In,
        Kind::Interruptible,
        Kind::Uninterruptible,
        Kind::Queued,
        Kind::DatagramOut,
        Kind::DatagramIn,
        Kind::DatagramReady,
        Kind::DatagramRead,
        Kind::Drop,
        Kind::Message,
        Kind::Throttled,
        Kind::Call,
        Kind::SegmentQueued,
    ];

    fn of(number: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// Number of its event class.
    pub(crate) fn number(self) -> u16 {
        self as u16
    }

    /// Name of the event, and of the program that records it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Send => "tcp_send",
            Kind::Receive => "tcp_receive",
            Kind::Ready => "tcp_ready",
            Kind::Read => "tcp_read",
            Kind::Resend => "tcp_resend",
            Kind::Out => "segment_out",
            Kind::In => "segment_in",
            Kind::Interruptible => "interruptible_sleep",
            Kind::Uninterruptible => "uninterruptible_sleep",
            Kind::Queued => "datagram_queued",
            Kind::DatagramOut => "datagram_out",
            Kind::DatagramIn => "datagram_in",
            Kind::DatagramReady => "datagram_ready",
            Kind::DatagramRead => "datagram_read",
            Kind::Drop => "packet_drop",
            Kind::Message => "tcp_message",
            Kind::Throttled => THROTTLED,
            Kind::Call => "system_call",
            Kind::SegmentQueued => "segment_queued",
        }
    }

    /// The class that it is of.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Kind::Interruptible | Kind::Uninterruptible | Kind::Throttled => SLEEP,
            Kind::Queued
            | Kind::DatagramOut
            | Kind::DatagramIn
            | Kind::DatagramReady
            | Kind::DatagramRead => UDP,
            Kind::Drop => DROP,
            Kind::Call => CALL,
            _ => TCP,
        }
    }

    fn is_sleep(self) -> bool {
        matches!(self, Kind::Interruptible | Kind::Uninterruptible)
    }

    /// The kernel's tracepoint at which its program records it; `None` where another one's does.
    pub(crate) fn tracepoint(self) -> Option<&'static str> {
        Some(match self {
            Kind::Message => return None,
            Kind::Send => "tcp_sendmsg_locked",
            Kind::Receive => "tcp_probe",
            Kind::Ready | Kind::DatagramReady => "sk_data_ready",
            Kind::Read => "tcp_rcv_space_adjust",
            Kind::Resend => "tcp_retransmit_skb",
            Kind::Out | Kind::DatagramOut => "net_dev_start_xmit",
            Kind::In | Kind::DatagramIn => "netif_receive_skb",
            Kind::Queued | Kind::SegmentQueued => "net_dev_queue",
            Kind::DatagramRead => "sock_recv_length",
            Kind::Drop => "kfree_skb",
            Kind::Call => "sys_exit",
            Kind::Interruptible | Kind::Uninterruptible | Kind::Throttled => "sched_switch",
        })
    }

    /// Another program that it takes, and its tracepoint.
    pub(crate) fn helper(self) -> Option<(&'static str, &'static str)> {
        (self == Kind::Call).then_some(("call_begins", "sys_enter"))
    }

    fn columns(self) -> Vec<Column> {
        let parts: &[&[Column]] = match self {
            Kind::Send => &[&SOCKET, &RANGE, &STATE, &NUMBER_SENT],
            Kind::Message => &[&SOCKET, &RANGE, &NUMBER_SENT],
            Kind::Resend => &[&SOCKET, &RANGE, &STATE, &READ_UPTO],
            Kind::Receive => &[&SOCKET, &RANGE, &HEADER, &STATE, &READ_UPTO],
            Kind::Ready | Kind::Read => &[&SOCKET, &STATE, &READ_UPTO],
            Kind::Out | Kind::In | Kind::SegmentQueued => &[&SOCKET, &RANGE, &HEADER],
            Kind::Queued | Kind::DatagramIn => &[&SOCKET, &DATAGRAM, &DEVICE, &NUMBER],
            Kind::DatagramOut => &[&SOCKET, &DATAGRAM, &DEVICE],
            Kind::DatagramReady => &[&SOCKET],
            Kind::DatagramRead => &[&SOCKET, &DATAGRAM[..1]],
            Kind::Drop => &[&SOCKET, &DATAGRAM, &DROPPED],
            Kind::Interruptible => &[&SLEEP_STATE, &HOLDER],
            Kind::Uninterruptible => &[&SLEEP_STATE],
            Kind::Throttled => &[],
            Kind::Call => &[&CALLED],
        };
        parts.concat()
    }

    /// Its texts. Addresses: of a socket its own and the other's, of a packet where it comes from
    /// and where it goes.
    fn texts(self) -> &'static [(&'static str, Text)] {
        const SOURCE: (&str, Text) = ("source", Text::First);
        const TARGET: (&str, Text) = ("target", Text::Second);
        match self {
            Kind::Interruptible | Kind::Uninterruptible => {
                &[("syscall", Text::Syscall), ("stack", Text::Functions)]
            }
            Kind::Drop => {
                &[SOURCE, TARGET, ("reason", Text::Reason), ("function", Text::Functions)]
            }
            Kind::Out
            | Kind::In
            | Kind::SegmentQueued
            | Kind::Queued
            | Kind::DatagramOut
            | Kind::DatagramIn => &[SOURCE, TARGET],
            Kind::Throttled => &[],
            Kind::Call => &[("syscall", Text::Syscall)],
            _ => &[("local", Text::First), ("remote", Text::Second)],
        }
    }

    /// The fields of its events.
    pub(crate) fn fields(self) -> Vec<(String, FieldType)> {
        let columns = self.columns();
        let numbers = columns.iter().map(|&Column(name, kind, _)| (name.to_owned(), kind));
        let texts = self.texts().iter().map(|(name, _)| ((*name).to_owned(), FieldType::String));
        [(WITHIN.to_owned(), FieldType::U32)].into_iter().chain(numbers).chain(texts).collect()
    }
}

/// A record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record([u8; SIZE]);

impl Record {
    /// `None` where the bytes are not one.
    pub(crate) fn of(bytes: &[u8]) -> Option<Record> {
        let record = Record(bytes.try_into().ok()?);
        Kind::of(record.0[22]).is_some().then_some(record)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn part<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut part = [0; N];
        part.copy_from_slice(&self.0[at..at + N]);
        part
    }

    /// When it was made, ns of CLOCK_MONOTONIC.
    pub(crate) fn at(&self) -> u64 {
        u64::from_le_bytes(self.part(0))
    }

    /// The thread in which it was made.
    pub(crate) fn tid(&self) -> u32 {
        u32::from_le_bytes(self.part(16))
    }

    /// The processor on which it was made.
    pub(crate) fn processor(&self) -> u32 {
        u16::from_le_bytes(self.part(20)).into()
    }

    pub(crate) fn kind(&self) -> Kind {
        Kind::of(self.0[22]).expect("a record has a kind")
    }

    fn end(&self, address: usize, port: usize) -> SocketAddr {
        const IPV4: u8 = 2;
        let port = u16::from_le_bytes(self.part(port));
        if self.0[23] == IPV4 {
            return SocketAddr::from((self.part::<4>(address), port));
        }
        SocketAddr::from((Ipv6Addr::from(self.part::<16>(address)).to_canonical(), port))
    }

    /// Places in the kernel's functions: those that a thread was in as it went to sleep, the
    /// innermost first, or where a packet was dropped.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = u64> {
        const FRAMES: usize = 12;
        let (count, begin) = match self.kind() {
            kind if kind.is_sleep() => (usize::from(self.0[23]).min(FRAMES), 24),
            Kind::Drop => (1, 96),
            _ => (0, 0),
        };
        (0..count).map(move |place| u64::from_le_bytes(self.part(begin + 8 * place)))
    }

    /// The system call; none where it came from a fault.
    fn syscall(&self) -> Option<Sysno> {
        let number = i32::from_le_bytes(self.part(12));
        Sysno::new(usize::try_from(number).ok()?)
    }

    /// Appends the fields of its event, see [`Kind::fields`].
    pub(crate) fn put(&self, within_ns: u32, names: &Names, out: &mut Vec<u8>, text: &mut String) {
        out.extend_from_slice(&within_ns.to_le_bytes());
        for Column(_, kind, at) in self.kind().columns() {
            let size = kind.size().expect("columns are numbers");
            out.extend_from_slice(&self.0[at..at + size]);
        }
        for (_, what) in self.kind().texts() {
            text.clear();
            // Writing into a text cannot fail.
            let _ = match what {
                Text::First => write!(text, "{}", self.end(32, 28)),
                Text::Second => write!(text, "{}", self.end(48, 30)),
                Text::Syscall => write!(text, "{}", self.syscall().map_or("", |s| s.name())),
                Text::Functions => names.symbols.write(self.addresses(), text),
                Text::Reason => names.reasons.write(u32::from_le_bytes(self.part(92)), text),
            };
            out.extend_from_slice(text.as_bytes());
            out.push(0);
        }
    }
}

/// The names of what records have as numbers.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) symbols: Symbols,
    pub(crate) reasons: Reasons,
}
