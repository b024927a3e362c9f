//! Tables as classes of CTF events: which fields a row has, and what metadata says of them.
//!
//! CTF has no null. A table has a class of events for each set of columns that rows have a value
//! in, all of one name: what is null is not there. Within lists, whose elements share one layout,
//! each member of a structure has a flag before it, `<name>_null`.

use std::fmt::Write as _;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, Field, Fields};

use crate::import::cells::free_name;

/// What the events' own context and header have.
pub(super) const APART: [&str; 4] = ["ts", "err_ns", "host", "process"];

/// The columns of a table that are fields of its events.
#[derive(Default)]
pub(super) struct Layout {
    /// Index and field.
    columns: Vec<(usize, Field)>,
}

/// A column that CTF has nothing for.
#[derive(Debug, thiserror::Error)]
#[error("the column {name} is {data}, which CTF has nothing for")]
pub struct NoField {
    name: String,
    data: DataType,
}

impl Layout {
    pub fn of(fields: &Fields) -> Result<Layout, NoField> {
        let own = fields.iter().enumerate().filter(|(_, f)| !APART.contains(&f.name().as_str()));
        let columns: Vec<(usize, Field)> = own.map(|(i, f)| (i, f.as_ref().clone())).collect();
        for (_, field) in &columns {
            check(field)?;
        }
        Ok(Layout { columns })
    }

    /// The values that a row has, for [`Self::declare`] and to find its class.
    pub fn present(&self, arrays: &[ArrayRef], row: usize, bits: &mut Vec<bool>) {
        for (index, _) in &self.columns {
            present(&arrays[*index], row, bits);
        }
    }

    /// The row's values.
    pub fn put(&self, arrays: &[ArrayRef], row: usize, out: &mut Vec<u8>) {
        for (index, _) in &self.columns {
            if arrays[*index].is_valid(row) {
                put(&arrays[*index], row, out);
            }
        }
    }

    /// The fields of rows that have these values, as metadata's members of a structure.
    pub fn declare(&self, bits: &[bool]) -> String {
        let fields = self.columns.iter().map(|(_, field)| field);
        let mut text = String::new();
        members(fields, &mut bits.iter(), 2, &mut text);
        text
    }
}

fn check(field: &Field) -> Result<(), NoField> {
    match field.data_type() {
        DataType::Struct(inside) => inside.iter().try_for_each(|field| check(field)),
        DataType::List(element) => check(element),
        DataType::Binary | DataType::Boolean => Ok(()),
        data if is_text(data) => Ok(()),
        data if number(data).is_some() => Ok(()),
        data => Err(NoField { name: field.name().clone(), data: data.clone() }),
    }
}

/// The alias of a number.
fn number(data: &DataType) -> Option<&'static str> {
    Some(match data {
        DataType::UInt8 | DataType::Boolean => "uint8_t",
        DataType::UInt16 => "uint16_t",
        DataType::UInt32 => "uint32_t",
        DataType::UInt64 => "uint64_t",
        DataType::Int8 => "int8_t",
        DataType::Int16 => "int16_t",
        DataType::Int32 => "int32_t",
        DataType::Int64 => "int64_t",
        DataType::Float32 => "float32_t",
        DataType::Float64 => "float64_t",
        _ => return None,
    })
}

fn present(array: &ArrayRef, row: usize, bits: &mut Vec<bool>) {
    let valid = array.is_valid(row);
    bits.push(valid);
    if let (true, Some(group)) = (valid, array.as_struct_opt()) {
        for member in group.columns() {
            present(member, row, bits);
        }
    }
}

/// A value that is not null.
fn put(array: &ArrayRef, row: usize, out: &mut Vec<u8>) {
    macro_rules! bytes {
        ($type:ty) => {
            out.extend_from_slice(&array.as_primitive::<$type>().value(row).to_le_bytes())
        };
    }
    match array.data_type() {
        DataType::UInt8 => bytes!(UInt8Type),
        DataType::UInt16 => bytes!(UInt16Type),
        DataType::UInt32 => bytes!(UInt32Type),
        DataType::UInt64 => bytes!(UInt64Type),
        DataType::Int8 => bytes!(Int8Type),
        DataType::Int16 => bytes!(Int16Type),
        DataType::Int32 => bytes!(Int32Type),
        DataType::Int64 => bytes!(Int64Type),
        DataType::Float32 => bytes!(Float32Type),
        DataType::Float64 => bytes!(Float64Type),
        DataType::Boolean => out.push(array.as_boolean().value(row).into()),
        DataType::Utf8 | DataType::Dictionary(..) => put_text(text(array, row), out),
        DataType::Binary => {
            let value = array.as_binary::<i32>().value(row);
            out.extend_from_slice(&(value.len() as u32).to_le_bytes());
            out.extend_from_slice(value);
        }
        DataType::Struct(_) => {
            for member in array.as_struct().columns() {
                if member.is_valid(row) {
                    put(member, row, out);
                }
            }
        }
        DataType::List(_) => put_list(&array.as_list::<i32>().value(row), out),
        other => unreachable!("{other} was refused"),
    }
}

/// A list: its length, then its elements, which are never null but for the members of structures.
fn put_list(elements: &ArrayRef, out: &mut Vec<u8>) {
    out.extend_from_slice(&(elements.len() as u32).to_le_bytes());
    for row in 0..elements.len() {
        put_element(elements, row, out);
    }
}

fn put_element(array: &ArrayRef, row: usize, out: &mut Vec<u8>) {
    match array.data_type() {
        DataType::Struct(_) => {
            for member in array.as_struct().columns() {
                out.push(member.is_null(row).into());
                put_element(member, row, out);
            }
        }
        DataType::List(_) => put_list(&array.as_list::<i32>().value(row), out),
        // What a flag before it calls null has some value.
        DataType::Utf8 | DataType::Dictionary(..) if array.is_null(row) => put_text("", out),
        _ => put(array, row, out),
    }
}

/// Whether [`text`] reads such a column.
pub(super) fn is_text(data: &DataType) -> bool {
    match data {
        DataType::Dictionary(key, value) => **key == DataType::Int32 && **value == DataType::Utf8,
        data => *data == DataType::Utf8,
    }
}

/// A text of a plain or a dictionary's column.
pub(super) fn text(array: &ArrayRef, row: usize) -> &str {
    match array.as_dictionary_opt::<Int32Type>() {
        Some(dictionary) => {
            let key = dictionary.key(row).unwrap_or_default();
            dictionary.values().as_string::<i32>().value(key)
        }
        None => array.as_string::<i32>().value(row),
    }
}

/// A text and the NUL that ends it; one within it is U+2400.
pub(super) fn put_text(text: &str, out: &mut Vec<u8>) {
    if text.contains('\0') {
        out.extend_from_slice(text.replace('\0', "\u{2400}").as_bytes());
    } else {
        out.extend_from_slice(text.as_bytes());
    }
    out.push(0);
}

/// The members of a structure that are there, each on a line.
fn members<'a>(
    fields: impl Iterator<Item = &'a Field> + Clone,
    bits: &mut std::slice::Iter<bool>,
    depth: usize,
    out: &mut String,
) {
    let mut taken = names(fields.clone());
    for (field, name) in fields.zip(taken.clone()) {
        if !*bits.next().expect("there is one for each column") {
            continue;
        }
        match field.data_type() {
            DataType::Struct(inside) => {
                let _ = writeln!(out, "{:\t<depth$}struct {{", "");
                members(inside.iter().map(AsRef::as_ref), bits, depth + 1, out);
                let _ = writeln!(out, "{:\t<depth$}}} _{name};", "");
            }
            _ => declare(field, &name, &mut taken, depth, out),
        }
    }
}

/// The fields' names as identifiers, each once. In metadata each gets the underscore that keeps it
/// apart from keywords; one with an underscore of its own babeltrace2 takes for another field's.
fn names<'a>(fields: impl Iterator<Item = &'a Field>) -> Vec<String> {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let mut taken = Vec::new();
    for field in fields {
        let wanted: String = field.name().chars().map(plain).collect();
        free(wanted.trim_start_matches('_'), &mut taken);
    }
    taken
}

/// Takes a name that nobody has.
fn free(wanted: &str, taken: &mut Vec<String>) -> String {
    let name = free_name(wanted, |name| taken.iter().any(|other| other == name));
    taken.push(name.clone());
    name
}

/// A field that is all there.
fn declare(field: &Field, name: &str, taken: &mut Vec<String>, depth: usize, out: &mut String) {
    let element = match field.data_type() {
        DataType::List(element) => element.as_ref().clone(),
        DataType::Binary => Field::new("item", DataType::UInt8, false),
        data => {
            let kind = number(data).unwrap_or("string");
            let _ = writeln!(out, "{:\t<depth$}{kind} _{name};", "");
            return;
        }
    };
    let length = free(&format!("{name}_length"), taken);
    let _ = writeln!(out, "{:\t<depth$}uint32_t _{length};", "");
    match element.data_type() {
        DataType::Struct(inside) => {
            let _ = writeln!(out, "{:\t<depth$}struct {{", "");
            flagged(inside, depth + 1, out);
            let _ = writeln!(out, "{:\t<depth$}}} _{name}[_{length}];", "");
        }
        DataType::List(_) | DataType::Binary => {
            let _ = writeln!(out, "{:\t<depth$}struct {{", "");
            declare(&element, "item", &mut vec!["item".into()], depth + 1, out);
            let _ = writeln!(out, "{:\t<depth$}}} _{name}[_{length}];", "");
        }
        data => {
            let kind = number(data).unwrap_or("string");
            let _ = writeln!(out, "{:\t<depth$}{kind} _{name}[_{length}];", "");
        }
    }
}

/// The members of a list's structures, each behind its flag.
fn flagged(fields: &Fields, depth: usize, out: &mut String) {
    let fields = fields.iter().map(AsRef::as_ref);
    let mut taken = names(fields.clone());
    for (field, name) in fields.zip(taken.clone()) {
        let flag = free(&format!("{name}_null"), &mut taken);
        let _ = writeln!(out, "{:\t<depth$}uint8_t _{flag};", "");
        match field.data_type() {
            DataType::Struct(inside) => {
                let _ = writeln!(out, "{:\t<depth$}struct {{", "");
                flagged(inside, depth + 1, out);
                let _ = writeln!(out, "{:\t<depth$}}} _{name};", "");
            }
            _ => declare(field, &name, &mut taken, depth, out),
        }
    }
}
