//! The page through its reader in C.

mod arithmetic;
mod file;
mod handover;
mod model;

use std::path::Path;

use loopscope_clock::Status;
use loopscope_time::{Counter, Frequency, GlobalNs};

use super::{PageWriter, Role, Service};
use crate::state::State;
use crate::utc::{Reason, Standing};

const SERVICE: Service =
    Service { role: Role::Follower, utc: Standing::Unsynchronised(Reason::NotTold) };

fn writer(path: &Path) -> PageWriter {
    PageWriter::create(path, Frequency::from_hz(2_600_000_000).unwrap()).unwrap()
}

/// Any state that holds.
fn state() -> State {
    State {
        epoch: 3,
        status: Status::Synchronised,
        anchor: Counter(1 << 40),
        global: GlobalNs(5_000_000_000),
        fraction_ns: 0.25,
        below_ns: 120.5,
        above_ns: 80.0,
        calibrated_ns: 30.0,
        apart_ns: 0.0,
        ns_per_tick: 0.5,
        drift: 1e-6,
        since: Counter(0),
        stale: Counter((1 << 40) + 15_000_000_000),
        expires: Counter((1 << 40) + 20_000_000_000),
    }
}
