//! `loopscope-host`: what runs on the measured machines.

mod agent;
mod attach;
mod control;
mod entities;
mod record;
mod recorder;
mod reset;
mod resume;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use loopscope_workload::{PipeArgs, StimulusArgs, main_pipe, main_stimulus};

/// The host side of loopscope.
///
/// One binary for everything that runs on a measured machine: the agent that the controller asks
/// for things, the recorder of a program's events, and the workloads of the shipped experiments.
#[derive(Parser)]
#[command(name = "loopscope-host", version, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Agent(agent::Arguments),
    Reset(reset::Arguments),
    Record(record::Arguments),
    Attach(attach::Arguments),
    Resume(resume::Arguments),
    Trigger(control::Trigger),
    Enable(control::Choose),
    /// Record entities no longer in a recording that goes on.
    Disable(control::Choose),
    Entities(entities::Arguments),
    Pipe(PipeArgs),
    Stimulus(StimulusArgs),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().verb {
        Verb::Agent(arguments) => agent::run(arguments),
        Verb::Reset(arguments) => reset::run(&arguments),
        Verb::Record(arguments) => record::run(arguments),
        Verb::Attach(arguments) => attach::run(arguments),
        Verb::Resume(arguments) => resume::run(&arguments),
        Verb::Trigger(arguments) => control::trigger(&arguments),
        Verb::Enable(arguments) => control::choose(&arguments, true),
        Verb::Disable(arguments) => control::choose(&arguments, false),
        Verb::Entities(arguments) => entities::run(&arguments),
        Verb::Pipe(arguments) => main_pipe(arguments).map(|()| ExitCode::SUCCESS),
        Verb::Stimulus(arguments) => main_stimulus(arguments).map(|()| ExitCode::SUCCESS),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("loopscope-host: {error:#}");
        ExitCode::FAILURE
    })
}
