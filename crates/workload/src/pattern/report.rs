//! What was sent or received, by type.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use super::flow::{Flow, Part};
use super::receipts::Receipts;
use crate::result::report;

/// What a producer has done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) sent: u32,
    pub(crate) largest_late_ns: i64,
}

pub(crate) fn sent(part: &Part, flows: impl Iterator<Item = (Flow, Tally)>) -> Result<()> {
    let mut types: BTreeMap<u16, (u64, u64, i64)> = BTreeMap::new();
    for (flow, tally) in flows {
        let (producers, sent, late) = types.entry(flow.message_type).or_default();
        *producers += 1;
        *sent += u64::from(tally.sent);
        *late = (*late).max(tally.largest_late_ns);
    }
    let heads = ["type", "transport", "size", "period", "producers", "sent", "largest lateness"];
    let mut rows = Vec::new();
    let mut values = Vec::new();
    for (place, (producers, sent, late_ns)) in types {
        let each = &part.types[usize::from(place)];
        rows.push(vec![
            each.name.clone(),
            each.transport.name().to_owned(),
            format!("{} B", each.size),
            milliseconds(each.period_ns.cast_signed()),
            producers.to_string(),
            sent.to_string(),
            milliseconds(late_ns),
        ]);
        values.push(json!({
            "type": each.name, "producers": producers, "sent": sent, "largest_late_ns": late_ns,
        }));
    }
    let result = json!({"version": 1, "role": "produce", "name": part.name, "types": values});
    report(part.json, &result, table(&heads, &rows))
}

pub(crate) fn received<'a>(
    part: &Part,
    flows: impl Iterator<Item = (Flow, &'a Receipts)>,
    foreign: u64,
) -> Result<()> {
    let mut types: BTreeMap<u16, [u64; 4]> = BTreeMap::new();
    for (flow, receipts) in flows {
        let counts = types.entry(flow.message_type).or_default();
        let of_flow = [1, receipts.received, receipts.lost(), receipts.duplicates];
        for (count, more) in counts.iter_mut().zip(of_flow) {
            *count += more;
        }
    }
    let heads =
        ["type", "transport", "size", "period", "producers", "received", "lost", "duplicates"];
    let mut rows = Vec::new();
    let mut values = Vec::new();
    for (place, counts) in types {
        let each = &part.types[usize::from(place)];
        let [producers, received, lost, duplicates] = counts;
        let mut row = vec![
            each.name.clone(),
            each.transport.name().to_owned(),
            format!("{} B", each.size),
            milliseconds(each.period_ns.cast_signed()),
        ];
        row.extend(counts.map(|count| count.to_string()));
        rows.push(row);
        values.push(json!({
            "type": each.name, "producers": producers, "received": received, "lost": lost,
            "duplicates": duplicates,
        }));
    }
    let result = json!({
        "version": 1, "role": "consume", "name": part.name, "types": values, "foreign": foreign,
    });
    if foreign > 0 {
        eprintln!("warning: {foreign} datagrams were none of the table's");
    }
    report(part.json, &result, table(&heads, &rows))
}

/// Names to the left, numbers to the right.
fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    let widths: Vec<usize> = (0..heads.len())
        .map(|i| rows.iter().chain([&heads]).map(|row| row[i].len()).max().unwrap_or(0))
        .collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(i, (cell, width))| match i {
            0 | 1 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ")
    };
    [&heads].into_iter().chain(rows).map(line).collect::<Vec<_>>().join("\n")
}

fn milliseconds(ns: i64) -> String {
    let shown = Duration::from_nanos(ns.max(0).cast_unsigned()).as_secs_f64() * 1e3;
    format!("{} ms", (shown * 1e3).round() / 1e3)
}
