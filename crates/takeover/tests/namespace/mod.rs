//! A network namespace for a test.

use std::process::Command;

use nix::sched::{CloneFlags, unshare};
use nix::unistd::geteuid;

use crate::skip;

/// Runs in a network namespace of its own, which ends with the thread.
pub fn in_namespace(test: impl FnOnce() + Send + 'static) {
    if !geteuid().is_root() {
        return skip::skipped("a network namespace needs root");
    }
    let thread = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace can be made");
        let up = ["link", "set", "lo", "up", "mtu", "1500"];
        assert!(Command::new("ip").args(up).status().expect("ip runs").success());
        test();
    });
    thread.join().expect("the test did not fail");
}
