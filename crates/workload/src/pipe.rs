//! The distributed pipeline: a source sends small messages to the first of a row of nodes, each
//! forwards them to the next, and a sink discards them. With source and sink on one host it is the
//! shape of a control loop.
//!
//! # Messages
//!
//! Over TCP with `TCP_NODELAY`, in two sends: the content's size (four bytes, big-endian), then the
//! content. The first six bytes of the content are the message's number, from 1, little-endian; the
//! rest is zero. So the smallest size is 6 B, the default. A size of zero ends the stream. A
//! program that has sent it waits until its peer has closed the connection: the end reaches the
//! sink first, and a source that ends without error knows that the sink got everything.
//!
//! # Pace
//!
//! The source sends on absolute deadlines, the first at once, each a period after the last. A stall
//! shifts none of them: those overdue go out at once, one after the other, until the source has
//! caught up. The lateness of a send is how long after its deadline it began.
//!
//! # Events
//!
//! `pipe:sent` and `pipe:received` with the message's number as id and its `size` in bytes. `sent`
//! is stamped after the size and just before the call that hands the content to the kernel,
//! `received` after the call that returned the content's last byte. A hop therefore is never
//! negative but for the error of the clocks.
//!
//! # Phases
//!
//! `listen` (node, sink) binds and publishes `port`; `connect` connects to the component that `to`
//! names and accepts the one that comes; `run` sends, forwards and receives until the stream ends.
//! Without an agent the program runs them by itself.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use loopscope_phase::{Config, Phase, Session, Values};
use loopscope_trace::event;

use crate::deadline::Deadlines;
use crate::program::{NOT_CONNECTED, print, run};
use crate::quantity;
use crate::settings::Settings;
use crate::tcp::{LISTEN_KEYS, Link, ListenArgs, listen};

/// Bytes of a content that hold the message's number.
const NUMBER_BYTES: usize = 6;

/// The largest content: more is a peer that does not speak this protocol.
const SIZE_LIMIT: usize = 16 << 20;

/// The largest number that fits.
const NUMBER_LIMIT: u64 = (1 << (8 * NUMBER_BYTES)) - 1;

/// A program of the distributed pipeline.
#[derive(Clone, Debug, clap::Args)]
pub struct PipeArgs {
    /// The role of this process.
    #[command(subcommand)]
    pub role: PipeRole,
}

/// The programs of the pipeline.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum PipeRole {
    /// Send messages at a steady pace
    Source(SourceArgs),
    /// Forward each message to the next node
    Node(NodeArgs),
    /// Receive and discard the messages
    Sink(SinkArgs),
}

/// Settings of the source.
#[derive(Clone, Debug, clap::Args)]
pub struct SourceArgs {
    /// Where to send: a component of the experiment, or host:port
    #[arg(long)]
    pub to: Option<String>,
    /// Messages to send
    #[arg(long, default_value_t = 1000)]
    pub count: u64,
    /// Time between two messages, on absolute deadlines: after a stall those overdue go out at once
    #[arg(long, default_value = "10ms", value_parser = quantity::duration)]
    pub period: Duration,
    /// Content of a message, 6B or more
    #[arg(long, default_value = "6B", value_parser = quantity::size)]
    pub size: u64,
}

/// Settings of a node.
#[derive(Clone, Debug, clap::Args)]
pub struct NodeArgs {
    /// Where to listen.
    #[command(flatten)]
    pub listen: ListenArgs,
    /// Where to forward: a component of the experiment, or host:port
    #[arg(long)]
    pub to: Option<String>,
}

/// Settings of the sink.
#[derive(Clone, Debug, clap::Args)]
pub struct SinkArgs {
    /// Where to listen.
    #[command(flatten)]
    pub listen: ListenArgs,
}

/// Runs a program of the pipeline to its end; prints a line about it.
pub fn main_pipe(args: PipeArgs) -> Result<()> {
    let phases: &[&str] = match args.role {
        PipeRole::Source(_) => &["connect", "run"],
        PipeRole::Node(_) | PipeRole::Sink(_) => &["listen", "connect", "run"],
    };
    let session = Session::connect(phases, Config::default())?;
    let component = session.component().map(str::to_owned);
    let component = component.as_deref();
    match &args.role {
        PipeRole::Source(args) => run(session, source(args)),
        PipeRole::Node(args) => run(session, receiver(&args.listen, Some(args), component)),
        PipeRole::Sink(args) => run(session, receiver(&args.listen, None, component)),
    }
}

fn source(args: &SourceArgs) -> impl FnMut(&Phase, &Config) -> Result<Values> {
    let mut connected = None;
    move |phase, config| {
        let settings = Settings::new(config, &["to", "count", "period", "size"])?;
        match phase.name.as_str() {
            "connect" => {
                // All are read before the connection: a bad setting ends the program before its peer
                // has seen it.
                let count = settings.number("count", args.count, 1, NUMBER_LIMIT)?;
                let period = settings.duration("period", args.period)?;
                let size = settings.size("size", args.size, NUMBER_BYTES, SIZE_LIMIT)?;
                let outlet = Outlet::connect(&settings, args.to.clone(), phase)?;
                connected = Some((outlet, count, period, size));
            }
            _ => {
                let (outlet, count, period, size) = connected.take().context(NOT_CONNECTED)?;
                send_all(outlet, count, period, size)?;
            }
        }
        Ok(vec![])
    }
}

fn send_all(mut outlet: Outlet, count: u64, period: Duration, size: usize) -> Result<()> {
    let mut content = vec![0; size];
    let mut largest = Duration::ZERO;
    let begin = Instant::now();
    let mut deadlines = Deadlines::from_now(period)?;
    for number in 1..=count {
        content[..NUMBER_BYTES].copy_from_slice(&number.to_le_bytes()[..NUMBER_BYTES]);
        let deadline = deadlines.wait()?;
        largest = largest.max(Deadlines::lateness(deadline)?);
        outlet.send(number, &content)?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    outlet.finish(count)?;
    print(format_args!(
        "source: sent {count} messages in {seconds:.3} s, largest lateness of a send {:.1} us",
        largest.as_secs_f64() * 1e6
    ))
}

/// A node, which has a next one to forward to, or the sink.
fn receiver(
    args: &ListenArgs,
    node: Option<&NodeArgs>,
    component: Option<&str>,
) -> impl FnMut(&Phase, &Config) -> Result<Values> {
    let known = if node.is_some() { &["to"][..] } else { &[] };
    let known = [known, &LISTEN_KEYS].concat();
    let mut listener = None;
    let mut connected = None;
    move |phase, config| {
        let settings = Settings::new(config, &known)?;
        match phase.name.as_str() {
            "listen" => {
                let (bound, values) = listen(args, &settings, phase, component)?;
                listener = Some(bound);
                return Ok(values);
            }
            "connect" => {
                let listener = listener.take().context(NOT_CONNECTED)?;
                let outlet = match node {
                    Some(node) => Some(Outlet::connect(&settings, node.to.clone(), phase)?),
                    None => None,
                };
                let inlet = Inlet::new(Link::accept(&listener, phase, component)?);
                connected = Some((inlet, outlet));
            }
            _ => {
                let (inlet, outlet) = connected.take().context(NOT_CONNECTED)?;
                receive_all(inlet, outlet)?;
            }
        }
        Ok(vec![])
    }
}

fn receive_all(mut inlet: Inlet, mut outlet: Option<Outlet>) -> Result<()> {
    while let Some(number) = inlet.receive()? {
        if let Some(outlet) = &mut outlet {
            outlet.send(number, &inlet.content)?;
        }
    }
    let count = inlet.last;
    let line = match outlet {
        Some(outlet) => {
            outlet.finish(count)?;
            format!("node: forwarded {count} messages")
        }
        None => format!("sink: received {count} messages"),
    };
    print(format_args!("{line}"))
}

/// The sending end of a hop.
struct Outlet(Link);

impl Outlet {
    fn connect(settings: &Settings, to: Option<String>, phase: &Phase) -> Result<Outlet> {
        let to = settings.text("to", to)?;
        let to =
            to.context("there is no `to`: say where the messages go, by --to or `with: {to}`")?;
        Ok(Outlet(Link::connect(&to, phase)?))
    }

    fn send(&mut self, number: u64, content: &[u8]) -> Result<()> {
        let size = content.len() as u32;
        let what = format_args!("message {number}");
        self.0.send(&size.to_be_bytes(), what)?;
        self.0.send_message(number, || event!("pipe", "sent", number, size = size), content, what)
    }

    /// Ends the stream after message `last`.
    fn finish(mut self, last: u64) -> Result<()> {
        let what = format_args!("the end of the stream after message {last}");
        self.0.send(&0_u32.to_be_bytes(), what)?;
        self.0.finish(what)
    }
}

/// The receiving end of a hop.
struct Inlet {
    link: Link,
    content: Vec<u8>,
    /// Number of the last message; 0: none yet.
    last: u64,
}

impl Inlet {
    fn new(link: Link) -> Inlet {
        Inlet { link, content: Vec::new(), last: 0 }
    }

    /// Receives the next message into `content` and returns its number; `None` at the stream's end.
    fn receive(&mut self) -> Result<Option<u64>> {
        let number = self.last + 1;
        let mut size = [0; 4];
        let got = self.link.receive(&mut size, format_args!("message {number}"))?;
        if got < size.len() {
            bail!(
                "{} closed the connection before the end of the stream, {got} bytes into message \
                 {number}",
                self.link.peer
            );
        }
        let size = u32::from_be_bytes(size);
        if size == 0 {
            return Ok(None);
        }
        ensure!(
            (NUMBER_BYTES..=SIZE_LIMIT).contains(&(size as usize)),
            "{} sent a message of {size} bytes where number {number} was due; is it a pipe \
             program?",
            self.link.peer
        );
        self.content.resize(size as usize, 0);
        let got = self.link.receive(&mut self.content, format_args!("message {number}"))?;
        if got < self.content.len() {
            bail!(
                "{} closed the connection in message {number}, after {got} of its {size} bytes",
                self.link.peer
            );
        }
        let mut received = [0; 8];
        received[..NUMBER_BYTES].copy_from_slice(&self.content[..NUMBER_BYTES]);
        let received = u64::from_le_bytes(received);
        self.link.received(received, || event!("pipe", "received", received, size = size))?;
        ensure!(
            received == number,
            "{} sent message {received} where {number} was due",
            self.link.peer
        );
        self.last = number;
        Ok(Some(number))
    }
}
