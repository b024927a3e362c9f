//! The packets of the traces, by stream, and what is missing among them.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use loopscope_ctf::decode::{Decoder, Fault, Head};

use super::find::Trace;
use super::{Faults, ImportError, Lost, StreamLoss, TraceSummary, io};
use crate::source::Progress;

/// A packet in its file.
#[derive(Clone, Copy)]
pub(crate) struct Packet {
    /// Index of its trace, and of the file in it.
    pub trace: usize,
    pub file: usize,
    pub offset: u64,
    /// In bytes.
    pub size: usize,
    /// Its place in time, to sort by.
    begin: Option<i64>,
    sequence: Option<u64>,
    discarded: Option<u64>,
}

/// The packets of one stream, in the order of time. A stream may be in several files, of several
/// directories: tracers that rotate their files make them so.
pub(crate) struct Stream {
    pub packets: Vec<Packet>,
}

pub(crate) struct Index {
    pub streams: Vec<Stream>,
    /// In bytes.
    pub size: u64,
    /// What is odd about them, with the trace.
    pub problems: Vec<(usize, String)>,
}

/// First read of a packet: its header and context are in it, most often.
const WINDOW: usize = 4096;

/// What makes two files one stream.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    /// Source, the trace by its UUID, the stream's class and its number among those of the class.
    Declared(usize, [u8; 16], u64, u64),
    /// A file for itself: trace and file.
    File(usize, usize, u64),
}

/// `fault` is told of a packet that is none, with its trace; the rest of its file is left out if
/// that is to be borne.
pub(crate) fn index(
    traces: &[Trace],
    fault: &mut Faults,
    progress: &mut Progress,
) -> Result<Index, ImportError> {
    let mut by_key: HashMap<Key, usize> = HashMap::new();
    let mut streams: Vec<Stream> = Vec::new();
    let mut size = 0;
    let mut problems = Vec::new();
    for (trace_index, trace) in traces.iter().enumerate() {
        problems.extend(against_the_specification(trace).map(|what| (trace_index, what)));
        problems.extend(unread(trace).map(|what| (trace_index, what)));
        for (file_index, path) in trace.files.iter().enumerate() {
            let file = File::open(path).map_err(io(path))?;
            let length = file.metadata().map_err(io(path))?.len();
            size += length;
            let mut decoder = Decoder::new(&trace.layout);
            let mut buffer = Vec::new();
            let mut offset = 0;
            let mut foreign = 0;
            while offset < length {
                if !progress(0, size) {
                    return Err(ImportError::Stopped);
                }
                let left = length - offset;
                let head = match head(&mut decoder, &file, path, offset, left, &mut buffer) {
                    Ok(head) => head,
                    Err(error) => {
                        fault(trace_index, error)?;
                        break;
                    }
                };
                let class = &trace.layout.streams[head.stream];
                let key = match (trace.layout.uuid, head.instance) {
                    (Some(uuid), Some(instance)) => {
                        Key::Declared(trace.source, uuid, class.id, instance)
                    }
                    _ => Key::File(trace_index, file_index, class.id),
                };
                let stream = *by_key.entry(key).or_insert_with(|| {
                    streams.push(Stream { packets: Vec::new() });
                    streams.len() - 1
                });
                let clock = class.clock.map(|clock| &trace.layout.clocks[clock]);
                let begin = clock.zip(head.begin).and_then(|(clock, begin)| clock.ns(begin));
                streams[stream].packets.push(Packet {
                    trace: trace_index,
                    file: file_index,
                    offset,
                    // No larger than what the file has left.
                    size: (head.size / 8) as usize,
                    begin,
                    sequence: head.sequence,
                    discarded: head.discarded,
                });
                decoder.end_packet(&head);
                foreign += u64::from(head.foreign);
                offset += head.size / 8;
            }
            if foreign > 0 {
                let name = stream_name(trace, file_index);
                let what = "packets have the UUID of another trace than its metadata";
                problems.push((trace_index, format!("{name}: {foreign} {what}")));
            }
        }
    }
    for stream in &mut streams {
        stream.packets.sort_by_key(|packet| packet.begin);
    }
    Ok(Index { streams, size, problems })
}

/// Most warnings about one metadata text: they tend to be of one kind.
const WARNINGS: usize = 10;

/// What the metadata says against CTF 1.8.
fn against_the_specification(trace: &Trace) -> impl Iterator<Item = String> {
    let (name, warnings) = (&trace.name, &trace.layout.warnings);
    let shown = warnings.iter().take(WARNINGS).map(move |warning| {
        format!("{name}: {warning} (CTF 1.8 forbids it; it was read as babeltrace2 reads it)")
    });
    let more = warnings.len().saturating_sub(WARNINGS);
    let rest = (more > 0).then(|| format!("{name}: {more} more places are against CTF 1.8"));
    shown.chain(rest)
}

/// What is said of the headers' values that are in no column and of no use to the reader.
fn unread(trace: &Trace) -> impl Iterator<Item = String> {
    let of_packets = ("packets".to_owned(), &trace.layout.packet_header);
    let of_events =
        trace.layout.streams.iter().map(|stream| {
            (format!("the events of stream class {}", stream.id), &stream.event_header)
        });
    std::iter::once(of_packets).chain(of_events).filter_map(|(of, header)| {
        let found = header.as_ref()?.unread();
        let (name, fields) = (&trace.name, found.join(", "));
        (!found.is_empty())
            .then(|| format!("{name}: in the headers of {of}, {fields}: headers are no columns"))
    })
}

/// Header and context of the packet at `offset`, read in a window that grows as it must.
fn head(
    decoder: &mut Decoder,
    file: &File,
    path: &Path,
    offset: u64,
    left: u64,
    buffer: &mut Vec<u8>,
) -> Result<Head, ImportError> {
    let mut window = WINDOW;
    loop {
        let size = left.min(window as u64) as usize;
        buffer.resize(size, 0);
        file.read_exact_at(buffer, offset).map_err(io(path))?;
        match decoder.head(buffer, left) {
            Ok(head) => return Ok(head),
            Err(fault) if fault.short && (size as u64) < left => window = window.saturating_mul(4),
            Err(fault) => return Err(refused(path, offset, fault)),
        }
    }
}

/// The error of a fault in a packet.
pub(super) fn refused(path: &Path, packet: u64, fault: Fault) -> ImportError {
    ImportError::Stream { path: path.to_owned(), packet, byte: packet + fault.bit / 8, fault }
}

impl Index {
    /// What each stream lost, of those that lost something, with its first trace.
    pub fn losses(&self, traces: &[Trace]) -> Vec<(usize, StreamLoss)> {
        let mut losses: Vec<(usize, StreamLoss)> = Vec::new();
        for stream in &self.streams {
            let lost = stream.lost();
            if lost != Lost::default() {
                let first = stream.packets[0];
                let trace = &traces[first.trace];
                let stream = stream_name(trace, first.file);
                losses.push((first.trace, StreamLoss { stream, lost }));
            }
        }
        losses.sort_by(|(_, a), (_, b)| a.stream.cmp(&b.stream));
        losses
    }

    pub fn traces(&self, traces: &[Trace]) -> Vec<TraceSummary> {
        let mut packets = vec![0; traces.len()];
        for packet in self.streams.iter().flat_map(|stream| &stream.packets) {
            packets[packet.trace] += 1;
        }
        let summary = |(trace, packets): (&Trace, u64)| TraceSummary {
            path: trace.name.clone(),
            uuid: trace.layout.uuid.map(|uuid| loopscope_ctf::format_uuid(&uuid)),
            clocks: trace.layout.clocks.iter().map(|clock| clock.name.clone()).collect(),
            streams: trace.files.len(),
            packets,
        };
        traces.iter().zip(packets).map(summary).collect()
    }
}

impl Stream {
    /// The loss, from the difference between neighbouring packets' counters.
    fn lost(&self) -> Lost {
        let first = self.packets[0].discarded.unwrap_or(0);
        let mut lost = Lost { events_before: first, ..Lost::default() };
        for pair in self.packets.windows(2) {
            let step = |of: fn(&Packet) -> Option<u64>| {
                of(&pair[1])
                    .zip(of(&pair[0]))
                    .map_or(0, |(after, before)| after.saturating_sub(before))
            };
            let events = step(|packet| packet.discarded);
            let packets = step(|packet| packet.sequence).saturating_sub(1);
            lost += Lost { events, events_before: 0, packets };
        }
        lost
    }
}

/// A stream file's name below the directory that is read.
pub(super) fn stream_name(trace: &Trace, file: usize) -> String {
    let name = trace.files[file].file_name().unwrap_or_default().to_string_lossy();
    if trace.name == "." { name.into_owned() } else { format!("{}/{name}", trace.name) }
}
