//! `loopscope-host`: the program that runs on the measured machines, with one subcommand for each
//! task.

mod agent;
mod attach;
mod clock;
mod control;
mod dormant;
mod emulate;
mod entities;
mod guardian;
mod limited;
mod net;
mod programs;
mod record;
mod recorder;
mod reset;
mod resume;
mod scoped;
mod setup;
mod spools;
mod stack;
mod stack_table;
mod stm;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use loopscope_time::source::{VARIABLE, check_variable};
use loopscope_workload::{
    BurnArgs, CommandsArgs, CompileOneArgs, EttcpArgs, PaceArgs, PatternArgs, PipeArgs, StallArgs,
    StimulusArgs, main_burn, main_commands, main_compile_one, main_ettcp, main_pace, main_pattern,
    main_pipe, main_stall, main_stimulus,
};

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
    /// Print what runs of `testbed: ssh` measured here and no desk has collected, as JSON:
    /// [{"name": …, "bytes": …, "in_use": …}, …].
    Spools,
    Setup(setup::Arguments),
    /// Print what this process may do that an ordinary user may not, as JSON:
    /// {"network": …, "tun": …, "realtime": …}.
    Rights,
    /// Print whether programs can record in this kernel (events of the classes sleep, tcp, udp and
    /// drop), as JSON: {"works": …, "why": …}.
    Programs,
    Record(record::Arguments),
    Attach(attach::Arguments),
    Resume(resume::Arguments),
    Trigger(control::Trigger),
    Enable(control::Choose),
    /// Record entities no longer in a recording that goes on.
    Disable(control::Choose),
    Entities(entities::Arguments),
    Clock(clock::Arguments),
    Emulate(emulate::Arguments),
    Pattern(PatternArgs),
    Net(net::Arguments),
    Pipe(PipeArgs),
    Stimulus(StimulusArgs),
    Pace(PaceArgs),
    Ettcp(EttcpArgs),
    Burn(BurnArgs),
    Stall(StallArgs),
    Commands(CommandsArgs),
    Stm(stm::Arguments),
    Stack(stack::Arguments),
    #[command(name = loopscope_agent::guardian::SUBCOMMAND, hide = true)]
    Guardian(guardian::Arguments),
    /// Do what the first line of standard input says, with a few of root's rights: for sudo.
    #[command(name = loopscope_agent::installation::SUBCOMMAND, hide = true)]
    Limited,
    Scoped(scoped::Arguments),
    #[command(hide = true)]
    CompileOne(CompileOneArgs),
}

fn main() -> ExitCode {
    let verb = Arguments::parse().verb;
    if let Err(error) = check_variable() {
        eprintln!("loopscope-host: {VARIABLE}: {error}");
        return ExitCode::FAILURE;
    }
    let outcome = match verb {
        Verb::Agent(arguments) => agent::run(arguments, None),
        Verb::Reset(arguments) => reset::run(&arguments),
        Verb::Spools => spools::run(),
        Verb::Setup(arguments) => setup::run(&arguments),
        Verb::Rights => limited::rights(true),
        Verb::Programs => programs::run(),
        Verb::Limited => limited::run(),
        Verb::Scoped(arguments) => scoped::run(&arguments),
        Verb::Guardian(arguments) => guardian::run(&arguments),
        Verb::Record(arguments) => record::run(arguments),
        Verb::Attach(arguments) => attach::run(arguments),
        Verb::Clock(arguments) => clock::run(arguments),
        Verb::Resume(arguments) => resume::run(&arguments),
        Verb::Trigger(arguments) => control::trigger(&arguments),
        Verb::Enable(arguments) => control::choose(&arguments, true),
        Verb::Disable(arguments) => control::choose(&arguments, false),
        Verb::Entities(arguments) => entities::run(&arguments),
        Verb::Stm(arguments) => stm::run(arguments),
        Verb::Stack(arguments) => stack::run(arguments),
        Verb::Emulate(arguments) => emulate::run(&arguments),
        Verb::Pattern(arguments) => main_pattern(arguments).map(|()| ExitCode::SUCCESS),
        Verb::Net(arguments) => net::run(&arguments),
        Verb::Pipe(arguments) => main_pipe(arguments).map(|()| ExitCode::SUCCESS),
        Verb::Stimulus(arguments) => main_stimulus(arguments).map(|()| ExitCode::SUCCESS),
        Verb::Pace(arguments) => main_pace(arguments).map(|()| ExitCode::SUCCESS),
        Verb::Ettcp(arguments) => main_ettcp(arguments).map(|()| ExitCode::SUCCESS),
        Verb::Burn(arguments) => main_burn(&arguments).map(|()| ExitCode::SUCCESS),
        Verb::Stall(arguments) => main_stall(&arguments).map(|()| ExitCode::SUCCESS),
        Verb::Commands(arguments) => main_commands(arguments).map(|()| ExitCode::SUCCESS),
        Verb::CompileOne(arguments) => main_compile_one(&arguments).map(|()| ExitCode::SUCCESS),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("loopscope-host: {error:#}");
        ExitCode::FAILURE
    })
}
