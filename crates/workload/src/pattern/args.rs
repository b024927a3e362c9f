//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use loopscope_timer::Wait;

use crate::quantity;
use crate::tcp::ListenArgs;

/// Plays the types of a message table.
#[derive(Clone, Debug, clap::Args)]
pub struct PatternArgs {
    /// The role of this process.
    #[command(subcommand)]
    pub role: PatternRole,
}

/// The sides of a message pattern.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum PatternRole {
    /// Send the messages that a table gives to a producer
    Produce(ProduceArgs),
    /// Receive the messages that a table gives to a consumer
    Consume(ConsumeArgs),
}

/// What both sides need to know alike.
#[derive(Clone, Debug, clap::Args)]
pub struct TableArgs {
    /// Message table, CSV or YAML; in an experiment `with: {table: {file: NAME}}`
    #[arg(long)]
    pub table: Option<PathBuf>,
    /// Name in the table that this program plays; in an experiment the component's
    #[arg(long = "as")]
    pub name: Option<String>,
    /// Multiplies the producers of each type; the same on both sides
    #[arg(long, default_value_t = 1)]
    pub scale: u64,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Settings of a producer.
#[derive(Clone, Debug, clap::Args)]
pub struct ProduceArgs {
    /// The table.
    #[command(flatten)]
    pub table: TableArgs,
    /// Where a consumer listens, for each: NAME=HOST:PORT; in an experiment it is known
    #[arg(long, value_name = "NAME=HOST:PORT")]
    pub to: Vec<String>,
    /// How long to send
    #[arg(long, default_value = "10s", value_parser = quantity::duration)]
    pub duration: Duration,
    /// Seed of the types' first deadlines
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How to wait for a deadline
    #[arg(long, default_value = "sleep")]
    pub timer: TimerChoice,
}

/// Settings of a consumer.
#[derive(Clone, Debug, clap::Args)]
pub struct ConsumeArgs {
    /// The table.
    #[command(flatten)]
    pub table: TableArgs,
    /// Where to listen.
    #[command(flatten)]
    pub listen: ListenArgs,
    /// How long to wait for datagrams that are missing, after their producer has ended
    #[arg(long, default_value = "1s", value_parser = quantity::duration)]
    pub linger: Duration,
}

/// How to wait for a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TimerChoice {
    /// Sleep; late by what the kernel takes to wake a program
    Sleep,
    /// Sleep until shortly before, then spin
    SleepThenSpin,
    /// Spin; takes a whole core
    Spin,
}

impl From<TimerChoice> for Wait {
    fn from(choice: TimerChoice) -> Wait {
        match choice {
            TimerChoice::Sleep => Wait::Sleep,
            TimerChoice::SleepThenSpin => Wait::SleepThenSpin,
            TimerChoice::Spin => Wait::Spin,
        }
    }
}
