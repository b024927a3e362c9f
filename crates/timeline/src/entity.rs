//! What the programs say of their entities: `tables/entities.parquet`.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt32Array};
use arrow_schema::ArrowError;
use loopscope_ctf::{Buckets, EventClass, Kind};

/// What the classes of one entity and kind have in common.
#[derive(Default)]
struct Facts {
    unit: String,
    description: String,
    histogram: Option<Buckets>,
}

/// All entities.
#[derive(Default)]
pub(crate) struct Entities {
    facts: BTreeMap<(String, String, Kind), Facts>,
    groups: BTreeMap<String, String>,
}

impl Entities {
    /// Takes what a class says, where no earlier one said it. Another unit and other buckets than an
    /// earlier one's are returned, in words: they make values that must not be compared.
    pub fn add(&mut self, class: &EventClass) -> Vec<String> {
        let key = (class.group.clone(), class.name.clone(), class.kind);
        let facts = self.facts.entry(key).or_default();
        let mut conflicts = Vec::new();
        for (known, said) in
            [(&mut facts.unit, &class.unit), (&mut facts.description, &class.description)]
        {
            if known.is_empty() {
                known.clone_from(said);
            }
        }
        if !class.unit.is_empty() && facts.unit != class.unit {
            let (said, known) = (&class.unit, &facts.unit);
            conflicts.push(format!("unit {said:?}, an earlier call site has {known:?}"));
        }
        facts.histogram = facts.histogram.or(class.histogram);
        if class.histogram != facts.histogram {
            conflicts.push("other buckets than an earlier call site".into());
        }
        conflicts
    }

    /// Takes the description of a group, if no earlier one described it.
    pub fn add_group(&mut self, group: &str, description: &str) {
        self.groups.entry(group.to_owned()).or_insert_with(|| description.to_owned());
    }

    /// The table of those that `has_rows` (`group:name`).
    pub fn table(&self, has_rows: impl Fn(&str) -> bool) -> Result<RecordBatch, ArrowError> {
        let text = |text: &String| (!text.is_empty()).then(|| text.clone());
        let (mut entity, mut kind, mut unit) = (Vec::new(), Vec::new(), Vec::new());
        let (mut description, mut group_description) = (Vec::new(), Vec::new());
        let (mut low, mut high, mut buckets) = (Vec::new(), Vec::new(), Vec::new());
        for ((group, name, of), facts) in &self.facts {
            let full = format!("{group}:{name}");
            if !has_rows(&full) {
                continue;
            }
            entity.push(full);
            kind.push(of.name());
            unit.push(text(&facts.unit));
            description.push(text(&facts.description));
            group_description.push(self.groups.get(group).and_then(text));
            let linear = match facts.histogram {
                Some(Buckets::Linear { low, high, count }) => Some((low, high, count)),
                Some(Buckets::Log) | None => None,
            };
            low.push(linear.map(|(low, ..)| low));
            high.push(linear.map(|(_, high, _)| high));
            buckets.push(linear.map(|(.., count)| count));
        }
        RecordBatch::try_from_iter_with_nullable([
            ("entity", Arc::new(StringArray::from(entity)) as ArrayRef, false),
            ("kind", Arc::new(StringArray::from(kind)), false),
            ("unit", Arc::new(StringArray::from(unit)), true),
            ("description", Arc::new(StringArray::from(description)), true),
            ("group_description", Arc::new(StringArray::from(group_description)), true),
            ("low", Arc::new(Int64Array::from(low)), true),
            ("high", Arc::new(Int64Array::from(high)), true),
            ("buckets", Arc::new(UInt32Array::from(buckets)), true),
        ])
    }
}
