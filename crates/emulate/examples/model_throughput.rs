//! How many packets a second the link model alone takes on one core: each comes, waits for its time
//! in a line of some ten thousand, and goes. `cargo run --release -p loopscope-emulate --example
//! model_throughput`

use loopscope_emulate::model::{Link, Packet};
use loopscope_time::MonotonicNs;
use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

/// A frame as a mover has it: a place in its memory and a length.
struct Frame {
    place: u32,
    size: u32,
}

impl Packet for Frame {
    fn size(&self) -> usize {
        self.size as usize
    }

    fn duplicate(&self) -> Frame {
        Frame { place: self.place, size: self.size }
    }

    fn flip(&mut self, _bit: u64) {}
}

/// What this thread had of a core.
fn core_seconds() -> f64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every Linux has this clock");
    time.tv_sec() as f64 + time.tv_nsec() as f64 / 1e9
}

fn packets_per_second(settings: Value) -> f64 {
    const PACKETS: u32 = 5_000_000;
    const GAP_NS: u64 = 1_000;
    let settings = serde_json::from_value(settings).expect("settings");
    let mut link = Link::new(settings, 1, "h1 -> h2").expect("a link");
    let begin = core_seconds();
    let (mut now, mut outcomes) = (MonotonicNs(0), 0u64);
    for place in 0..PACKETS {
        now = now.plus(GAP_NS);
        link.enqueue(now, Frame { place, size: 1000 });
        while link.next_due().is_some_and(|due| due <= now) {
            outcomes += link.poll(now).map_or(0, |outcome| u64::from(outcome.packet.size > 0));
        }
    }
    assert_eq!(outcomes + link.counts().held, u64::from(PACKETS) + link.counts().duplicated);
    f64::from(PACKETS) / (core_seconds() - begin)
}

fn main() {
    let loss = json!({"kind": "independent", "probability": 0.01});
    let jitter = |shape: &str, correlation: f64| json!({"distribution": shape, "ns": 1_000_000, "correlation": correlation});
    let codel = json!({"codel": {"target_ns": 5_000_000, "interval_ns": 100_000_000}});
    for (what, settings) in [
        ("delay", json!({"delay_ns": 10_000_000})),
        ("delay, loss", json!({"delay_ns": 10_000_000, "loss": loss})),
        (
            "delay, loss, normal jitter",
            json!({"delay_ns": 10_000_000, "loss": loss, "jitter": jitter("normal", 0.0)}),
        ),
        (
            "delay, loss, correlated pareto jitter, reordering",
            json!({"delay_ns": 10_000_000, "loss": loss, "jitter": jitter("pareto", 0.5),
                "reorder": "by-jitter"}),
        ),
        (
            "delay, loss, duplication, corruption, rate",
            json!({"delay_ns": 10_000_000, "loss": loss, "duplicate": 0.01, "corrupt": 0.01,
                "rate_bps": 8_000_000_000u64}),
        ),
        (
            "delay, rate, CoDel, twice what it takes",
            json!({"delay_ns": 10_000_000, "rate_bps": 4_000_000_000u64,
                "queue": {"discipline": codel}}),
        ),
    ] {
        println!("{:6.1} M packets/s: {what}", packets_per_second(settings) / 1e6);
    }
}
