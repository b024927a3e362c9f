//! `loopscope._native`: what the desk side needs done to many events. It wires the crates and wraps
//! their results; it has no behaviour of its own. Results cross as JSON text, tables as files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use loopscope_clocksync::exchange::Pair;
use loopscope_clocksync::log::{
    HostClock as SolvedClock, MeshEdge, Surveyed, reference_clock, solve_run_with, survey_mesh,
};
use loopscope_clocksync::others;
use loopscope_clocksync::{Message, Span, Way};
use loopscope_ctf::Metadata;
use loopscope_emulate::settings::{self, Mistake};
use loopscope_emulate::{netem, traces};
use loopscope_predicate::Predicate;
use loopscope_time::{Counter, Frequency, GlobalNs};
use loopscope_timeline::{
    ClockEvent, ForeignReading, HostClock, ImportError, LoopFigures, LoopResiduals, Problem,
    Progress, Summary, Timeline,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

mod foreign;
mod merged;

use foreign::{ForeignSource, with_foreign};

fn refuse(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

fn json(summary: &Summary) -> PyResult<String> {
    serde_json::to_string(summary).map_err(refuse)
}

/// build_run(repeat_dir, reference, wander, messages, foreign) -> str
///
/// Solves the clocks of a repeat's hosts against host `reference` (under the assumption that no
/// oscillator wanders from its mean rate by more than `wander`, a ratio), writes its `timeline/`
/// and `tables/`, and returns the summary as JSON. `messages` are those of programs that bound a
/// follower's clock too, by its name: whether it sent the message, its counter before sending or
/// after receipt, the reference's likewise. `foreign` are what other tools recorded on the hosts (see
/// `foreign.rs`), whose tables are added and whose summaries are `foreign` of the summary. Raises
/// ValueError with the file at fault.
#[pyfunction]
fn build_run(
    py: Python<'_>,
    repeat_dir: PathBuf,
    reference: &str,
    wander: f64,
    messages: BTreeMap<String, Vec<(bool, u64, u64)>>,
    foreign: Vec<ForeignSource>,
) -> PyResult<String> {
    py.detach(|| {
        let hosts = repeat_dir.join("hosts");
        let messages = messages
            .into_iter()
            .map(|(host, messages)| (host, messages.into_iter().map(message).collect()))
            .collect();
        let clocks = solve_run_with(&hosts, reference, wander, &messages).map_err(refuse)?;
        let mut timeline = Timeline::new();
        let begin = clocks.values().map(|clock| clock.map.map(clock.map.knots()[0].counter).0);
        let begin = begin.min().unwrap_or_default();
        let edges = survey_mesh(&hosts, &clocks, wander).map_err(refuse)?;
        for (host, clock) in &clocks {
            let surveyed = edges.iter().filter(|edge| edge.host == *host);
            let contradictions = surveyed.filter_map(|edge| {
                let survey = &edge.found.as_ref().ok()?.survey;
                others::contradiction(&clock.map, &edge.peer, survey)
            });
            let events: Vec<_> = others::events(clock).into_iter().chain(contradictions).collect();
            let counts = [
                (clock.rejected, "probes contradict those around them and were left out"),
                (clock.ambiguous, "probe records appear twice and were left out"),
                (clock.torn_bytes, "bytes at the end of its probe log are torn"),
            ];
            let counts = counts.into_iter().filter(|(count, _)| *count > 0);
            let problems = counts
                .map(|(count, what)| format!("{count} {what}"))
                .chain(events.iter().map(|event| format!("{}{event}", when(event, begin))))
                .chain(clock.unbelievable_ppm.map(|ppm| {
                    format!(
                        "its mean rate is {ppm:+.0} ppm off its nominal frequency, or the \
                         reference's is: one of the two is wrong"
                    )
                }));
            for what in problems {
                timeline.report(Problem { host: host.clone(), file: "clock/probes".into(), what });
            }
            let others = (host != reference).then(|| &clocks[reference]);
            let readings = others::readings(clock, others);
            let clock = host_clock(clock, host == reference, readings, events);
            timeline.add_host(&hosts.join(host), host, clock).map_err(refuse)?;
        }
        for edge in edges {
            if let Err(error) = &edge.found {
                let (host, file) = (edge.host.clone(), format!("clock/mesh/{}", edge.peer));
                timeline.report(Problem { host, file, what: error.to_string() });
            }
            timeline.add_loop(loop_residuals(edge));
        }
        let summary = timeline.write(&repeat_dir).map_err(refuse)?;
        with_foreign(summary, foreign, &repeat_dir, &clocks)
    })
}

/// A program's, which bounds and says nothing of delays.
fn message((sent, own, reference): (bool, u64, u64)) -> Message {
    let [own, reference] = [own, reference].map(|at| Span { lo: Counter(at), hi: Counter(at) });
    let way = if sent { Way::Forward } else { Way::Back };
    Message { way, own, reference, quality: Pair::Distorted }
}

/// What an edge between followers told, as the time line takes it.
fn loop_residuals(edge: MeshEdge) -> LoopResiduals {
    let MeshEdge { host, peer, found } = edge;
    match found {
        Err(error) => LoopResiduals {
            host,
            peer,
            problem: Some(error.to_string()),
            ..LoopResiduals::default()
        },
        Ok(Surveyed { exchanges, rejected, survey }) => LoopResiduals {
            host,
            peer,
            exchanges: exchanges as u64,
            rejected: rejected as u64,
            instants: survey.instants,
            unknown: survey.unknown,
            covered: survey.covered,
            contradictions: survey.contradictions,
            figures: survey.figures.map(|figures| LoopFigures {
                p50: figures.p50_ns.round() as i64,
                p99: figures.p99_ns.round() as i64,
                max: figures.max_ns.round() as i64,
                err: figures.hard_ns.round() as i64,
                calibrated: figures.calibrated_ns.round() as i64,
            }),
            problem: None,
        },
    }
}

/// When something happened to a clock, in seconds after the run's first probes.
fn when(event: &others::ClockEvent, begin: GlobalNs) -> String {
    let seconds = |end: GlobalNs| format!("{:.3} s", (end - begin) as f64 * 1e-9);
    match (event.from.map(seconds), event.until.map(seconds)) {
        (Some(from), Some(until)) => format!("between {from} and {until} of the run "),
        (Some(from), None) => format!("after {from} of the run "),
        (None, Some(until)) => format!("before {until} of the run "),
        (None, None) => "at an unknown time ".into(),
    }
}

/// What the solver found, as the time line takes it.
fn host_clock(
    solved: &SolvedClock,
    reference: bool,
    readings: Vec<others::Reading>,
    events: Vec<others::ClockEvent>,
) -> HostClock {
    let pair = |measured: others::Measured| (measured.ns, measured.err_ns);
    let reading = |r: others::Reading| ForeignReading {
        clock: r.clock.to_string(),
        ts: r.ts,
        err: r.err,
        gained: r.gained.map(pair),
        offset: r.offset.map(pair),
    };
    let event = |e: others::ClockEvent| ClockEvent {
        clock: e.clock,
        kind: e.kind.into(),
        from: e.from,
        until: e.until,
        ns: e.ns,
        what: e.what,
    };
    HostClock {
        reference,
        exchanges: solved.exchanges as u64,
        rejected: solved.rejected as u64,
        frequency: solved.frequency,
        map: solved.map.clone(),
        readings: readings.into_iter().map(reading).collect(),
        events: events.into_iter().map(event).collect(),
    }
}

/// build_record(dir) -> str
///
/// The same for what `record` left: one host, its own counter as the time line.
#[pyfunction]
fn build_record(py: Python<'_>, dir: PathBuf) -> PyResult<String> {
    py.detach(|| {
        let metadata = read_metadata(&dir.join("trace/metadata"))?;
        let clock = reference_clock(&dir).map_err(refuse)?;
        let clock = host_clock(&clock, true, Vec::new(), Vec::new());
        let mut timeline = Timeline::new();
        timeline.add_host(&dir, &metadata.host, clock).map_err(refuse)?;
        json(&timeline.write(&dir).map_err(refuse)?)
    })
}

fn read_metadata(path: &Path) -> PyResult<Metadata> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| refuse(format!("{}: {error}", path.display())))?;
    Metadata::parse(&text).map_err(|error| refuse(format!("{}: {error}", path.display())))
}

/// synthetic_counters(seed, host, counters) -> list[int]
///
/// What the hidden clock of `host` makes of true counters: for scoring, never for solving.
#[pyfunction]
fn synthetic_counters(seed: u64, host: &str, counters: Vec<u64>) -> Vec<u64> {
    let clock = loopscope_clocksync::synthetic::SyntheticClock::new(seed, host);
    counters.into_iter().map(|c| clock.apply(Counter(c)).0).collect()
}

/// synthetic_inverse(seed, host, counters) -> list[int]
///
/// The true counters behind a hidden clock's, within one tick.
#[pyfunction]
fn synthetic_inverse(seed: u64, host: &str, counters: Vec<u64>) -> Vec<u64> {
    let clock = loopscope_clocksync::synthetic::SyntheticClock::new(seed, host);
    counters.into_iter().map(|c| clock.invert(Counter(c)).0).collect()
}

/// frequencies(repeat_dir) -> dict[str, int]
///
/// Nominal frequency of each host's counter in Hz, as its streams declare it.
#[pyfunction]
fn frequencies(repeat_dir: PathBuf) -> PyResult<BTreeMap<String, u64>> {
    let mut found = BTreeMap::new();
    let hosts = repeat_dir.join("hosts");
    let entries = std::fs::read_dir(&hosts)
        .map_err(|error| refuse(format!("{}: {error}", hosts.display())))?;
    for entry in entries {
        let metadata = entry?.path().join("trace/metadata");
        if metadata.exists() {
            let metadata = read_metadata(&metadata)?;
            found.insert(metadata.host.clone(), metadata.frequency.hz());
        }
    }
    Ok(found)
}

/// check_predicate(text) -> tuple[int, str] | None
///
/// Whether a text is a predicate on hits; column (from 1) and message where it is none.
#[pyfunction]
fn check_predicate(text: &str) -> Option<(usize, String)> {
    // Durations are in ticks then; which frequency matters only to a size that nobody writes.
    let frequency = Frequency::from_hz(1_000_000_000)?;
    Predicate::parse(text, frequency).err().map(|error| (error.column, error.what))
}

/// check_link(settings) -> tuple[str, str] | None
///
/// Whether a link's settings (JSON) make sense; the key at fault and what is wrong where they do
/// not. The files that they name are not read.
#[pyfunction]
fn check_link(settings: &str) -> PyResult<Option<(String, String)>> {
    let all = serde_json::from_str(settings).map_err(refuse)?;
    Ok(settings::check_json(&all).err().map(|Mistake { key, problem }| (key, problem)))
}

/// check_netem(settings) -> tuple[str, str] | None
///
/// Whether the kernel's netem has what a link's settings (JSON) ask for; the key that it does not
/// have and why.
#[pyfunction]
fn check_netem(settings: &str) -> PyResult<Option<(String, String)>> {
    let all = serde_json::from_str(settings).map_err(refuse)?;
    let checked = settings::check_json(&all).and_then(|settings| netem::words(&settings));
    Ok(checked.err().map(|Mistake { key, problem }| (key, problem)))
}

/// check_link_trace(kind, path) -> tuple[int | None, str] | None
///
/// Whether a file is a trace of that kind (`loss`, `delays`, `opportunities`, `table`); line (from 1)
/// and message where it is none.
#[pyfunction]
fn check_link_trace(kind: &str, path: PathBuf) -> PyResult<Option<(Option<usize>, String)>> {
    let kind = traces::Kind::named(kind).ok_or_else(|| refuse(format!("no trace is `{kind}`")))?;
    let checked = traces::read(&path).and_then(|text| traces::check(kind, &text));
    Ok(checked.err().map(|fault| (fault.line, fault.problem)))
}

/// read_messages(text, file) -> str
///
/// A message table as JSON: `types`, or `problems` where it is none. YAML where the file's name says
/// so, else CSV.
#[pyfunction]
fn read_messages(text: &str, file: &str) -> PyResult<String> {
    let (types, problems) = match loopscope_messages::read(text, file) {
        Ok(types) => (types, Vec::new()),
        Err(problems) => (Vec::new(), problems),
    };
    let read = serde_json::json!({"types": types, "problems": problems});
    serde_json::to_string(&read).map_err(refuse)
}

/// import_ctf(dir, out, progress) -> str
///
/// Reads the CTF traces in `dir` and writes their tables to `out` (None: only looks what is there).
/// Returns the summary as JSON (`schema/import.md`). `progress` is called with the bytes done and
/// all, some ten times a second; what it raises, and an interrupt, ends the import and leaves
/// nothing. Raises ValueError with the place at fault.
#[pyfunction]
fn import_ctf(
    py: Python<'_>,
    dir: PathBuf,
    out: Option<PathBuf>,
    progress: Py<PyAny>,
) -> PyResult<String> {
    followed(py, progress, |follow| loopscope_timeline::import(&dir, out.as_deref(), follow))
}

/// Does `work`, of which `progress` is told some ten times a second; what that raises, and an
/// interrupt, ends it. Its result as JSON.
fn followed<T: serde::Serialize + Send>(
    py: Python<'_>,
    progress: Py<PyAny>,
    work: impl FnOnce(&mut Progress) -> Result<T, ImportError> + Send,
) -> PyResult<String> {
    let mut last = Instant::now();
    let mut raised = None;
    let result = py.detach(|| {
        let mut follow = |done: u64, all: u64| {
            if last.elapsed() < Duration::from_millis(100) {
                return true;
            }
            last = Instant::now();
            let told = Python::attach(|py| {
                py.check_signals()?;
                progress.call1(py, (done, all)).map(drop)
            });
            raised = told.err();
            raised.is_none()
        };
        work(&mut follow)
    });
    match (raised, result) {
        (Some(error), _) => Err(error),
        (None, Ok(summary)) => serde_json::to_string(&summary).map_err(refuse),
        (None, Err(error)) => Err(refuse(error)),
    }
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(build_run, module)?)?;
    module.add_function(wrap_pyfunction!(build_record, module)?)?;
    module.add_function(wrap_pyfunction!(synthetic_counters, module)?)?;
    module.add_function(wrap_pyfunction!(synthetic_inverse, module)?)?;
    module.add_function(wrap_pyfunction!(frequencies, module)?)?;
    module.add_function(wrap_pyfunction!(check_predicate, module)?)?;
    module.add_function(wrap_pyfunction!(check_link, module)?)?;
    module.add_function(wrap_pyfunction!(check_netem, module)?)?;
    module.add_function(wrap_pyfunction!(check_link_trace, module)?)?;
    module.add_function(wrap_pyfunction!(read_messages, module)?)?;
    module.add_function(wrap_pyfunction!(import_ctf, module)?)?;
    module.add_function(wrap_pyfunction!(foreign::check_foreign, module)?)?;
    module.add_function(wrap_pyfunction!(merged::export_ctf, module)?)?;
    Ok(())
}
