//! Checks of what an experiment file says, for `loopscope check`.

use std::path::PathBuf;

use loopscope_emulate::settings::{self, Mistake};
use loopscope_emulate::{model, netem, traces};
use loopscope_predicate::Predicate;
use loopscope_time::Frequency;
use pyo3::prelude::*;

use crate::refuse;

/// check_predicate(text) -> tuple[int, str] | None
///
/// Whether a text is a predicate on hits; column (from 1) and message where it is none.
#[pyfunction]
pub(crate) fn check_predicate(text: &str) -> Option<(usize, String)> {
    // Durations are in ticks then; which frequency matters only to a size that nobody writes.
    let frequency = Frequency::from_hz(1_000_000_000)?;
    Predicate::parse(text, frequency).err().map(|error| (error.column, error.what))
}

/// check_link(settings) -> tuple[str, str] | None
///
/// Whether a link's settings (JSON) make sense; the key at fault and what is wrong where they do
/// not. The files that they name are not read.
#[pyfunction]
pub(crate) fn check_link(settings: &str) -> PyResult<Option<(String, String)>> {
    let all = serde_json::from_str(settings).map_err(refuse)?;
    Ok(settings::check_json(&all).err().map(|Mistake { key, problem }| (key, problem)))
}

/// check_netem(settings) -> tuple[str, str] | None
///
/// Whether the kernel's netem has what a link's settings (JSON) ask for; the key that it does not
/// have and why.
#[pyfunction]
pub(crate) fn check_netem(settings: &str) -> PyResult<Option<(String, String)>> {
    let all = serde_json::from_str(settings).map_err(refuse)?;
    let checked = settings::check_json(&all).and_then(|settings| netem::words(&settings));
    Ok(checked.err().map(|Mistake { key, problem }| (key, problem)))
}

/// link_longest_ns(settings, netem) -> int
///
/// The longest that a packet stays in a link of these settings (JSON), which are right; `netem`:
/// where the kernel's netem emulates it.
#[pyfunction]
pub(crate) fn link_longest_ns(settings: &str, netem: bool) -> PyResult<u64> {
    let all = serde_json::from_str(settings).map_err(refuse)?;
    let settings = settings::check_json(&all).map_err(|mistake| refuse(mistake.to_string()))?;
    if netem {
        return Ok(netem::longest_ns(&settings));
    }
    model::longest_ns(&settings).map_err(refuse)
}

/// check_link_trace(kind, path) -> tuple[int | None, str] | None
///
/// Whether a file is a trace of that kind (`loss`, `delays`, `opportunities`, `table`); line (from
/// 1) and message where it is none.
#[pyfunction]
pub(crate) fn check_link_trace(
    kind: &str,
    path: PathBuf,
) -> PyResult<Option<(Option<usize>, String)>> {
    let kind = traces::Kind::named(kind).ok_or_else(|| refuse(format!("no trace is `{kind}`")))?;
    let checked = traces::read(&path).and_then(|text| traces::check(kind, &text));
    Ok(checked.err().map(|fault| (fault.line, fault.problem)))
}
