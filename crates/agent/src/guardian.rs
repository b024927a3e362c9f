//! A process that undoes a run's ledger when the agent that keeps it is killed.
//!
//! It is this same binary, started before anything is made, in a session of its own and outside of
//! the run's cgroup: what kills the agent's process group or the run does not reach it. A pipe from
//! the agent tells it how the agent has ended.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::unistd::setsid;

use crate::ledger::Ledger;
use crate::processes::Identity;
use crate::reset::{Report, reset_ledger};
use crate::rights;

/// The name of the subcommand that calls [`guard`].
pub const SUBCOMMAND: &str = "guardian";
/// What the agent sends when it has done all by itself.
const DISMISSED: u8 = b'.';
/// Time between two looks at an agent that is about to be gone.
const PAUSE: Duration = Duration::from_millis(1);

/// An agent's guardian.
#[derive(Debug)]
pub(crate) struct Guardian(Child);

impl Guardian {
    /// Starts it, with `has_rights` with the agent's capabilities. There must be one thread.
    #[allow(unsafe_code)]
    pub(crate) fn start(program: &Path, ledger: &Ledger, has_rights: bool) -> io::Result<Guardian> {
        let mut command = Command::new(program);
        command
            .arg(SUBCOMMAND)
            .arg(ledger.path())
            .arg(std::process::id().to_string())
            // Neither a mark nor a descriptor of the agent's: who reads its output would wait.
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let before_exec = move || {
            setsid()?;
            if has_rights { rights::pass_on() } else { Ok(()) }
        };
        // SAFETY: the closure makes the system calls setsid, capget, capset and prctl, which are
        // async-signal-safe; it neither allocates nor locks.
        unsafe { command.pre_exec(before_exec) };
        Ok(Guardian(command.spawn()?))
    }

    /// Its process number.
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Ends it: there is nothing for it to do.
    pub(crate) fn dismiss(mut self) {
        // If it has been killed, that is as well.
        let _ = self.0.stdin.take().map(|mut pipe| pipe.write_all(&[DISMISSED]));
        let _ = self.0.wait();
    }
}

/// Waits for the end of process `agent`, which is at the other end of standard input, and undoes
/// its ledger unless the agent has.
pub fn guard(ledger: &Path, agent: i32) -> io::Result<Report> {
    let agent = Identity::of(agent);
    let mut told = vec![];
    io::stdin().read_to_end(&mut told)?;
    if told == [DISMISSED] {
        return Ok(Report::default());
    }
    // The pipe closes a moment before the process is gone.
    while agent.is_some_and(Identity::is_alive) {
        std::thread::sleep(PAUSE);
    }
    Ok(reset_ledger(ledger))
}
