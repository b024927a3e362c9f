//! A YAML text to rows.

use saphyr::{MarkedYaml, ScanError, YamlData, YamlLoader};

use crate::{Cell, Given, Problem, Row, problem};

pub(crate) fn rows(text: &str) -> Result<Vec<Row>, Vec<Problem>> {
    let documents = load(text).map_err(|error| {
        let place = error.marker();
        vec![problem(place.line(), place.col() + 1, format!("not valid YAML: {}", error.info()))]
    })?;
    let Some(root) = documents.first() else { return Ok(Vec::new()) };
    let YamlData::Sequence(items) = &root.data else {
        return Err(vec![at(root, "a message table is a list of mappings, one per type")]);
    };
    let mut rows = Vec::new();
    let mut problems = Vec::new();
    for item in items {
        match row(item) {
            Ok(row) => rows.push(row),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() { Ok(rows) } else { Err(problems) }
}

fn load(text: &str) -> Result<Vec<MarkedYaml<'_>>, ScanError> {
    let mut loader = YamlLoader::<MarkedYaml>::default();
    // Scalars as written: `2` and `2ms` alike are text here.
    loader.early_parse(false);
    saphyr_parser::Parser::new_from_str(text).load(&mut loader, true)?;
    match loader.error() {
        Some(error) => Err(error.clone()),
        None => Ok(loader.into_documents()),
    }
}

fn row(item: &MarkedYaml) -> Result<Row, Problem> {
    let YamlData::Mapping(entries) = &item.data else {
        return Err(at(item, "a row of a message table is a mapping of columns to values"));
    };
    let mut cells = Vec::new();
    for (key, value) in entries {
        let given = match &value.data {
            YamlData::Sequence(items) => {
                Given::List(items.iter().map(scalar).collect::<Result<_, _>>()?)
            }
            _ => Given::Text(scalar(value)?),
        };
        let place = value.span.start;
        let (line, column) = (place.line(), place.col() + 1);
        cells.push(Cell { key: scalar(key)?, line, column, given });
    }
    let place = item.span.start;
    Ok(Row { line: place.line(), column: place.col() + 1, cells })
}

fn scalar(node: &MarkedYaml) -> Result<String, Problem> {
    match &node.data {
        YamlData::Representation(text, ..) => Ok(text.trim().to_owned()),
        _ => Err(at(node, "this should be a single value")),
    }
}

fn at(node: &MarkedYaml, message: &str) -> Problem {
    problem(node.span.start.line(), node.span.start.col() + 1, message)
}
