//! The triggers of a host's flight recorders (`triggers.json`, schema/streams.md) on the global time
//! line.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow_schema::ArrowError;
use loopscope_time::{Bound, Counter, GlobalNs};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::source::{Host, Problem};

/// The stream whose output is not in a folder of its own.
const MAIN: &str = "main";
/// The list of a flight recorder's triggers.
const LIST: &str = "triggers.json";
/// The account of a stream.
const ACCOUNT: &str = "loss.json";

/// An entry of `triggers.json`.
#[derive(Deserialize)]
struct Listed {
    counter: u64,
    cause: String,
    host: String,
    entity: Option<String>,
    id: Option<i64>,
    process: Option<String>,
    pid: Option<u32>,
    events: Option<u64>,
}

/// A stream's `loss.json`, as far as it tells of triggers.
#[derive(Deserialize)]
struct Account {
    #[serde(default)]
    overwritten: u64,
    triggers: Option<u64>,
}

/// A trigger of a flight recorder.
pub(crate) struct Trigger {
    host: String,
    stream: String,
    ts: GlobalNs,
    err: Bound,
    listed: Listed,
}

/// The triggers of all flight recorders of a host, and what is wrong with their files.
pub(crate) fn of_host(host: &Host) -> (Vec<Trigger>, Vec<Problem>) {
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    let folder = host.dir.join("streams");
    let mut names = match folders(&folder) {
        Ok(names) => names,
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            let what = format!("cannot be read: {error}; the triggers of its streams are missing");
            problems.push(Problem { host: host.name.clone(), file: "streams".into(), what });
            Vec::new()
        }
    };
    names.sort();
    let streams =
        names.into_iter().map(|name| (folder.join(&name), format!("streams/{name}/"), name));
    let main = (host.dir.clone(), String::new(), MAIN.to_owned());
    for (dir, under, stream) in std::iter::once(main).chain(streams) {
        let mut problem = |file: &str, what: String| {
            problems.push(Problem {
                host: host.name.clone(),
                file: format!("{under}{file}"),
                what,
            });
        };
        // What is wrong with the account of the stream `main` is told elsewhere.
        let is_main = stream == MAIN;
        let account = match read::<Account>(&dir.join(ACCOUNT)) {
            Ok(Some(account)) => Some(account),
            Ok(None) => {
                if !is_main {
                    problem(ACCOUNT, "is missing: nobody accounts for lost events".into());
                }
                None
            }
            Err(what) => {
                if !is_main {
                    problem(ACCOUNT, what);
                }
                None
            }
        };
        let listed = match read::<Vec<Listed>>(&dir.join(LIST)) {
            Ok(Some(listed)) => listed,
            Ok(None) => {
                // Only a flight recorder overwrites.
                if account.is_some_and(|a| a.triggers.is_some() || a.overwritten > 0) {
                    let what = "is missing: the triggers of this flight recorder are not known";
                    problem(LIST, what.into());
                }
                continue;
            }
            Err(what) => {
                problem(LIST, format!("{what}; its triggers are not in the table"));
                continue;
            }
        };
        if let Some(told) = account.and_then(|account| account.triggers)
            && told != listed.len() as u64
        {
            problem(LIST, format!("has {} triggers, {ACCOUNT} says {told}", listed.len()));
        }
        found.extend(listed.into_iter().map(|listed| {
            let (ts, err) = host.clock.map.map(Counter(listed.counter));
            Trigger { host: host.name.clone(), stream: stream.clone(), ts, err, listed }
        }));
    }
    (found, problems)
}

/// The names of the folders in a folder.
fn folders(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.path().is_dir() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

/// A file of JSON; `None` where there is none. The error says what is wrong with it.
fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, String> {
    match fs::read(path) {
        Ok(bytes) => {
            serde_json::from_slice(&bytes).map(Some).map_err(|error| format!("is damaged: {error}"))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("cannot be read: {error}")),
    }
}

/// All of them, in the order of time.
pub(crate) fn table(mut all: Vec<Trigger>) -> Result<RecordBatch, ArrowError> {
    // Stable: what ties is in the order of hosts, streams and lists.
    all.sort_by_key(|trigger| trigger.ts);
    let texts = |of: &dyn Fn(&Trigger) -> Option<&str>| -> ArrayRef {
        Arc::new(StringArray::from_iter(all.iter().map(of)))
    };
    let integers = |of: &dyn Fn(&Trigger) -> Option<i64>| -> ArrayRef {
        Arc::new(Int64Array::from_iter(all.iter().map(of)))
    };
    let pids = UInt32Array::from_iter(all.iter().map(|t| t.listed.pid));
    let counters = UInt64Array::from_iter_values(all.iter().map(|t| t.listed.counter));
    RecordBatch::try_from_iter_with_nullable([
        ("ts", integers(&|t| Some(t.ts.0)), false),
        ("err_ns", integers(&|t| Some(t.err.ns().cast_signed())), false),
        ("counter", Arc::new(counters), false),
        ("host", texts(&|t| Some(&t.host)), false),
        ("process", texts(&|t| t.listed.process.as_deref()), true),
        ("pid", Arc::new(pids), true),
        ("stream", texts(&|t| Some(&t.stream)), false),
        ("cause", texts(&|t| Some(&t.listed.cause)), false),
        ("entity", texts(&|t| t.listed.entity.as_deref()), true),
        ("id", integers(&|t| t.listed.id), true),
        ("origin", texts(&|t| Some(&t.listed.host)), false),
        ("events", integers(&|t| t.listed.events.map(u64::cast_signed)), true),
    ])
}
