//! A run directory for tests: identities, sides, what babeltrace2 makes of a log.

#[path = "../../../../tests/skip.rs"]
pub mod skip;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use loopscope_clocksync::key::Key;
use loopscope_clocksync::probe::Side;
use loopscope_clocksync::record::{Filter, Identity};
use loopscope_time::Frequency;

/// Nominal frequency that the tests declare, as measured
/// against the kernel's clock.
pub fn frequency() -> Frequency {
    use loopscope_clocksync::stamp::Reading;
    let begin = Reading::take();
    let mut end = Reading::take();
    // 50 ms of the kernel's clock give the frequency to some ppm.
    while end.clock.0 - begin.clock.0 < 50_000_000 {
        end = Reading::take();
    }
    let ticks = u128::from(end.at.lo.0 - begin.at.lo.0);
    let ns = u128::try_from(end.clock.0 - begin.clock.0).unwrap();
    Frequency::from_hz(u64::try_from(ticks * 1_000_000_000 / ns).unwrap()).unwrap()
}

pub fn side(
    hosts: &Path,
    host: &str,
    address: IpAddr,
    frequency: Frequency,
    filter: Option<Filter>,
) -> Side {
    let byte = host.bytes().fold(7u8, |hash, b| hash.wrapping_mul(31).wrapping_add(b));
    let identity = Identity {
        host: host.into(),
        trace_uuid: [byte; 16],
        clock_uuid: [byte ^ 0x55; 16],
        frequency,
    };
    Side {
        address: SocketAddr::new(address, 0),
        directory: Some(probes(hosts, host)),
        identity,
        key: Key::new(b"of these tests alone").unwrap(),
        filter,
        faults: None,
        own_interface: false,
        before_stamps: None,
    }
}

pub fn probes(hosts: &Path, host: &str) -> PathBuf {
    hosts.join(host).join("clock/probes")
}

/// Events by name, as babeltrace2 counts them; `None` (said aloud) where it is not installed.
pub fn babeltrace_count(directory: &Path, name: &str) -> Option<usize> {
    let output = match Command::new("babeltrace2").arg(directory).output() {
        Ok(output) => output,
        Err(error) => {
            skip::skipped(&format!("needs babeltrace2 to count events ({error})"));
            return None;
        }
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "babeltrace2: {errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.lines().filter(|line| line.contains(&format!(" {name}: "))).count())
}
