//! Turns of a loop for `loopscope.stm.Pace`.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use loopscope_timer::{Pace, Wait, now};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;

/// A wait goes on in parts of this length, ns, between which Python's signal handlers run.
const SLICE_NS: u64 = 50_000_000;

/// The turns of a loop at a fixed period.
#[pyclass(frozen)]
pub(crate) struct StmPace(Mutex<Pace>);

#[pymethods]
impl StmPace {
    #[new]
    fn new(period_s: f64, tolerance_s: f64, spin: bool) -> PyResult<StmPace> {
        let ns = |what: &str, seconds| {
            let length = Duration::try_from_secs_f64(seconds).map_err(|why| why.to_string());
            let ns = length.and_then(|it| u64::try_from(it.as_nanos()).map_err(|e| e.to_string()));
            ns.map_err(|why| PyValueError::new_err(format!("{what}: {why}")))
        };
        let period_ns = ns("period", period_s)?;
        if period_ns == 0 {
            return Err(PyValueError::new_err("period: at least a nanosecond"));
        }
        let wait = if spin { Wait::SleepThenSpin } else { Wait::Sleep };
        Ok(StmPace(Mutex::new(Pace::new(period_ns, ns("tolerance", tolerance_s)?, wait))))
    }

    /// The next turn: number, instant due, how late, turns left out, whether it has slipped.
    fn turn(&self, py: Python<'_>) -> PyResult<(u64, u64, u64, u64, bool)> {
        loop {
            let turn = py.detach(|| {
                let mut pace = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                if pace.due().ns_since(now()) > SLICE_NS.cast_signed() {
                    std::thread::sleep(Duration::from_nanos(SLICE_NS - SLICE_NS / 10));
                    return Ok(None);
                }
                pace.turn().map(Some)
            });
            match turn.map_err(|error| PyOSError::new_err(error.to_string()))? {
                Some(turn) => {
                    let (number, due_ns) = (turn.number, turn.due.0);
                    return Ok((number, due_ns, turn.late_ns, turn.skipped, turn.slipped));
                }
                None => py.check_signals()?,
            }
        }
    }
}
