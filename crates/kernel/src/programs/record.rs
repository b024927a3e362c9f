//! A record of a program in the kernel, as that writes it (`struct record` of `bpf/tcp.bpf.c`,
//! `struct sleep` of `bpf/sleep.bpf.c`).

use std::fmt::Write as _;
use std::net::{Ipv6Addr, SocketAddr};

use loopscope_ctf::FieldType;
use syscalls::x86_64::Sysno;

use super::symbols::Symbols;
use super::{SLEEP, TCP};

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
}

/// A field of the events that are made of records.
#[derive(Clone, Copy, Debug)]
struct Column(&'static str, FieldType, usize);

const SOCKET: [Column; 2] =
    [Column("socket", FieldType::U64, 8), Column("netns", FieldType::U32, 24)];
const RANGE: [Column; 2] = [Column("seq", FieldType::U32, 64), Column("bytes", FieldType::U32, 68)];
const HEADER: [Column; 2] =
    [Column("ack", FieldType::U32, 72), Column("tcp_flags", FieldType::U8, 118)];
const STATE: [Column; 13] = [
    Column("write_seq", FieldType::U32, 76),
    Column("snd_una", FieldType::U32, 80),
    Column("snd_nxt", FieldType::U32, 84),
    Column("snd_wnd", FieldType::U32, 88),
    Column("snd_cwnd", FieldType::U32, 92),
    Column("packets_out", FieldType::U32, 96),
    Column("sacked_out", FieldType::U32, 100),
    Column("rcv_nxt", FieldType::U32, 104),
    Column("copied_seq", FieldType::U32, 108),
    Column("mss", FieldType::U32, 112),
    Column("nagle_off", FieldType::U8, 116),
    Column("congestion_state", FieldType::U8, 117),
    Column("pacing", FieldType::U8, 119),
];
/// What follows is the error that placing a record on the counter adds, and comes first: the time
/// line looks for it among fields of fixed size.
const WITHIN: &str = "within_ns";

impl Kind {
    pub(crate) const ALL: [Kind; 9] = [
        Kind::Send,
        Kind::Receive,
        Kind::Ready,
        Kind::Read,
        Kind::Resend,
        Kind::Out,
        Kind::In,
        Kind::Interruptible,
        Kind::Uninterruptible,
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
        }
    }

    /// The class that it is of.
    pub(crate) fn class(self) -> &'static str {
        if self.is_sleep() { SLEEP } else { TCP }
    }

    fn is_sleep(self) -> bool {
        matches!(self, Kind::Interruptible | Kind::Uninterruptible)
    }

    /// The kernel's tracepoint at which it is recorded.
    pub(crate) fn tracepoint(self) -> &'static str {
        match self {
            Kind::Send => "tcp_sendmsg_locked",
            Kind::Receive => "tcp_probe",
            Kind::Ready => "sk_data_ready",
            Kind::Read => "tcp_rcv_space_adjust",
            Kind::Resend => "tcp_retransmit_skb",
            Kind::Out => "net_dev_start_xmit",
            Kind::In => "netif_receive_skb",
            Kind::Interruptible | Kind::Uninterruptible => "sched_switch",
        }
    }

    fn columns(self) -> Vec<Column> {
        let parts: &[&[Column]] = match self {
            Kind::Send | Kind::Resend => &[&SOCKET, &RANGE, &STATE],
            Kind::Receive => &[&SOCKET, &RANGE, &HEADER, &STATE],
            Kind::Ready | Kind::Read => &[&SOCKET, &STATE],
            Kind::Out | Kind::In => &[&SOCKET, &RANGE, &HEADER],
            Kind::Interruptible | Kind::Uninterruptible => {
                &[&[Column("prev_state", FieldType::U32, 8)]]
            }
        };
        parts.concat()
    }

    /// Names of its texts. Addresses: of a socket its own and the other's, of a segment where it
    /// comes from and where it goes.
    fn texts(self) -> [&'static str; 2] {
        match self {
            Kind::Out | Kind::In => ["source", "target"],
            Kind::Interruptible | Kind::Uninterruptible => ["syscall", "stack"],
            _ => ["local", "remote"],
        }
    }

    /// The fields of its events.
    pub(crate) fn fields(self) -> Vec<(String, FieldType)> {
        let columns = self.columns();
        let numbers = columns.iter().map(|&Column(name, kind, _)| (name.to_owned(), kind));
        let texts = self.texts().map(|name| (name.to_owned(), FieldType::String));
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

    /// Where the functions were that a thread was in as it went to sleep, the innermost first.
    pub(crate) fn stack(&self) -> impl Iterator<Item = u64> {
        const FRAMES: usize = 12;
        let count = if self.kind().is_sleep() { usize::from(self.0[23]).min(FRAMES) } else { 0 };
        (0..count).map(|frame| u64::from_le_bytes(self.part(24 + 8 * frame)))
    }

    /// The system call in which it was then; none where it came from a fault.
    fn syscall(&self) -> Option<Sysno> {
        let number = i32::from_le_bytes(self.part(12));
        Sysno::new(usize::try_from(number).ok()?)
    }

    /// Appends the fields of its event, see [`Kind::fields`].
    pub(crate) fn put(
        &self,
        within_ns: u32,
        symbols: &Symbols,
        out: &mut Vec<u8>,
        text: &mut String,
    ) {
        out.extend_from_slice(&within_ns.to_le_bytes());
        for Column(_, kind, at) in self.kind().columns() {
            let size = kind.size().expect("columns are numbers");
            out.extend_from_slice(&self.0[at..at + size]);
        }
        for second in [false, true] {
            text.clear();
            // Writing into a text cannot fail.
            let _ = match (self.kind().is_sleep(), second) {
                (true, false) => write!(text, "{}", self.syscall().map_or("", |s| s.name())),
                (true, true) => symbols.write(self.stack(), text),
                (false, false) => write!(text, "{}", self.end(32, 28)),
                (false, true) => write!(text, "{}", self.end(48, 30)),
            };
            out.extend_from_slice(text.as_bytes());
            out.push(0);
        }
    }
}
