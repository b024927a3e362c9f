//! A message table as one program sees it: the flows that it sends or receives.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use loopscope_messages::{MessageType, Problem, read};
use loopscope_phase::Config;
use serde_json::Value;

use super::args::TableArgs;
use super::id::Id;
use crate::settings::Settings;

/// The settings of both sides.
pub(crate) const TABLE_KEYS: [&str; 3] = ["table", "scale", "json"];

/// The most that multiply the producers of a type.
const SCALE_LIMIT: u64 = 1000;

/// The messages of one producer of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flow {
    pub(crate) message_type: u16,
    pub(crate) producer: u16,
}

impl Flow {
    pub(crate) fn id(self, number: u32) -> Id {
        Id { message_type: self.message_type, producer: self.producer, number }
    }
}

impl From<Id> for Flow {
    fn from(id: Id) -> Flow {
        Flow { message_type: id.message_type, producer: id.producer }
    }
}

/// A table, and whose part in it this program plays.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) types: Vec<MessageType>,
    pub(crate) name: String,
    /// The table's file, for people.
    file: String,
    scale: usize,
    /// Whether the result is printed as JSON.
    pub(crate) json: bool,
}

impl Part {
    pub(crate) fn read(
        args: &TableArgs,
        settings: &Settings,
        config: &Config,
        component: Option<&str>,
    ) -> Result<Part> {
        let scale = settings.number("scale", args.scale, 1, SCALE_LIMIT)? as usize;
        let name = component.map(str::to_owned).or_else(|| args.name.clone());
        let name = name.context("there is no name: say by --as whose part in the table to play")?;
        let (file, text) = match (config.get("table"), &args.table) {
            (Some(given), _) => content(given)?,
            (None, Some(file)) => (file.display().to_string(), read_file(file)?),
            (None, None) => {
                bail!(
                    "there is no message table: give one by --table or `with: {{table: {{file: NAME}}}}`"
                )
            }
        };
        let types = read(&text, &file).map_err(|problems| refusal(&file, &problems))?;
        for each in &types {
            ensure!(
                each.producers.len() * scale <= usize::from(u16::MAX),
                "{file}:{}: `{}` has more producers than {}",
                each.line,
                each.name,
                u16::MAX
            );
        }
        let json = settings.switch("json", args.json)?;
        Ok(Part { types, name, file, scale, json })
    }

    pub(crate) fn message_type(&self, flow: Flow) -> &MessageType {
        &self.types[usize::from(flow.message_type)]
    }

    /// What this program sends.
    pub(crate) fn produced(&self) -> Result<Vec<Flow>> {
        let mut flows = Vec::new();
        for (message_type, each) in (0..).zip(&self.types) {
            if let Some(place) = each.producers.iter().position(|name| *name == self.name) {
                let producers = place * self.scale..(place + 1) * self.scale;
                flows.extend(producers.map(|n| Flow { message_type, producer: n as u16 }));
            }
        }
        ensure!(!flows.is_empty(), "`{}` produces nothing in {}", self.name, self.file);
        Ok(flows)
    }

    /// What this program receives.
    pub(crate) fn consumed(&self) -> Result<Vec<Flow>> {
        let mut flows = Vec::new();
        for (message_type, each) in (0..).zip(&self.types) {
            if each.consumers.contains(&self.name) {
                let producers = 0..each.producers.len() * self.scale;
                flows.extend(producers.map(|n| Flow { message_type, producer: n as u16 }));
            }
        }
        ensure!(!flows.is_empty(), "`{}` consumes nothing in {}", self.name, self.file);
        Ok(flows)
    }
}

/// A file's name and text, as the desk hands them over.
fn content(given: &Value) -> Result<(String, String)> {
    let text = |key| given.get(key).and_then(Value::as_str).map(str::to_owned);
    match (text("file"), text("text")) {
        (Some(file), Some(text)) => Ok((file, text)),
        _ => bail!(
            "`table` is {given}; write `table: {{file: NAME}}` for a file beside the experiment"
        ),
    }
}

fn read_file(file: &Path) -> Result<String> {
    std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the message table {}", file.display()))
}

fn refusal(file: &str, problems: &[Problem]) -> anyhow::Error {
    let lines: Vec<String> = problems.iter().map(|each| format!("{file}:{each}")).collect();
    anyhow!("{}", lines.join("\n"))
}
