//! Captures of packets, pcap and pcapng, as the table `pcap.packet`.
//!
//! Several are merged by time. A capture is nearly in order, not quite: several processors stamp.
//! So many of its packets are kept and sorted; what comes later still takes the time of the one
//! before it, with a maximum error that reaches to its own.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, Int64Array, RecordBatch, StringArray, UInt8Array, UInt16Array, UInt32Array,
    new_null_array,
};
use arrow_schema::{DataType, Field, Schema};
use loopscope_time::{Bound, GlobalNs};
use pcap_parser::pcapng::{Block, OptionCode};
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{PcapBlockOwned, PcapError, create_reader};

use super::packet::Headers;
use super::stamps::{Place, named};
use super::{Source, SourceSummary};
use crate::import::ImportError;
use crate::import::cells::free_name;
use crate::source::Progress;
use crate::store;
use crate::table::dictionary;

/// Packets that are kept to be sorted, of each capture.
const WINDOW: usize = 1 << 16;
/// Bytes to read at once, and the largest block that a capture can have.
const BUFFER: usize = 1 << 20;
const MOST_BUFFER: usize = 1 << 26;
/// Rows of a table's part.
const PART: usize = 1 << 19;
/// Packets after which the progress is told.
const OFTEN: u64 = 1 << 14;

/// What packets are stamped by where nothing is said.
const REALTIME: &str = "realtime";
const NS: i128 = 1_000_000_000;

/// A packet on the time line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Packet {
    ts: i64,
    /// In the capture.
    number: u64,
    err_ns: i64,
    frame_length: u32,
    captured_length: u32,
    link_type: u16,
    headers: Headers,
}

/// An interface of a capture.
#[derive(Clone, Copy)]
struct Interface {
    link_type: u16,
    /// Stamps a second.
    resolution: u64,
    /// Seconds to add to them.
    offset_s: i64,
    /// Packets that it says it dropped.
    dropped: u64,
}

/// A capture file while it is read.
pub(super) struct Capture {
    /// Index of its source.
    source: usize,
    place: Place,
    reader: Box<dyn PcapReaderIterator + Send>,
    interfaces: Vec<Interface>,
    big_endian: bool,
    /// Packets that the interfaces of earlier sections dropped.
    dropped: u64,
    /// Packets read.
    number: u64,
    /// Packets that have no stamp.
    timeless: u64,
    /// Packets in blocks that the format gave up, which are not read.
    obsolete: u64,
    waiting: BinaryHeap<Reverse<Packet>>,
    last: Option<i64>,
    /// Why the rest cannot be read.
    broken: Option<String>,
    ended: bool,
}

impl Capture {
    /// Opens the file and says of which kind and by which clock it is; or why it cannot be read.
    pub fn open(
        source: &Source,
        index: usize,
        summary: &mut SourceSummary,
    ) -> Result<Capture, String> {
        let file = File::open(&source.path).map_err(|error| match error.kind() {
            ErrorKind::NotFound => "is not there: nothing was recorded".to_owned(),
            _ => error.to_string(),
        })?;
        let reader = create_reader(BUFFER, file).map_err(|error| match error {
            PcapError::HeaderNotRecognized => {
                "is neither a directory of CTF traces nor a capture (pcap, pcapng)".to_owned()
            }
            PcapError::Eof => "is empty".to_owned(),
            other => format!("is no capture that can be read: {other}"),
        })?;
        summary.kind = Some("pcap");
        let said = source.clock.as_deref().unwrap_or(REALTIME);
        let (name, place) =
            named(said, &source.clocks, &source.host).map_err(|error| error.to_string())?;
        summary.clock = Some(name.to_owned());
        Ok(Capture {
            source: index,
            place: place.clone(),
            reader,
            interfaces: Vec::new(),
            big_endian: false,
            dropped: 0,
            number: 0,
            timeless: 0,
            obsolete: 0,
            waiting: BinaryHeap::new(),
            last: None,
            broken: None,
            ended: false,
        })
    }

    /// The next packet in the order of time.
    fn next(&mut self) -> Option<Packet> {
        while !self.ended && self.waiting.len() < WINDOW {
            match self.read() {
                Ok(Some(packet)) => self.waiting.push(Reverse(packet)),
                Ok(None) => {}
                Err(what) => {
                    self.ended = true;
                    self.broken = what;
                }
            }
        }
        let Reverse(mut packet) = self.waiting.pop()?;
        if let Some(last) = self.last
            && packet.ts < last
        {
            if packet.err_ns < Bound::UNKNOWN.ns().cast_signed() {
                packet.err_ns += last - packet.ts;
            }
            packet.ts = last;
        }
        self.last = Some(packet.ts);
        Some(packet)
    }

    /// Reads a block: the packet in it, if there is one; at the end of the file, or of what can be
    /// read of it, why it is one.
    fn read(&mut self) -> Result<Option<Packet>, Option<String>> {
        let at = self.reader.consumed();
        let broken = |what: String| Some(format!("byte {at}: {what}; the rest is left out"));
        let (size, block) = match self.reader.next() {
            Ok(block) => block,
            Err(PcapError::Eof) => return Err(None),
            Err(PcapError::Incomplete(_)) => {
                self.reader.refill().map_err(|error| broken(error.to_string()))?;
                return Ok(None);
            }
            Err(PcapError::BufferTooSmall) => {
                let size = 2 * self.reader.data().len().max(BUFFER);
                if size > MOST_BUFFER || !self.reader.grow(size) {
                    return Err(broken("a packet or block of more than 64 MiB".into()));
                }
                self.reader.refill().map_err(|error| broken(error.to_string()))?;
                return Ok(None);
            }
            Err(PcapError::UnexpectedEof) => return Err(broken("the file is cut off".into())),
            Err(PcapError::NomError(..) | PcapError::OwnedNomError(..)) => {
                return Err(broken("is no packet or block".into()));
            }
            Err(error) => return Err(broken(error.to_string())),
        };
        let found = match block {
            PcapBlockOwned::LegacyHeader(header) => {
                if header.thiszone != 0 {
                    let zone = header.thiszone;
                    return Err(broken(format!(
                        "its stamps are {zone} s off UTC by their own account"
                    )));
                }
                let resolution =
                    if header.is_nanosecond_precision() { NS as u64 } else { 1_000_000 };
                // The upper half tells of the frame check sequence.
                let link_type = header.network.0 as u16;
                self.interfaces.push(Interface { link_type, resolution, offset_s: 0, dropped: 0 });
                None
            }
            PcapBlockOwned::Legacy(packet) => {
                let interface = self.interfaces[0];
                let stamp =
                    u64::from(packet.ts_sec) * interface.resolution + u64::from(packet.ts_usec);
                Some((interface, stamp, packet.origlen, packet.caplen, packet.data))
            }
            PcapBlockOwned::NG(Block::SectionHeader(header)) => {
                self.big_endian = header.big_endian();
                self.dropped += self.interfaces.drain(..).map(|i| i.dropped).sum::<u64>();
                None
            }
            PcapBlockOwned::NG(Block::InterfaceDescription(interface)) => {
                let resolution = resolution(interface.if_tsresol).map_err(broken)?;
                let offset = interface.ts_offset();
                self.interfaces.push(Interface {
                    link_type: interface.linktype.0 as u16,
                    resolution,
                    offset_s: if self.big_endian { offset.swap_bytes() } else { offset },
                    dropped: 0,
                });
                None
            }
            PcapBlockOwned::NG(Block::InterfaceStatistics(statistics)) => {
                let dropped = statistics.options.iter().find(|o| o.code == OptionCode::IsbIfDrop);
                let value = dropped.and_then(|option| option.value.get(..8)?.try_into().ok());
                let interface = self.interfaces.get_mut(statistics.if_id as usize);
                if let (Some(value), Some(interface)) = (value, interface) {
                    interface.dropped = match self.big_endian {
                        true => u64::from_be_bytes(value),
                        false => u64::from_le_bytes(value),
                    };
                }
                None
            }
            PcapBlockOwned::NG(Block::EnhancedPacket(packet)) => {
                let interface = self.interfaces.get(packet.if_id as usize).copied();
                let what = || {
                    broken(format!("a packet of interface {}, which is not declared", packet.if_id))
                };
                let interface = interface.ok_or_else(what)?;
                let stamp = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                let data = packet.data.get(..packet.caplen as usize).unwrap_or(packet.data);
                Some((interface, stamp, packet.origlen, packet.caplen, data))
            }
            PcapBlockOwned::NG(Block::SimplePacket(_)) => {
                self.timeless += 1;
                None
            }
            PcapBlockOwned::NG(Block::Unknown(block)) if block.block_type == PACKET_BLOCK => {
                self.obsolete += 1;
                None
            }
            PcapBlockOwned::NG(_) => None,
        };
        let packet = found.map(|(interface, stamp, frame_length, captured_length, data)| {
            let (at, bound) = place(&self.place, &interface, stamp);
            self.number += 1;
            Packet {
                ts: at.0,
                number: self.number,
                err_ns: bound.ns().cast_signed(),
                frame_length,
                captured_length,
                link_type: interface.link_type,
                headers: Headers::of(interface.link_type, data),
            }
        });
        self.reader.consume(size);
        Ok(packet)
    }

    fn finish(&self, summary: &mut SourceSummary) {
        let dropped = self.interfaces.iter().map(|interface| interface.dropped);
        summary.lost.events += self.dropped + dropped.sum::<u64>();
        if self.timeless > 0 {
            summary.broken(format!("{} packets have no stamp and are left out", self.timeless));
        }
        if self.obsolete > 0 {
            let what = "packets are in blocks of the obsolete type 2 and are left out";
            summary.broken(format!("{} {what}", self.obsolete));
        }
        if let Some(what) = &self.broken {
            summary.broken(what.clone());
        }
    }
}

/// The Packet Block of pcapng's first drafts.
const PACKET_BLOCK: u32 = 2;

/// Stamps a second, of an interface's `if_tsresol`: a power of two where its highest bit is set,
/// else of ten.
fn resolution(option: u8) -> Result<u64, String> {
    let (base, exponent) = if option < 0x80 { (10u64, option) } else { (2, option - 0x80) };
    base.checked_pow(exponent.into()).ok_or_else(|| {
        format!(
            "an interface with stamps of {base}^-{exponent} s: the finest that can be read are of \
             10^-19 s and 2^-63 s"
        )
    })
}

/// A stamp is cut to its unit: it stands for all instants until the next one, which may be between
/// two nanoseconds.
fn place(place: &Place, interface: &Interface, stamp: u64) -> (GlobalNs, Bound) {
    let units = i128::from(stamp) * NS;
    let ns = |units: i128| {
        let ns = i128::from(interface.offset_s) * NS + units / i128::from(interface.resolution);
        ns.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    };
    place(ns(units), ns(units + NS - 1))
}

/// Reads the captures and adds their table, by a name that is not `taken`.
pub(super) fn add(
    sources: &[Source],
    mut captures: Vec<Capture>,
    taken: &BTreeSet<(String, String)>,
    dir: &Path,
    summaries: &mut [SourceSummary],
    progress: &mut Progress,
) -> Result<(), ImportError> {
    let size =
        |capture: &Capture| fs::metadata(&sources[capture.source].path).map_or(0, |m| m.len());
    let bytes: u64 = captures.iter().map(size).sum();
    let mut packets = 0u64;
    let name = free_name("packet", |name| taken.contains(&("pcap".to_owned(), name.to_owned())));
    let folder = dir.join("timeline/pcap").join(&name);
    let mut heads: Vec<Option<Packet>> = captures.iter_mut().map(Capture::next).collect();
    let mut rows: VecDeque<(usize, Packet)> = VecDeque::new();
    let mut parts = 0;
    loop {
        let present = heads.iter().enumerate().filter_map(|(i, head)| head.map(|head| (head, i)));
        let next = present.min();
        if rows.len() >= PART || (next.is_none() && !rows.is_empty()) {
            let rows: Vec<_> = std::mem::take(&mut rows).into();
            store::write(&folder.join(format!("part-{parts}.parquet")), &batch(sources, &rows)?)?;
            parts += 1;
        }
        let Some((packet, capture)) = next else { break };
        packets += 1;
        if packets.is_multiple_of(OFTEN) {
            let done: usize = captures.iter().map(|capture| capture.reader.consumed()).sum();
            if !progress(done as u64, bytes) {
                return Err(ImportError::Stopped);
            }
        }
        let source = captures[capture].source;
        let summary = &mut summaries[source];
        summary.events += 1;
        summary.unknown += u64::from(packet.err_ns >= Bound::UNKNOWN.ns().cast_signed());
        summary.from_ts = summary.from_ts.or(Some(packet.ts));
        summary.until_ts = Some(packet.ts);
        rows.push_back((source, packet));
        heads[capture] = captures[capture].next();
    }
    for capture in captures {
        let summary = &mut summaries[capture.source];
        capture.finish(summary);
        if summary.events > 0 {
            summary.tables.push(format!("pcap.{name}"));
        }
    }
    Ok(())
}

fn batch(sources: &[Source], rows: &[(usize, Packet)]) -> Result<RecordBatch, ImportError> {
    let of = || rows.iter().map(|(_, packet)| packet);
    let source =
        |of: fn(&Source) -> &str| rows.iter().map(move |(source, _)| of(&sources[*source]));
    let null = |data| new_null_array(&data, rows.len());
    let address = |of_headers: fn(&Headers) -> Option<IpAddr>| -> ArrayRef {
        let texts =
            of().map(|packet| of_headers(&packet.headers).map(|address| address.to_string()));
        Arc::new(StringArray::from_iter(texts))
    };
    let number = |of_headers: fn(&Headers) -> Option<u16>| -> ArrayRef {
        Arc::new(UInt16Array::from_iter(of().map(|packet| of_headers(&packet.headers))))
    };
    let protocols = of().map(|packet| packet.headers.protocol);
    let columns: [(&str, ArrayRef, bool); 18] = [
        ("ts", Arc::new(Int64Array::from_iter_values(of().map(|p| p.ts))), false),
        ("err_ns", Arc::new(Int64Array::from_iter_values(of().map(|p| p.err_ns))), false),
        ("counter", null(DataType::UInt64), true),
        ("host", dictionary(source(|source| &source.host))?, false),
        ("process", dictionary(source(|source| &source.process))?, false),
        ("pid", null(DataType::UInt32), true),
        ("tid", null(DataType::UInt32), true),
        ("cpu", null(DataType::UInt16), true),
        ("id", null(DataType::Int64), true),
        ("frame_length", uint32(of().map(|p| p.frame_length)), true),
        ("captured_length", uint32(of().map(|p| p.captured_length)), true),
        ("link_type", Arc::new(UInt16Array::from_iter_values(of().map(|p| p.link_type))), true),
        ("source", address(|headers| headers.source), true),
        ("destination", address(|headers| headers.destination), true),
        ("protocol", Arc::new(UInt8Array::from_iter(protocols)), true),
        ("ip_id", number(|headers| headers.ip_id), true),
        ("source_port", number(|headers| headers.source_port), true),
        ("destination_port", number(|headers| headers.destination_port), true),
    ];
    let (mut fields, mut arrays) = (Vec::new(), Vec::new());
    for (name, array, null) in columns {
        fields.push(Field::new(name, array.data_type().clone(), null));
        arrays.push(array);
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)?)
}

fn uint32(values: impl Iterator<Item = u32>) -> ArrayRef {
    Arc::new(UInt32Array::from_iter_values(values))
}
