//! A run's tables as one CTF trace.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use loopscope_clocksync::anchor::ForeignClock;
use loopscope_clocksync::log::ProbeLog;
use loopscope_timeline::{About, EventTable, write_merged};
use pyo3::prelude::*;

use crate::{followed, refuse};

/// export_ctf(tables, reference, out, uuid, env, progress) -> str
///
/// Writes the rows of `tables` (event's name and Parquet files, sorted by time) as a CTF 1.8 trace to
/// the directory `out`, in the order of time. `reference` is the directory of the host whose clock
/// the time line is: its first reading of CLOCK_REALTIME places the trace in UTC. `uuid` (32 digits)
/// and `env` are what the trace says of itself. Returns the numbers of events, streams and classes as
/// JSON. `progress` as for import_ctf. Raises ValueError with the file at fault.
#[pyfunction]
pub(crate) fn export_ctf(
    py: Python<'_>,
    tables: Vec<(String, Vec<PathBuf>)>,
    reference: PathBuf,
    out: PathBuf,
    uuid: &str,
    env: BTreeMap<String, String>,
    progress: Py<PyAny>,
) -> PyResult<String> {
    let uuid = u128::from_str_radix(uuid, 16).map_err(refuse)?.to_be_bytes();
    let utc_ns = utc(&reference)?;
    let about = About { uuid, utc_ns, env: env.into_iter().collect() };
    let table = |(name, parts)| EventTable { name, parts };
    let tables: Vec<EventTable> = tables.into_iter().map(table).collect();
    followed(py, Some(progress), |follow| write_merged(&tables, &about, &out, follow))
}

/// UTC at the zero of global time, by the reference's first reading of CLOCK_REALTIME.
fn utc(reference: &Path) -> PyResult<Option<i64>> {
    let probes = reference.join("clock/probes");
    if !probes.is_dir() {
        return Ok(None);
    }
    let log = ProbeLog::read(&probes).map_err(refuse)?;
    let first = log.anchors.iter().find(|anchor| anchor.clock == ForeignClock::Realtime);
    Ok(first.map(|anchor| anchor.ns - log.identity.frequency.scale(anchor.at.lo).0))
}
