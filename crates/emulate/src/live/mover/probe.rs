//! Finds the movers that a machine allows.

use std::io;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};
use serde::Serialize;

use super::Mover;
use super::packet::Packets;
use super::xdp::Xdp;
use crate::EmulateError;
use crate::frame::Pool;
use crate::iproute;
use crate::model::{Fate, Outcome};
use crate::router::Departure;
use crate::settings::Port;

/// Whether a mover works here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// `xdp`, `tap` or `netem`.
    pub mover: &'static str,
    /// Whether it moved a packet; of netem, whether the kernel takes it.
    pub works: bool,
    /// Why not, or what was tried.
    pub why: String,
}

/// Long for a frame to cross a veth pair, however busy the machine is.
const PATIENCE: Duration = Duration::from_secs(2);

/// Tries each mover in a network namespace of its own, into which it takes the calling process:
/// that has to have one thread only and to end after this. Nothing is left behind.
pub fn probe() -> Vec<Probe> {
    let movers = ["xdp", "tap", "netem"];
    if let Err(error) = isolate() {
        let why = format!("cannot make a network namespace to try it in: {error}");
        return movers.map(|mover| Probe { mover, works: false, why: why.clone() }).to_vec();
    }
    let ports = ["lsprobe0", "lsprobe1"].map(|device| Port {
        host: device.to_owned(),
        device: device.to_owned(),
        address: None,
        ip: None,
    });
    let tried = [
        pair(&ports).and_then(|()| crosses(&mut Xdp::open(&ports).map_err(text)?)),
        pair(&ports).and_then(|()| crosses(&mut Packets::open(&ports).map_err(text)?)),
        iproute::try_out_netem()
            .map(|()| match iproute::try_out_duplicates() {
                Ok(()) => "the kernel takes it".to_owned(),
                Err(error) => format!("the kernel takes it, but not all of it: {error}"),
            })
            .map_err(|error| error.to_string()),
    ];
    let probe = |(mover, tried): (_, Result<String, String>)| match tried {
        Ok(why) => Probe { mover, works: true, why },
        Err(why) => Probe { mover, works: false, why },
    };
    movers.into_iter().zip(tried).map(probe).collect()
}

fn text(error: EmulateError) -> String {
    error.to_string()
}

/// A network namespace; without root in a user namespace, which has it.
fn isolate() -> io::Result<()> {
    if unshare(CloneFlags::CLONE_NEWNET).is_ok() {
        return Ok(());
    }
    let (uid, gid) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET)?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}

/// A fresh veth pair, up.
fn pair([one, other]: &[Port; 2]) -> Result<(), String> {
    // The one before, if there was one.
    let _ = command("ip", &["link", "del", &one.device]);
    let (one, other) = (one.device.as_str(), other.device.as_str());
    command("ip", &["link", "add", one, "type", "veth", "peer", "name", other])?;
    command("ip", &["link", "set", one, "up"])?;
    command("ip", &["link", "set", other, "up"])
}

fn command(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| format!("cannot run {program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().next().unwrap_or("it said nothing");
    Err(format!("{program} {}: {said}", arguments.join(" ")))
}

/// Sends a frame at one port and waits for it at the other.
fn crosses(mover: &mut impl Mover) -> Result<String, String> {
    // An EtherType for experiments (IEEE 802), which no stack answers.
    let mut bytes = vec![0xff; 60];
    bytes[6..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    let start = loopscope_timer::now();
    let outcome = Outcome {
        packet: Pool::default().frame(&bytes),
        number: 1,
        enqueued: start,
        due: start,
        fate: Fate::Departs,
        duplicate: false,
        corrupted: false,
    };
    let mut batch = [Departure { from: 0, to: 1, outcome, lost: false }];
    mover.transmit(&mut batch).map_err(text)?;
    let until = Instant::now() + PATIENCE;
    let mut came = false;
    while !came && !batch[0].lost && Instant::now() < until {
        mover.look().map_err(text)?;
        mover.receive(0, &mut |_, frame| came |= frame == bytes).map_err(text)?;
    }
    if came { Ok("a frame crossed a veth pair".into()) } else { Err("no frame came across".into()) }
}
