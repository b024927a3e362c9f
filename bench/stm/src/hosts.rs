//! Items of 4 kB between two hosts over TCP, by space-time memory and by others.
//!
//! A host is a process on a processor of its own. The near host starts the far one as
//! `stm-bench far-KIND COUNT ADDRESS`. A `ping` is an item to the far host and one back. In a
//! `stream` the near host sends items as fast as it can, and the far host says how long they took.

mod peer;
mod stm;
mod tcp;

use std::time::Instant;

use crate::far::{self, Far};

/// Bytes of an item.
const BYTES: usize = 4096;
/// Items before the first one that is measured.
const WARM: u64 = 500;
/// The address at which a host listens.
const LISTEN: &str = "127.0.0.1:0";

/// A host's end of the two ways.
pub trait End {
    /// Sends an item that begins with a number.
    fn put(&mut self, number: u64);
    /// Waits for the next item and returns its number.
    fn get(&mut self) -> u64;
}

/// Measures a kind such as `ping-tcp` and returns JSON; None: there is no such kind.
pub fn near(kind: &str, count: u64) -> Option<String> {
    let (mode, transport) = kind.split_once('-')?;
    let measure = match mode {
        "ping" => ping,
        "stream" => stream,
        _ => return None,
    };
    crate::stay_on(0);
    let start = |address: &str| Far::start(kind, count, address);
    // The far host ends first.
    let (mut end, _far) = match transport {
        "tcp" => tcp::near(start),
        "stm" => stm::near(start),
        "zenoh" => peer::near(start, mode),
        _ => return None,
    };
    Some(measure(&mut *end, count))
}

/// Is the far host, until the near one ends.
pub fn far(kind: &str, count: u64, address: &str) {
    let (mode, transport) = kind.split_once('-').unwrap();
    let mut end = match transport {
        "tcp" => tcp::far(address),
        "stm" => stm::far(address),
        _ => peer::far(address, mode),
    };
    if mode == "ping" {
        for _ in 0..WARM + count {
            let number = end.get();
            end.put(number);
        }
    } else {
        (0..WARM).for_each(|number| assert_eq!(end.get(), number));
        let begin = Instant::now();
        (WARM..WARM + count).for_each(|number| assert_eq!(end.get(), number));
        end.put(begin.elapsed().as_nanos() as u64);
    }
    // What was put last has to be sent.
    far::wait_for_end();
}

fn ping(end: &mut dyn End, count: u64) -> String {
    let mut took = vec![];
    for number in 0..WARM + count {
        let begin = Instant::now();
        end.put(number);
        assert_eq!(end.get(), number);
        took.push(begin.elapsed().as_nanos() as f64 / 1000.0);
    }
    took.drain(..WARM as usize);
    took.sort_by(f64::total_cmp);
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    format!("{{\"p50_us\": {:.2}, \"p99_us\": {:.2}, \"items\": {count}}}", at(0.5), at(0.99))
}

fn stream(end: &mut dyn End, count: u64) -> String {
    (0..WARM + count).for_each(|number| end.put(number));
    let rate = count as f64 * 1e9 / end.get() as f64;
    let bytes = rate * BYTES as f64 / 1e6;
    format!("{{\"items_per_s\": {rate:.0}, \"mb_per_s\": {bytes:.1}, \"items\": {count}}}")
}
