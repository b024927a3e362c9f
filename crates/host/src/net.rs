//! `loopscope-host net`: to links that are being emulated.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use loopscope_agent::control::{Description, Found, Reply, Request, find};
use loopscope_agent::ledger;
use serde_json::{Map, Value};

/// Show or change links that are being emulated.
#[derive(clap::Args)]
pub struct Arguments {
    /// Router to change: its run, by the end of its folder's name, or a process number
    /// [default: the only one there is]
    #[arg(long, value_name = "RUN", global = true)]
    to: Option<String>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Print what the links were asked for and what they have achieved so far, as links.json has it
    /// under `links`
    Show,
    /// Change some of a link's settings from now on; prints those in force
    Set {
        /// As in 'h2 -> h3'
        link: String,
        /// JSON, as in '{"delay_ns": 200000000}'; null is a setting's default
        change: String,
    },
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let of = arguments.to.as_deref();
    match &arguments.verb {
        Verb::Show => {
            let links = ask(of, &Request::Links)?;
            println!("{}", serde_json::to_string_pretty(&links)?);
        }
        Verb::Set { link, change } => {
            let Some((from, to)) = link.split_once("->") else {
                bail!("{link:?} is no link: write 'h2 -> h3', its two hosts");
            };
            let change: Map<String, Value> = serde_json::from_str(change)
                .with_context(|| format!("{change:?} is no object of settings in JSON"))?;
            let (from, to) = (from.trim().to_owned(), to.trim().to_owned());
            let settings = ask(of, &Request::SetLink { from, to, change })?;
            println!("{settings}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn ask(to: Option<&str>, request: &Request) -> anyhow::Result<Value> {
    match router(to)?.ask(request).context("the router does not answer")? {
        Reply::Links(answer) => Ok(answer),
        Reply::Refused(why) => bail!("{why}"),
        other => bail!("the router answered {other:?}; is it of another version?"),
    }
}

fn router(to: Option<&str>) -> anyhow::Result<Found> {
    let state_dir = ledger::state_dir();
    let mut found = find(&state_dir)
        .with_context(|| format!("cannot look for routers in {}", state_dir.display()))?;
    found.retain(|found| found.description.kind == "links");
    if let Some(to) = to {
        found.retain(|found| found.description.is_called(to));
        if found.is_empty() {
            bail!("{to} is no run with emulated links of this user's, nor one of their processes");
        }
    }
    match found.len() {
        0 => bail!("no links are being emulated by this user"),
        1 => Ok(found.remove(0)),
        _ => {
            let name = |found: &Found| {
                let Description { what, pids, .. } = &found.description;
                format!("{what} (process {})", pids[0])
            };
            let names: Vec<_> = found.iter().map(name).collect();
            bail!("name one by --to and its run: {}", names.join("; "))
        }
    }
}
