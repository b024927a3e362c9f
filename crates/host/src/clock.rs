//! `loopscope-host clock`: one time for all hosts, with no experiment around it.

mod counts;
mod peers;
mod place;
mod processors;
mod service;
mod status;

use std::process::ExitCode;

use loopscope_clock_verify as verify;

/// Give all hosts one time, which programs read from a page of shared memory.
///
/// One host serves, the others join it; their counters are compared, no machine's clock is touched.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    Serve(service::Serve),
    Join(service::Join),
    Status(status::Arguments),
    Verify(verify::Arguments),
    #[command(hide = true)]
    Processors,
    #[command(hide = true)]
    VerifyHost(verify::HostArguments),
}

/// Exit code if there is no clock.
const NO_CLOCK: u8 = 2;

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let outcome = match arguments.verb {
        Verb::Serve(arguments) => service::serve(arguments),
        Verb::Join(arguments) => service::join(arguments),
        Verb::Status(arguments) => status::run(&arguments),
        Verb::Processors => processors::run(),
        Verb::Verify(arguments) => return verify::run(&arguments),
        Verb::VerifyHost(arguments) => return verify::run_host(&arguments),
    };
    // `loopscope clock` becomes this process, and 1 is what a FAIL ends with there.
    outcome.or_else(|error| {
        eprintln!("loopscope-host: {error:#}");
        Ok(ExitCode::from(NO_CLOCK))
    })
}
