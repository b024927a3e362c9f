//! Named types, and what a written type means where it stands.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::layout::{Enumeration, Float, Integer, Names, Order, Role};
use super::syntax::{
    Declarator, Entry, Enumerator, Item, Length, Spec, SpecKind, Value, ValueKind,
};
use super::types::{ListLength, ListType, MemberType, Reference, StructureType, Type, VariantType};
use super::{Clock, DEPTH, ParseError, Place, Warnings};

/// What a path refers to.
#[derive(Clone, Copy)]
enum Purpose {
    Length,
    Tag,
}

/// The names that are known at a place.
pub(super) struct Scopes<'a> {
    pub order: Order,
    pub clocks: &'a [Clock],
    /// The first member of a body whose name another one of it has.
    pub doubled: Option<ParseError>,
    pub warnings: Warnings,
    /// Lengths and tags, by their place, for which no field before them is known where they stand:
    /// who uses their types has to find one.
    pub unknown: BTreeMap<Place, String>,
    names: Vec<HashMap<String, (Place, Type)>>,
    /// The members so far of the bodies around, the outermost first. The options of a variant are
    /// no members that a path could begin with.
    bodies: Vec<HashMap<String, Type>>,
}

impl Scopes<'_> {
    pub fn new(order: Order, clocks: &[Clock]) -> Scopes<'_> {
        Scopes {
            order,
            clocks,
            doubled: None,
            warnings: Vec::new(),
            unknown: BTreeMap::new(),
            names: vec![HashMap::new()],
            bodies: Vec::new(),
        }
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
        names.insert(name, (place, declared));
        Ok(())
    }

    fn find(&mut self, place: Place, name: &str) -> Result<Type, ParseError> {
        let found = self.names.iter().rev().find_map(|names| names.get(name));
        let Some((declared, found)) = found else {
            return Err(place.error(format!("unknown type {name}")));
        };
        if *declared > place {
            // The blocks are read when all types outside of them are known.
            let what = format!("the type {name} is used before it is declared");
            self.warnings.push(place.error(what));
        }
        Ok(found.clone())
    }

    /// A length or tag, with what is known about its field where it stands.
    fn reference(&mut self, place: Place, path: &[String], purpose: Purpose) -> Reference {
        let absolute = ["trace", "stream", "event", "env"].contains(&path[0].as_str());
        let own = |members: &HashMap<String, Type>| {
            let mut field = members.get(&path[0])?.clone();
            for name in &path[1..] {
                let Type::Structure(structure) = field else { return None };
                field = structure.members[structure.names.index(name)?].field.clone();
            }
            Some(field)
        };
        let name = path.join(".");
        let wanted = match purpose {
            Purpose::Length => "an unsigned integer",
            Purpose::Tag => "an enumeration",
        };
        match self.bodies.iter().rev().find_map(own) {
            None if absolute => {}
            None => {
                let what = format!("nothing uses this type, and no field {name} is before this");
                self.unknown.insert(place, what);
            }
            Some(Type::Enumeration(integer, _)) if !integer.signed => {}
            Some(Type::Enumeration(..)) if matches!(purpose, Purpose::Tag) => {}
            Some(Type::Integer(integer))
                if matches!(purpose, Purpose::Length) && !integer.signed => {}
            // A use of the type gets an error.
            Some(_) => self.warnings.push(place.error(format!("{name} is not {wanted}"))),
        }
        Reference { place, path: path.to_owned() }
    }

    /// Takes a statement of the whole text that only declares types; gives back any other.
    pub fn outermost<'i>(&mut self, item: &'i Item) -> Result<Option<&'i Item>, ParseError> {
        match item {
            Item::Field { spec, declarators } if declarators.is_empty() => {
                self.meaning(spec, 0).map(|_| None)
            }
            _ => self.declaration(item),
        }
    }

    /// Takes a statement of any scope that only declares types; gives back any other.
    pub fn declaration<'i>(&mut self, item: &'i Item) -> Result<Option<&'i Item>, ParseError> {
        match item {
            Item::Alias { place, spec, pointers, name } => {
                let meant = self.meaning(spec, 0)?;
                self.declare(*place, pointer_name(name, *pointers), meant)?;
            }
            Item::Typedef { spec, declarators } => {
                let mut plain = None;
                for declarator in declarators {
                    let meant = self.declared(spec, declarator, &mut plain)?;
                    self.declare(declarator.place, declarator.name.clone(), meant)?;
                }
            }
            Item::Field { spec, declarators } if declarators.is_empty() => {
                return Err(spec.place.error(
                    "a type without a name after it: outside of blocks and structures it would \
                     declare the type, here it is no field",
                ));
            }
            other => return Ok(Some(other)),
        }
        Ok(None)
    }

    /// The type of `SPEC DECLARATOR`. `plain` is that of `SPEC` once it is known: a statement may
    /// have several declarators, and what is declared in it is declared once.
    fn declared(
        &mut self,
        spec: &Spec,
        declarator: &Declarator,
        plain: &mut Option<Type>,
    ) -> Result<Type, ParseError> {
        let mut meant = match plain {
            Some(plain) if declarator.pointers == 0 => plain.clone(),
            _ => self.meaning(spec, declarator.pointers)?,
        };
        if declarator.pointers == 0 {
            *plain = Some(meant.clone());
        }
        for (place, length) in declarator.lengths.iter().rev() {
            let length = match length {
                Length::Fixed(count) => ListLength::Fixed(*count),
                Length::Path(path) => ListLength::Of(self.reference(*place, path, Purpose::Length)),
            };
            let depth = deeper(*place, meant.depth())?;
            meant = Type::List(Arc::new(ListType { depth, length, element: meant }));
        }
        Ok(meant)
    }

    /// The members of a body, which is a scope of its own, and how deep a type of them is.
    /// `options`: it is a variant's.
    fn members(
        &mut self,
        place: Place,
        items: &[Item],
        options: bool,
    ) -> Result<(Vec<MemberType>, usize), ParseError> {
        self.enter();
        self.bodies.push(HashMap::new());
        let mut members: Vec<MemberType> = Vec::new();
        let mut names = HashSet::new();
        for item in items {
            match self.declaration(item)? {
                None => {}
                Some(Item::Field { spec, declarators }) => {
                    let mut plain = None;
                    for declarator in declarators {
                        let field = self.declared(spec, declarator, &mut plain)?;
                        let (name, place) = (declarator.name.clone(), declarator.place);
                        if !names.insert(&declarator.name) && self.doubled.is_none() {
                            self.doubled = Some(place.error(format!("a second member {name}")));
                        }
                        if !options && let Some(body) = self.bodies.last_mut() {
                            body.insert(name.clone(), field.clone());
                        }
                        members.push(MemberType { name, place, field });
                    }
                }
                Some(other) => return Err(other.place().error("expected a field")),
            }
        }
        self.bodies.pop();
        self.leave();
        let deepest = members.iter().map(|member| member.field.depth()).max().unwrap_or(0);
        Ok((members, deeper(place, deepest)?))
    }

    /// The type that `spec` with so many `*` means.
    pub fn meaning(&mut self, spec: &Spec, pointers: usize) -> Result<Type, ParseError> {
        let place = spec.place;
        let named = match &spec.kind {
            SpecKind::Named(name) => Some(name.clone()),
            SpecKind::Struct { name: Some(name), body: None, .. } => Some(format!("struct {name}")),
            SpecKind::Variant { name: Some(name), body: None, .. } => {
                Some(format!("variant {name}"))
            }
            SpecKind::Enum { name: Some(name), body: None, .. } => Some(format!("enum {name}")),
            _ => None,
        };
        if pointers > 0 {
            return match named {
                Some(name) => self.find(place, &pointer_name(&name, pointers)),
                None => Err(place.error("only an alias can be a pointer")),
            };
        }
        let known = named.map(|name| self.find(place, &name)).transpose()?;
        match (&spec.kind, known) {
            (SpecKind::Named(_), Some(known)) => Ok(known),
            (SpecKind::Named(_), None) => unreachable!("it has a name"),
            (SpecKind::Integer(entries), _) => Ok(Type::Integer(self.integer(place, entries)?)),
            (SpecKind::Float(entries), _) => Ok(Type::Float(self.float(place, entries)?)),
            (SpecKind::String(entries), _) => {
                self.check_keys(entries, &["encoding"])?;
                for entry in entries.iter().filter(|entry| entry.key == "encoding") {
                    if !entry.value.encoding(&mut self.warnings)? {
                        let what = "a string's encoding is UTF8 or ASCII: read as UTF8";
                        self.warnings.push(entry.value.place.error(what));
                    }
                }
                Ok(Type::String)
            }
            (SpecKind::Struct { name, body, align }, known) => {
                let align = match align {
                    None => 1,
                    Some(align) if align.unsigned() == Ok(0) => {
                        let what = "an alignment of 0 bits: it is left out";
                        self.warnings.push(align.place.error(what));
                        1
                    }
                    Some(align) => align.alignment()?,
                };
                let found = match (body, known) {
                    // A reference may ask for more alignment than the declaration.
                    (None, Some(Type::Structure(known))) if align > known.align => {
                        let StructureType { depth, members, names, .. } = &*known;
                        let (depth, members, names) = (*depth, members.clone(), names.clone());
                        Type::Structure(Arc::new(StructureType { align, depth, members, names }))
                    }
                    (None, known) => known.ok_or_else(|| place.error("a struct without a body"))?,
                    (Some(items), _) => {
                        let (members, depth) = self.members(place, items, false)?;
                        let names = members.iter().map(|member| member.name.as_str());
                        let names = Arc::new(Names::new(names));
                        Type::Structure(Arc::new(StructureType { align, depth, members, names }))
                    }
                };
                self.name_body(place, "struct", name, body.is_some(), &found)?;
                Ok(found)
            }
            (SpecKind::Variant { name, tag, body }, known) => {
                let found = match (body, known) {
                    (None, known) => {
                        known.ok_or_else(|| place.error("a variant without a body"))?
                    }
                    (Some(items), _) => {
                        let (options, depth) = self.members(place, items, true)?;
                        if options.is_empty() {
                            self.warnings.push(place.error("a variant without options"));
                        }
                        Type::Variant(Arc::new(VariantType { depth, options }), None)
                    }
                };
                self.name_body(place, "variant", name, body.is_some(), &found)?;
                match (found, tag) {
                    (Type::Variant(options, _), Some(path)) => {
                        let tag = self.reference(place, path, Purpose::Tag);
                        Ok(Type::Variant(options, Some(tag)))
                    }
                    (found, _) => Ok(found),
                }
            }
            (SpecKind::Enum { name, container, body }, known) => {
                let found = match (body, known) {
                    (None, known) => known.ok_or_else(|| place.error("an enum without a body"))?,
                    (Some(enumerators), _) => {
                        let container = match container {
                            Some(spec) => self.meaning(spec, 0)?,
                            None => self.find(place, "int")?,
                        };
                        let Type::Integer(integer) = container else {
                            return Err(place.error("an enumeration's values are not integers"));
                        };
                        let names = self.enumeration(&integer, enumerators)?;
                        Type::Enumeration(integer, Arc::new(names))
                    }
                };
                self.name_body(place, "enum", name, body.is_some(), &found)?;
                Ok(found)
            }
        }
    }

    fn name_body(
        &mut self,
        place: Place,
        keyword: &str,
        name: &Option<String>,
        body: bool,
        found: &Type,
    ) -> Result<(), ParseError> {
        match name {
            Some(name) if body => self.declare(place, format!("{keyword} {name}"), found.clone()),
            _ => Ok(()),
        }
    }

    /// Refuses keys that are set twice, and warns of those that CTF 1.8 does not know.
    fn check_keys(&mut self, entries: &[Entry], known: &[&str]) -> Result<(), ParseError> {
        let mut seen = HashSet::new();
        for Entry { key, place, .. } in entries {
            if !seen.insert(key) {
                return Err(place.error(format!("{key} is set twice")));
            }
            if !known.contains(&key.as_str()) {
                let known = known.join(", ");
                let what = format!("unknown attribute {key}, which is left out: known are {known}");
                self.warnings.push(place.error(what));
            }
        }
        Ok(())
    }

    fn integer(&mut self, place: Place, entries: &[Entry]) -> Result<Integer, ParseError> {
        self.check_keys(
            entries,
            &["size", "align", "signed", "byte_order", "base", "encoding", "map"],
        )?;
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
        let warnings = &mut self.warnings;
        for Entry { key, value, place } in entries {
            match key.as_str() {
                "size" => {
                    let bits = value.unsigned()?;
                    if !(1..=64).contains(&bits) {
                        return Err(value.place.error(format!("an integer of {bits} bits")));
                    }
                    size = Some(bits);
                }
                "align" => align = Some(value.alignment()?),
                "signed" => integer.signed = value.truth(warnings)?,
                "byte_order" => integer.order = value.order(Some(self.order), warnings)?,
                "base" => value.check_base(warnings)?,
                "encoding" => integer.text = value.encoding(warnings)?,
                "map" => integer.clock = Some(clock(self.clocks, *place, value, warnings)?),
                _ => {}
            }
        }
        let size = size.ok_or_else(|| place.error("an integer without its size"))?;
        integer.size = size as u32;
        integer.align = align.unwrap_or(if size % 8 == 0 { 8 } else { 1 });
        Ok(integer)
    }

    fn float(&mut self, place: Place, entries: &[Entry]) -> Result<Float, ParseError> {
        self.check_keys(entries, &["exp_dig", "mant_dig", "align", "byte_order"])?;
        let (mut exponent, mut mantissa, mut align, mut order) = (0, 0, 8, self.order);
        for Entry { key, value, .. } in entries {
            match key.as_str() {
                "exp_dig" => exponent = value.unsigned()?,
                "mant_dig" => mantissa = value.unsigned()?,
                "align" => align = value.alignment()?,
                "byte_order" => order = value.order(Some(self.order), &mut self.warnings)?,
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

    fn enumeration(
        &mut self,
        integer: &Integer,
        enumerators: &[Enumerator],
    ) -> Result<Enumeration, ParseError> {
        let size = integer.size;
        let values = if integer.signed {
            -(1 << (size - 1))..=(1i128 << (size - 1)) - 1
        } else {
            0..=(1i128 << size) - 1
        };
        let mut next = 0;
        let mut ranges = Vec::new();
        for Enumerator { place, label, range } in enumerators {
            let (low, high) = match range {
                None => (next, next),
                Some((low, high)) => (low.number()?, high.number()?),
            };
            if low > high {
                return Err(
                    place.error(format!("the range {low} ... {high} of {label:?} is empty"))
                );
            }
            if !values.contains(&low) || !values.contains(&high) {
                let (first, last) = (values.start(), values.end());
                let shown = if low == high { low.to_string() } else { format!("{low} ... {high}") };
                self.warnings.push(place.error(format!(
                    "{label:?} is {shown}, and an integer of {size} bits here has {first} to {last}"
                )));
            }
            next = high + 1;
            ranges.push((label.clone(), low, high));
        }
        Ok(Enumeration { ranges })
    }
}

/// The index of the clock in `clock.NAME.value`.
fn clock(
    clocks: &[Clock],
    place: Place,
    value: &Value,
    warnings: &mut Warnings,
) -> Result<usize, ParseError> {
    let expected = || value.place.error("expected clock.NAME.value");
    let ValueKind::Path(path) = &value.kind else { return Err(expected()) };
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let name = match path[..] {
        ["clock", name, "value"] => name,
        ["clock", name] => {
            warnings.push(expected());
            name
        }
        _ => return Err(expected()),
    };
    let index = clocks.iter().position(|clock| clock.name == name);
    index.ok_or_else(|| place.error(format!("unknown clock {name}")))
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
