//! Turns of a loop.

use std::ffi::{c_int, c_void};

use loopscope_stm_shared::Kind;
use loopscope_timer::{Pace, Wait};

use crate::{Failure, Place, answer, invalid, take, there};

/// `struct loopscope_stm_turn`.
#[repr(C)]
struct Turn {
    number: u64,
    due_ns: i64,
    late_ns: u64,
    skipped: u64,
    slipped: bool,
}

type OnSlip = extern "C" fn(turn: *const Turn, data: *mut c_void);

/// `struct loopscope_stm_pace`.
struct Paced {
    pace: Pace,
    on_slip: Option<OnSlip>,
    data: *mut c_void,
}

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_pace(
    period_ns: u64,
    tolerance_ns: u64,
    spin: bool,
    on_slip: Option<OnSlip>,
    data: *mut c_void,
    pace: *mut *mut Paced,
) -> c_int {
    answer(|| {
        let place = Place::new(pace)?;
        if period_ns == 0 {
            return Err(invalid("a period has at least a nanosecond"));
        }
        let wait = if spin { Wait::SleepThenSpin } else { Wait::Sleep };
        place.give(Paced { pace: Pace::new(period_ns, tolerance_ns, wait), on_slip, data });
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_turn(pace: *mut Paced, turn: *mut Turn) -> c_int {
    answer(|| {
        let place = Place::new(turn)?;
        let Paced { pace, on_slip, data } = there(pace, "the pace")?;
        let next = pace.turn().map_err(|error| Failure {
            kind: Kind::Failed,
            text: format!("cannot sleep: {error}"),
        })?;
        let told = Turn {
            number: next.number,
            due_ns: i64::try_from(next.due.0).unwrap_or(i64::MAX),
            late_ns: next.late_ns,
            skipped: next.skipped,
            slipped: next.slipped,
        };
        if let Some(on_slip) = on_slip.filter(|_| next.slipped) {
            on_slip(&told, *data);
        }
        place.fill(told);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn loopscope_stm_pace_end(pace: *mut Paced) {
    take(pace);
}
