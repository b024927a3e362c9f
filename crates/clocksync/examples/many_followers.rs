//! What one reference answers of many followers: sockets on loopback, each a session of its own, all
//! in this process. `many_followers FOLLOWERS [SECONDS]`, with `ulimit -n` above the number.
//!
//! Prints every second the exchanges that were answered and lost since the last line, then the sum.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use loopscope_clocksync::key::Key;
use loopscope_clocksync::online::Online;
use loopscope_clocksync::probe::{Counts, Mesh, MeshConfig, Peer, Responder, Side};
use loopscope_clocksync::record::Identity;
use loopscope_clocksync::stamp::Reading;
use loopscope_time::Frequency;

/// Followers of a thread.
const TOGETHER: usize = 50;

/// The frequency of this machine's counter, to some ppm.
fn frequency() -> Option<Frequency> {
    let begin = Reading::take();
    sleep(Duration::from_millis(200));
    let end = Reading::take();
    let ticks = u128::try_from(end.at.lo.ticks_since(begin.at.lo)).ok()?;
    let ns = u128::try_from(end.clock.0 - begin.clock.0).ok()?;
    Frequency::from_hz(u64::try_from(ticks * 1_000_000_000 / ns).ok()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let followers: usize = arguments.next().ok_or("how many followers?")?.parse()?;
    let seconds: u64 = arguments.next().map_or(Ok(30), |text| text.parse())?;
    let frequency = frequency().ok_or("the counter does not count")?;
    let identity =
        Identity { host: "h".into(), trace_uuid: [1; 16], clock_uuid: [2; 16], frequency };
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let key = Key::new(&[7; 32])?;
    let (directory, filter, faults) = (None, None, None);
    let (own_interface, before_stamps) = (false, None);
    let side =
        Side { address, directory, identity, key, filter, faults, own_interface, before_stamps };
    let responder = Responder::start(side.clone())?;
    let config = MeshConfig {
        rate_hz: 100.0,
        burst: 100,
        online: Arc::new(Mutex::new(Online::reference(frequency))),
        witness: None,
    };
    let peer = |number: usize| Peer {
        name: number.to_string(),
        address: responder.address(),
        side: side.clone(),
    };
    let mut groups = Vec::new();
    for first in (0..followers).step_by(TOGETHER) {
        let peers = (first..followers.min(first + TOGETHER)).map(peer).collect();
        groups.push(Mesh::start(peers, &config)?);
    }
    let answered = || -> u64 {
        let of = |mesh: &Mesh| mesh.residuals().values().map(|r| r.known + r.unknown).sum::<u64>();
        groups.iter().map(of).sum()
    };
    let mut last = 0;
    for second in 1..=seconds {
        sleep(Duration::from_secs(1));
        let now = answered();
        println!("{second} s: {} exchanges a second", now - last);
        last = now;
    }
    let mut sum = Counts::default();
    let mut starved = 0;
    for mesh in groups {
        for (_, end) in mesh.stop()? {
            let counts = end.counts?;
            starved += usize::from(counts.answered == 0);
            sum = sum.and(counts);
        }
    }
    println!("followers, with last bursts: {sum:?}; {starved} of {followers} never answered");
    println!("reference: {:?}", responder.stop()?);
    Ok(())
}
