//! `loopscope._native`: the operations on many events that the Python package needs.
//!
//! It calls the other crates and converts their results; it has no behaviour of its own. Results
//! are returned as JSON text, tables as files.

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
use loopscope_time::{ClockMap, Counter, Frequency, GlobalNs};
use loopscope_timeline::{
    ClockEvent, Decoded, ForeignReading, HostClock, LoopFigures, LoopResiduals, Problem, Progress,
    Solution, SolvedHost, Timeline,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

mod checks;
mod foreign;
mod kernel;
mod merged;
mod pace;
mod stm;

use foreign::{ForeignSource, with_foreign};

fn refuse(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// What a build may fail of.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Messages by follower: whether the follower sent the message, then its counter and the
/// reference's, each in ticks, before sending or after receipt.
type Messages = BTreeMap<String, Vec<(bool, u64, u64)>>;

/// build_run(repeat_dir, reference, wander, messages, foreign, out=None, progress=None) -> str
///
/// Solves the clocks of a repeat's hosts against host `reference` (under the assumption that no
/// oscillator wanders from its mean rate by more than `wander`, a ratio), writes its `timeline/`,
/// `tables/` and `hosts/*/clock/estimates/` to `out` (None: into the repeat), in place of earlier
/// ones, and returns the summary as JSON. `messages` are those of programs that bound a follower's
/// clock too, by its name: whether the follower sent the message, then its counter and the
/// reference's, each before sending or after receipt. `foreign` are what other tools recorded on
/// the hosts (see `foreign.rs`), whose tables are added and whose summaries are `foreign` of the
/// summary. `progress` as for import_ctf. Raises ValueError with the file at fault.
#[pyfunction]
#[pyo3(signature = (repeat_dir, reference, wander, messages, foreign, out=None, progress=None))]
#[expect(clippy::too_many_arguments, reason = "Python calls it")]
fn build_run(
    py: Python<'_>,
    repeat_dir: PathBuf,
    reference: &str,
    wander: f64,
    messages: Messages,
    foreign: Vec<ForeignSource>,
    out: Option<PathBuf>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    followed(py, progress, |follow| -> Result<_, Failure> {
        let (hosts, out) = (repeat_dir.join("hosts"), out.as_ref().unwrap_or(&repeat_dir));
        let solution = solution(&hosts, reference, wander, messages, out, follow)?;
        let clocks = maps(&solution);
        let timeline = solution.timeline(&hosts, &out.join("hosts"))?;
        let summary = timeline.write(out, follow)?;
        with_foreign(summary, foreign, &clocks, &repeat_dir, out, follow)
    })
}

/// solve_run(repeat_dir, reference, wander, messages, out) -> None
///
/// The first stage of build_run, for many processes that share the rest: solves the clocks and
/// writes `clocks.json` and `hosts/*/clock/estimates/` to `out`.
#[pyfunction]
fn solve_run(
    py: Python<'_>,
    repeat_dir: PathBuf,
    reference: &str,
    wander: f64,
    messages: Messages,
    out: PathBuf,
) -> PyResult<()> {
    py.detach(|| -> Result<(), Failure> {
        let hosts = repeat_dir.join("hosts");
        let follow: &mut Progress = &mut |_, _| true;
        let solution = solution(&hosts, reference, wander, messages, &out, follow)?;
        Ok(solution.store(&clocks_of(&out))?)
    })
    .map_err(refuse)
}

/// stream_files(repeat_dir, draft) -> list[str]
///
/// The stream files that are to be decoded, `<host>/trace/<name>`, by the clocks that solve_run
/// left in `draft`.
#[pyfunction]
fn stream_files(repeat_dir: PathBuf, draft: PathBuf) -> PyResult<Vec<String>> {
    let files = solved(&repeat_dir, &draft).and_then(|(timeline, _)| Ok(timeline.stream_files()?));
    files.map_err(refuse)
}

/// decode_stream(repeat_dir, draft, index, out) -> None
///
/// The second stage: decodes the stream file of that index among stream_files, writes its rows to
/// `timeline/<group>/<name>/part-<index>.parquet` and what was found in it to
/// `streams/<index>.json` under `out`.
#[pyfunction]
fn decode_stream(
    py: Python<'_>,
    repeat_dir: PathBuf,
    draft: PathBuf,
    index: usize,
    out: PathBuf,
) -> PyResult<()> {
    py.detach(|| -> Result<(), Failure> {
        let decoded = solved(&repeat_dir, &draft)?.0.write_part(index, &out)?;
        Ok(decoded.store(&found_in(&out, index))?)
    })
    .map_err(refuse)
}

/// conclude_run(repeat_dir, draft, foreign, out) -> str
///
/// The last stage, after every stream file has been decoded into `draft`: writes `tables/`, and to
/// `timeline/` what other tools recorded, under `out`. Returns the summary as JSON, as build_run
/// does.
#[pyfunction]
fn conclude_run(
    py: Python<'_>,
    repeat_dir: PathBuf,
    draft: PathBuf,
    foreign: Vec<ForeignSource>,
    out: PathBuf,
) -> PyResult<String> {
    followed(py, None, |follow| -> Result<_, Failure> {
        let (timeline, clocks) = solved(&repeat_dir, &draft)?;
        let files = timeline.stream_files()?.len();
        let decoded = (0..files).map(|index| Decoded::load(&found_in(&draft, index)));
        let summary = timeline.conclude(decoded.collect::<Result<_, _>>()?, &out)?;
        with_foreign(summary, foreign, &clocks, &repeat_dir, &out, follow)
    })
}

fn clocks_of(draft: &Path) -> PathBuf {
    draft.join("clocks.json")
}

fn found_in(draft: &Path, index: usize) -> PathBuf {
    draft.join(format!("streams/{index}.json"))
}

/// Each host's map, and the nominal frequency of its counter.
type Maps = BTreeMap<String, (ClockMap, Frequency)>;

fn maps(solution: &Solution) -> Maps {
    let map =
        |each: &SolvedHost| (each.host.clone(), (each.clock.map.clone(), each.clock.frequency));
    solution.hosts.iter().map(map).collect()
}

/// The time line by the clocks that solve_run left.
fn solved(repeat_dir: &Path, draft: &Path) -> Result<(Timeline, Maps), Failure> {
    let solution = Solution::load(&clocks_of(draft))?;
    let clocks = maps(&solution);
    Ok((solution.timeline(&repeat_dir.join("hosts"), &draft.join("hosts"))?, clocks))
}

/// Solves the clocks of the hosts in a directory; estimates go to `hosts/*/clock/` under `out`, and
/// what kernels did, as CTF, to `hosts/*/kernel/`.
fn solution(
    hosts: &Path,
    reference: &str,
    wander: f64,
    messages: Messages,
    out: &Path,
    follow: &mut Progress,
) -> Result<Solution, Failure> {
    // How much there is to do nobody knows yet.
    let mut go_on = || follow(0, 0);
    let messages = messages
        .into_iter()
        .map(|(host, messages)| (host, messages.into_iter().map(message).collect()))
        .collect();
    let clocks =
        solve_run_with(hosts, reference, wander, &messages, &out.join("hosts"), &mut go_on)?;
    let begin = clocks.values().map(|clock| clock.map.map(clock.map.knots()[0].counter).0);
    let begin = begin.min().unwrap_or_default();
    let edges = survey_mesh(hosts, &clocks, wander, &mut go_on)?;
    let mut solution = Solution::default();
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
            }))
            .map(|what| Problem { host: host.clone(), file: "clock/probes".into(), what })
            .collect();
        let others = (host != reference).then(|| &clocks[reference]);
        let readings = others::readings(clock, others);
        let clock = host_clock(clock, host == reference, readings, events);
        solution.hosts.push(SolvedHost { host: host.clone(), clock, problems });
    }
    kernel::add(hosts, &out.join("hosts"), &mut solution, follow)?;
    for edge in edges {
        if let Err(error) = &edge.found {
            let (host, file) = (edge.host.clone(), format!("clock/mesh/{}", edge.peer));
            solution.problems.push(Problem { host, file, what: error.to_string() });
        }
        solution.loops.push(loop_residuals(edge));
    }
    Ok(solution)
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

/// build_record(dir, out=None, progress=None) -> str
///
/// The same for what `record` left: one host, its own counter as the time line.
#[pyfunction]
#[pyo3(signature = (dir, out=None, progress=None))]
fn build_record(
    py: Python<'_>,
    dir: PathBuf,
    out: Option<PathBuf>,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    followed(py, progress, |follow| -> Result<_, Failure> {
        let metadata = read_metadata(&dir.join("trace/metadata"))?;
        let clock = reference_clock(&dir)?;
        let clock = host_clock(&clock, true, Vec::new(), Vec::new());
        let mut timeline = Timeline::new();
        timeline.add_host(&dir, &metadata.host, clock)?;
        Ok(timeline.write(out.as_ref().unwrap_or(&dir), follow)?)
    })
}

fn read_metadata(path: &Path) -> Result<Metadata, Failure> {
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Metadata::parse(&text).map_err(|error| format!("{}: {error}", path.display()))?)
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
            let metadata = read_metadata(&metadata).map_err(refuse)?;
            found.insert(metadata.host.clone(), metadata.frequency.hz());
        }
    }
    Ok(found)
}

/// read_messages(text, file) -> str
///
/// A message table as JSON: `types`, or `problems` where it is none. YAML where the file's name
/// says so, else CSV.
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
    let progress = Some(progress);
    followed(py, progress, |follow| loopscope_timeline::import(&dir, out.as_deref(), follow))
}

/// Does `work`, of which `progress` is told some ten times a second; what that raises, and an
/// interrupt, ends it. Its result as JSON.
fn followed<T: serde::Serialize + Send, E: std::fmt::Display + Send>(
    py: Python<'_>,
    progress: Option<Py<PyAny>>,
    work: impl FnOnce(&mut Progress) -> Result<T, E> + Send,
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
                let progress = progress.as_ref().filter(|_| all > 0);
                progress.map_or(Ok(()), |told| told.call1(py, (done, all)).map(drop))
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
    module.add_function(wrap_pyfunction!(solve_run, module)?)?;
    module.add_function(wrap_pyfunction!(stream_files, module)?)?;
    module.add_function(wrap_pyfunction!(decode_stream, module)?)?;
    module.add_function(wrap_pyfunction!(conclude_run, module)?)?;
    module.add_function(wrap_pyfunction!(build_record, module)?)?;
    module.add_function(wrap_pyfunction!(synthetic_counters, module)?)?;
    module.add_function(wrap_pyfunction!(synthetic_inverse, module)?)?;
    module.add_function(wrap_pyfunction!(frequencies, module)?)?;
    module.add_function(wrap_pyfunction!(checks::check_predicate, module)?)?;
    module.add_function(wrap_pyfunction!(checks::check_link, module)?)?;
    module.add_function(wrap_pyfunction!(checks::check_netem, module)?)?;
    module.add_function(wrap_pyfunction!(checks::link_longest_ns, module)?)?;
    module.add_function(wrap_pyfunction!(checks::check_link_trace, module)?)?;
    module.add_function(wrap_pyfunction!(read_messages, module)?)?;
    module.add_function(wrap_pyfunction!(import_ctf, module)?)?;
    module.add_function(wrap_pyfunction!(foreign::check_foreign, module)?)?;
    module.add_function(wrap_pyfunction!(merged::export_ctf, module)?)?;
    stm::add(module)?;
    Ok(())
}
