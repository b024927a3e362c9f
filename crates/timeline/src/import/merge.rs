//! All events in the order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use loopscope_ctf::decode::{Cursor, Decoder, Fault, Head};
use loopscope_ctf::tsdl::{Event, Stream as Class};

use super::find::Trace;
use super::index::{Index, Packet, Stream, refused};
use super::table::{Origin, Part, Sink, Tables, Time};
use super::{Faults, ImportError, io};
use crate::foreign::stamps::Stamps;
use crate::source::Progress;

/// Events after which the progress is told at the latest.
const OFTEN: u64 = 1 << 14;

/// A stream while it is read: a packet of it, and the next event's head.
struct Reader<'a> {
    traces: &'a [Trace],
    /// Packets still to come.
    packets: std::slice::Iter<'a, Packet>,
    /// The one at hand.
    packet: Packet,
    decoder: Decoder<'a>,
    head: Option<Head>,
    bytes: Vec<u8>,
    /// Where the next event's head begins, and where it ends.
    begin: u64,
    at: u64,
    event: usize,
    /// By the trace's clock.
    own: Option<i64>,
    time: Time,
}

/// Gives the events of all streams to the tables. Events without a time come first. `fault` is told
/// of an event that is none, with its trace; the rest of its stream is left out if that is to be
/// borne.
pub(crate) fn merge(
    traces: &[Trace],
    index: &Index,
    tables: &mut Tables,
    fault: &mut Faults,
    progress: &mut Progress,
) -> Result<(), ImportError> {
    let mut done = 0;
    let mut follow = |bytes: usize| {
        done += bytes as u64;
        if progress(done, index.size) { Ok(()) } else { Err(ImportError::Stopped) }
    };
    let mut readers = Vec::new();
    let mut order = BinaryHeap::new();
    for stream in &index.streams {
        let mut reader = Reader::new(traces, stream);
        if reader.next(&mut follow).or_else(|error| reader.borne(fault, error))? {
            order.push(Reverse((reader.time.ts, readers.len())));
            readers.push(reader);
        }
    }
    let mut events = 0u64;
    while let Some(Reverse((_, stream))) = order.pop() {
        let reader = &mut readers[stream];
        let limit = order.peek().map(|Reverse(next)| *next);
        loop {
            if let Err(error) = reader.take(tables) {
                reader.borne(fault, error)?;
                reader.bytes = Vec::new();
                break;
            }
            events += 1;
            if events.is_multiple_of(OFTEN) {
                // A packet may be as large as its file.
                follow(0)?;
            }
            if !reader.next(&mut follow).or_else(|error| reader.borne(fault, error))? {
                reader.bytes = Vec::new();
                break;
            }
            let here = (reader.time.ts, stream);
            if limit.is_some_and(|limit| here > limit) {
                order.push(Reverse(here));
                break;
            }
        }
    }
    Ok(())
}

impl<'a> Reader<'a> {
    fn new(traces: &'a [Trace], stream: &'a Stream) -> Reader<'a> {
        let packet = stream.packets[0];
        Reader {
            traces,
            packets: stream.packets.iter(),
            packet,
            decoder: Decoder::new(&traces[packet.trace].layout),
            head: None,
            bytes: Vec::new(),
            begin: 0,
            at: 0,
            event: 0,
            own: None,
            time: Time::default(),
        }
    }

    /// Tells of an error; that there is no next event, if it is to be borne.
    fn borne(&self, fault: &mut Faults, error: ImportError) -> Result<bool, ImportError> {
        fault(self.packet.trace, error).map(|()| false)
    }

    fn fault(&self) -> impl Fn(Fault) -> ImportError + use<'a> {
        let (traces, Packet { trace, file, offset, .. }) = (self.traces, self.packet);
        move |fault| refused(&traces[trace].files[file], offset, fault)
    }

    /// Goes to the next event; whether there is one.
    fn next(
        &mut self,
        follow: &mut impl FnMut(usize) -> Result<(), ImportError>,
    ) -> Result<bool, ImportError> {
        loop {
            if let Some(head) = self.head {
                if self.at < head.content {
                    self.event(&head).map_err(self.fault())?;
                    return Ok(true);
                }
                self.decoder.end_packet(&head);
                follow(self.packet.size)?;
            }
            let Some(packet) = self.packets.next() else { return Ok(false) };
            self.open(*packet)?;
        }
    }

    /// Reads the head of the packet's next event.
    fn event(&mut self, head: &Head) -> Result<(), Fault> {
        self.begin = self.at;
        let mut cursor = Cursor::new(&self.bytes, self.at, head.content);
        let (event, stamp) = self.decoder.event(head.stream, &mut cursor)?;
        (self.event, self.at) = (event, cursor.at());
        let own = stamp.map(|stamp| self.own_time(head, stamp)).transpose()?;
        if own < self.own {
            let what = "the event is before its predecessor in the stream";
            return Err(Fault::new(self.begin, what));
        }
        self.own = own;
        self.time = match &self.traces[self.packet.trace].placed {
            None => Time { ts: own, err_ns: 0 },
            Some(placed) => self.placed(head, placed, stamp)?,
        };
        Ok(())
    }

    fn own_time(&self, head: &Head, stamp: u64) -> Result<i64, Fault> {
        let layout = &self.traces[self.packet.trace].layout;
        let clock = layout.streams[head.stream].clock.map(|clock| &layout.clocks[clock]);
        clock.and_then(|clock| clock.ns(stamp)).ok_or_else(|| {
            Fault::new(self.begin, format!("the stamp {stamp} is no time in 64 bits of ns"))
        })
    }

    /// On another time line.
    fn placed(&self, head: &Head, placed: &[Stamps], stamp: Option<u64>) -> Result<Time, Fault> {
        let class = &self.traces[self.packet.trace].layout.streams[head.stream];
        let Some((stamps, stamp)) = class.clock.map(|clock| &placed[clock]).zip(stamp) else {
            return Err(Fault::new(self.begin, "the event has no time: its stream has no clock"));
        };
        let (guess, bound) = stamps.global(stamp);
        // Where widths change the guess may go back a little; the stream does not.
        let ts = self.time.ts.map_or(guess.0, |last| last.max(guess.0));
        let bound = if bound.is_known() { bound.ns() + ts.abs_diff(guess.0) } else { bound.ns() };
        Ok(Time { ts: Some(ts), err_ns: bound.cast_signed() })
    }

    /// Reads a packet and its head.
    fn open(&mut self, packet: Packet) -> Result<(), ImportError> {
        let path = &self.traces[packet.trace].files[packet.file];
        if packet.trace != self.packet.trace {
            self.decoder = Decoder::new(&self.traces[packet.trace].layout);
        }
        self.packet = packet;
        // Not kept open: there may be more streams than a process may have files.
        let file = File::open(path).map_err(io(path))?;
        self.bytes.resize(packet.size, 0);
        file.read_exact_at(&mut self.bytes, packet.offset).map_err(io(path))?;
        let head = self.decoder.head(&self.bytes, packet.size as u64).map_err(self.fault())?;
        self.at = head.events;
        self.head = Some(head);
        Ok(())
    }

    /// Gives the event to its table.
    fn take(&mut self, tables: &mut Tables) -> Result<(), ImportError> {
        let Some(head) = self.head else { return Ok(()) };
        let Packet { trace, file, .. } = self.packet;
        let class = &self.traces[trace].layout.streams[head.stream];
        let event = &class.events[self.event];
        let (stream, number) = (head.stream, self.event);
        let origin = Origin { trace, file, stream, event: number, cpu: head.cpu };
        let fault = self.fault();
        let (begin, time, decoder) = (self.begin, self.time, &mut self.decoder);
        let mut cursor = Cursor::new(&self.bytes, self.at, head.content);
        tables.add(origin, time, |row, packet_context| {
            match row {
                Some(mut row) => {
                    if packet_context && let Some(field) = &class.packet_context {
                        let mut cursor = Cursor::new(&self.bytes, head.context, head.events);
                        decoder
                            .context(field, &mut cursor, row.column(Part::PacketContext))
                            .map_err(&fault)?;
                    }
                    body(decoder, class, event, &mut cursor, &mut row)
                }
                None => body(decoder, class, event, &mut cursor, &mut ()),
            }
            .map_err(&fault)?;
            if cursor.at() == begin {
                return Err(fault(Fault::new(begin, "an event without bits")));
            }
            Ok(cursor.at() - begin)
        })?;
        self.at = cursor.at();
        Ok(())
    }
}

/// What follows an event's header.
fn body<S: Sink>(
    decoder: &mut Decoder,
    class: &Class,
    event: &Event,
    cursor: &mut Cursor,
    sink: &mut S,
) -> Result<(), Fault> {
    if let Some(field) = &class.event_context {
        decoder
            .field(field, cursor, sink.column(Part::StreamContext))
            .map_err(|fault| fault.inside("stream's event context"))?;
    }
    let of_event = |fault: Fault| fault.inside(&event.name);
    if let Some(field) = &event.context {
        decoder
            .field(field, cursor, sink.column(Part::EventContext))
            .map_err(|fault| of_event(fault.inside("context")))?;
    }
    if let Some(payload) = &event.payload {
        cursor.align(payload.align()).map_err(of_event)?;
        for (index, member) in payload.members().iter().enumerate() {
            decoder
                .field(&member.field, cursor, sink.column(Part::Field(index)))
                .map_err(|fault| of_event(fault.inside(&member.name)))?;
        }
    }
    Ok(())
}
