//! How fields lie in a stream.

use std::collections::HashMap;
use std::sync::Arc;

/// Byte order; of the bits too: the first ones of a byte are its low ones in little-endian fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Least significant first.
    Little,
    /// Most significant first.
    Big,
}

/// What an integer means to the reader of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Nothing: it is data.
    #[default]
    Data,
    /// In the packet header: the magic number.
    Magic,
    /// One byte of the trace's UUID.
    Uuid,
    /// The stream's class.
    StreamId,
    /// The stream among those of its class.
    InstanceId,
    /// In the packet's context: the clock at its begin.
    Begin,
    /// The clock at its end.
    End,
    /// Its used bits.
    ContentSize,
    /// All its bits.
    PacketSize,
    /// Its number in the stream.
    Sequence,
    /// Events that the stream has lost up to its end.
    Discarded,
    /// The CPU.
    Cpu,
    /// How its content is compressed, if that is not 0.
    Compression,
    /// How its content is encrypted, if that is not 0.
    Encryption,
    /// In the event header: the event's class.
    EventId,
}

/// A field.
#[derive(Clone, Debug, PartialEq)]
pub enum Field {
    /// An integer of up to 64 bits.
    Integer(Integer),
    /// An integer with names for its values.
    Enumeration(Integer, Arc<Enumeration>),
    /// IEEE 754, of 32 or 64 bits.
    Float(Float),
    /// Bytes, then NUL.
    String,
    /// Fields one after the other.
    Structure(Structure),
    /// One of several fields.
    Variant(Variant),
    /// A field several times.
    List(Box<List>),
}

/// An integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Integer {
    /// In bits, 1 to 64.
    pub size: u32,
    /// In bits, a power of two.
    pub align: u64,
    /// Whether two's complement.
    pub signed: bool,
    /// Byte order.
    pub order: Order,
    /// Whether it is a character.
    pub text: bool,
    /// Index of the clock that it stands for.
    pub clock: Option<usize>,
    /// Slot that keeps its value, because a length or a tag is it.
    pub slot: Option<usize>,
    /// What it is for.
    pub role: Role,
}

/// A floating point number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Float {
    /// 32 or 64.
    pub size: u32,
    /// In bits, a power of two.
    pub align: u64,
    /// Byte order.
    pub order: Order,
}

/// Names for values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enumeration {
    /// Label, lowest and highest value. Labels and ranges may come several times.
    pub ranges: Vec<(String, i128, i128)>,
}

/// A field of a structure.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// The name as declared.
    pub name: String,
    /// What it is.
    pub field: Field,
}

impl Member {
    /// The name without the underscore that keeps it apart from TSDL's keywords.
    pub fn plain_name(&self) -> &str {
        self.name.strip_prefix('_').unwrap_or(&self.name)
    }
}

/// Fields one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Structure {
    /// In bits, not below that of any member.
    pub align: u64,
    /// In their order.
    pub members: Vec<Member>,
    /// Index of each of `members` by its name; shared by all structures of a type.
    pub(super) names: Arc<Names>,
}

/// Where each name is among the members of a structure; of a name that comes twice, the first.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Names(HashMap<String, usize>);

impl Names {
    pub fn new<'a>(names: impl Iterator<Item = &'a str>) -> Names {
        let mut found = HashMap::new();
        for (index, name) in names.enumerate() {
            found.entry(name.to_owned()).or_insert(index);
        }
        Names(found)
    }

    pub fn index(&self, name: &str) -> Option<usize> {
        self.0.get(name).copied()
    }
}

/// One of several fields, as a tag says.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// The tag's slot.
    pub tag: usize,
    /// Whether the tag is signed.
    pub signed: bool,
    /// All that it may be.
    pub options: Vec<Member>,
    /// Ranges of tags, each with its option; the first range that contains the tag counts.
    pub choices: Vec<Choice>,
}

/// Tags and their option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Lowest.
    pub low: i128,
    /// Highest.
    pub high: i128,
    /// Index of the option.
    pub option: usize,
}

/// A field several times.
#[derive(Clone, Debug, PartialEq)]
pub struct List {
    /// How often.
    pub length: ListLength,
    /// In bits, that of the elements.
    pub align: u64,
    /// What.
    pub element: Field,
    /// Fewest bits that an element takes.
    pub least: u64,
    /// Whether the elements are the bytes of a text, which ends at the first NUL.
    pub text: bool,
}

/// How often a list's element comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListLength {
    /// Always so often.
    Fixed(u64),
    /// The value of this slot is the number of elements.
    Slot(usize),
}

impl Field {
    /// Alignment in bits.
    pub fn align(&self) -> u64 {
        match self {
            Field::Integer(integer) | Field::Enumeration(integer, _) => integer.align,
            Field::Float(float) => float.align,
            Field::String => 8,
            Field::Structure(structure) => structure.align,
            Field::Variant(_) => 1,
            Field::List(list) => list.align,
        }
    }

    /// Fewest bits that it takes, those of alignment left out.
    pub fn least(&self) -> u64 {
        let sum = |members: &[Member]| {
            members.iter().fold(0, |sum: u64, member| sum.saturating_add(member.field.least()))
        };
        match self {
            Field::Integer(integer) | Field::Enumeration(integer, _) => integer.size.into(),
            Field::Float(float) => float.size.into(),
            Field::String => 8,
            Field::Structure(structure) => sum(&structure.members),
            Field::Variant(variant) => {
                variant.options.iter().map(|option| option.field.least()).min().unwrap_or(0)
            }
            Field::List(list) => match list.length {
                ListLength::Fixed(count) => count.saturating_mul(list.least),
                ListLength::Slot(_) => 0,
            },
        }
    }

    /// The paths of those values in a header that are nothing to who reads packets and events: no
    /// id, stamp, length or tag.
    pub fn unread(&self) -> Vec<String> {
        fn go(field: &Field, path: &str, found: &mut Vec<String>) {
            match field {
                Field::Integer(integer) | Field::Enumeration(integer, _) => {
                    let read = integer.role != Role::Data
                        || integer.clock.is_some()
                        || integer.slot.is_some();
                    found.extend((!read).then(|| path.to_owned()));
                }
                Field::Float(_) | Field::String => found.push(path.to_owned()),
                Field::Structure(Structure { members, .. })
                | Field::Variant(Variant { options: members, .. }) => {
                    for Member { name, field } in members {
                        let dot = if path.is_empty() { "" } else { "." };
                        go(field, &format!("{path}{dot}{name}"), found);
                    }
                }
                Field::List(list) => go(&list.element, path, found),
            }
        }
        let mut found = Vec::new();
        go(self, "", &mut found);
        found
    }

    /// The members of a structure; none of anything else.
    pub fn members(&self) -> &[Member] {
        match self {
            Field::Structure(structure) => &structure.members,
            _ => &[],
        }
    }
}

impl Enumeration {
    /// The labels of a value.
    pub fn labels(&self, value: i128) -> impl Iterator<Item = &str> {
        let holds = move |(_, low, high): &&(String, i128, i128)| *low <= value && value <= *high;
        self.ranges.iter().filter(holds).map(|(label, _, _)| label.as_str())
    }
}
