//! Reading the records of packets.

use loopscope_time::Counter;

use crate::class::StreamClass;
use crate::field::FieldType;
use crate::packet::{self, Context, RECORD};
use crate::reader::PacketError;

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Index of its class in [`StreamClass::events`].
    pub class: usize,
    /// Offset in the bytes of its packet's records.
    pub offset: usize,
    /// Full counter.
    pub counter: Counter,
    /// The id.
    pub id: i64,
    /// Encoded extra fields.
    pub fields: &'a [u8],
}

/// What a packet holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// Good records.
    pub records: u64,
    /// Stamps of the first and of the last of them.
    pub stamps: Option<(Counter, Counter)>,
    /// Bytes that they take.
    pub size: usize,
    /// Why the bytes after them are no record.
    pub damage: Option<PacketError>,
}

/// Decoder of the records of packets of one stream class.
#[derive(Debug)]
pub struct Records {
    /// By class id.
    classes: Vec<Known>,
    /// By [`Known::class`].
    fields: Vec<Vec<FieldType>>,
}

/// What a class id stands for.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Size of its records; 0 where that is not known from the class alone.
    size: u32,
    /// Its index in the stream class; [`UNDECLARED`] where there is no such class.
    class: u32,
}

const UNDECLARED: u32 = u32::MAX;

/// A record's class id, its class and its size.
#[derive(Clone, Copy, Debug)]
struct Guess {
    id: u16,
    class: u32,
    size: usize,
}

impl Guess {
    const NONE: Guess = Guess { id: 0, class: 0, size: usize::MAX };
}

impl Records {
    /// For packets of `class`.
    pub fn new(class: &StreamClass) -> Records {
        let count = class.events.iter().map(|e| usize::from(e.id) + 1).max().unwrap_or(0);
        let mut classes = vec![Known { size: 0, class: UNDECLARED }; count];
        let mut fields = Vec::new();
        for (index, event) in (0..).zip(&class.events) {
            let size = event.record_size().and_then(|size| u32::try_from(size).ok());
            classes[usize::from(event.id)] = Known { size: size.unwrap_or(0), class: index };
            fields.push(event.fields.iter().map(|(_, t)| *t).collect());
        }
        Records { classes, fields }
    }

    /// Calls `each` for every record of a packet, in order. An error gives the offset in `bytes`
    /// up to which the records were good.
    pub fn decode<'a>(
        &self,
        context: &Context,
        bytes: &'a [u8],
        mut each: impl FnMut(Record<'a>),
    ) -> Result<(), PacketError> {
        let mut counter = context.begin;
        let mut offset = 0;
        let mut guess = Guess::NONE;
        while offset < bytes.len() {
            let rest = &bytes[offset..];
            let Guess { class, size, .. } =
                self.guessed(rest, &mut guess).map_err(|what| what.error(offset, rest))?;
            counter = packet::extend(counter, packet::get_u32(rest, 2));
            each(Record {
                class: class as usize,
                offset,
                counter,
                id: packet::get_u64(rest, 6).cast_signed(),
                fields: &rest[RECORD..size],
            });
            offset += size;
        }
        Ok(())
    }

    /// Checks and counts the records of a packet: as [`Self::decode`], for who needs no more.
    pub fn scan(&self, context: &Context, bytes: &[u8]) -> Scan {
        let mut scan = Scan { records: 0, stamps: None, size: 0, damage: None };
        let (mut first, mut last) = (context.begin, context.begin);
        let mut guess = Guess::NONE;
        while scan.size < bytes.len() {
            let rest = &bytes[scan.size..];
            let size = match self.guessed(rest, &mut guess) {
                Ok(record) => record.size,
                Err(what) => {
                    scan.damage = Some(what.error(scan.size, rest));
                    break;
                }
            };
            last = packet::extend(last, packet::get_u32(rest, 2));
            if scan.records == 0 {
                first = last;
            }
            scan.records += 1;
            scan.size += size;
        }
        if scan.records > 0 {
            scan.stamps = Some((first, last));
        }
        scan
    }

    /// Class and size of the record that `rest` begins with. `guess` is the last record of fixed size.
    ///
    /// Looking a size up before the next record can be found costs several times more than the rest
    /// of a loop over records; a guess that is checked does not hold the next record up.
    #[inline(always)]
    fn guessed(&self, rest: &[u8], guess: &mut Guess) -> Result<Guess, NoRecord> {
        if guess.size <= rest.len() && packet::get_u16(rest, 0) == guess.id {
            return Ok(*guess);
        }
        let (known, size) = self.extent(rest)?;
        let found = Guess { id: packet::get_u16(rest, 0), class: known.class, size };
        if known.size > 0 {
            *guess = found;
        }
        Ok(found)
    }

    /// The same, looked up.
    #[inline(always)]
    fn extent(&self, rest: &[u8]) -> Result<(Known, usize), NoRecord> {
        let Some(head) = rest.first_chunk::<RECORD>() else {
            return Err(NoRecord::Short);
        };
        let id = u16::from_le_bytes([head[0], head[1]]);
        match self.classes.get(usize::from(id)) {
            Some(&known) if known.size > 0 && known.size as usize <= rest.len() => {
                Ok((known, known.size as usize))
            }
            Some(&known) => self.walk(known, rest),
            None => Err(NoRecord::Undeclared(id)),
        }
    }

    /// The same where the class alone does not tell the size, or the record is none.
    #[inline(never)]
    fn walk(&self, known: Known, rest: &[u8]) -> Result<(Known, usize), NoRecord> {
        let id = packet::get_u16(rest, 0);
        if known.class == UNDECLARED {
            return Err(NoRecord::Undeclared(id));
        }
        if known.size > 0 {
            return Err(NoRecord::Cut(id));
        }
        let mut size = RECORD;
        for field in &self.fields[known.class as usize] {
            size += field.extent(&rest[size..]).ok_or(NoRecord::Cut(id))?;
        }
        Ok((known, size))
    }
}

/// Why bytes do not begin with a record.
enum NoRecord {
    /// They are fewer than any record has.
    Short,
    /// They name a class that there is not.
    Undeclared(u16),
    /// They end before a record of this class does.
    Cut(u16),
}

impl NoRecord {
    fn error(&self, offset: usize, rest: &[u8]) -> PacketError {
        let left = rest.len();
        let what = match self {
            NoRecord::Short => format!("{left} bytes left, a record has at least {RECORD}"),
            NoRecord::Undeclared(id) => format!("event class {id} is not declared"),
            NoRecord::Cut(id) => {
                format!("the {left} bytes left end before this record of event class {id} does")
            }
        };
        PacketError { offset, what, short: !matches!(self, NoRecord::Undeclared(_)) }
    }
}
