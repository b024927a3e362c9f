//! A recording's pages and records as CTF: `trace/` and `loss.json`, as a collector leaves them for programs.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read as _, Write as _};
use std::path::Path;

use loopscope_ctf::PacketWriter;
use loopscope_ctf::{EventClass, FieldType, Metadata, StreamClass};
use loopscope_time::Counter;
use rayon::prelude::*;
use serde_json::json;

use crate::format::{Content, EventFormat, FormatField};
use crate::page::{self, Missed, PageError};
use crate::programs;
use crate::programs::reasons::{self, Reasons};
use crate::programs::record::{Kind, Names};
use crate::programs::symbols::Symbols;
use crate::recording::{Account, BufferCounts, Class, Recording, RecordingError, failed};
use crate::samples;
use crate::samples::shape::Shape;

/// The group of all kernel events.
pub const GROUP: &str = "kernel";
/// Bytes of a packet, about.
const PACKET: usize = 64 << 10;
/// Bytes that are read at once.
const PIECE: usize = 1 << 20;

/// Makes `trace/` and `loss.json` in `out`, which exists and has neither, of the recording in
/// `folder`.
pub fn transcode(folder: &Path, out: &Path) -> Result<(), RecordingError> {
    let recording = Recording::load(folder)?;
    let account = Account::load(folder)?;
    let classes = classes(folder, &recording)?;
    let metadata = metadata(&recording, &classes);
    let trace = out.join("trace");
    fs::create_dir_all(&trace).map_err(failed("make", &trace))?;
    let mut parts = Vec::new();
    for ((name, class), stream) in recording.classes.iter().zip(&classes) {
        parts.extend(class.processors.iter().map(|processor| (name, stream, *processor)));
    }
    let part = |&(name, stream, processor): &(&String, &Stream, u32)| {
        let pages = Recording::pages(folder, name, processor);
        let out = trace.join(format!("{name}-cpu{processor}"));
        let writer =
            Writer::new(&out, PacketWriter::new(metadata.uuid, stream.id, processor, 0, PACKET))?;
        let found = match &stream.source {
            Source::Pages(events) => transcode_pages(events, &pages, writer)?,
            Source::Samples(shape) => {
                samples::transcode::transcode(shape, &pages, recording.frequency, writer)?
            }
            Source::Records(names) => {
                let readings = Recording::readings(folder, name);
                let frequency = recording.frequency;
                programs::transcode::transcode(&pages, &readings, names, frequency, writer)?
            }
        };
        let counts = account.as_ref().and_then(|a| a.classes.get(name)?.get(&processor));
        Ok(found.account(stream, processor, counts))
    };
    let processes = parts.par_iter().map(part).collect::<Result<_, _>>()?;
    let path = trace.join("metadata");
    fs::write(&path, metadata.to_tsdl()).map_err(failed("write", &path))?;
    let path = out.join("loss.json");
    let loss = loss(processes, account.as_ref());
    fs::write(&path, format!("{loss:#}\n")).map_err(failed("write", &path))
}

/// A class as a stream class.
struct Stream {
    id: u32,
    /// Its name as a process: `kernel sched`.
    process: String,
    events: Vec<EventClass>,
    source: Source,
}

/// Tracepoints by the number by which records name them: the description, and the event class's id.
type Tracepoints = BTreeMap<u16, (EventFormat, u16)>;

/// What the files of a class have.
enum Source {
    /// The kernel's pages.
    Pages(Tracepoints),
    /// Records of programs.
    Records(Names),
    /// Looks at the kernel's counts.
    Samples(&'static Shape),
}

fn classes(folder: &Path, recording: &Recording) -> Result<Vec<Stream>, RecordingError> {
    let stream = |(id, (name, class)): (u32, (&String, &Class))| {
        let process = format!("{GROUP} {name}");
        if let Some(shape) = samples::SHAPES.iter().find(|shape| shape.class == name) {
            let events = vec![event_class(0, shape.name, shape.fields())];
            return Ok(Stream { id, process, events, source: Source::Samples(shape) });
        }
        if !class.programs.is_empty() {
            let events = Kind::ALL
                .into_iter()
                .filter(|kind| class.programs.iter().any(|name| name == kind.name()));
            let events = events.map(|kind| event_class(kind.number(), kind.name(), kind.fields()));
            let events = events.collect();
            let path = Recording::symbols(folder, name);
            let symbols = Symbols::load(&path).map_err(failed("read", &path))?;
            let reasons = class.formats.get(reasons::TRACEPOINT);
            let reasons = reasons.map(|text| Reasons::of(text)).unwrap_or_default();
            let source = Source::Records(Names { symbols, reasons });
            return Ok(Stream { id, process, events, source });
        }
        let (mut events, mut tracepoints) = (Vec::new(), Tracepoints::new());
        for (number, text) in (0..).zip(class.formats.values()) {
            let format = EventFormat::parse(text).map_err(|error| RecordingError::Content {
                path: Recording::path(folder),
                what: error.to_string(),
            })?;
            let fields = format.fields.iter().map(column).chain([flags()]).collect();
            events.push(event_class(number, &format.name, fields));
            tracepoints.insert(format.id, (format, number));
        }
        Ok(Stream { id, process, events, source: Source::Pages(tracepoints) })
    };
    (0..).zip(&recording.classes).map(stream).collect()
}

fn event_class(id: u16, name: &str, fields: Vec<(String, FieldType)>) -> EventClass {
    let (group, name) = (GROUP.to_owned(), name.to_owned());
    EventClass { id, group, name, fields, ..EventClass::default() }
}

/// Name and type of a field in records of ours. Names that mean the same everywhere else are
/// changed: what the kernel calls a `pid` is the number of a thread.
fn column(field: &FormatField) -> (String, FieldType) {
    let name = match field.name.as_str() {
        "pid" => "task".to_owned(),
        "id" => "nr".to_owned(),
        name => match name.strip_suffix("_pid") {
            Some(whose) => format!("{whose}_tid"),
            None => name.to_owned(),
        },
    };
    let field_type = match field.content {
        Content::Number(number) => number,
        Content::Characters | Content::CharactersAt | Content::CharactersAfter => FieldType::String,
        Content::Bytes => FieldType::Bytes,
    };
    (name, field_type)
}

/// The field that each event has: bits that tell what was interrupted when it happened. 8: in a hard
/// interrupt, 16: in a soft interrupt (`TRACE_FLAG_*` of the kernel).
fn flags() -> (String, FieldType) {
    ("common_flags".to_owned(), FieldType::U8)
}

fn metadata(recording: &Recording, classes: &[Stream]) -> Metadata {
    let stream = |stream: &Stream| {
        let events = stream.events.clone();
        let (id, process) = (stream.id, stream.process.clone());
        (id, StreamClass { id, process, kernel: true, events })
    };
    let mut uuid = recording.clock_uuid;
    // Another one than that of the programs' trace, and the same each time.
    uuid.iter_mut().zip(b"kernel events of").for_each(|(byte, mark)| *byte ^= mark);
    let about = "What the kernel did; the thread in which it happened is the event's id.";
    Metadata {
        uuid,
        host: recording.host.clone(),
        clock_uuid: recording.clock_uuid,
        frequency: recording.frequency,
        streams: classes.iter().map(stream).collect(),
        groups: BTreeMap::from([(GROUP.to_owned(), about.to_owned())]),
    }
}

/// A file of pages, read a piece at a time.
struct PageFile<'a> {
    file: File,
    path: &'a Path,
    bytes: Vec<u8>,
    /// How much of them was taken.
    taken: usize,
    /// Where they begin in the file.
    begin: u64,
    over: bool,
}

/// A page's header and records, or why there are none.
type Page<'a> = Result<(page::Header, &'a [u8]), PageError>;

impl PageFile<'_> {
    fn new(file: File, path: &Path) -> PageFile<'_> {
        PageFile { file, path, bytes: Vec::new(), taken: 0, begin: 0, over: false }
    }

    /// The next page, and where it begins in the file; `None` after the last one, or after one that
    /// is cut short.
    fn next(&mut self) -> Result<Option<(u64, Page<'_>)>, RecordingError> {
        let size = loop {
            match page::header(&self.bytes[self.taken..]) {
                Ok((_, size)) => break size,
                Err(_) if !self.over => self.read()?,
                Err(_) if self.taken == self.bytes.len() => return Ok(None),
                Err(error) => {
                    let at = self.begin + self.taken as u64;
                    self.taken = self.bytes.len();
                    return Ok(Some((at, Err(error))));
                }
            }
        };
        let (from, at) = (self.taken, self.begin + self.taken as u64);
        self.taken += size;
        let bytes = &self.bytes[from..];
        let page = page::header(bytes)
            .map(|(header, _)| (header, &bytes[page::HEADER..page::HEADER + header.size]));
        Ok(Some((at, page)))
    }

    /// Reads more, in place of what was taken.
    fn read(&mut self) -> Result<(), RecordingError> {
        self.bytes.drain(..self.taken);
        self.begin += self.taken as u64;
        self.taken = 0;
        // A page of any size is whole in the end: each time there is more of it.
        let wanted = PIECE.max(self.bytes.len()) as u64;
        let count = (&mut self.file).take(wanted).read_to_end(&mut self.bytes);
        self.over = (count.map_err(failed("read", self.path))? as u64) < wanted;
        Ok(())
    }
}

/// What was found in the file of a class on a processor.
#[derive(Default)]
pub(crate) struct Found {
    records: u64,
    problems: Vec<String>,
}

/// Writes a stream.
pub(crate) struct Writer<'a> {
    pub(crate) found: Found,
    path: &'a Path,
    file: BufWriter<File>,
    packets: PacketWriter,
    written: io::Result<()>,
}

impl Writer<'_> {
    fn new(path: &Path, packets: PacketWriter) -> Result<Writer<'_>, RecordingError> {
        let file = BufWriter::new(File::create(path).map_err(failed("write", path))?);
        Ok(Writer { found: Found::default(), path, file, packets, written: Ok(()) })
    }

    /// Appends a record, which comes from byte `at` of the class's file.
    pub(crate) fn put(&mut self, at: u64, class: u16, counter: u64, tid: i64, fields: &[u8]) {
        match self.packets.record(class, Counter(counter), tid, fields) {
            Ok(packet) => {
                self.found.records += 1;
                if let (Some(packet), Ok(())) = (packet, &self.written) {
                    self.written = self.file.write_all(&packet);
                }
            }
            Err(error) => self.found.problem(at, &error.to_string()),
        }
    }

    /// Writes what is left; what was found.
    pub(crate) fn finish(mut self) -> Result<Found, RecordingError> {
        if let (Some(packet), Ok(())) = (self.packets.flush(), &self.written) {
            self.written = self.file.write_all(&packet);
        }
        let flushed = self.written.and_then(|()| self.file.flush());
        flushed.map_err(failed("write", self.path))?;
        Ok(self.found)
    }
}

fn transcode_pages(
    events: &Tracepoints,
    pages: &Path,
    mut out: Writer<'_>,
) -> Result<Found, RecordingError> {
    let mut pages = open(pages, &mut out.found)?.map(|file| PageFile::new(file, pages));
    let mut fields = Vec::new();
    while let Some((at, page)) = pages.as_mut().map(PageFile::next).transpose()?.flatten() {
        let begun = page.and_then(|(header, records)| {
            match header.missed {
                Missed::None => {}
                Missed::Count(count) => out.found.problem(at, &format!("{count} were overwritten")),
                Missed::Unknown => out.found.problem(at, "some were overwritten"),
            }
            page::events(&header, records, |stamp, event| {
                match record(events, event, &mut fields) {
                    Some((class, tid)) => out.put(at, class, stamp, tid, &fields),
                    None => out.found.problem(at, "a record is not as its tracepoint's are"),
                }
            })
        });
        if let Err(error) = begun {
            out.found.problem(at, &error.to_string());
        }
    }
    out.finish()
}

/// A file of a class; that it is missing is a problem.
pub(crate) fn open(path: &Path, found: &mut Found) -> Result<Option<File>, RecordingError> {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            found.problems.push("its events are missing".to_owned());
            Ok(None)
        }
        file => file.map(Some).map_err(failed("read", path)),
    }
}

/// The event class and thread of a record, whose fields replace what is in `fields`; `None` if it
/// is too short, or of no tracepoint of this class.
fn record(events: &Tracepoints, event: &[u8], fields: &mut Vec<u8>) -> Option<(u16, i64)> {
    let kind = u16::from_le_bytes(event.get(..2)?.try_into().ok()?);
    let (format, class) = events.get(&kind)?;
    let thread = event.get(format.thread.offset..)?.get(..4)?;
    let tid = i32::from_le_bytes(thread.try_into().ok()?);
    fields.clear();
    for field in &format.fields {
        put(field, event, fields)?;
    }
    fields.push(*event.get(format.flags.offset)?);
    Some((*class, tid.into()))
}

/// Appends a field as records of ours have it.
fn put(field: &FormatField, event: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let position = field.position;
    let own = event.get(position.offset..)?.get(..position.size)?;
    match field.content {
        Content::Number(_) => out.extend_from_slice(own),
        Content::Bytes => {
            out.extend_from_slice(&u32::try_from(own.len()).ok()?.to_le_bytes());
            out.extend_from_slice(own);
        }
        Content::Characters => put_text(own, out),
        Content::CharactersAt | Content::CharactersAfter => {
            let place = u32::from_le_bytes(own.try_into().ok()?);
            let after = position.offset + position.size;
            let from = if field.content == Content::CharactersAt { 0 } else { after };
            let (offset, size) = ((place & 0xffff) as usize, (place >> 16) as usize);
            put_text(event.get(from + offset..)?.get(..size)?, out);
        }
    }
    Some(())
}

fn put_text(bytes: &[u8], out: &mut Vec<u8>) {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    out.extend_from_slice(&bytes[..end]);
    out.push(0);
}

impl Found {
    /// Notes what is wrong at a place of the file, as long as little is.
    pub(crate) fn problem(&mut self, at: u64, what: &str) {
        const SHOWN: usize = 10;
        match self.problems.len() {
            ..SHOWN => self.problems.push(format!("at byte {at}: {what}")),
            SHOWN => self.problems.push("there is more of this kind".to_owned()),
            _ => {}
        }
    }

    /// Its part of `loss.json`.
    fn account(
        mut self,
        stream: &Stream,
        processor: u32,
        counts: Option<&BufferCounts>,
    ) -> serde_json::Value {
        let unended = "the recording was not ended: the kernel's counts are not known";
        let known = counts.cloned().unwrap_or_else(|| {
            self.problems.push(unended.to_owned());
            BufferCounts { recorded: self.records, ..BufferCounts::default() }
        });
        let BufferCounts { recorded, overwritten, dropped, known, .. } = known;
        let sites = known.iter().map(|(event, missed)| {
            json!({
                "entity": format!("kernel:{event}"), "file": "", "line": 0,
                "dropped": {"missed": missed},
            })
        });
        let mut account = json!({
            "process": stream.process, "pid": processor,
            "emitted": recorded + overwritten + dropped, "recorded": recorded,
            "overwritten": overwritten, "dropped": dropped,
            "torn": 0, "filtered": 0, "final": 0, "sites": sites.collect::<Vec<_>>(),
        });
        if !self.problems.is_empty() {
            account["unknown"] = json!(self.problems);
        }
        account
    }
}

fn loss(processes: Vec<serde_json::Value>, account: Option<&Account>) -> serde_json::Value {
    let sum = |key: &str| processes.iter().filter_map(|each| each[key].as_u64()).sum::<u64>();
    let mut loss = json!({
        "version": 2, "emitted": sum("emitted"), "recorded": sum("recorded"),
        "overwritten": sum("overwritten"), "dropped": sum("dropped"), "torn": 0, "filtered": 0,
        "final": 0,
    });
    if let Some(problems) = account.map(|a| &a.problems).filter(|problems| !problems.is_empty()) {
        loss["problems"] = json!(problems);
    }
    loss["processes"] = json!(processes);
    loss
}
