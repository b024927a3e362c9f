//! The probe log: what one side saw, as a CTF trace directory (`clock/probes/`).
//!
//! Its events are in `schema/clock-log.md`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use loopscope_ctf::{EventClass, FieldType, Metadata, PacketWriter, StreamClass};
use loopscope_time::{Counter, Frequency};

use crate::Span;
use crate::anchor::Anchor;
use crate::counter::CounterEvent;
use crate::stamp::ordered_counter;

/// The one stream class of a clock log.
const STREAM: u32 = 0;
/// A packet of some 100 records.
const PACKET_BYTES: usize = 4096;
/// How much a kill may cost.
const FLUSH: Duration = Duration::from_secs(1);

/// Applied to every counter that leaves: a synthetic clock. Must not decrease.
pub type Filter = Arc<dyn Fn(Counter) -> Counter + Send + Sync>;

/// What a host's trace directories declare about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Host name.
    pub host: String,
    /// UUID of this trace directory.
    pub trace_uuid: [u8; 16],
    /// UUID of the host's counter, the same in all its trace directories.
    pub clock_uuid: [u8; 16],
    /// Nominal frequency of the counter.
    pub frequency: Frequency,
}

/// A clock log cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The directory already holds a trace.
    #[error("{0} already holds a trace: give each run of the probes a directory of its own")]
    Taken(PathBuf),
    /// The system refused.
    #[error("cannot write the clock log {path}: {source}")]
    Io {
        /// File or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// What happened to a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum Moment {
    /// The follower sent it.
    ProbeSent = 0,
    /// The reference received it.
    ProbeReceived = 1,
    /// The reference sent the reply.
    ReplySent = 2,
    /// The follower received the reply.
    ReplyReceived = 3,
}

impl Moment {
    /// All, in the order of their class ids.
    pub const ALL: [Moment; 4] =
        [Moment::ProbeSent, Moment::ProbeReceived, Moment::ReplySent, Moment::ReplyReceived];

    /// The event's name after `clock:`.
    pub fn name(self) -> &'static str {
        match self {
            Moment::ProbeSent => "probe_sent",
            Moment::ProbeReceived => "probe_received",
            Moment::ReplySent => "reply_sent",
            Moment::ReplyReceived => "reply_received",
        }
    }
}

/// The source of a stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Source {
    /// The kernel, as the packet passed between its stack and the device.
    Kernel = 1,
    /// The program, around its system call.
    User = 2,
    /// The network interface, at the wire.
    Hardware = 3,
}

impl Source {
    /// All of them.
    pub const ALL: [Source; 3] = [Source::Kernel, Source::User, Source::Hardware];

    /// By its number.
    pub(crate) fn of(number: u64) -> Option<Source> {
        Source::ALL.into_iter().find(|source| *source as u64 == number)
    }
}

/// One event of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observation {
    /// What.
    pub moment: Moment,
    /// The follower's client id.
    pub peer: u32,
    /// The probe's sequence number.
    pub seq: u64,
    /// When.
    pub span: Span,
    /// By whose stamp.
    pub source: Source,
}

/// Name and type of an event's fields, in their order.
type Fields = [(&'static str, FieldType)];

/// The fields of an observation.
const SEEN: &Fields = &[
    ("peer", FieldType::U32),
    ("lo", FieldType::U64),
    ("hi", FieldType::U64),
    ("source", FieldType::U8),
];
const ANCHOR: (u16, &str) = (4, "anchor");
const ANCHOR_FIELDS: &Fields = &[
    ("clock", FieldType::String),
    ("ns", FieldType::I64),
    ("lo", FieldType::U64),
    ("hi", FieldType::U64),
];
const COUNTER_EVENT: (u16, &str) = (5, "counter_event");
const COUNTER_EVENT_FIELDS: &Fields = &[
    ("kind", FieldType::String),
    ("ns", FieldType::I64),
    ("lo", FieldType::U64),
    ("hi", FieldType::U64),
    ("cpu_before", FieldType::U32),
    ("cpu_after", FieldType::U32),
];

const PROCESSORS: (u16, &str) = (6, "processors");
const PROCESSORS_FIELDS: &Fields = &[("apart", FieldType::U64)];

/// The event classes of a probe log.
pub(crate) fn classes() -> Vec<EventClass> {
    let seen = Moment::ALL.map(|m| event(m as u16, m.name(), SEEN));
    let others = [
        (ANCHOR, ANCHOR_FIELDS),
        (COUNTER_EVENT, COUNTER_EVENT_FIELDS),
        (PROCESSORS, PROCESSORS_FIELDS),
    ];
    let others = others.map(|((id, name), fields)| event(id, name, fields));
    seen.into_iter().chain(others).collect()
}

/// The writer of a trace, as its packets name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writer {
    pub pid: u32,
    pub tid: u32,
}

impl Writer {
    /// This thread.
    pub(crate) fn own() -> Writer {
        let tid = nix::unistd::gettid().as_raw().cast_unsigned();
        Writer { pid: std::process::id(), tid }
    }
}

/// A CTF trace directory with one stream of one writer.
#[derive(Debug)]
pub(crate) struct TraceFile {
    path: PathBuf,
    file: File,
    writer: PacketWriter,
}

impl TraceFile {
    /// Makes `directory`, which must not hold a trace, with one stream named `stream`.
    pub(crate) fn create(
        directory: &Path,
        stream: &str,
        identity: &Identity,
        events: Vec<EventClass>,
        Writer { pid, tid }: Writer,
    ) -> Result<TraceFile, RecordError> {
        let io_error = |path: &Path| {
            let path = path.to_owned();
            move |source: io::Error| match source.kind() {
                io::ErrorKind::AlreadyExists => RecordError::Taken(path),
                _ => RecordError::Io { path, source },
            }
        };
        std::fs::create_dir_all(directory).map_err(io_error(directory))?;
        let class = StreamClass { id: STREAM, process: "clock".into(), kernel: false, events };
        let metadata = Metadata {
            uuid: identity.trace_uuid,
            host: identity.host.clone(),
            clock_uuid: identity.clock_uuid,
            frequency: identity.frequency,
            streams: BTreeMap::from([(STREAM, class)]),
            groups: BTreeMap::new(),
        };
        let path = directory.join("metadata");
        let mut file = File::create_new(&path).map_err(io_error(&path))?;
        file.write_all(metadata.to_tsdl().as_bytes()).map_err(io_error(&path))?;
        let path = directory.join(stream);
        let file = File::create_new(&path).map_err(io_error(&path))?;
        let writer = PacketWriter::new(identity.trace_uuid, STREAM, pid, tid, PACKET_BYTES);
        Ok(TraceFile { path, file, writer })
    }

    /// Appends a record, whose stamp must not be before its predecessor's.
    pub(crate) fn record(
        &mut self,
        class: u16,
        counter: Counter,
        id: i64,
        fields: &[u8],
    ) -> Result<(), RecordError> {
        let done = self.writer.record(class, counter, id, fields);
        let done = done.map_err(|e| self.error(io::Error::other(e)))?;
        self.write(done)
    }

    /// Writes the open packet out.
    pub(crate) fn flush(&mut self) -> Result<(), RecordError> {
        let packet = self.writer.flush();
        self.write(packet)
    }

    fn write(&mut self, packet: Option<Vec<u8>>) -> Result<(), RecordError> {
        // Whole packets only, so that a kill leaves a readable stream.
        let Some(packet) = packet else { return Ok(()) };
        self.file.write_all(&packet).map_err(|e| self.error(e))
    }

    fn error(&self, source: io::Error) -> RecordError {
        RecordError::Io { path: self.path.clone(), source }
    }
}

pub(crate) fn event(id: u16, name: &str, fields: &[(&str, FieldType)]) -> EventClass {
    EventClass {
        id,
        group: "clock".into(),
        name: name.into(),
        fields: fields.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect(),
        ..EventClass::default()
    }
}

/// Writes what a side sees; packets go out when full, each second, and at the end.
pub(crate) struct ProbeWriter {
    /// `None`: nothing is kept.
    trace: Option<TraceFile>,
    filter: Option<Filter>,
    last: Counter,
    /// When the oldest record of the open packet was logged.
    open_since: Option<Instant>,
}

impl ProbeWriter {
    pub(crate) fn create(
        directory: Option<&Path>,
        identity: &Identity,
        filter: Option<Filter>,
    ) -> Result<ProbeWriter, RecordError> {
        let create =
            |directory| TraceFile::create(directory, "probes", identity, classes(), Writer::own());
        let trace = directory.map(create).transpose()?;
        Ok(ProbeWriter { trace, filter, last: Counter(0), open_since: None })
    }

    /// Logs `seen`, whose span is on the true counter.
    pub(crate) fn log(&mut self, seen: &Observation) -> Result<(), RecordError> {
        let mut fields = Vec::with_capacity(21);
        fields.extend_from_slice(&seen.peer.to_le_bytes());
        self.put(&mut fields, seen.span);
        fields.push(seen.source as u8);
        self.record(seen.moment as u16, seen.seq.cast_signed(), &fields)
    }

    /// Logs a reading of another clock, numbered by `turn`.
    pub(crate) fn log_anchor(&mut self, turn: i64, anchor: &Anchor) -> Result<(), RecordError> {
        let mut fields = text(&anchor.clock.to_string());
        fields.extend_from_slice(&anchor.ns.to_le_bytes());
        self.put(&mut fields, anchor.at);
        self.record(ANCHOR.0, turn, &fields)
    }

    /// Logs what happened to the counter; the event as the log has it.
    pub(crate) fn log_counter_event(
        &mut self,
        turn: i64,
        event: &CounterEvent,
    ) -> Result<CounterEvent, RecordError> {
        let mut fields = text(event.disturbance.name());
        fields.extend_from_slice(&event.ns.to_le_bytes());
        self.put(&mut fields, event.within);
        fields.extend(event.processors.iter().flat_map(|cpu| cpu.to_le_bytes()));
        self.record(COUNTER_EVENT.0, turn, &fields)?;
        Ok(CounterEvent {
            within: self.shown(event.within),
            after: self.shown(event.after),
            ..*event
        })
    }

    /// Logs how far the counters of two processors may be apart, in ticks.
    pub(crate) fn log_processors(&mut self, apart: u64) -> Result<(), RecordError> {
        self.record(PROCESSORS.0, 0, &apart.to_le_bytes())
    }

    /// The span as it is sent: changed by the synthetic clock, if there is one.
    pub(crate) fn shown(&self, span: Span) -> Span {
        match &self.filter {
            Some(filter) => Span { lo: filter(span.lo), hi: filter(span.hi) },
            None => span,
        }
    }

    fn put(&self, fields: &mut Vec<u8>, span: Span) {
        let Span { lo, hi } = self.shown(span);
        fields.extend_from_slice(&lo.0.to_le_bytes());
        fields.extend_from_slice(&hi.0.to_le_bytes());
    }

    fn record(&mut self, class: u16, id: i64, fields: &[u8]) -> Result<(), RecordError> {
        let Some(trace) = &mut self.trace else { return Ok(()) };
        let now = ordered_counter();
        let now = self.filter.as_ref().map_or(now, |filter| filter(now));
        // Counters of two processors may be a few ticks apart.
        self.last = self.last.max(now);
        trace.record(class, self.last, id, fields)?;
        self.open_since.get_or_insert_with(Instant::now);
        Ok(())
    }

    /// When [`Self::flush_if_due`] wants to be called next.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.open_since.map(|since| since + FLUSH)
    }

    pub(crate) fn flush_if_due(&mut self, now: Instant) -> Result<(), RecordError> {
        if self.due().is_some_and(|due| due <= now) { self.flush() } else { Ok(()) }
    }

    pub(crate) fn flush(&mut self) -> Result<(), RecordError> {
        self.open_since = None;
        self.trace.as_mut().map_or(Ok(()), TraceFile::flush)
    }
}

/// A CTF string.
fn text(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}
