//! `loopscope-host record`.

use std::ffi::OsString;
use std::process::ExitCode;

use loopscope_collect::record::{self, Exit, Options};
use loopscope_collect::{Cost, Identity};

use crate::recorder::{Attendant, Terms};

/// Run a program and record its events.
///
/// Writes DIR/trace, which babeltrace2 reads as it is, and DIR/loss.json, the account of every
/// event; other streams than the one called main go to DIR/streams. The sums are printed on standard
/// error. Ends with the program's own exit code, or with 128 and the number of the signal that killed
/// it.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    terms: Terms,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let Arguments { terms, command } = arguments;
    let identity = Identity::of_this_machine()?;
    let streams = terms.streams(&identity)?;
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    let mut attendant = Attendant::new("record", words.join(" "), &[], &streams, terms.quiet);
    let cost = Cost::measure(identity.frequency);
    let options = Options { command, out: terms.output, streams, identity, cost };
    let outcome = record::run(&options, &mut attendant.each())?;
    attendant.report(cost, &outcome.losses);
    Ok(ExitCode::from(match outcome.exit {
        // The system keeps eight bits of it.
        Exit::Code(code) => code as u8,
        Exit::Signal(signal) => 128 + signal as u8,
    }))
}
