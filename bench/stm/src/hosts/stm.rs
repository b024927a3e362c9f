//! Space-time memory: each host has the home of one way, and a mirror of the other one.
//!
//! The service is in threads of the host's process, and the program reaches its channels as one of
//! another process does.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use loopscope_stm::{Config, From, Full, Orphans, Time, Which};
use loopscope_stm_link::{Home, Homes, Key, Transport};
use loopscope_stm_shared::{Channels, Client, Elsewhere, Input, Options, Output, Settings, Until};

use super::{BYTES, End, LISTEN};
use crate::far::{self, Far};

const THERE: &str = "there";
const BACK: &str = "back";
/// A channel of 64 items whose producer waits while it is full.
const OPTIONS: Options = Options {
    config: Config {
        capacity: 64,
        slots: 72,
        inputs: 4,
        outputs: 2,
        loans: 2,
        ahead: 64,
        remembered: 64,
        orphans: Orphans::Keep,
        full: Full::Refuse,
    },
    item_bytes: BYTES as u32,
    processes: 8,
};

/// A host's service.
struct Host {
    path: PathBuf,
    home: SocketAddr,
    /// The address of the other host's home.
    other: Arc<OnceLock<SocketAddr>>,
}

fn transport() -> Transport {
    Transport::new(Key::new(vec![7; 32]).unwrap(), None).unwrap()
}

fn report(what: &str) {
    eprintln!("stm-bench: {what}");
}

/// The other host's channel, whose address is known later.
struct Away {
    channels: Channels,
    name: &'static str,
    other: Arc<OnceLock<SocketAddr>>,
}

impl Away {
    fn home(&self) -> Home<fn(&str)> {
        let (channels, address) = (self.channels.clone(), *self.other.get().unwrap());
        Home { channels, name: self.name.into(), address, transport: transport(), report }
    }
}

impl Elsewhere for Away {
    fn mirror(&self, create: Option<Settings>) -> Result<(), String> {
        self.home().mirror(create)
    }

    fn output(&self, incarnation: u64) -> Result<(OwnedFd, u32), String> {
        self.home().output(incarnation)
    }
}

impl Host {
    /// One that has the home of the channel `own`.
    fn new(own: &str, others: &'static str) -> Host {
        let (mut service, path) = far::service();
        let channels = service.channels();
        let other: Arc<OnceLock<SocketAddr>> = Arc::default();
        let away = Away { channels: channels.clone(), name: others, other: Arc::clone(&other) };
        let away: Box<dyn Elsewhere> = Box::new(away);
        service.knows_elsewhere(BTreeMap::from([(others.into(), away)]));
        far::serve(service);
        Client::connect(&path).unwrap().create(own, &OPTIONS).unwrap();
        let homes = Homes::listen(LISTEN.parse().unwrap()).unwrap();
        let home = homes.address().unwrap();
        homes.serve(channels, transport(), report).unwrap();
        Host { path, home, other }
    }

    fn end(&self, own: &str, others: &str) -> Box<dyn End> {
        let open = |name, puts| Client::connect(&self.path).unwrap().open(name, puts).unwrap();
        Box::new(Stm {
            output: open(own, true).output().unwrap(),
            input: open(others, false).input(From::Oldest, false, 2).unwrap(),
            time: 0,
            bytes: [0; BYTES],
        })
    }
}

struct Stm {
    output: Output,
    input: Input,
    time: Time,
    bytes: [u8; BYTES],
}

impl End for Stm {
    fn put(&mut self, number: u64) {
        let bytes = crate::item(&mut self.bytes, number);
        self.output.put(self.time, 0, bytes, Until::Forever).unwrap();
        self.time += 1;
    }

    fn get(&mut self) -> u64 {
        let item = self.input.get(Which::Oldest, Until::Forever).unwrap();
        let (time, number) = (item.time(), crate::counter_of(&item));
        drop(item);
        self.input.consume_until(time).unwrap();
        number
    }
}

pub fn near(start: impl FnOnce(&str) -> Far) -> (Box<dyn End>, Far) {
    let host = Host::new(THERE, BACK);
    let mut far = start(&host.home.to_string());
    host.other.set(far.line().parse().unwrap()).unwrap();
    (host.end(THERE, BACK), far)
}

pub fn far(address: &str) -> Box<dyn End> {
    let host = Host::new(BACK, THERE);
    host.other.set(address.parse().unwrap()).unwrap();
    println!("{}", host.home);
    host.end(BACK, THERE)
}
