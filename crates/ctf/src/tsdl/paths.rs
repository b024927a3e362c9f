//! From types to fields at their places: lengths and tags find the fields that they name.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::layout::{
    Choice, Enumeration, Field, Integer, List, ListLength, Member, Role, Structure, Variant,
};
use super::types::{self, Reference, Type};
use super::{ParseError, Place};

/// What fields can lie in, in the order of decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Root {
    PacketHeader,
    PacketContext,
    EventHeader,
    StreamEventContext,
    EventContext,
    EventFields,
}

/// How absolute paths begin.
const ROOTS: [(Root, &[&str]); 6] = [
    (Root::PacketHeader, &["trace", "packet", "header"]),
    (Root::PacketContext, &["stream", "packet", "context"]),
    (Root::EventHeader, &["stream", "event", "header"]),
    (Root::StreamEventContext, &["stream", "event", "context"]),
    (Root::EventContext, &["event", "context"]),
    (Root::EventFields, &["event", "fields"]),
];

/// Fields in each root, where there are any.
pub(super) type Roots = [Option<Field>; 6];

/// A length or tag that has not found its field.
struct Pending {
    /// Indexes from the root to the list or variant.
    here: Vec<usize>,
    reference: Reference,
}

/// The places of each label among an enumeration's mappings.
type PlacesByLabel = HashMap<String, Vec<usize>>;

/// Makes fields of types.
pub(super) struct Builder {
    pub slots: usize,
    /// The places of the lengths and tags that have found their fields.
    pub connected: HashSet<Place>,
    /// By an enumeration's address: it, which keeps the address its own, and where in its ranges each
    /// label is.
    labels: HashMap<usize, (Arc<Enumeration>, PlacesByLabel)>,
    /// How many more fields there may be: types that are used many times within each other would
    /// need more memory than any.
    left: usize,
}

impl Builder {
    /// For a metadata text of so many bytes.
    pub fn new(bytes: usize) -> Builder {
        Builder {
            slots: 0,
            connected: HashSet::new(),
            labels: HashMap::new(),
            left: 100_000 + 16 * bytes,
        }
    }

    /// Puts a structure into its root, and finds what its lengths and tags are.
    pub fn put(
        &mut self,
        place: Place,
        root: Root,
        declared: &Type,
        roots: &mut Roots,
    ) -> Result<(), ParseError> {
        if !matches!(declared, Type::Structure(_)) {
            return Err(place.error("expected a struct"));
        }
        let mut pending = Vec::new();
        let field = self.field(place, declared, &mut Vec::new(), &mut pending)?;
        roots[root as usize] = Some(field);
        for Pending { here, reference } in pending {
            self.connect(root, &here, &reference, roots)?;
        }
        Ok(())
    }

    fn field(
        &mut self,
        place: Place,
        declared: &Type,
        here: &mut Vec<usize>,
        pending: &mut Vec<Pending>,
    ) -> Result<Field, ParseError> {
        self.left = self
            .left
            .checked_sub(1)
            .ok_or_else(|| place.error("too many fields: types multiply within each other"))?;
        Ok(match declared {
            Type::Integer(integer) => Field::Integer(*integer),
            Type::Enumeration(integer, names) => Field::Enumeration(*integer, names.clone()),
            Type::Float(float) => Field::Float(*float),
            Type::String => Field::String,
            Type::Structure(structure) => {
                let members = self.members(&structure.members, here, pending)?;
                let aligns = members.iter().map(|member| member.field.align());
                let align = aligns.fold(structure.align, u64::max);
                Field::Structure(Structure { align, members, names: structure.names.clone() })
            }
            Type::Variant(options, tag) => {
                let Some(reference) = tag else {
                    return Err(place.error("a variant without a tag: variant <TAG>"));
                };
                pending.push(Pending { here: here.clone(), reference: reference.clone() });
                let options = self.members(&options.options, here, pending)?;
                Field::Variant(Variant { tag: 0, signed: false, options, choices: Vec::new() })
            }
            Type::List(list) => {
                let length = match &list.length {
                    types::ListLength::Fixed(count) => ListLength::Fixed(*count),
                    types::ListLength::Of(reference) => {
                        pending.push(Pending { here: here.clone(), reference: reference.clone() });
                        ListLength::Slot(0)
                    }
                };
                here.push(0);
                let element = self.field(place, &list.element, here, pending)?;
                here.pop();
                let is_byte =
                    |integer: &Integer| integer.size == 8 && integer.text && integer.align == 8;
                let text = matches!(&element, Field::Integer(integer) if is_byte(integer));
                let (align, least) = (element.align(), element.least());
                Field::List(Box::new(List { length, align, element, least, text }))
            }
        })
    }

    fn members(
        &mut self,
        declared: &[types::MemberType],
        here: &mut Vec<usize>,
        pending: &mut Vec<Pending>,
    ) -> Result<Vec<Member>, ParseError> {
        let mut members = Vec::new();
        for (index, member) in declared.iter().enumerate() {
            here.push(index);
            let field = self.field(member.place, &member.field, here, pending)?;
            here.pop();
            members.push(Member { name: member.name.clone(), field });
        }
        Ok(members)
    }

    fn connect(
        &mut self,
        root: Root,
        here: &[usize],
        reference: &Reference,
        roots: &mut Roots,
    ) -> Result<(), ParseError> {
        let place = reference.place;
        let name = reference.path.join(".");
        let (target_root, target) = find(root, here, &reference.path, roots)
            .ok_or_else(|| place.error(format!("there is no field {name} before this one")))?;
        self.connected.insert(place);
        let target = field_at(&mut roots[target_root as usize], &target);
        let names = match target {
            Field::Enumeration(_, names) => Some(names.clone()),
            _ => None,
        };
        let (Field::Integer(integer) | Field::Enumeration(integer, _)) = target else {
            return Err(place.error(format!("{name} is not an integer")));
        };
        let slot = *integer.slot.get_or_insert_with(|| {
            self.slots += 1;
            self.slots - 1
        });
        let signed = integer.signed;
        match field_at(&mut roots[root as usize], here) {
            Field::List(list) => {
                if signed {
                    return Err(place.error(format!("the length {name} is a signed integer")));
                }
                list.length = ListLength::Slot(slot);
            }
            Field::Variant(variant) => {
                let Some(names) = names else {
                    return Err(place.error(format!("the tag {name} is not an enumeration")));
                };
                (variant.tag, variant.signed) = (slot, signed);
                let address = Arc::as_ptr(&names).addr();
                let (names, labels) = self.labels.entry(address).or_insert_with(|| by_label(names));
                for (option, member) in variant.options.iter().enumerate() {
                    let of_option = labels.get(&member.name).into_iter().flatten();
                    let ranges = of_option.map(|index| &names.ranges[*index]);
                    let choices = ranges.map(|(_, low, high)| (*low, *high));
                    variant.choices.extend(choices.map(|(low, high)| Choice { low, high, option }));
                }
            }
            _ => unreachable!("only lists and variants refer to others"),
        }
        Ok(())
    }
}

/// An enumeration, and where in its ranges each label is.
fn by_label(names: Arc<Enumeration>) -> (Arc<Enumeration>, HashMap<String, Vec<usize>>) {
    let mut labels: HashMap<String, Vec<usize>> = HashMap::new();
    for (index, (label, ..)) in names.ranges.iter().enumerate() {
        labels.entry(label.clone()).or_default().push(index);
    }
    (names, labels)
}

/// Root and indexes of the field that `path`, written at `here`, means.
fn find(root: Root, here: &[usize], path: &[String], roots: &Roots) -> Option<(Root, Vec<usize>)> {
    let absolute =
        |begin: &[&str]| path.len() > begin.len() && path.iter().zip(begin).all(|(a, b)| a == b);
    if let Some((of, begin)) = ROOTS.iter().find(|(_, begin)| absolute(begin)) {
        let found = descend(roots[*of as usize].as_ref()?, &path[begin.len()..], usize::MAX)?;
        let before =
            *of < root || (*of == root && found.as_slice() < here && !here.starts_with(&found));
        return before.then_some((*of, found));
    }
    let own = roots[root as usize].as_ref()?;
    for depth in (0..here.len()).rev() {
        let (ancestors, index) = (&here[..depth], here[depth]);
        if let Some(found) = descend(walk(own, ancestors), path, index) {
            return Some((root, [ancestors, &found].concat()));
        }
    }
    let earlier = ROOTS.iter().rev().map(|(of, _)| *of).filter(|of| *of < root);
    earlier.into_iter().find_map(|of| {
        let found = descend(roots[of as usize].as_ref()?, path, usize::MAX)?;
        Some((of, found))
    })
}

/// Indexes of the field of this path in structures, its first part among the first `before` members.
fn descend(field: &Field, path: &[String], before: usize) -> Option<Vec<usize>> {
    let mut found = Vec::new();
    let mut field = field;
    for name in path {
        let limit = if found.is_empty() { before } else { usize::MAX };
        let Field::Structure(structure) = field else { return None };
        let index = structure.names.index(name).filter(|index| *index < limit)?;
        found.push(index);
        field = &structure.members[index].field;
    }
    Some(found)
}

fn walk<'a>(mut field: &'a Field, path: &[usize]) -> &'a Field {
    for index in path {
        field = match field {
            Field::Structure(structure) => &structure.members[*index].field,
            Field::Variant(variant) => &variant.options[*index].field,
            Field::List(list) => &list.element,
            _ => unreachable!("only these have fields in them"),
        };
    }
    field
}

fn field_at<'a>(root: &'a mut Option<Field>, path: &[usize]) -> &'a mut Field {
    let mut field = root.as_mut().expect("the path is of a field in it");
    for index in path {
        field = match field {
            Field::Structure(structure) => &mut structure.members[*index].field,
            Field::Variant(variant) => &mut variant.options[*index].field,
            Field::List(list) => &mut list.element,
            _ => unreachable!("only these have fields in them"),
        };
    }
    field
}

/// The integers of a field, with the names that they have in structures.
pub(super) fn integers(
    field: &mut Option<Field>,
    each: &mut impl FnMut(Option<&str>, &mut Integer),
) {
    fn go(
        name: Option<&str>,
        field: &mut Field,
        each: &mut impl FnMut(Option<&str>, &mut Integer),
    ) {
        match field {
            Field::Integer(integer) | Field::Enumeration(integer, _) => each(name, integer),
            Field::Float(_) | Field::String => {}
            Field::Structure(structure) => {
                for member in &mut structure.members {
                    go(Some(&member.name), &mut member.field, each);
                }
            }
            Field::Variant(variant) => {
                for option in &mut variant.options {
                    go(None, &mut option.field, each);
                }
            }
            Field::List(list) => go(None, &mut list.element, each),
        }
    }
    if let Some(field) = field {
        go(None, field, each);
    }
}

/// Gives the member `name` of a structure its role, if it is there; it must be unsigned.
pub(super) fn set_role(
    place: Place,
    field: &mut Option<Field>,
    name: &str,
    role: Role,
) -> Result<(), ParseError> {
    let Some(Field::Structure(structure)) = field else { return Ok(()) };
    let Some(member) = structure.members.iter_mut().find(|member| member.name == name) else {
        return Ok(());
    };
    let right = match (&mut member.field, role) {
        (Field::List(list), Role::Uuid) => match (&mut list.element, list.length) {
            (Field::Integer(integer), ListLength::Fixed(16)) if integer.size == 8 => Some(integer),
            _ => None,
        },
        (_, Role::Uuid) => None,
        (Field::Integer(integer) | Field::Enumeration(integer, _), _) => Some(integer),
        _ => None,
    };
    match right.filter(|integer| !integer.signed && (role != Role::Magic || integer.size == 32)) {
        Some(integer) => {
            integer.role = role;
            if role == Role::End {
                // The end is not reached where it is read.
                integer.clock = None;
            }
            Ok(())
        }
        // The specification names no type for these: another one is data.
        None if [Role::Cpu, Role::Compression, Role::Encryption].contains(&role) => Ok(()),
        None => Err(place.error(format!("the field {name} has not the type that it must have"))),
    }
}
