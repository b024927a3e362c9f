//! `loopscope-host net`: to links that are being emulated.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use loopscope_agent::control::{Found, Reply, Request, find};
use loopscope_agent::ledger;
use serde_json::{Map, Value};

/// Show or change links that are being emulated.
#[derive(clap::Args)]
pub struct Arguments {
    /// Of which router: its process number, or that of its agent [default: the only one there is]
    #[arg(long, value_name = "PID", global = true)]
    to: Option<u32>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Show what the links were asked for and what they have achieved so far
    Show {
        /// Print it as links.json has it under `links`
        #[arg(long)]
        json: bool,
    },
    /// Change some of a link's settings from now on; prints those in force
    Set {
        /// As in 'h2 -> h3'
        link: String,
        /// JSON, as in '{"delay_ns": 200000000}'; null is a setting's default
        change: String,
    },
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    match &arguments.verb {
        Verb::Show { json } => {
            let links = ask(arguments.to, &Request::Links)?;
            if *json {
                println!("{}", serde_json::to_string_pretty(&links)?);
            } else {
                let text: String = links.as_array().into_iter().flatten().map(shown).collect();
                std::io::stdout().write_all(text.as_bytes())?;
            }
        }
        Verb::Set { link, change } => {
            let Some((from, to)) = link.split_once("->") else {
                bail!("{link:?} is no link: write 'h2 -> h3', its two hosts");
            };
            let change: Map<String, Value> = serde_json::from_str(change)
                .with_context(|| format!("{change:?} is no object of settings in JSON"))?;
            let (from, to) = (from.trim().to_owned(), to.trim().to_owned());
            let settings = ask(arguments.to, &Request::SetLink { from, to, change })?;
            println!("{settings}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn ask(pid: Option<u32>, request: &Request) -> anyhow::Result<Value> {
    match router(pid)?.ask(request).context("the router does not answer")? {
        Reply::Links(answer) => Ok(answer),
        Reply::Refused(why) => bail!("{why}"),
        other => bail!("the router answered {other:?}; is it of another version?"),
    }
}

fn router(pid: Option<u32>) -> anyhow::Result<Found> {
    let state_dir = ledger::state_dir();
    let mut found = find(&state_dir)
        .with_context(|| format!("cannot look for routers in {}", state_dir.display()))?;
    found.retain(|found| found.description.kind == "links");
    if let Some(pid) = pid {
        found.retain(|found| found.description.pids.contains(&pid));
        if found.is_empty() {
            bail!("{pid} is no router of this user's");
        }
    }
    match found.len() {
        0 => bail!("no links are being emulated by this user"),
        1 => Ok(found.remove(0)),
        _ => {
            let name = |found: &Found| {
                let description = &found.description;
                format!("{} ({})", description.pids[0], description.what)
            };
            let names: Vec<_> = found.iter().map(name).collect();
            bail!("name one by --to and its process number: {}", names.join("; "))
        }
    }
}

/// The settings in force and what they have come to.
fn shown(link: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut lines = vec![format!("{} -> {}", text(&link["from"]), text(&link["to"]))];
    if let Some(now) = link["segments"].as_array().and_then(|segments| segments.last()) {
        lines.push(format!("  asked: {}", now["asked"]));
        lines
            .push(format!("  packets: {} in, {} out", now["in"]["packets"], now["out"]["packets"]));
        lines.push(format!("  dropped: {}", now["dropped"]));
        lines.push(format!("  delay: {}", time(&now["delay_ns"])));
        // Of what the kernel moves nobody knows it.
        if now["late_ns"]["p50"].is_null() == now["delay_ns"]["p50"].is_null() {
            lines.push(format!("  late: {}", time(&now["late_ns"])));
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn time(summary: &Value) -> String {
    let us = |key: &str| summary[key].as_f64().map(|ns| format!("{key} {:.1} us", ns / 1e3));
    let parts: Vec<_> = ["mean", "p50", "p99", "max"].into_iter().filter_map(us).collect();
    if parts.is_empty() { "of no packet yet".into() } else { parts.join(", ") }
}
