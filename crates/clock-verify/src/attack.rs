//! An attacker on the probes' path who reads all of them and has no key: sends them again, and
//! others of his own making.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use fastrand::Rng;

use super::relay::Relay;

/// Packets a second.
const RATE: u64 = 10_000;
/// After that it looks for further packets.
const LISTENING: Duration = Duration::from_millis(50);

pub(super) struct Attack {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Attack {
    pub(super) fn start(relay: Arc<Relay>, seed: u64) -> Result<Attack> {
        let ended = Arc::new(AtomicBool::new(false));
        // The addresses that both sides expect packets from.
        let sockets = relay.sockets()?;
        let thread = {
            let ended = ended.clone();
            std::thread::spawn(move || attack(&relay, &sockets, seed, &ended))
        };
        Ok(Attack { ended, thread: Some(thread) })
    }

    /// How many packets it sent.
    pub(super) fn stop(mut self) -> Result<u64> {
        self.ended.store(true, Ordering::Relaxed);
        let thread = self.thread.take().map(JoinHandle::join);
        thread.and_then(Result::ok).ok_or_else(|| anyhow!("the attacker panicked"))
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

fn attack(relay: &Relay, [front, back]: &[UdpSocket; 2], seed: u64, ended: &AtomicBool) -> u64 {
    let mut random = Rng::with_seed(seed);
    let (began, mut sent) = (Instant::now(), 0);
    let mut captured = relay.captured();
    let mut listened = began;
    while !ended.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_micros(500));
        if listened.elapsed() > LISTENING {
            (captured, listened) = (relay.captured(), Instant::now());
        }
        let Some(follower) = captured.follower else { continue };
        let due = (began.elapsed().as_secs_f64() * RATE as f64) as u64;
        while sent < due {
            sent += 1;
            let way = random.usize(0..2);
            let Some(mut packet) = random.choice(&captured.packets[way]).cloned() else {
                continue;
            };
            if random.bool() {
                // One bit of it, so that everything but the code still looks right.
                let at = random.usize(5..packet.len());
                packet[at] ^= 1 << random.u8(0..8);
            }
            // What cannot be sent has no effect.
            let _ = match way {
                0 => back.send(&packet),
                _ => front.send_to(&packet, follower),
            };
        }
    }
    sent
}
