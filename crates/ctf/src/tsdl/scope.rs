//! Named types, and what a written type means where it stands.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::layout::{Enumeration, Float, Integer, Order, Role};
use super::syntax::{
    Declarator, Entry, Enumerator, Item, Length, Spec, SpecKind, Value, ValueKind,
};
use super::{Clock, DEPTH, ParseError, Place};

/// A type. What it is made of is shared by all that use it.
#[derive(Clone, Debug)]
pub(super) enum Type {
    Integer(Integer),
    Enumeration(Integer, Arc<Enumeration>),
    Float(Float),
    String,
    Structure(Arc<StructureType>),
    Variant(Arc<VariantType>, Option<Reference>),
    List(Arc<ListType>),
}

impl Type {
    /// Levels of types in it.
    fn depth(&self) -> usize {
        match self {
            Type::Structure(structure) => structure.depth,
            Type::Variant(variant, _) => variant.depth,
            Type::List(list) => list.depth,
            _ => 0,
        }
    }
}

#[derive(Debug)]
pub(super) struct StructureType {
    pub align: u64,
    depth: usize,
    pub members: Vec<MemberType>,
}

#[derive(Debug)]
pub(super) struct VariantType {
    depth: usize,
    pub options: Vec<MemberType>,
}

#[derive(Debug)]
pub(super) struct MemberType {
    pub name: String,
    pub place: Place,
    pub field: Type,
}

#[derive(Debug)]
pub(super) struct ListType {
    depth: usize,
    pub length: ListLength,
    pub element: Type,
}

#[derive(Debug)]
pub(super) enum ListLength {
    Fixed(u64),
    Of(Reference),
}

/// The path of a length or tag, where it is written.
#[derive(Clone, Debug)]
pub(super) struct Reference {
    pub place: Place,
    pub path: Vec<String>,
}

/// The largest alignment: far beyond any packet, and no sum with it overflows.
const MOST_ALIGN: u64 = 1 << 40;

/// The names that are known at a place.
pub(super) struct Scopes<'a> {
    pub order: Order,
    pub clocks: &'a [Clock],
    /// The first member of a body whose name another one of it has.
    pub doubled: Option<ParseError>,
    names: Vec<HashMap<String, Type>>,
}

impl Scopes<'_> {
    pub fn new(order: Order, clocks: &[Clock]) -> Scopes<'_> {
        Scopes { order, clocks, doubled: None, names: vec![HashMap::new()] }
    }

    pub fn enter(&mut self) {
        self.names.push(HashMap::new());
    }

    pub fn leave(&mut self) {
        self.names.pop();
    }

    fn declare(&mut self, place: Place, name: String, declared: Type) -> Result<(), ParseError> {
        let names = self.names.last_mut().expect("there is always the outermost scope");
        if names.contains_key(&name) {
            return Err(place.error(format!("the type {name} is declared twice")));
        }
        names.insert(name, declared);
        Ok(())
    }

    fn find(&self, place: Place, name: &str) -> Result<Type, ParseError> {
        let found = self.names.iter().rev().find_map(|names| names.get(name));
        found.cloned().ok_or_else(|| place.error(format!("unknown type {name}")))
    }

    /// Takes a statement that only declares types; gives back any other.
    pub fn declaration<'i>(&mut self, item: &'i Item) -> Result<Option<&'i Item>, ParseError> {
        match item {
            Item::Alias { place, spec, pointers, name } => {
                let meant = self.meaning(spec, 0)?;
                self.declare(*place, pointer_name(name, *pointers), meant)?;
            }
            Item::Typedef { spec, declarators } => {
                for declarator in declarators {
                    let meant = self.declared(spec, declarator)?;
                    self.declare(declarator.place, declarator.name.clone(), meant)?;
                }
            }
            Item::Field { spec, declarators } if declarators.is_empty() => {
                self.meaning(spec, 0)?;
            }
            other => return Ok(Some(other)),
        }
        Ok(None)
    }

    /// The type of `SPEC DECLARATOR`.
    fn declared(&mut self, spec: &Spec, declarator: &Declarator) -> Result<Type, ParseError> {
        let mut meant = self.meaning(spec, declarator.pointers)?;
        for (place, length) in declarator.lengths.iter().rev() {
            let length = match length {
                Length::Fixed(count) => ListLength::Fixed(*count),
                Length::Path(path) => {
                    ListLength::Of(Reference { place: *place, path: path.clone() })
                }
            };
            let depth = deeper(*place, meant.depth())?;
            meant = Type::List(Arc::new(ListType { depth, length, element: meant }));
        }
        Ok(meant)
    }

    /// The members of a body, which is a scope of its own, and how deep a type of them is.
    fn members(
        &mut self,
        place: Place,
        items: &[Item],
    ) -> Result<(Vec<MemberType>, usize), ParseError> {
        self.enter();
        let mut members: Vec<MemberType> = Vec::new();
        let mut names = HashSet::new();
        for item in items {
            match self.declaration(item)? {
                None => {}
                Some(Item::Field { spec, declarators }) => {
                    for declarator in declarators {
                        let field = self.declared(spec, declarator)?;
                        let (name, place) = (declarator.name.clone(), declarator.place);
                        if !names.insert(&declarator.name) && self.doubled.is_none() {
                            self.doubled = Some(place.error(format!("a second member {name}")));
                        }
                        members.push(MemberType { name, place, field });
                    }
                }
                Some(other) => return Err(other.place().error("expected a field")),
            }
        }
        self.leave();
        let deepest = members.iter().map(|member| member.field.depth()).max().unwrap_or(0);
        Ok((members, deeper(place, deepest)?))
    }

    /// The type that `spec` with so many `*` means.
    pub fn meaning(&mut self, spec: &Spec, pointers: usize) -> Result<Type, ParseError> {
        let place = spec.place;
        if let SpecKind::Named(name) = &spec.kind {
            return self.find(place, &pointer_name(name, pointers));
        }
        if pointers > 0 {
            return Err(place.error("only an alias can be a pointer"));
        }
        match &spec.kind {
            SpecKind::Named(_) => unreachable!("taken above"),
            SpecKind::Integer(entries) => Ok(Type::Integer(self.integer(place, entries)?)),
            SpecKind::Float(entries) => Ok(Type::Float(self.float(place, entries)?)),
            SpecKind::String(entries) => {
                for entry in entries.iter().filter(|entry| entry.key == "encoding") {
                    entry.value.encoding()?;
                }
                Ok(Type::String)
            }
            SpecKind::Struct { name, body, align } => {
                let key = name.as_ref().map(|name| format!("struct {name}"));
                let found = match body {
                    None => self.find(place, &key.clone().unwrap_or_default())?,
                    Some(items) => {
                        let align = align.as_ref().map_or(Ok(1), alignment)?;
                        let (members, depth) = self.members(place, items)?;
                        Type::Structure(Arc::new(StructureType { align, depth, members }))
                    }
                };
                self.name_body(place, key, body.is_some(), &found)?;
                Ok(found)
            }
            SpecKind::Variant { name, tag, body } => {
                let key = name.as_ref().map(|name| format!("variant {name}"));
                let found = match body {
                    None => self.find(place, &key.clone().unwrap_or_default())?,
                    Some(items) => {
                        let (options, depth) = self.members(place, items)?;
                        Type::Variant(Arc::new(VariantType { depth, options }), None)
                    }
                };
                self.name_body(place, key, body.is_some(), &found)?;
                match (found, tag) {
                    (Type::Variant(options, _), Some(path)) => {
                        let reference = Reference { place, path: path.clone() };
                        Ok(Type::Variant(options, Some(reference)))
                    }
                    (found, _) => Ok(found),
                }
            }
            SpecKind::Enum { name, container, body } => {
                let key = name.as_ref().map(|name| format!("enum {name}"));
                let found = match body {
                    None => self.find(place, &key.clone().unwrap_or_default())?,
                    Some(enumerators) => {
                        let container = match container {
                            Some(spec) => self.meaning(spec, 0)?,
                            None => self.find(place, "int")?,
                        };
                        let Type::Integer(integer) = container else {
                            return Err(place.error("an enumeration's values are not integers"));
                        };
                        Type::Enumeration(integer, Arc::new(enumeration(enumerators)?))
                    }
                };
                self.name_body(place, key, body.is_some(), &found)?;
                Ok(found)
            }
        }
    }

    fn name_body(
        &mut self,
        place: Place,
        key: Option<String>,
        body: bool,
        found: &Type,
    ) -> Result<(), ParseError> {
        match key {
            Some(key) if body => self.declare(place, key, found.clone()),
            _ => Ok(()),
        }
    }

    fn integer(&self, place: Place, entries: &[Entry]) -> Result<Integer, ParseError> {
        let mut size = None;
        let mut align = None;
        let mut integer = Integer {
            size: 0,
            align: 0,
            signed: false,
            order: self.order,
            text: false,
            clock: None,
            slot: None,
            role: Role::Data,
        };
        for Entry { key, value, place } in entries {
            match key.as_str() {
                "size" => {
                    let bits = value.unsigned()?;
                    if !(1..=64).contains(&bits) {
                        return Err(value.place.error(format!("an integer of {bits} bits")));
                    }
                    size = Some(bits);
                }
                "align" => align = Some(alignment(value)?),
                "signed" => integer.signed = value.truth()?,
                "byte_order" => integer.order = value.order(Some(self.order))?,
                "encoding" => integer.text = value.encoding()?,
                "map" => integer.clock = Some(self.clock(*place, value)?),
                _ => {}
            }
        }
        let size = size.ok_or_else(|| place.error("an integer without its size"))?;
        integer.size = size as u32;
        integer.align = align.unwrap_or(if size % 8 == 0 { 8 } else { 1 });
        Ok(integer)
    }

    fn float(&self, place: Place, entries: &[Entry]) -> Result<Float, ParseError> {
        let (mut exponent, mut mantissa, mut align, mut order) = (0, 0, 8, self.order);
        for Entry { key, value, .. } in entries {
            match key.as_str() {
                "exp_dig" => exponent = value.unsigned()?,
                "mant_dig" => mantissa = value.unsigned()?,
                "align" => align = alignment(value)?,
                "byte_order" => order = value.order(Some(self.order))?,
                _ => {}
            }
        }
        let size = match (exponent, mantissa) {
            (8, 24) => 32,
            (11, 53) => 64,
            _ => {
                return Err(place.error(format!(
                    "a floating point number with exp_dig = {exponent} and mant_dig = {mantissa}: \
                     known are 8 and 24, 11 and 53"
                )));
            }
        };
        Ok(Float { size, align, order })
    }

    /// `clock.NAME.value`
    fn clock(&self, place: Place, value: &Value) -> Result<usize, ParseError> {
        let name = match &value.kind {
            ValueKind::Path(path) if path.len() == 3 && path[0] == "clock" => &path[1],
            _ => return Err(value.place.error("expected clock.NAME.value")),
        };
        let index = self.clocks.iter().position(|clock| clock.name == *name);
        index.ok_or_else(|| place.error(format!("unknown clock {name}")))
    }
}

fn deeper(place: Place, depth: usize) -> Result<usize, ParseError> {
    if depth < DEPTH {
        return Ok(depth + 1);
    }
    Err(place.error(format!("more than {DEPTH} levels of types")))
}

fn pointer_name(name: &str, pointers: usize) -> String {
    format!("{name}{}", " *".repeat(pointers))
}

fn enumeration(enumerators: &[Enumerator]) -> Result<Enumeration, ParseError> {
    let mut next = 0;
    let mut ranges = Vec::new();
    for Enumerator { place, label, range } in enumerators {
        let (low, high) = match range {
            None => (next, next),
            Some((low, high)) => (low.number()?, high.number()?),
        };
        if low > high {
            return Err(place.error(format!("the range {low} ... {high} of {label:?} is empty")));
        }
        next = high + 1;
        ranges.push((label.clone(), low, high));
    }
    Ok(Enumeration { ranges })
}

fn alignment(value: &Value) -> Result<u64, ParseError> {
    let align = value.unsigned()?;
    if align.is_power_of_two() && align <= MOST_ALIGN {
        return Ok(align);
    }
    Err(value.place.error(format!(
        "an alignment of {align} bits: it must be a power of two, and at most {MOST_ALIGN}"
    )))
}

impl Value {
    pub fn number(&self) -> Result<i128, ParseError> {
        match self.kind {
            ValueKind::Number { negative, magnitude } => {
                Ok(if negative { -i128::from(magnitude) } else { magnitude.into() })
            }
            _ => Err(self.place.error("expected a number")),
        }
    }

    pub fn unsigned(&self) -> Result<u64, ParseError> {
        let number = self.number()?;
        u64::try_from(number).map_err(|_| self.place.error(format!("{number} is below zero")))
    }

    pub fn signed(&self) -> Result<i64, ParseError> {
        let number = self.number()?;
        let too_large = |_| self.place.error(format!("{number} has more than 64 bits"));
        i64::try_from(number).map_err(too_large)
    }

    /// A string, or a name without quotes.
    pub fn text(&self) -> Result<String, ParseError> {
        match &self.kind {
            ValueKind::Text(text) => Ok(text.clone()),
            ValueKind::Path(path) => Ok(path.join(".")),
            ValueKind::Number { .. } => Err(self.place.error("expected a string")),
        }
    }

    pub fn truth(&self) -> Result<bool, ParseError> {
        let truth = match &self.kind {
            ValueKind::Number { magnitude, .. } => match magnitude {
                0 => Some(false),
                1 => Some(true),
                _ => None,
            },
            _ => match self.text()?.to_ascii_lowercase().as_str() {
                "true" => Some(true),
                "false" => Some(false),
                _ => None,
            },
        };
        truth.ok_or_else(|| self.place.error("expected true or false"))
    }

    /// Whether an encoding makes bytes a text.
    fn encoding(&self) -> Result<bool, ParseError> {
        match self.text()?.to_ascii_lowercase().as_str() {
            "none" => Ok(false),
            "utf8" | "utf-8" | "ascii" => Ok(true),
            other => Err(self.place.error(format!("unknown encoding {other:?}"))),
        }
    }

    /// A byte order; `native` is the one given.
    pub fn order(&self, native: Option<Order>) -> Result<Order, ParseError> {
        match (self.text()?.as_str(), native) {
            ("le", _) => Ok(Order::Little),
            ("be" | "network", _) => Ok(Order::Big),
            ("native", Some(native)) => Ok(native),
            (other, _) => Err(self.place.error(format!("unknown byte order {other:?}"))),
        }
    }

    pub fn uuid(&self) -> Result<[u8; 16], ParseError> {
        let text = self.text()?;
        let bad = || self.place.error(format!("{text:?} is not a UUID"));
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        if digits.len() != 32 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(bad());
        }
        let mut uuid = [0; 16];
        for (i, byte) in uuid.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).map_err(|_| bad())?;
        }
        Ok(uuid)
    }
}
