//! Reading a run of packets, a piece at a time, into columns on the global time line.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use loopscope_ctf::packet::{self, Context, RECORD, RECORDS};
use loopscope_ctf::{Kind, PacketError, Record, Records};
use loopscope_time::{Bound, ClockMap, Counter, Floor};

use crate::block::{Block, Fields, Origin, Whereabouts};
use crate::earlier::{Earlier, Stamps};
use crate::error::BuildError;
use crate::packets::{Damage, Run};

/// A record with its head is not larger than the largest packet that a ring can make.
const LARGEST: usize = 1 << 30;

/// What a cursor must know of a call site.
pub(crate) struct Place {
    /// Its table.
    pub table: usize,
    /// Its place there.
    pub site: usize,
    pub kind: Kind,
    /// Whether its records have fields.
    pub fields: bool,
    /// Where its events are of an instant before they were recorded.
    pub earlier: Option<Earlier>,
}

/// How a stream class's packets are read.
pub(crate) struct Decoder {
    pub host: u32,
    pub process: u32,
    /// Whether it is a kernel's.
    pub kernel: bool,
    pub records: Records,
    /// By index of the event class.
    pub places: Vec<Place>,
}

/// A stream file, and what its packets are read with.
pub(crate) struct Source<'a> {
    pub path: PathBuf,
    /// Its index among those of the run.
    pub file: usize,
    pub decoders: &'a BTreeMap<u32, Decoder>,
    pub map: &'a ClockMap,
    pub floor: &'a Floor<'a>,
}

/// What was found in a stream.
#[derive(Default)]
pub(crate) struct Tally {
    pub damage: Vec<Damage>,
    /// Good records, by process and pid.
    pub recorded: BTreeMap<(u32, u32), u64>,
    /// Largest hard maximum error of an event.
    pub max_err_ns: u64,
    /// Intervals that start after their end.
    pub backward: u64,
}

impl Tally {
    /// Adds what was found in another part of the same stream.
    pub fn add(&mut self, other: Tally) {
        self.damage.extend(other.damage);
        for (whose, count) in other.recorded {
            *self.recorded.entry(whose).or_default() += count;
        }
        self.max_err_ns = self.max_err_ns.max(other.max_err_ns);
        self.backward += other.backward;
    }
}

/// Records of a call site.
#[derive(Default)]
struct Rows {
    counter: Vec<u64>,
    id: Vec<i64>,
    /// Where their fields are in the piece.
    at: Vec<u32>,
}

/// A packet of which a part was read.
#[derive(Clone, Copy)]
struct Open<'a> {
    decoder: &'a Decoder,
    /// Its begin is the counter of what was read last.
    context: Context,
    /// What it says of its end.
    end: Counter,
    /// Where its records end, in the file.
    until: u64,
    /// Where the next one begins.
    next: u64,
}

pub(crate) struct Cursor<'a> {
    pub source: &'a Source<'a>,
    at: u64,
    until: u64,
    packet: Option<Open<'a>>,
    /// No event to come is before this; none when there are none to come.
    pub floor: Option<i64>,
    /// The same before the last piece.
    pub before: Option<i64>,
    /// No counter to come is before this.
    least: Counter,
    /// What was read at once, mostly.
    piece: usize,
    /// The same now: more where a record is larger.
    wanted: usize,
    /// By index of the event class, those of `touched` with records.
    rows: Vec<Rows>,
    touched: Vec<usize>,
    /// Where the rows come from.
    origin: Option<(&'a Decoder, u32, u32)>,
    pub tally: Tally,
}

impl<'a> Cursor<'a> {
    /// Reads `piece` bytes at once, or one record where that is larger.
    pub fn new(source: &'a Source<'a>, run: Run, piece: usize) -> Cursor<'a> {
        Cursor {
            at: run.from,
            until: run.until,
            packet: None,
            floor: Some(source.floor.from(run.begin).0),
            before: None,
            least: run.begin,
            piece,
            wanted: piece,
            rows: Vec::new(),
            touched: Vec::new(),
            origin: None,
            tally: Tally::default(),
            source,
        }
    }

    /// Bytes to come.
    pub fn left(&self) -> u64 {
        self.until - self.at
    }

    /// Reads on; the events that this brings, by call site, each in order.
    pub fn advance(&mut self) -> Result<Vec<Block>, BuildError> {
        let begin = self.at;
        let size = (self.until - begin).min(self.wanted as u64) as usize;
        let bytes = self.read(size)?;
        let mut blocks = Vec::new();
        loop {
            // What is between packets may be longer than the piece.
            let rest = bytes.get((self.at - begin) as usize..).unwrap_or_default();
            let whole = begin + size as u64 == self.until;
            match self.packet {
                None if self.at >= self.until => break,
                None if rest.len() < RECORDS && !whole => break,
                None => self.open(rest, &bytes, &mut blocks),
                Some(packet) => {
                    let offset = (self.at - begin) as usize;
                    if !self.records(packet, &bytes, offset, rest) {
                        break;
                    }
                }
            }
        }
        self.blocks(&bytes, &mut blocks);
        // A record that does not fit is read again, with more of what follows.
        self.wanted = if self.at == begin { 2 * self.wanted } else { self.piece };
        self.before = self.floor;
        let over = self.packet.is_none() && self.at >= self.until;
        self.floor = (!over).then(|| self.source.floor.from(self.least).0);
        if over {
            self.rows = Vec::new();
        }
        Ok(blocks)
    }

    fn read(&self, size: usize) -> Result<Arc<Vec<u8>>, BuildError> {
        let path = &self.source.path;
        let at = |source| BuildError::Io { path: path.to_owned(), source };
        // Not kept open: there may be more streams than a process may have files.
        let file = File::open(path).map_err(at)?;
        let mut bytes = vec![0; size];
        file.read_exact_at(&mut bytes, self.at).map_err(at)?;
        Ok(Arc::new(bytes))
    }

    /// Goes to the packet that `rest` begins with.
    fn open(&mut self, rest: &[u8], bytes: &Arc<Vec<u8>>, blocks: &mut Vec<Block>) {
        let left = self.until - self.at;
        let context = match packet::get_context(rest, left) {
            Ok(context) => context,
            Err(what) => {
                // It was a packet a moment ago.
                let what = format!("at byte {}: {what}; the file has changed", self.at);
                self.tally.damage.push((self.at, what));
                self.at = self.until;
                return;
            }
        };
        let next = self.at + context.packet_size as u64;
        let Some(decoder) = self.source.decoders.get(&context.stream_id) else {
            self.at = next;
            return;
        };
        let origin = (decoder, context.pid, context.tid);
        if self.origin.is_some_and(|(before, pid, tid)| {
            !std::ptr::eq(before, decoder) || (pid, tid) != (origin.1, origin.2)
        }) {
            self.blocks(bytes, blocks);
        }
        self.origin = Some(origin);
        if self.rows.len() < decoder.places.len() {
            self.rows.resize_with(decoder.places.len(), Rows::default);
        }
        let until = self.at + context.content_size as u64;
        let end = context.begin.max(context.end);
        self.packet = Some(Open { decoder, context, end, until, next });
        self.at += RECORDS as u64;
    }

    /// Decodes the packet's records in `rest`, which is at `offset` of the piece; whether the
    /// packet ends there.
    fn records(&mut self, packet: Open<'a>, bytes: &[u8], offset: usize, rest: &[u8]) -> bool {
        let left = packet.until - self.at;
        let complete = left <= rest.len() as u64;
        let rest = &rest[..rest.len().min(left as usize)];
        let mut counter = packet.context.begin;
        let (rows, touched) = (&mut self.rows, &mut self.touched);
        let places = &packet.decoder.places;
        let each = |record: Record| {
            counter = record.counter;
            let rows = &mut rows[record.class];
            if rows.counter.is_empty() {
                touched.push(record.class);
            }
            rows.counter.push(record.counter.0);
            rows.id.push(record.id);
            if places[record.class].fields {
                rows.at.push((offset + record.offset + RECORD) as u32);
            }
        };
        let done = match packet.decoder.records.decode(&packet.context, rest, each) {
            Ok(()) => rest.len(),
            Err(PacketError { short: true, offset: good, .. })
                if !complete && (offset + good > 0 || bytes.len() < LARGEST) =>
            {
                good
            }
            Err(PacketError { offset: good, what, .. }) => {
                let (at, sequence) = (self.at + good as u64, packet.context.sequence);
                let what =
                    format!("packet {sequence}: at byte {at}: {what}; its other records are lost");
                self.tally.damage.push((at, what));
                left as usize
            }
        };
        self.at += done as u64;
        // The next packet begins after this one's end, whatever is in it.
        self.least = counter.min(packet.end);
        if self.at >= packet.until {
            (self.at, self.packet) = (packet.next, None);
            return true;
        }
        let context = Context { begin: counter, ..packet.context };
        self.packet = Some(Open { context, ..packet });
        false
    }

    /// What was decoded becomes blocks.
    fn blocks(&mut self, bytes: &Arc<Vec<u8>>, blocks: &mut Vec<Block>) {
        let Some((decoder, pid, tid)) = self.origin else { return };
        let map = self.source.map;
        for class in self.touched.drain(..) {
            let place = &decoder.places[class];
            let count = self.rows[class].counter.len();
            // The next piece will have about as many.
            let room = count + count / 8;
            let next = Rows {
                counter: Vec::with_capacity(room),
                id: Vec::with_capacity(room),
                at: Vec::with_capacity(room),
            };
            let rows = std::mem::replace(&mut self.rows[class], next);
            let Rows { mut counter, mut id, mut at } = rows;
            let (mut ts, mut err) = map.map_all(&counter);
            let mut widest = None;
            if let Some(earlier) = place.earlier {
                // How well the host's clock is known has nothing to do with what was told later.
                widest = err.iter().copied().max();
                let (ts, err, counter) = (&mut ts, &mut err, &mut counter);
                earlier.apply(bytes, &mut Stamps { ts, err, counter, id: &mut id, at: &mut at });
            }
            let fields = match place.kind {
                Kind::Interval => {
                    Some(intervals(map, bytes, &counter, &ts, &mut err, &at, &mut self.tally))
                }
                _ => place.fields.then(|| Fields { bytes: bytes.clone(), at }),
            };
            let widest = widest.or_else(|| err.iter().copied().max()).unwrap_or_default();
            let tally = &mut self.tally;
            tally.max_err_ns = tally.max_err_ns.max(widest.cast_unsigned());
            *tally.recorded.entry((decoder.process, pid)).or_default() += count as u64;
            let Decoder { host, process, kernel, .. } = *decoder;
            let counted = !place.earlier.is_some_and(|earlier| earlier.moves());
            let within = match kernel {
                true => Whereabouts::Processor(pid),
                false => Whereabouts::Thread { pid, tid },
            };
            let origin = Origin { host, process, within, kind: place.kind, counted };
            let file = self.source.file;
            let (table, site) = (place.table, place.site);
            let block = Block { table, site, file, origin, ts, err, counter, id, fields, taken: 0 };
            block.ascending(blocks);
        }
    }
}

/// Start and duration, in global time and as fields, of intervals that ended at `ts`. One that
/// began when nothing was known of the clock has an unknown error; one that starts after its end
/// has none.
fn intervals(
    map: &ClockMap,
    bytes: &[u8],
    counter: &[u64],
    ts: &[i64],
    err: &mut [i64],
    at: &[u32],
    tally: &mut Tally,
) -> Fields {
    let place = packet::INTERVAL_START - RECORD;
    let starts: Vec<u64> =
        at.iter().map(|at| packet::get_u64(bytes, *at as usize + place)).collect();
    let (from, from_err) = map.map_all(&starts);
    let mut fields = Fields { bytes: Arc::default(), at: Vec::with_capacity(at.len()) };
    let mut encoded = Vec::with_capacity(16 * at.len());
    for row in 0..at.len() {
        if Counter(starts[row]) > Counter(counter[row]) {
            tally.backward += 1;
            fields.at.push(Fields::NONE);
            continue;
        }
        if from_err[row] >= Bound::UNKNOWN.ns().cast_signed() {
            err[row] = Bound::UNKNOWN.ns().cast_signed();
        }
        fields.at.push(encoded.len() as u32);
        encoded.extend(from[row].to_le_bytes());
        encoded.extend(ts[row].saturating_sub(from[row]).to_le_bytes());
    }
    fields.bytes = Arc::new(encoded);
    fields
}
