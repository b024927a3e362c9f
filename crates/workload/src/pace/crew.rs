//! Several sending processes, forked from one that starts them at one instant and adds up what they
//! did.

#![allow(unsafe_code)] // fork alone.

use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, Write, pipe};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use loopscope_time::MonotonicNs;
use loopscope_timer::now;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork};
use serde::{Deserialize, Serialize};

use super::options::Task;
use super::outlet::Outlet;
use super::sent::{Second, SentParts};
use super::signals::Signals;
use super::work::Worker;

/// Between the decision to start and the start itself, for each process: it has to wake.
const START_NS: u64 = 10_000_000;

/// What a process says to the one that forked it, a line each.
#[derive(Serialize, Deserialize)]
enum Line {
    Second(u64, Second),
    Sent(Box<SentParts>),
    Failed(String),
}

/// A process that waits for its start.
struct Member {
    pid: Pid,
    start: PipeWriter,
    lines: PipeReader,
}

/// The processes. Dropped before they have ended, they are killed.
pub(super) struct Crew {
    members: Vec<Member>,
}

impl Drop for Crew {
    fn drop(&mut self) {
        for member in &self.members {
            let _ = kill(member.pid, Signal::SIGKILL);
            let _ = waitpid(member.pid, None);
        }
    }
}

impl Crew {
    /// Forks a process for each of `outlets`.
    pub(super) fn fork(
        task: &Task,
        outlets: Vec<Outlet>,
        run: u32,
        signals: &Signals,
    ) -> Result<Crew> {
        let mut crew = Crew { members: Vec::new() };
        for (process, outlet) in (0..).zip(outlets) {
            let (start_reader, start) = pipe().context("cannot make a pipe")?;
            let (lines, lines_writer) = pipe().context("cannot make a pipe")?;
            // SAFETY: the child runs code that may allocate and take locks. This program has no
            // other thread that could hold one at this time; glibc hands its own over in order.
            match unsafe { fork() }.context("cannot fork")? {
                ForkResult::Parent { child } => {
                    crew.members.push(Member { pid: child, start, lines });
                }
                ForkResult::Child => {
                    // Else the others' ends would not be seen to close.
                    for other in std::mem::take(&mut crew.members) {
                        drop(other);
                    }
                    drop((start, lines));
                    let worker = Worker { task, process, run, signals };
                    member(&worker, outlet, start_reader, lines_writer);
                }
            }
        }
        Ok(crew)
    }

    /// Starts all at one instant and waits for their ends; `tell` is called with each process's
    /// seconds. Returns each process's account, in order.
    pub(super) fn run(
        mut self,
        signals: &Signals,
        mut tell: impl FnMut(u64, Second),
    ) -> Result<Vec<SentParts>> {
        let start = now().plus(START_NS * (1 + self.members.len() as u64 / 4));
        let (sender, heard) = mpsc::channel();
        let mut readers = Vec::new();
        for (process, member) in self.members.iter_mut().enumerate() {
            member
                .start
                .write_all(&start.0.to_le_bytes())
                .with_context(|| format!("process {process} has died"))?;
            let lines = member.lines.try_clone().context("cannot listen to a process")?;
            let sender = sender.clone();
            readers.push(thread::spawn(move || {
                for line in BufReader::new(lines).lines() {
                    let line = line.map_err(anyhow::Error::from);
                    let line = line.and_then(|line| Ok(serde_json::from_str::<Line>(&line)?));
                    if sender.send((process, line)).is_err() {
                        return;
                    }
                }
            }));
        }
        drop(sender);
        let mut accounts: Vec<Option<SentParts>> = self.members.iter().map(|_| None).collect();
        let mut stopping = false;
        loop {
            match heard.recv_timeout(Duration::from_millis(100)) {
                Ok((_, Ok(Line::Second(number, second)))) => tell(number, second),
                Ok((process, Ok(Line::Sent(account)))) => accounts[process] = Some(*account),
                Ok((process, Ok(Line::Failed(error)))) => bail!("process {process}: {error}"),
                Ok((process, Err(error))) => {
                    return Err(error.context(format!("process {process} says nonsense")));
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
            if signals.stop() && !stopping {
                // From a terminal they have it already; that is one and the same wish.
                stopping = true;
                for member in &self.members {
                    let _ = kill(member.pid, Signal::SIGUSR1);
                }
            }
        }
        let processes = accounts.into_iter().enumerate();
        let accounts = processes
            .map(|(process, account)| {
                account.ok_or_else(|| anyhow!("process {process} was killed: no account of it"))
            })
            .collect();
        for member in self.members.drain(..) {
            let _ = waitpid(member.pid, None);
        }
        accounts
    }
}

/// The life of a forked process.
fn member(worker: &Worker, outlet: Outlet, mut start: PipeReader, mut lines: PipeWriter) -> ! {
    // The one that forked it may have died just before: then no start comes.
    let _ = set_pdeathsig(Signal::SIGKILL);
    let mut bytes = [0; 8];
    let result = loopscope_trace::thread_init()
        .map_err(|problem| anyhow!("no events of this process: {problem}"))
        .or_else(|problem| {
            eprintln!("warning: {problem}");
            Ok(())
        })
        .and_then(|()| worker.settle())
        .and_then(|()| start.read_exact(&mut bytes).context("the run was given up"))
        .and_then(|()| {
            worker.signals.running();
            let start = MonotonicNs(u64::from_le_bytes(bytes));
            worker.work(outlet, start, |number, second| {
                say(&mut lines, &Line::Second(number, second))
            })
        });
    let (line, status) = match result {
        Ok(sent) => (Line::Sent(Box::new(sent.parts())), 0),
        Err(error) => (Line::Failed(format!("{error:#}")), 1),
    };
    say(&mut lines, &line);
    std::process::exit(status);
}

/// A line that cannot be said is missed, and then the process's account is.
fn say(lines: &mut PipeWriter, line: &Line) {
    if let Ok(mut text) = serde_json::to_string(line) {
        text.push('\n');
        let _ = lines.write_all(text.as_bytes());
    }
}
