//! What the metadata says, before it is known what it means.

use super::Place;

/// A type as it is written.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub place: Place,
    pub kind: SpecKind,
}

#[derive(Clone, Debug)]
pub(super) enum SpecKind {
    /// An alias: `unsigned long`, `uint32_t`.
    Named(String),
    Integer(Vec<Entry>),
    Float(Vec<Entry>),
    String(Vec<Entry>),
    Struct {
        name: Option<String>,
        body: Option<Vec<Item>>,
        align: Option<Value>,
    },
    Variant {
        name: Option<String>,
        tag: Option<Vec<String>>,
        body: Option<Vec<Item>>,
    },
    Enum {
        name: Option<String>,
        container: Option<Box<Spec>>,
        body: Option<Vec<Enumerator>>,
    },
}

/// `*name[3][length]`
#[derive(Clone, Debug)]
pub(super) struct Declarator {
    pub place: Place,
    pub pointers: usize,
    pub name: String,
    /// In the order of writing: the first is the outermost.
    pub lengths: Vec<(Place, Length)>,
}

#[derive(Clone, Debug)]
pub(super) enum Length {
    Fixed(u64),
    Path(Vec<String>),
}

/// `LABEL = low ... high`
#[derive(Clone, Debug)]
pub(super) struct Enumerator {
    pub place: Place,
    pub label: String,
    pub range: Option<(Value, Value)>,
}

/// What a body holds.
#[derive(Clone, Debug)]
pub(super) enum Item {
    /// `typealias SPEC := NAME;`
    Alias { place: Place, spec: Spec, pointers: usize, name: String },
    /// `typedef SPEC NAME;`
    Typedef { spec: Spec, declarators: Vec<Declarator> },
    /// `SPEC NAME;`, or `struct NAME { … };` alone.
    Field { spec: Spec, declarators: Vec<Declarator> },
    /// `key = value;`
    Entry(Entry),
    /// `key := SPEC;`
    Assign { place: Place, key: String, spec: Spec },
    /// `trace { … };`
    Block { place: Place, keyword: String, items: Vec<Item> },
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub place: Place,
    /// Dots included.
    pub key: String,
    pub value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Value {
    pub place: Place,
    pub kind: ValueKind,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ValueKind {
    Number {
        negative: bool,
        magnitude: u64,
    },
    Text(String),
    /// `clock.monotonic.value`
    Path(Vec<String>),
}

impl SpecKind {
    pub(super) fn has_body(&self) -> bool {
        match self {
            SpecKind::Struct { body, .. } | SpecKind::Variant { body, .. } => body.is_some(),
            SpecKind::Enum { body, .. } => body.is_some(),
            _ => false,
        }
    }
}

impl Item {
    pub(super) fn place(&self) -> Place {
        match self {
            Item::Alias { place, .. } | Item::Assign { place, .. } | Item::Block { place, .. } => {
                *place
            }
            Item::Typedef { spec, .. } | Item::Field { spec, .. } => spec.place,
            Item::Entry(entry) => entry.place,
        }
    }
}
