//! A CSV text to rows.

use csv::{Position, Trim};

use crate::check::{COLUMNS, unknown};
use crate::{Cell, Given, Problem, Row, problem};

pub(crate) fn rows(text: &str) -> Result<Vec<Row>, Vec<Problem>> {
    let text = text.trim_start_matches('\u{feff}');
    let mut reader = csv::ReaderBuilder::new()
        .comment(Some(b'#'))
        .trim(Trim::All)
        .flexible(true)
        .from_reader(text.as_bytes());
    let header = reader.headers().map_err(|error| vec![unreadable(text, &error)])?.clone();
    let line = line_of(text, header.position());
    let mut problems = Vec::new();
    for (i, name) in header.iter().enumerate() {
        if !COLUMNS.contains(&name) {
            problems.push(problem(line, 1, unknown(name)));
        } else if header.iter().take(i).any(|other| other == name) {
            problems.push(problem(line, 1, format!("the column `{name}` is given twice")));
        }
    }
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                problems.push(unreadable(text, &error));
                continue;
            }
        };
        let line = line_of(text, record.position());
        if record.len() != header.len() {
            problems.push(problem(
                line,
                1,
                format!(
                    "this line has {} cells, the first line {} names",
                    record.len(),
                    header.len()
                ),
            ));
            continue;
        }
        let cells = header.iter().zip(&record).filter(|(_, text)| !text.is_empty());
        let cell = |(key, text): (&str, &str)| Cell {
            key: key.to_owned(),
            line,
            column: 1,
            given: Given::Text(text.to_owned()),
        };
        rows.push(Row { line, column: 1, cells: cells.map(cell).collect() });
    }
    if problems.is_empty() { Ok(rows) } else { Err(problems) }
}

fn unreadable(text: &str, error: &csv::Error) -> Problem {
    problem(line_of(text, error.position()), 1, format!("not valid CSV: {error}"))
}

/// The line of a record. The reader's position is where the record before it ended: empty lines and
/// comments may lie between.
fn line_of(text: &str, position: Option<&Position>) -> usize {
    let Some(position) = position else { return 1 };
    let rest = text.get(position.byte() as usize..).unwrap_or_default();
    let none = |line: &&str| line.trim_end_matches('\r').is_empty() || line.starts_with('#');
    position.line() as usize + rest.split('\n').take_while(none).count()
}
