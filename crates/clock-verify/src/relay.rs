//! An emulated link on the probes' way: a host that hands on their packets, each a constant time
//! after the kernel stamped its arrival, those of one direction later than those of the other.
//! Followers take it for the reference.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrIn, recvmsg, setsockopt, sockopt::ReceiveTimestampns,
};
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

/// The delay of both ways: most often longer than the relay's thread takes to wake up, which would
/// else be part of the delay.
const DELAY: Duration = Duration::from_micros(200);
/// SCHED_FIFO: what else the machine does is not the link's.
const PRIORITY: i32 = 10;
/// Number of packets in either direction that are remembered.
const KEPT: usize = 256;

/// The knowledge of an eavesdropper.
#[derive(Clone, Default)]
pub(super) struct Captured {
    /// Where the follower is.
    pub(super) follower: Option<SocketAddr>,
    /// Packets to the reference, and those from it.
    pub(super) packets: [VecDeque<Vec<u8>>; 2],
}

struct Shared {
    /// Where followers send to.
    front: UdpSocket,
    /// Where the reference is spoken to from.
    back: UdpSocket,
    ended: AtomicBool,
    /// Nanoseconds, of the way to the reference and of that from it.
    delays: [AtomicU64; 2],
    captured: Mutex<Captured>,
}

pub(super) struct Relay {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Relay {
    /// Begins to hand on between `own` address and the reference, in the namespace of the calling
    /// thread.
    pub(super) fn start(own: Ipv4Addr, reference: SocketAddr) -> Result<Relay> {
        let bind = || -> io::Result<UdpSocket> {
            let socket = UdpSocket::bind((own, 0))?;
            socket.set_nonblocking(true)?;
            setsockopt(&socket, ReceiveTimestampns, &true)?;
            Ok(socket)
        };
        let (front, back) = (bind()?, bind()?);
        back.connect(reference).context("cannot reach the reference")?;
        let shared = Arc::new(Shared {
            front,
            back,
            ended: AtomicBool::new(false),
            delays: [DELAY, DELAY].map(|delay| AtomicU64::new(delay.as_nanos() as u64)),
            captured: Mutex::default(),
        });
        let carry = |way: usize| {
            let shared = shared.clone();
            std::thread::spawn(move || shared.carry(way))
        };
        let threads = vec![carry(0), carry(1)];
        Ok(Relay { shared, threads })
    }

    pub(super) fn address(&self) -> Result<SocketAddr> {
        Ok(self.shared.front.local_addr()?)
    }

    /// Delays packets from the reference by so much more than those to it from now on.
    pub(super) fn delay_replies(&self, more: Duration) {
        self.shared.delays[1].store((DELAY + more).as_nanos() as u64, Ordering::Relaxed);
    }

    /// Recently captured packets.
    pub(super) fn captured(&self) -> Captured {
        self.shared.captured().clone()
    }

    /// Sockets of the relay's own: that to the follower's side, and that to the reference.
    pub(super) fn sockets(&self) -> io::Result<[UdpSocket; 2]> {
        Ok([self.shared.front.try_clone()?, self.shared.back.try_clone()?])
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // It has no result.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn carry(&self, way: usize) {
        if let Err(errno) = loopscope_timer::real_time(PRIORITY) {
            eprintln!("warning: the relay has no real-time priority ({errno}) and will be late");
        }
        let mut waiting: VecDeque<(Duration, Vec<u8>)> = VecDeque::new();
        let socket = if way == 0 { &self.front } else { &self.back };
        while !self.ended.load(Ordering::Relaxed) {
            if waiting.is_empty() {
                // An error is seen again on receiving.
                let _ = poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLIN)], 50u8);
            }
            while let Ok((arrived, packet, from)) = receive(socket) {
                let delay = Duration::from_nanos(self.delays[way].load(Ordering::Relaxed));
                waiting.push_back((arrived + delay, packet));
                if way == 0 && from.is_some() {
                    self.captured().follower = from;
                }
            }
            // A sleep would end late: the delays are short, and waited for here.
            while waiting.front().is_some_and(|(due, _)| *due <= now()) {
                let Some((_, packet)) = waiting.pop_front() else { break };
                self.hand_on(way, packet);
            }
        }
    }

    fn hand_on(&self, way: usize, packet: Vec<u8>) {
        let mut captured = self.captured();
        // A packet that cannot be sent is lost, as on any link.
        let _ = match (way, captured.follower) {
            (0, _) => self.back.send(&packet),
            (_, Some(follower)) => self.front.send_to(&packet, follower),
            (_, None) => Ok(0),
        };
        let kept = &mut captured.packets[way];
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(packet);
    }

    fn captured(&self) -> MutexGuard<'_, Captured> {
        self.captured.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A packet, when the kernel had it (`CLOCK_REALTIME`), and who sent it.
fn receive(socket: &UdpSocket) -> nix::Result<(Duration, Vec<u8>, Option<SocketAddr>)> {
    let mut bytes = [0; 2048];
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let mut control = nix::cmsg_space!(TimeSpec);
    let flags = MsgFlags::MSG_DONTWAIT;
    let message = recvmsg::<SockaddrIn>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags)?;
    let stamped = message.cmsgs()?.find_map(|control| match control {
        ControlMessageOwned::ScmTimestampns(at) => Some(Duration::from(at)),
        _ => None,
    });
    let from = message.address.map(|from| SocketAddr::new(from.ip().into(), from.port()));
    let length = message.bytes;
    Ok((stamped.unwrap_or_else(now), bytes[..length].to_vec(), from))
}

fn now() -> Duration {
    // The clock of the kernel's stamps.
    clock_gettime(ClockId::CLOCK_REALTIME).map_or(Duration::ZERO, Duration::from)
}
