//! A column of any type while it grows, and as Arrow.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::builder::BooleanBufferBuilder;
use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BooleanArray, DictionaryArray, Int32Array, ListArray, StringArray, StructArray,
};
use arrow_schema::{ArrowError, Field as ArrowField, Fields};
use loopscope_ctf::FieldType;
use loopscope_ctf::decode::Columns;
use loopscope_ctf::tsdl::{Enumeration, Field, Integer, Member, Role};

use crate::column::numbers;

/// What a column holds, apart from how it lies in the stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shape {
    /// Nothing: what is for the reader of packets.
    Skip,
    Number(FieldType),
    /// A value and its label.
    Labelled(FieldType, Arc<Enumeration>),
    Text,
    /// A structure, or a variant of which one option is not null.
    Group(Vec<(String, Shape)>),
    List(Box<Shape>),
}

impl Shape {
    pub fn of(field: &Field) -> Shape {
        match field {
            Field::Integer(integer) if integer.role != Role::Data => Shape::Skip,
            Field::Integer(integer) => Shape::Number(number(integer)),
            Field::Enumeration(integer, names) => Shape::Labelled(number(integer), names.clone()),
            Field::Float(float) => {
                Shape::Number(if float.size == 32 { FieldType::F32 } else { FieldType::F64 })
            }
            Field::String => Shape::Text,
            Field::Structure(structure) => Shape::Group(members(&structure.members)),
            Field::Variant(variant) => Shape::Group(members(&variant.options)),
            Field::List(list) if list.text => Shape::Text,
            Field::List(list) => Shape::List(Box::new(Shape::of(&list.element))),
        }
    }

    /// Whether there is anything to keep.
    pub fn is_kept(&self) -> bool {
        match self {
            Shape::Skip => false,
            Shape::Group(members) => {
                members.is_empty() || members.iter().any(|(_, shape)| shape.is_kept())
            }
            _ => true,
        }
    }

    /// Columns in it.
    pub fn width(&self) -> usize {
        match self {
            Shape::Group(members) => members.iter().map(|(_, shape)| shape.width()).sum(),
            Shape::List(element) => 1 + element.width(),
            _ => 1,
        }
    }
}

/// The smallest type of a table that holds the integer.
fn number(integer: &Integer) -> FieldType {
    match (integer.size, integer.signed) {
        (..=8, false) => FieldType::U8,
        (..=16, false) => FieldType::U16,
        (..=32, false) => FieldType::U32,
        (_, false) => FieldType::U64,
        (..=8, true) => FieldType::I8,
        (..=16, true) => FieldType::I16,
        (..=32, true) => FieldType::I32,
        (_, true) => FieldType::I64,
    }
}

fn members(members: &[Member]) -> Vec<(String, Shape)> {
    let mut found: Vec<(String, Shape)> = Vec::new();
    for member in members {
        let taken = |name: &str| found.iter().any(|(other, _)| other == name);
        let name = free_name(member.plain_name(), taken);
        found.push((name, Shape::of(&member.field)));
    }
    found
}

/// `wanted`, or the first of `wanted_2`, `wanted_3`, … that is not taken.
pub(crate) fn free_name(wanted: &str, taken: impl Fn(&str) -> bool) -> String {
    let numbered = (2..).map(|number| format!("{wanted}_{number}"));
    let mut names = std::iter::once(wanted.to_owned()).chain(numbered);
    names.find(|name| !taken(name)).expect("names do not end")
}

/// A growing column.
pub(crate) struct Cells {
    rows: usize,
    /// Validity by row; `None`: every row has a value.
    valid: Option<BooleanBufferBuilder>,
    data: Data,
    /// Texts that are not UTF-8; what is wrong in them was replaced.
    not_utf8: u64,
}

enum Data {
    Skip,
    Numbers(FieldType, Vec<u64>),
    Labelled(FieldType, Arc<Enumeration>, Vec<u64>),
    /// The ends of the texts, and they.
    Text(Vec<usize>, String),
    Group(Vec<(String, Cells)>),
    /// The ends of the lists, and their elements.
    List(Vec<usize>, Box<Cells>),
}

impl Cells {
    pub fn new(shape: &Shape) -> Cells {
        let data = match shape {
            Shape::Skip => Data::Skip,
            Shape::Number(number) => Data::Numbers(*number, Vec::new()),
            Shape::Labelled(number, names) => Data::Labelled(*number, names.clone(), Vec::new()),
            Shape::Text => Data::Text(Vec::new(), String::new()),
            Shape::Group(members) => {
                let member = |(name, shape): &(String, Shape)| (name.clone(), Cells::new(shape));
                Data::Group(members.iter().map(member).collect())
            }
            Shape::List(element) => Data::List(Vec::new(), Box::new(Cells::new(element))),
        };
        Cells { rows: 0, valid: None, data, not_utf8: 0 }
    }

    /// Makes null what is missing to so many rows.
    pub fn pad(&mut self, rows: usize) {
        if self.rows >= rows {
            return;
        }
        let missing = rows - self.rows;
        let valid = self.valid.get_or_insert_with(|| {
            let mut valid = BooleanBufferBuilder::new(rows);
            valid.append_n(self.rows, true);
            valid
        });
        valid.append_n(missing, false);
        self.rows = rows;
        match &mut self.data {
            Data::Skip | Data::Group(_) => {}
            Data::Numbers(_, bits) | Data::Labelled(_, _, bits) => bits.resize(rows, 0),
            Data::Text(ends, text) => ends.resize(rows, text.len()),
            Data::List(ends, _) => ends.resize(rows, ends.last().copied().unwrap_or(0)),
        }
    }

    fn add_row(&mut self) {
        self.rows += 1;
        if let Some(valid) = &mut self.valid {
            valid.append(true);
        }
    }

    fn push(&mut self, bits: u64) {
        match &mut self.data {
            Data::Numbers(_, all) | Data::Labelled(_, _, all) => all.push(bits),
            _ => {}
        }
        self.add_row();
    }

    /// See [`Cells::not_utf8`], of all in it.
    pub fn not_utf8(&self) -> u64 {
        let inside = match &self.data {
            Data::Group(members) => members.iter().map(|(_, cells)| cells.not_utf8()).sum(),
            Data::List(_, element) => element.not_utf8(),
            _ => 0,
        };
        self.not_utf8 + inside
    }

    /// With `rows` rows, what is beyond them cut; `None` if it holds nothing.
    pub fn into_array(mut self, rows: usize) -> Result<Option<ArrayRef>, ArrowError> {
        self.pad(rows);
        let all = self.rows;
        Ok(self.whole_array(all)?.map(|array| array.slice(0, rows)))
    }

    fn whole_array(self, rows: usize) -> Result<Option<ArrayRef>, ArrowError> {
        let mut valid = self.valid;
        let mut nulls = || valid.as_mut().map(|valid| valid.finish().into());
        Ok(Some(match self.data {
            Data::Skip => return Ok(None),
            Data::Numbers(number, bits) => array(number, &bits, nulls()),
            Data::Labelled(number, names, bits) => labelled(number, &names, &bits, nulls())?,
            Data::Text(ends, text) => {
                Arc::new(StringArray::try_new(offsets(&ends)?, text.into_bytes().into(), nulls())?)
            }
            Data::Group(members) => {
                let (mut fields, mut arrays) = (Vec::new(), Vec::new());
                for (name, cells) in members {
                    if let Some(array) = cells.into_array(rows)? {
                        fields.push(ArrowField::new(name, array.data_type().clone(), true));
                        arrays.push(array);
                    }
                }
                if arrays.is_empty() {
                    // Parquet has no structures without members: that it is there is all it says.
                    Arc::new(BooleanArray::new(vec![true; rows].into(), nulls()))
                } else {
                    Arc::new(StructArray::try_new(Fields::from(fields), arrays, nulls())?)
                }
            }
            Data::List(ends, element) => {
                // Fewer elements than announced have come if a list was cut off.
                let count = element.rows.max(ends.last().copied().unwrap_or(0));
                let Some(values) = element.into_array(count)? else { return Ok(None) };
                let field = ArrowField::new_list_field(values.data_type().clone(), true);
                Arc::new(ListArray::try_new(field.into(), offsets(&ends)?, values, nulls())?)
            }
        }))
    }
}

type Nulls = Option<arrow_buffer::NullBuffer>;

fn array(number: FieldType, bits: &[u64], nulls: Nulls) -> ArrayRef {
    match nulls {
        None => numbers(number, bits, std::iter::repeat_n(true, bits.len())),
        Some(nulls) => numbers(number, bits, nulls.iter()),
    }
}

fn offsets(ends: &[usize]) -> Result<arrow_buffer::OffsetBuffer<i32>, ArrowError> {
    let mut offsets = Vec::with_capacity(ends.len() + 1);
    offsets.push(0);
    for end in ends {
        offsets.push(i32::try_from(*end).map_err(|_| ArrowError::OffsetOverflowError(*end))?);
    }
    Ok(arrow_buffer::OffsetBuffer::new(offsets.into()))
}

/// `value` and `label`: several labels of one value with ` | ` between them, none where it has
/// none.
fn labelled(
    number: FieldType,
    names: &Enumeration,
    bits: &[u64],
    nulls: Nulls,
) -> Result<ArrayRef, ArrowError> {
    let signed = matches!(number, FieldType::I8 | FieldType::I16 | FieldType::I32 | FieldType::I64);
    let mut known: HashMap<u64, Option<i32>> = HashMap::new();
    let mut labels: Vec<String> = Vec::new();
    let mut keys = Vec::with_capacity(bits.len());
    for &bits in bits {
        let key = *known.entry(bits).or_insert_with(|| {
            let value = if signed { i128::from(bits.cast_signed()) } else { i128::from(bits) };
            let of_value: Vec<&str> = names.labels(value).collect();
            (!of_value.is_empty()).then(|| {
                labels.push(of_value.join(" | "));
                (labels.len() - 1) as i32
            })
        });
        keys.push(key);
    }
    let labels = StringArray::from(labels);
    let label = DictionaryArray::<Int32Type>::try_new(Int32Array::from(keys), Arc::new(labels))?;
    let value = array(number, bits, None);
    let fields = vec![
        ArrowField::new("value", value.data_type().clone(), true),
        ArrowField::new("label", arrow_array::Array::data_type(&label).clone(), true),
    ];
    let arrays: Vec<ArrayRef> = vec![value, Arc::new(label)];
    Ok(Arc::new(StructArray::try_new(Fields::from(fields), arrays, nulls)?))
}

impl Columns for Cells {
    fn integer(&mut self, value: u64) {
        self.push(value);
    }

    fn float(&mut self, value: f64) {
        self.push(match self.data {
            Data::Numbers(FieldType::F32, _) => u64::from((value as f32).to_bits()),
            _ => value.to_bits(),
        });
    }

    fn text(&mut self, bytes: &[u8]) {
        let valid = String::from_utf8_lossy(bytes);
        self.not_utf8 += u64::from(matches!(valid, Cow::Owned(_)));
        if let Data::Text(ends, text) = &mut self.data {
            text.push_str(&valid);
            ends.push(text.len());
        }
        self.add_row();
    }

    fn member(&mut self, index: usize) -> &mut Cells {
        match &mut self.data {
            Data::Group(members) => {
                let member = &mut members[index].1;
                member.pad(self.rows);
                member
            }
            _ => unreachable!("only structures have members"),
        }
    }

    fn end_structure(&mut self) {
        self.add_row();
    }

    fn option(&mut self, index: usize) -> &mut Cells {
        let row = self.rows;
        self.add_row();
        match &mut self.data {
            Data::Group(options) => {
                let option = &mut options[index].1;
                option.pad(row);
                option
            }
            _ => unreachable!("only variants have options"),
        }
    }

    fn list(&mut self, count: u64) -> &mut Cells {
        self.add_row();
        match &mut self.data {
            Data::List(ends, element) => {
                // The decoder has seen that there are so many.
                ends.push(ends.last().copied().unwrap_or(0) + count as usize);
                element
            }
            _ => unreachable!("only lists have elements"),
        }
    }
}
