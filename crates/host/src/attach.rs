//! `loopscope-host attach`.

use std::process::ExitCode;
use std::time::Duration;

use loopscope_collect::attach::{self, End, Options};
use loopscope_collect::{Cost, Identity, entities};

use crate::recorder::{Attendant, Terms};

/// Record a program that runs already, until it ends, this is interrupted, or the time is up.
///
/// The program has been started with nothing but the library, and goes on as before when it is let
/// go. Writes the same as record. Needs to be of the program's user, or root.
#[derive(clap::Args)]
pub struct Arguments {
    /// The program
    #[arg(value_name = "PID")]
    pid: u32,
    #[command(flatten)]
    terms: Terms,
    /// For how long [default: until the program ends]
    #[arg(long = "for", value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds")?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { pid, terms, duration } = arguments;
    let identity = Identity::of_this_machine()?;
    let streams = terms.streams(&identity)?;
    // Before anything is said of it.
    entities::directories_of(pid)?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let what = format!("{pid} ({})", name.trim_end());
    let mut attendant = Attendant::new("attach", what.clone(), &[pid], &streams, terms.quiet);
    let cost = Cost::measure(identity.frequency);
    let options = Options { pid, out: terms.output, streams, identity, cost, duration };
    if !terms.quiet {
        eprintln!("loopscope-host: recording process {what}; Ctrl-C ends it, the program goes on");
    }
    let (end, losses) = attach::run(&options, &mut attendant.each())?;
    if !terms.quiet {
        let why = match end {
            End::Program => "the program has ended",
            End::Signal => "asked to end",
            End::Time => "the time is up",
        };
        eprintln!("loopscope-host: {why}");
    }
    attendant.report(cost, &losses);
    Ok(ExitCode::SUCCESS)
}
