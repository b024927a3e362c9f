//! A router from its document to its report.

use std::io;

use loopscope_timer::now;

use crate::EmulateError;
use crate::control::Commands;
use crate::engine::Engine;
use crate::iproute;
use crate::kernel::Kernel;
use crate::mover::Mover;
use crate::mover::endpoint::Endpoint;
use crate::mover::packet::Packets;
use crate::mover::xdp::Xdp;
use crate::netem;
use crate::report::Report;
use crate::settings::{self, Document};

/// A router that is ready to work: it holds its devices.
#[derive(Debug)]
pub struct Emulator {
    document: Document,
    engine: Moved,
    why: String,
}

#[derive(Debug)]
enum Moved {
    Xdp(Engine<Xdp>),
    Tap(Engine<Packets>),
    Netem(Kernel),
    Endpoint(Engine<Endpoint>),
}

/// The document that `text` says; the error names the key.
pub fn read(text: &str) -> Result<Document, EmulateError> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let document: Document = serde_path_to_error::deserialize(&mut reader)
        .map_err(|error| EmulateError::Document(error.to_string()))?;
    reader.end().map_err(|error| EmulateError::Document(error.to_string()))?;
    check(&document)?;
    Ok(document)
}

/// Reads a document from a value; see [`read`].
pub fn read_value(value: &serde_json::Value) -> Result<Document, EmulateError> {
    let document: Document = serde_path_to_error::deserialize(value)
        .map_err(|error| EmulateError::Document(error.to_string()))?;
    check(&document)?;
    Ok(document)
}

fn check(document: &Document) -> Result<(), EmulateError> {
    if document.version != 1 {
        let what = format!("`version`: it is {}, this program reads 1", document.version);
        return Err(EmulateError::Document(what));
    }
    Ok(())
}

impl Emulator {
    /// Takes the document's devices, which are in the current network namespace, and from then on
    /// their frames.
    pub fn open(document: Document) -> Result<Emulator, EmulateError> {
        match (document.sender.clone(), document.router.clone()) {
            (None, None) => {}
            (Some(_), Some(_)) => {
                let what = "`router`: with `sender`, each host impairs what it sends itself";
                return Err(EmulateError::Document(what.to_owned()));
            }
            (Some(sender), None) => {
                let why = format!("{sender} impairs what it sends");
                return Emulator::of_host(document, &sender, why);
            }
            (None, Some(router)) => {
                let why = format!("{router} impairs what it forwards");
                return Emulator::of_host(document, &router, why);
            }
        }
        let ports = &document.ports;
        let (engine, why) = match document.mover {
            settings::Mover::Xdp => {
                let engine = Engine::new(&document, Xdp::open(ports)?, now())?;
                (Moved::Xdp(engine), "asked for".to_owned())
            }
            settings::Mover::Tap => {
                let engine = Engine::new(&document, Packets::open(ports)?, now())?;
                (Moved::Tap(engine), "asked for".to_owned())
            }
            settings::Mover::Auto => match Xdp::open(ports) {
                Ok(mover) => {
                    let engine = Engine::new(&document, mover, now())?;
                    (Moved::Xdp(engine), "the fastest that works here".to_owned())
                }
                Err(error) => {
                    let engine = Engine::new(&document, Packets::open(ports)?, now())?;
                    (Moved::Tap(engine), format!("xdp does not work: {error}"))
                }
            },
            settings::Mover::Netem => {
                iproute::try_out_netem().map_err(EmulateError::NoNetem)?;
                let kernel = Kernel::open(&document, netem::words, now())?;
                (Moved::Netem(kernel), "asked for".to_owned())
            }
        };
        Ok(Emulator { document, engine, why })
    }

    /// At a host of its own, which sends or forwards.
    fn of_host(mut document: Document, host: &str, why: String) -> Result<Emulator, EmulateError> {
        if !matches!(document.mover, settings::Mover::Auto | settings::Mover::Tap) {
            let what = "`mover`: a host of its own moves packets by tap alone";
            return Err(EmulateError::Document(what.to_owned()));
        }
        let endpoint = Endpoint::open(&document, host)?;
        for port in &mut document.ports {
            endpoint.device().clone_into(&mut port.device);
        }
        let engine = Moved::Endpoint(Engine::new(&document, endpoint, now())?);
        Ok(Emulator { document, engine, why })
    }

    /// What moves the packets, and why that.
    pub fn mover(&self) -> (&'static str, &str) {
        let name = match &self.engine {
            Moved::Xdp(_) => "xdp",
            Moved::Tap(_) | Moved::Endpoint(_) => "tap",
            Moved::Netem(_) => "netem",
        };
        (name, &self.why)
    }

    /// Works until told to end. The report comes also where an error has ended it.
    pub fn run(&mut self, commands: &Commands) -> (Report, Result<(), EmulateError>) {
        let mover = (self.mover().0, self.why.clone());
        let document = &self.document;
        match &mut self.engine {
            Moved::Xdp(engine) => work(engine, document, mover, commands),
            Moved::Tap(engine) => work(engine, document, mover, commands),
            Moved::Endpoint(engine) => work(engine, document, mover, commands),
            Moved::Netem(kernel) => {
                let result = kernel.run(commands);
                (kernel.report(document, mover), result)
            }
        }
    }
}

fn work<M: Mover>(
    engine: &mut Engine<M>,
    document: &Document,
    mover: (&'static str, String),
    commands: &Commands,
) -> (Report, Result<(), EmulateError>) {
    let result = precise_sleeps().and_then(|()| engine.run(commands, document.wait));
    let (lost, problems) = engine.close();
    (Report::new(document, mover, engine.links(), &lost, None, problems), result)
}

/// Has the kernel end this thread's sleeps as soon as it can, not within 50 us.
fn precise_sleeps() -> Result<(), EmulateError> {
    nix::sys::prctl::set_timerslack(1).map_err(|errno| {
        EmulateError::system::<io::Error>("cannot set the timer's slack")(errno.into())
    })
}
