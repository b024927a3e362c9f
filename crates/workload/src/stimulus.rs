//! The stimulus-response experiment: a server sends the time of its clock, a client compares it
//! with its own and acknowledges. It shows whether the hosts' own clocks agree, so time here is
//! each host's CLOCK_REALTIME.
//!
//! # Messages
//!
//! Over TCP with `TCP_NODELAY`. A stimulus has 48 bytes unless `size` says otherwise: its number
//! from 1 (u64), how many there will be (u64), the server's time in nanoseconds since 1970 (i64),
//! its own size (u32), all little-endian, then zeros. The acknowledgement is the number (u64). The
//! client closes the connection after the last one.
//!
//! # Events
//!
//! With the stimulus's number as id. `stimulus:sent`: the server has read its clock and is about to
//! hand the message to the kernel. `stimulus:received`: the client has the whole message and has
//! read its own clock. `stimulus:difference` follows with `difference_ns`, the client's time less
//! the server's. `stimulus:acknowledging`: the client is about to send the acknowledgement.
//! `stimulus:acknowledged`: the server has received it.
//!
//! # Phases
//!
//! `listen` (server) binds and publishes `port`; `connect` connects the client to the server that
//! `to` names; `run` exchanges the messages. Without an agent the program runs them by itself.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use loopscope_phase::{Config, Phase, Session, Values};
use loopscope_trace::event;

use crate::deadline::{Deadlines, realtime};
use crate::program::{NOT_CONNECTED, print, run};
use crate::quantity;
use crate::settings::Settings;
use crate::tcp::{LISTEN_KEYS, Link, ListenArgs, listen};

/// Bytes of a stimulus that mean something.
const HEAD: usize = 28;

/// The largest stimulus: more is a peer that does not speak this protocol.
const SIZE_LIMIT: usize = 16 << 20;

/// A program of the stimulus-response experiment.
#[derive(Clone, Debug, clap::Args)]
pub struct StimulusArgs {
    /// The role of this process.
    #[command(subcommand)]
    pub role: StimulusRole,
}

/// The programs of the experiment.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum StimulusRole {
    /// Send the local time and wait for the acknowledgement, again and again
    Server(ServerArgs),
    /// Compare each received time with the local one and acknowledge
    Client(ClientArgs),
}

/// Settings of the server.
#[derive(Clone, Debug, clap::Args)]
pub struct ServerArgs {
    /// Where to listen.
    #[command(flatten)]
    pub listen: ListenArgs,
    /// Stimuli to send
    #[arg(long, default_value_t = 100)]
    pub count: u64,
    /// Time between two stimuli, on absolute deadlines; none goes out before the acknowledgement
    #[arg(long, default_value = "10ms", value_parser = quantity::duration)]
    pub period: Duration,
    /// Size of a stimulus, 28B or more
    #[arg(long, default_value = "48B", value_parser = quantity::size)]
    pub size: u64,
}

/// Settings of the client.
#[derive(Clone, Debug, clap::Args)]
pub struct ClientArgs {
    /// The server: a component of the experiment, or host:port
    #[arg(long)]
    pub to: Option<String>,
}

/// Runs a program of the stimulus-response experiment to its end; prints a line about it, the
/// client one for each message as well.
pub fn main_stimulus(args: StimulusArgs) -> Result<()> {
    let phases: &[&str] = match args.role {
        StimulusRole::Server(_) => &["listen", "connect", "run"],
        StimulusRole::Client(_) => &["connect", "run"],
    };
    let session = Session::connect(phases, Config::default())?;
    let component = session.component().map(str::to_owned);
    match &args.role {
        StimulusRole::Server(args) => run(session, server(args, component.as_deref())),
        StimulusRole::Client(args) => run(session, client(args)),
    }
}

fn server(
    args: &ServerArgs,
    component: Option<&str>,
) -> impl FnMut(&Phase, &Config) -> Result<Values> {
    let known = [&["count", "period", "size"][..], &LISTEN_KEYS].concat();
    let mut listener = None;
    let mut connected = None;
    move |phase, config| {
        let settings = Settings::new(config, &known)?;
        match phase.name.as_str() {
            "listen" => {
                let plan = Plan {
                    count: settings.number("count", args.count, 1, i64::MAX as u64)?,
                    period: settings.duration("period", args.period)?,
                    size: settings.size("size", args.size, HEAD, SIZE_LIMIT)?,
                };
                let (bound, values) = listen(&args.listen, &settings, phase, component)?;
                listener = Some((bound, plan));
                return Ok(values);
            }
            "connect" => {
                let (listener, plan) = listener.take().context(NOT_CONNECTED)?;
                connected = Some((Link::accept(&listener, phase, component)?, plan));
            }
            _ => {
                let (link, plan) = connected.take().context(NOT_CONNECTED)?;
                stimulate(link, &plan)?;
            }
        }
        Ok(vec![])
    }
}

struct Plan {
    count: u64,
    period: Duration,
    size: usize,
}

fn stimulate(mut link: Link, plan: &Plan) -> Result<()> {
    let mut deadlines = Deadlines::from_now(plan.period)?;
    let mut message = vec![0; plan.size];
    let size = plan.size as u32;
    for number in 1..=plan.count {
        deadlines.wait()?;
        let time = realtime()?;
        message[..8].copy_from_slice(&number.to_le_bytes());
        message[8..16].copy_from_slice(&plan.count.to_le_bytes());
        message[16..24].copy_from_slice(&time.to_le_bytes());
        message[24..HEAD].copy_from_slice(&size.to_le_bytes());
        let sent = || event!("stimulus", "sent", number, size = size);
        link.send_message(number, sent, &message, format_args!("stimulus {number}"))?;

        let what = format_args!("acknowledgement {number}");
        let mut acknowledgement = [0; 8];
        let got = link.receive(&mut acknowledgement, what)?;
        ensure!(got == 8, "{} closed the connection before {what}", link.peer);
        link.received(number, || event!("stimulus", "acknowledged", number))?;
        let received = u64::from_le_bytes(acknowledgement);
        ensure!(
            received == number,
            "{} acknowledged stimulus {received} where {number} was due",
            link.peer
        );
    }
    link.finish("the end")?;
    print(format_args!("server: sent {} stimuli, all acknowledged", plan.count))
}

fn client(args: &ClientArgs) -> impl FnMut(&Phase, &Config) -> Result<Values> {
    let mut connected = None;
    move |phase, config| {
        let settings = Settings::new(config, &["to"])?;
        match phase.name.as_str() {
            "connect" => {
                let to = settings.text("to", args.to.clone())?.context(
                    "there is no `to`: say where the server is, by --to or `with: {to}`",
                )?;
                connected = Some(Link::connect(&to, phase)?);
            }
            _ => respond(connected.take().context(NOT_CONNECTED)?)?,
        }
        Ok(vec![])
    }
}

fn respond(mut link: Link) -> Result<()> {
    let mut differences = Differences::default();
    let mut message = Vec::new();
    loop {
        let number = differences.count + 1;
        let stimulus = receive(&mut link, &mut message, number)?;
        let own = realtime()?;
        link.received(number, || {
            event!("stimulus", "received", number, size = message.len() as u32);
        })?;
        let difference = own.checked_sub(stimulus.time).context("the server's clock is absurd")?;
        event!("stimulus", "difference", number, difference_ns = difference);
        let what = format_args!("acknowledgement {number}");
        let acknowledging = || event!("stimulus", "acknowledging", number);
        link.send_message(number, acknowledging, &number.to_le_bytes(), what)?;

        // Only now, so that the terminal does not count as response time.
        print(format_args!("stimulus {number}: difference {difference} ns"))?;
        if difference < 0 {
            eprintln!(
                "error: stimulus {number} arrived {} ns before it was sent, by the two hosts' own \
                 clocks",
                difference.unsigned_abs()
            );
        }
        differences.add(difference);
        if number == stimulus.count {
            link.record_departures()?;
            return print(format_args!("client: {differences}"));
        }
    }
}

struct Stimulus {
    count: u64,
    time: i64,
}

/// Receives stimulus `number`, all of it, into `message`.
fn receive(link: &mut Link, message: &mut Vec<u8>, number: u64) -> Result<Stimulus> {
    message.resize(HEAD, 0);
    let mut got = link.receive(message, format_args!("stimulus {number}"))?;
    if got == HEAD {
        let size = u32::from_le_bytes(part(message, 24)) as usize;
        let received = u64::from_le_bytes(part(message, 0));
        ensure!(
            received == number && (HEAD..=SIZE_LIMIT).contains(&size),
            "{} sent something else where stimulus {number} was due; is it a stimulus server?",
            link.peer
        );
        message.resize(size, 0);
        got += link.receive(&mut message[HEAD..], format_args!("stimulus {number}"))?;
    }
    if got < message.len() {
        bail!("{} closed the connection {got} bytes into stimulus {number}", link.peer);
    }
    Ok(Stimulus {
        count: u64::from_le_bytes(part(message, 8)),
        time: i64::from_le_bytes(part(message, 16)),
    })
}

/// The `N` bytes from `at` on.
fn part<const N: usize>(message: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&message[at..at + N]);
    part
}

/// Summary of differences in nanoseconds.
#[derive(Debug, Default)]
struct Differences {
    count: u64,
    negative: u64,
    sum: i128,
    least: Option<i64>,
    most: Option<i64>,
}

impl Differences {
    fn add(&mut self, difference: i64) {
        self.count += 1;
        self.negative += u64::from(difference < 0);
        self.sum += i128::from(difference);
        self.least = Some(self.least.map_or(difference, |least| least.min(difference)));
        self.most = Some(self.most.map_or(difference, |most| most.max(difference)));
    }
}

impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} stimuli, {} negative", self.count, self.negative)?;
        if let (Some(least), Some(most)) = (self.least, self.most) {
            let mean = self.sum as f64 / self.count as f64;
            write!(f, ", difference min {least} ns, mean {mean:.1} ns, max {most} ns")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_summed_up() {
        let mut differences = Differences::default();
        for difference in [-30, 100, 5] {
            differences.add(difference);
        }
        assert_eq!(
            differences.to_string(),
            "3 stimuli, 1 negative, difference min -30 ns, mean 25.0 ns, max 100 ns"
        );
    }
}
