//! `loopscope-host reset`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use loopscope_agent::{control, ledger, reset, spool};
use loopscope_collect::sweep;

/// Undo what crashed runs left on this machine.
///
/// Removes the processes, network namespaces and directories that are in the ledgers of runs whose
/// agent or controller is gone, and what instrumented programs and recorders of this user left in
/// /dev/shm and their control sockets when they were killed. Runs that go on are left alone, and so are killed recordings whose
/// programs run: they can be resumed. Ends with 1 if something could not be undone.
#[derive(clap::Args)]
pub struct Arguments {
    /// Print {"removed": [...], "in_use": [...], "left": [...], "problems": [...]}
    #[arg(long)]
    json: bool,
    /// Also delete what runs of `testbed: ssh` measured here and no desk has collected
    #[arg(long)]
    data: bool,
    /// Also delete the programs that desks have sent
    #[arg(long)]
    cache: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    run_in(arguments, &ledger::state_dir())
}

pub fn run_in(arguments: &Arguments, state_dir: &Path) -> anyhow::Result<ExitCode> {
    let mut report = reset::reset(state_dir)
        .with_context(|| format!("cannot read the ledgers in {}", state_dir.display()))?;
    let runs_go_on = !report.in_use.is_empty();
    let sockets = control::sweep(state_dir)
        .with_context(|| format!("cannot look for sockets in {}", state_dir.display()))?;
    let left =
        |path: &PathBuf| format!("{}, the socket of a process that was killed", path.display());
    report.removed.extend(sockets.iter().map(left));
    let runtime_dir = sweep::default_runtime_dir();
    let (removed, problems) = sweep::sweep(&runtime_dir)
        .with_context(|| format!("cannot read {}", runtime_dir.display()))?;
    let left = |path: &PathBuf| format!("{}, of a program that was killed", path.display());
    report.removed.extend(removed.iter().map(left));
    report.problems.extend(problems);
    let recordings = sweep::sweep_recordings().context("cannot look for killed recordings")?;
    let left = |path: &PathBuf| format!("{}, of a recorder that was killed", path.display());
    report.removed.extend(recordings.removed.iter().map(left));
    report.in_use.extend(recordings.running.iter().map(|(dir, out, resumable)| {
        let (dir, out) = (dir.display(), out.display());
        let what = if *resumable {
            format!("can be resumed: loopscope resume {out}")
        } else {
            format!("{out} is gone, its programs still run: end them and reset again")
        };
        format!("{dir}, of a recorder that was killed; {what}")
    }));
    report.problems.extend(recordings.problems);
    if arguments.data
        && let Some(folder) = spool::folder()
    {
        spool::remove(&folder, &mut report)
            .with_context(|| format!("cannot read {}", folder.display()))?;
    }
    if arguments.cache
        && let Some(folder) = spool::cache()
    {
        spool::remove_cache(&folder, runs_go_on, &mut report)
            .with_context(|| format!("cannot read {}", folder.display()))?;
    }
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        report.removed.iter().for_each(|what| println!("removed {what}"));
        report.in_use.iter().for_each(|what| println!("in use: {what}"));
        report.left.iter().for_each(|what| println!("left alone: {what}"));
        report.problems.iter().for_each(|what| println!("problem: {what}"));
        let all = [&report.removed, &report.in_use, &report.left, &report.problems];
        if all.iter().all(|each| each.is_empty()) {
            println!("nothing to undo");
        }
    }
    Ok(if report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
