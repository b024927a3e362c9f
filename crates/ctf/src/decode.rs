//! Decoding packets of any layout that [`tsdl`](crate::tsdl) describes.
//!
//! Values go where a [`Columns`] wants them; `()` wants none. Nothing is allocated here, and every
//! length is compared with what is left before it is passed on.

mod cursor;

pub use cursor::Cursor;

use crate::packet::MAGIC;
use crate::tsdl::{Field, Integer, List, ListLength, Role, Stream, Structure, Trace};

/// What is wrong with a packet, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Bit in the packet.
    pub bit: u64,
    /// The fields around the place, from the inside.
    pub fields: Vec<String>,
    /// What is wrong.
    pub what: String,
    /// Whether there would have to be more bits.
    pub short: bool,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        if !self.fields.is_empty() {
            let path: Vec<&str> = self.fields.iter().rev().map(String::as_str).collect();
            write!(f, "{}: ", path.join("."))?;
        }
        f.write_str(&self.what)
    }
}

impl Fault {
    /// At a bit of the packet.
    pub fn new(bit: u64, what: impl Into<String>) -> Fault {
        Fault { bit, fields: Vec::new(), what: what.into(), short: false }
    }

    /// The same, within a field of this name.
    pub fn inside(mut self, name: &str) -> Fault {
        self.fields.push(name.to_owned());
        self
    }
}

/// Where the values of a field go.
pub trait Columns {
    /// A value of an integer or enumeration, sign-extended.
    fn integer(&mut self, value: u64);
    /// A value of a floating point number of 64 bits, or of 32 widened.
    fn float(&mut self, value: f64);
    /// A string, without its NUL.
    fn text(&mut self, bytes: &[u8]);
    /// Where the values of a structure's member go; members come in their order.
    fn member(&mut self, index: usize) -> &mut Self;
    /// After a structure's last member.
    fn end_structure(&mut self);
    /// Where the value of a variant's option goes. It is the only one of its variant.
    fn option(&mut self, index: usize) -> &mut Self;
    /// Where the values of a list's elements go, `count` of them.
    fn list(&mut self, count: u64) -> &mut Self;
}

impl Columns for () {
    fn integer(&mut self, _: u64) {}
    fn float(&mut self, _: f64) {}
    fn text(&mut self, _: &[u8]) {}
    fn member(&mut self, _: usize) -> &mut Self {
        self
    }
    fn end_structure(&mut self) {}
    fn option(&mut self, _: usize) -> &mut Self {
        self
    }
    fn list(&mut self, _: u64) -> &mut Self {
        self
    }
}

/// What a packet says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Index of its stream's class.
    pub stream: usize,
    /// Number of the stream among those of that class.
    pub instance: Option<u64>,
    /// The clock at its begin, in ticks.
    pub begin: Option<u64>,
    /// The clock at its end.
    pub end: Option<u64>,
    /// Its number in the stream.
    pub sequence: Option<u64>,
    /// Events that the stream has lost up to its end.
    pub discarded: Option<u64>,
    /// The CPU it was recorded on.
    pub cpu: Option<u64>,
    /// Whether it has the UUID of another trace than its metadata.
    pub foreign: bool,
    /// Where its context begins, in bits.
    pub context: u64,
    /// Where its events begin.
    pub events: u64,
    /// Where they end.
    pub content: u64,
    /// Where the next packet begins; a multiple of 8.
    pub size: u64,
}

const ROLES: usize = Role::EventId as usize + 1;

/// Decoder of one stream's packets, in their order.
#[derive(Clone, Debug)]
pub struct Decoder<'t> {
    trace: &'t Trace,
    /// The clock at the latest stamp.
    clock: u64,
    slots: Vec<u64>,
    /// By role, the value that was read last.
    roles: [Option<u64>; ROLES],
    uuid: [u8; 16],
    uuid_bytes: usize,
    /// Elements without bits that lists may still have, in this packet.
    empty: u64,
}

impl<'t> Decoder<'t> {
    /// A decoder for a stream of `trace`, from its first packet on.
    pub fn new(trace: &'t Trace) -> Decoder<'t> {
        Decoder {
            trace,
            clock: 0,
            slots: vec![0; trace.slots],
            roles: [None; ROLES],
            uuid: [0; 16],
            uuid_bytes: 0,
            empty: 0,
        }
    }

    /// Reads header and context of the packet that `bytes` begin with; `left` is how many bytes the
    /// stream has from there on. A fault that is `short`, with fewer `bytes` than `left`, asks for
    /// more of them.
    pub fn head(&mut self, bytes: &[u8], left: u64) -> Result<Head, Fault> {
        let trace = self.trace;
        let mut cursor = Cursor::new(bytes, 0, 8 * bytes.len() as u64);
        let clock = self.clock;
        (self.roles, self.uuid_bytes) = ([None; ROLES], 0);
        self.empty = 8 * left;
        let read = |decoder: &mut Self, cursor: &mut Cursor, field: &Option<Field>, name: &str| {
            let Some(field) = field else { return Ok(()) };
            decoder.field(field, cursor, &mut ()).map_err(|fault| fault.inside(name))
        };
        let result = (|| {
            read(self, &mut cursor, &trace.packet_header, "packet header")?;
            let (stream, class) = self.packet_class()?;
            let context = cursor.at;
            read(self, &mut cursor, &class.packet_context, "packet context")?;
            self.sizes(stream, context, cursor.at, left)
        })();
        if result.is_err() {
            self.clock = clock;
        }
        result
    }

    fn role(&self, role: Role) -> Option<u64> {
        self.roles[role as usize]
    }

    /// The class of the packet whose header was read.
    fn packet_class(&self) -> Result<(usize, &'t Stream), Fault> {
        if let Some(magic) = self.role(Role::Magic)
            && magic != u64::from(MAGIC)
        {
            return Err(Fault::new(0, format!("the magic number is {magic:#x}, not {MAGIC:#x}")));
        }
        let streams = &self.trace.streams;
        let index = match self.role(Role::StreamId) {
            Some(id) => {
                let found = streams.iter().position(|stream| stream.id == id);
                found.ok_or_else(|| Fault::new(0, format!("stream class {id} is not declared")))?
            }
            None if streams.len() == 1 => 0,
            None => {
                let count = streams.len();
                return Err(Fault::new(
                    0,
                    format!("the packet does not say which of {count} stream classes it is of"),
                ));
            }
        };
        Ok((index, &streams[index]))
    }

    fn sizes(&self, stream: usize, context: u64, events: u64, left: u64) -> Result<Head, Fault> {
        for (role, what) in [(Role::Compression, "compressed"), (Role::Encryption, "encrypted")] {
            if let Some(scheme) = self.role(role).filter(|scheme| *scheme != 0) {
                return Err(Fault::new(
                    context,
                    format!("its content is {what} (scheme {scheme}), which is not undone here"),
                ));
            }
        }
        let (content, size) = (self.role(Role::ContentSize), self.role(Role::PacketSize));
        let size_or_all = size.or(content).unwrap_or(8 * left);
        let content = content.unwrap_or(size_or_all);
        if content < events
            || content > size_or_all
            || size_or_all / 8 > left
            || size_or_all % 8 != 0
        {
            return Err(Fault::new(
                0,
                format!(
                    "its sizes do not fit: header and context {events} bits, content {content}, \
                     packet {size_or_all}, {left} bytes left"
                ),
            ));
        }
        if size_or_all == 0 {
            return Err(Fault::new(0, "a packet without bits"));
        }
        Ok(Head {
            stream,
            instance: self.role(Role::InstanceId),
            begin: self.role(Role::Begin).map(|_| self.clock),
            end: self.role(Role::End),
            sequence: self.role(Role::Sequence),
            discarded: self.role(Role::Discarded),
            cpu: self.role(Role::Cpu),
            foreign: self.uuid_bytes == 16 && self.trace.uuid.is_some_and(|uuid| uuid != self.uuid),
            context,
            events,
            content,
            size: size_or_all,
        })
    }

    /// To be called after a packet's last event: a stamp that is not whole goes on from the end.
    pub fn end_packet(&mut self, head: &Head) {
        self.clock = self.clock.max(head.end.unwrap_or(0));
    }

    /// Reads the header of the next event: its index in the stream, and its stamp in ticks where
    /// the stream has a clock.
    pub fn event(
        &mut self,
        stream: usize,
        cursor: &mut Cursor,
    ) -> Result<(usize, Option<u64>), Fault> {
        let class = &self.trace.streams[stream];
        self.roles[Role::EventId as usize] = None;
        let begin = cursor.at;
        if let Some(header) = &class.event_header {
            self.field(header, cursor, &mut ()).map_err(|fault| fault.inside("event header"))?;
        }
        let index = match self.role(Role::EventId) {
            Some(id) => *class
                .by_id
                .get(&id)
                .ok_or_else(|| Fault::new(begin, format!("event class {id} is not declared")))?,
            None if class.events.len() == 1 => 0,
            None => {
                let count = class.events.len();
                return Err(Fault::new(
                    begin,
                    format!("the event does not say which of {count} classes it is of"),
                ));
            }
        };
        Ok((index, class.clock.map(|_| self.clock)))
    }

    /// Reads the packet's context once more, for its values; the clock stands still.
    pub fn context<C: Columns>(
        &mut self,
        field: &Field,
        cursor: &mut Cursor,
        out: &mut C,
    ) -> Result<(), Fault> {
        let clock = self.clock;
        let result = self.field(field, cursor, out);
        self.clock = clock;
        result
    }

    /// Reads a field.
    pub fn field<C: Columns>(
        &mut self,
        field: &Field,
        cursor: &mut Cursor,
        out: &mut C,
    ) -> Result<(), Fault> {
        match field {
            Field::Integer(integer) | Field::Enumeration(integer, _) => {
                let value = cursor.integer(integer)?;
                if let Some(slot) = integer.slot {
                    self.slots[slot] = value;
                }
                if integer.role != Role::Data {
                    self.take_role(integer, value);
                }
                if integer.clock.is_some() {
                    self.stamp(integer.size, value);
                }
                out.integer(value);
            }
            Field::Float(float) => out.float(cursor.float(float)?),
            Field::String => out.text(cursor.string()?),
            Field::Structure(structure) => self.structure(structure, cursor, out)?,
            Field::Variant(variant) => {
                let raw = self.slots[variant.tag];
                let tag =
                    if variant.signed { i128::from(raw.cast_signed()) } else { i128::from(raw) };
                let choice = variant.choices.iter().find(|c| c.low <= tag && tag <= c.high);
                let Some(choice) = choice else {
                    let what = format!("no option of the variant has the tag {tag}");
                    return Err(Fault::new(cursor.at, what));
                };
                let option = &variant.options[choice.option];
                self.field(&option.field, cursor, out.option(choice.option))
                    .map_err(|fault| fault.inside(&option.name))?;
            }
            Field::List(list) => self.list(list, cursor, out)?,
        }
        Ok(())
    }

    fn structure<C: Columns>(
        &mut self,
        structure: &Structure,
        cursor: &mut Cursor,
        out: &mut C,
    ) -> Result<(), Fault> {
        cursor.align(structure.align)?;
        for (index, member) in structure.members.iter().enumerate() {
            self.field(&member.field, cursor, out.member(index))
                .map_err(|fault| fault.inside(&member.name))?;
        }
        out.end_structure();
        Ok(())
    }

    fn list<C: Columns>(
        &mut self,
        list: &List,
        cursor: &mut Cursor,
        out: &mut C,
    ) -> Result<(), Fault> {
        cursor.align(list.align)?;
        let count = match list.length {
            ListLength::Fixed(count) => count,
            ListLength::Slot(slot) => self.slots[slot],
        };
        let left = cursor.end - cursor.at;
        if count.saturating_mul(list.least) > left {
            let least = list.least;
            return Err(cursor.short(format!(
                "{left} bits are left, the list has {count} elements of {least} bits or more"
            )));
        }
        if list.least == 0 {
            self.empty = self.empty.checked_sub(count).ok_or_else(|| {
                Fault::new(cursor.at, format!("a list of {count} elements that may be empty"))
            })?;
        }
        if list.text {
            let first = cursor.take(8 * count)? / 8;
            let bytes = &cursor.bytes[first as usize..][..count as usize];
            out.text(bytes.split(|byte| *byte == 0).next().unwrap_or_default());
            return Ok(());
        }
        let elements = out.list(count);
        for _ in 0..count {
            self.field(&list.element, cursor, elements)?;
        }
        Ok(())
    }

    #[inline(never)]
    fn take_role(&mut self, integer: &Integer, value: u64) {
        match integer.role {
            Role::Uuid => {
                if let Some(byte) = self.uuid.get_mut(self.uuid_bytes) {
                    *byte = value as u8;
                }
                self.uuid_bytes += 1;
            }
            role => self.roles[role as usize] = Some(value),
        }
    }

    /// Continues the clock with the low bits of a later reading.
    #[inline]
    fn stamp(&mut self, size: u32, value: u64) {
        if size == 64 {
            self.clock = value;
            return;
        }
        let mask = (1 << size) - 1;
        let step = value.wrapping_sub(self.clock) & mask;
        self.clock = self.clock.wrapping_add(step);
    }
}
