//! What the tables of foreign traces have in common with all others of a run.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{
    Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array as _, ArrayRef, Int64Array, PrimitiveArray, UInt16Array, UInt32Array, new_null_array,
};
use arrow_schema::{DataType, Field};
use loopscope_ctf::FieldType;
use loopscope_ctf::tsdl::EnvValue;

use super::Source;
use crate::import::ImportError;
use crate::import::cells::Shape;
use crate::import::find::Trace;
use crate::import::frame::FileOf;
use crate::import::frame::{Frame, Rows};
use crate::table::dictionary;

/// What an event cannot name a column of its own.
const COMMON: [&str; 10] =
    ["ts", "err_ns", "counter", "host", "process", "pid", "tid", "cpu", "id", "entity_kind"];

/// Where tracers' contexts are, the closest to the event first.
const CONTEXTS: [&str; 3] = ["event_context", "stream_context", "packet_context"];

/// The columns of a run's tables.
pub(super) struct OnLine<'a> {
    sources: &'a [Source],
    files: Vec<FileOf>,
    /// For each trace its source, and its process if it has only one.
    traces: Vec<(usize, Option<u32>)>,
    taken: &'a BTreeSet<(String, String)>,
}

impl<'a> OnLine<'a> {
    pub fn new(
        sources: &'a [Source],
        traces: &[Trace],
        files: Vec<FileOf>,
        taken: &'a BTreeSet<(String, String)>,
    ) -> OnLine<'a> {
        let of = |trace: &Trace| (trace.source, process_of(trace));
        OnLine { sources, files, traces: traces.iter().map(of).collect(), taken }
    }
}

/// The process that a trace is of as a whole: LTTng's buffers may be each process's own.
fn process_of(trace: &Trace) -> Option<u32> {
    let entry = trace.layout.env.iter().find(|entry| entry.key == "vpid")?;
    match entry.value {
        EnvValue::Number(pid) => u32::try_from(pid).ok(),
        EnvValue::Text(_) => None,
    }
}

impl Frame for OnLine<'_> {
    fn reserves(&self, name: &str, shape: &Shape) -> bool {
        let is_id = name == "id" && *shape == Shape::Number(FieldType::I64);
        COMMON.contains(&name) && !is_id
    }

    /// An integer field `id` is the number that ties a message's events together.
    fn shape(&self, name: &str, shape: Shape) -> Shape {
        match shape {
            Shape::Number(FieldType::F32 | FieldType::F64) => shape,
            Shape::Number(_) if name == "id" => Shape::Number(FieldType::I64),
            other => other,
        }
    }

    fn has_table(&self, group: &str, name: &str) -> bool {
        self.taken.contains(&(group.to_owned(), name.to_owned()))
    }

    fn columns(
        &self,
        rows: Rows,
        own: &mut Vec<(String, ArrayRef)>,
    ) -> Result<Vec<(Field, ArrayRef)>, ImportError> {
        let count = rows.len();
        let of = |file: &usize| self.traces[self.files[*file].trace];
        let mut pid = number(own, &["vpid", "pid"], count);
        for (pid, file) in pid.iter_mut().zip(&rows.files) {
            *pid = pid.or(of(file).1);
        }
        let tid = number(own, &["vtid", "tid"], count);
        let host = dictionary(rows.files.iter().map(|file| &*self.sources[of(file).0].host))?;
        let process = dictionary(rows.files.iter().zip(&pid).map(|(file, pid)| {
            let source = &self.sources[of(file).0];
            let known = pid.and_then(|pid| source.processes.get(&pid));
            known.unwrap_or(&source.process).as_str()
        }))?;
        let cpu = rows.cpu.iter().map(|cpu| cpu.and_then(|cpu| u16::try_from(cpu).ok()));
        let id = own.iter().position(|(name, _)| name == "id").map(|index| own.remove(index).1);
        let columns: [(&str, ArrayRef, bool); 9] = [
            ("ts", Arc::new(Int64Array::from_iter(rows.ts)), false),
            ("err_ns", Arc::new(Int64Array::from(rows.err_ns)), false),
            ("counter", new_null_array(&DataType::UInt64, count), true),
            ("host", host, false),
            ("process", process, false),
            ("pid", Arc::new(UInt32Array::from(pid)), true),
            ("tid", Arc::new(UInt32Array::from(tid)), true),
            ("cpu", Arc::new(UInt16Array::from_iter(cpu)), true),
            ("id", id.unwrap_or_else(|| new_null_array(&DataType::Int64, count)), true),
        ];
        let column = |(name, array, null): (&str, ArrayRef, bool)| {
            (Field::new(name, array.data_type().clone(), null), array)
        };
        Ok(columns.into_iter().map(column).collect())
    }
}

/// A number that contexts have under one of these names.
fn number(own: &[(String, ArrayRef)], names: &[&str], count: usize) -> Vec<Option<u32>> {
    let mut found = vec![None; count];
    for context in CONTEXTS {
        let Some((_, array)) = own.iter().find(|(name, _)| name == context) else { continue };
        let Some(members) = array.as_struct_opt() else { continue };
        for name in names {
            let Some(values) = members.column_by_name(name).and_then(integers) else { continue };
            for (row, (found, value)) in found.iter_mut().zip(values).enumerate() {
                *found = found.or(value.filter(|_| members.is_valid(row)));
            }
        }
    }
    found
}

/// The values of an integer column that fit.
fn integers(array: &ArrayRef) -> Option<Vec<Option<u32>>> {
    macro_rules! of {
        ($($data:ident, $type:ty);*) => {
            match array.data_type() {
                $(DataType::$data => {
                    let values: &PrimitiveArray<$type> = array.as_primitive();
                    let fits = |value: Option<_>| value.and_then(|value| u32::try_from(value).ok());
                    Some(values.iter().map(fits).collect())
                })*
                _ => None,
            }
        };
    }
    of!(Int8, Int8Type; Int16, Int16Type; Int32, Int32Type; Int64, Int64Type;
        UInt8, UInt8Type; UInt16, UInt16Type; UInt32, UInt32Type; UInt64, UInt64Type)
}
