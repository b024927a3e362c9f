//! Lines of the protocol: what comes from the agent, checked, and what goes to it. No I/O.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::PhaseError;

/// The longest line either side may send, in bytes with its newline.
pub(crate) const LINE_LIMIT: usize = 64 * 1024;
/// The longest line from the agent, with its newline: a phase message names every component.
pub(crate) const AGENT_LINE_LIMIT: usize = 16 << 20;

/// Longest text of a `failed` message, in bytes: even escaped it fits into a line.
const ERROR_LIMIT: usize = 8 * 1024;

const VERSION: u64 = 1;

/// What the configuration counts as among the phases.
pub(crate) const CONFIGURE: &str = "configure";

/// Published by a program at the end of a phase: names with strings or numbers, in order.
pub type Values = Vec<(String, Value)>;

/// A phase that the agent has started.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// One of the names that the program gave.
    pub name: String,
    /// Whether the experiment is measured in this phase.
    pub measured: bool,
    /// Every component of the experiment by name; empty without an agent.
    pub peers: BTreeMap<String, Peer>,
}

/// A component of the experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Peer {
    /// The host that it runs on.
    pub host: String,
    /// The host's address on the data network.
    pub address: String,
    /// All addresses of the host there, IPv4 and IPv6, `address` first.
    pub addresses: Vec<String>,
    /// What it has published so far.
    pub values: Map<String, Value>,
}

/// A message of the agent.
#[derive(Debug, PartialEq)]
pub(crate) enum FromAgent {
    Configure {
        component: String,
        host: String,
        config: Map<String, Value>,
    },
    /// With the CLOCK_MONOTONIC at which it begins, where it does not at once.
    Phase(Phase, Option<i64>),
    End,
}

/// Reads one line without its newline.
pub(crate) fn read(line: &[u8]) -> Result<FromAgent, PhaseError> {
    let wrong = |what: String| {
        let start = String::from_utf8_lossy(&line[..line.len().min(120)]).into_owned();
        PhaseError::Protocol(format!("{what}: {start}"))
    };
    let mut message: Map<String, Value> = serde_json::from_slice(line)
        .map_err(|error| wrong(format!("a line that is not a JSON object ({error})")))?;
    let kind = text(&mut message, "type").map_err(&wrong)?;
    match kind.as_str() {
        "configure" => {
            let version = message.get("version").and_then(Value::as_u64);
            if version != Some(VERSION) {
                return Err(wrong(format!(
                    "a `configure` that is not of version {VERSION}, the one this program speaks"
                )));
            }
            Ok(FromAgent::Configure {
                component: text(&mut message, "component").map_err(&wrong)?,
                host: text(&mut message, "host").map_err(&wrong)?,
                config: object(&mut message, "config").map_err(&wrong)?,
            })
        }
        "phase" => {
            let name = text(&mut message, "phase").map_err(&wrong)?;
            let measured = message.get("measured").and_then(Value::as_bool);
            let measured =
                measured.ok_or_else(|| wrong("no true or false as `measured`".into()))?;
            let peers = object(&mut message, "peers").map_err(&wrong)?;
            let peers: Result<_, String> =
                peers.into_iter().map(|(name, value)| Ok((name, peer(value)?))).collect();
            let start_ns = match message.get("start_ns") {
                None => None,
                Some(start) => Some(
                    start.as_i64().ok_or_else(|| wrong("no whole number as `start_ns`".into()))?,
                ),
            };
            let phase = Phase { name, measured, peers: peers.map_err(&wrong)? };
            Ok(FromAgent::Phase(phase, start_ns))
        }
        "end" => Ok(FromAgent::End),
        other => Err(wrong(format!("a message of the unknown type `{other}`"))),
    }
}

fn peer(value: Value) -> Result<Peer, String> {
    let Value::Object(mut peer) = value else { return Err("a peer that is no object".into()) };
    let address = text(&mut peer, "address")?;
    Ok(Peer {
        host: text(&mut peer, "host")?,
        addresses: addresses(&mut peer, &address)?,
        address,
        values: object(&mut peer, "values")?,
    })
}

fn addresses(peer: &mut Map<String, Value>, address: &str) -> Result<Vec<String>, String> {
    let wrong = || "no list of strings as `addresses`".to_owned();
    match peer.remove("addresses") {
        None => Ok(vec![address.to_owned()]),
        Some(all) => serde_json::from_value(all).map_err(|_| wrong()),
    }
}

fn text(message: &mut Map<String, Value>, key: &str) -> Result<String, String> {
    match message.remove(key) {
        Some(Value::String(text)) => Ok(text),
        _ => Err(format!("no string as `{key}`")),
    }
}

fn object(message: &mut Map<String, Value>, key: &str) -> Result<Map<String, Value>, String> {
    match message.remove(key) {
        Some(Value::Object(object)) => Ok(object),
        _ => Err(format!("no object as `{key}`")),
    }
}

pub(crate) fn hello(phases: &[String]) -> Result<String, PhaseError> {
    let phases: Vec<String> = phases.iter().map(|p| quoted(p)).collect();
    line(format!(r#"{{"type":"hello","version":{VERSION},"phases":[{}]}}"#, phases.join(",")))
}

pub(crate) fn begun(phase: &str, at_ns: i64) -> Result<String, PhaseError> {
    line(format!(r#"{{"type":"begun","phase":{},"at_ns":{at_ns}}}"#, quoted(phase)))
}

pub(crate) fn done(phase: &str, values: &Values) -> Result<String, PhaseError> {
    if values.is_empty() {
        return line(format!(r#"{{"type":"done","phase":{}}}"#, quoted(phase)));
    }
    let mut members: Vec<String> = Vec::new();
    for (i, (name, value)) in values.iter().enumerate() {
        if !(value.is_string() || value.is_number()) {
            return Err(PhaseError::Misuse(format!(
                "cannot publish `{name}`: {value} is neither a string nor a finite number"
            )));
        }
        if values[..i].iter().any(|(earlier, _)| earlier == name) {
            return Err(PhaseError::Misuse(format!("cannot publish `{name}` twice in a phase")));
        }
        members.push(format!("{}:{value}", quoted(name)));
    }
    line(format!(
        r#"{{"type":"done","phase":{},"values":{{{}}}}}"#,
        quoted(phase),
        members.join(",")
    ))
}

pub(crate) fn failed(phase: &str, error: &str) -> Result<String, PhaseError> {
    let mut end = error.len().min(ERROR_LIMIT);
    while !error.is_char_boundary(end) {
        end -= 1;
    }
    let error = &error[..end];
    line(format!(r#"{{"type":"failed","phase":{},"error":{}}}"#, quoted(phase), quoted(error)))
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn line(mut text: String) -> Result<String, PhaseError> {
    text.push('\n');
    if text.len() > LINE_LIMIT {
        return Err(PhaseError::Misuse(format!(
            "a message to the agent may have {LINE_LIMIT} bytes, this one has {}",
            text.len()
        )));
    }
    Ok(text)
}
