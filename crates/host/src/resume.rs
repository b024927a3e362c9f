//! `loopscope-host resume`.

use std::path::PathBuf;
use std::process::ExitCode;

use loopscope_collect::attach::End;
use loopscope_collect::resume::Killed;
use loopscope_collect::{Cost, Error};

use crate::recorder::Attendant;

/// Go on with a recording whose recorder was killed, until its program ends or this is interrupted.
///
/// The program went on recording into its own memory; what has no room there is counted as dropped.
/// One that has ended since has left its memory. On Ctrl-C the recording is finished and the program
/// goes on. Ends with 2 if there is nothing to go on with.
#[derive(clap::Args)]
pub struct Arguments {
    /// The recording
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Print nothing but errors: who calls this reads loss.json
    #[arg(long)]
    quiet: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { dir, quiet } = arguments;
    let killed = match Killed::find(dir) {
        Err(error @ (Error::NotKilled(_) | Error::StillRecording { .. } | Error::Gone { .. })) => {
            eprintln!("loopscope-host: {error}");
            return Ok(ExitCode::from(2));
        }
        found => found?,
    };
    let what = dir.display().to_string();
    let pids: Vec<u32> = killed.pid().into_iter().collect();
    let mut attendant = Attendant::new("resume", what, &pids, killed.streams(), *quiet);
    let cost = Cost::measure(killed.frequency());
    if !quiet {
        eprintln!(
            "loopscope-host: going on with {}; Ctrl-C ends it, the program goes on",
            dir.display()
        );
    }
    let (end, losses) = killed.resume(cost, &mut attendant.each())?;
    if !quiet {
        let why = if end == End::Program { "the program has ended" } else { "asked to end" };
        eprintln!("loopscope-host: {why}");
    }
    attendant.report(cost, &losses);
    Ok(ExitCode::SUCCESS)
}
