//! `loopscope-host trigger`, `enable` and `disable`: to recordings that go on.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use loopscope_agent::control::{Found, Reply, Request, find};
use loopscope_agent::ledger;

/// Write the flight recorders of a recording or a run, as if one of their triggers had come.
#[derive(clap::Args)]
pub struct Trigger {
    /// Target: the run, by the end of its folder's name, or the process number of a recording, a
    /// run or a program that was attached to [default: the only one there is]
    #[arg(value_name = "PID")]
    pid: Option<String>,
    /// Only this flight recorder [default: all]
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
    /// Print {"triggered": …, "recording": …}
    #[arg(long)]
    json: bool,
}

/// Record entities from now on in a recording that goes on.
#[derive(clap::Args)]
pub struct Choose {
    /// Patterns on group:name
    #[arg(value_name = "GLOB", required = true)]
    patterns: Vec<String>,
    /// Target: the process number of the recording or of the program that was attached to
    /// [default: the only one there is]
    #[arg(long, value_name = "PID")]
    to: Option<String>,
    /// Stream that gets the entities
    #[arg(long, value_name = "NAME", default_value = "main")]
    stream: String,
    /// Print {"recording": …, "unmatched": […]}
    #[arg(long)]
    json: bool,
}

pub fn trigger(arguments: &Trigger) -> anyhow::Result<ExitCode> {
    let all = with(|found| !found.description.flight_recorders.is_empty())?;
    let found = select(all, arguments.pid.as_deref(), "flight recorders")?;
    if let Some(stream) = &arguments.stream {
        let known = &found[0].description.flight_recorders;
        if !known.contains(stream) {
            bail!("there is no flight recorder {stream:?} (there are: {})", known.join(", "));
        }
    }
    let mut any = false;
    for each in &found {
        match each.ask(&Request::Trigger { stream: arguments.stream.clone() })? {
            Reply::Triggered(triggered) => any |= triggered,
            other => bail!("{}", refusal(other)),
        }
    }
    let what = name(&found[0]);
    if arguments.json {
        println!("{}", serde_json::json!({"triggered": any, "recording": found[0].description}));
    } else if any {
        println!("triggered: {what}");
    }
    if !any && !arguments.json {
        eprintln!(
            "loopscope-host: nothing to trigger in {what}: no program has recorded anything, or an \
             earlier trigger is being written"
        );
    }
    Ok(if any { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub fn choose(arguments: &Choose, enable: bool) -> anyhow::Result<ExitCode> {
    let all = with(|found| !["run", "links"].contains(&found.description.kind.as_str()))?;
    let found = select(all, arguments.to.as_deref(), "entities to choose")?;
    let prefix = if enable { "" } else { "!" };
    let patterns = arguments.patterns.iter().map(|glob| format!("{prefix}{glob}")).collect();
    let request = Request::Choose { stream: arguments.stream.clone(), patterns };
    let unmatched = match found[0].ask(&request)? {
        Reply::Chosen(unmatched) => unmatched,
        other => bail!("{}", refusal(other)),
    };
    if arguments.json {
        let recording = &found[0].description;
        println!("{}", serde_json::json!({"recording": recording, "unmatched": unmatched}));
    } else if unmatched.len() < arguments.patterns.len() {
        let done = if enable { "enabled" } else { "disabled" };
        println!("{done}: {} in {}", arguments.patterns.join(" "), name(&found[0]));
    }
    for what in unmatched {
        eprintln!("loopscope-host: {what} It is kept for entities that appear later.");
    }
    Ok(ExitCode::SUCCESS)
}

/// Recordings by name; the hosts of a run are one.
fn with(keep: impl Fn(&Found) -> bool) -> anyhow::Result<BTreeMap<String, Vec<Found>>> {
    let state_dir = ledger::state_dir();
    let found = find(&state_dir)
        .with_context(|| format!("cannot look for recordings in {}", state_dir.display()))?;
    let mut all: BTreeMap<String, Vec<Found>> = BTreeMap::new();
    for each in found.into_iter().filter(|found| keep(found)) {
        all.entry(name(&each)).or_default().push(each);
    }
    Ok(all)
}

fn name(found: &Found) -> String {
    let description = &found.description;
    match description.kind.as_str() {
        // The last number is the controller's, the same on all hosts.
        "run" => {
            let pid = description.pids.last().copied().unwrap_or_default();
            format!("run {} (process {pid})", description.what)
        }
        kind => format!("{kind} {} ({})", description.pids[0], description.what),
    }
}

fn select(
    mut all: BTreeMap<String, Vec<Found>>,
    called: Option<&str>,
    what: &str,
) -> anyhow::Result<Vec<Found>> {
    if let Some(called) = called {
        all.retain(|_, hosts| hosts.iter().any(|found| found.description.is_called(called)));
        if all.is_empty() {
            bail!("{called} is no recording with {what} of this user, nor a program in one");
        }
    }
    let names: Vec<&str> = all.keys().map(String::as_str).collect();
    match names.len() {
        0 => bail!("nothing with {what} is being recorded by this user"),
        1 => Ok(all.into_values().next().unwrap_or_default()),
        _ => bail!("name one by its run or process number: {}", names.join("; ")),
    }
}

fn refusal(reply: Reply) -> String {
    match reply {
        Reply::Refused(why) => why,
        other => format!("the recording answered {other:?}; is it of another version?"),
    }
}
