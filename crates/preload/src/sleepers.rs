//! Threads that sleep until a connection has what they wait for, and how they are woken.

use std::cell::Cell;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use libc::{POLLIN, c_int, pollfd};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::RecvFlags;

use crate::descriptor;
use crate::record::{self, Waiting};
use crate::table::{self, Kind};

/// The library's own descriptors have numbers from here on.
const ASIDE: c_int = 960;

/// What a thread waits for: events of poll(2) of a descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wants {
    pub(crate) fd: c_int,
    pub(crate) events: i16,
}

/// A thread that sleeps.
#[derive(Debug)]
struct Sleeper {
    event: OwnedFd,
    wants: Vec<Wants>,
    /// What it waits for is told by this instance of epoll.
    epoll: Option<c_int>,
    is_helper: bool,
    /// What it waits for, and its number, as events have them.
    waiting: Waiting,
    thread: u32,
    /// Whether another thread has written to its descriptor.
    is_woken: Cell<bool>,
}

impl Sleeper {
    /// Once is enough: it looks at everything before it sleeps again.
    fn wake(&self) {
        if !self.is_woken.replace(true) {
            self.waiting.wakes(self.thread);
            signal(&self.event);
        }
    }
}

/// By what a thread that sleeps is woken.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The thread's own, that of frames, and the service's.
    pub(crate) fds: Vec<pollfd>,
    /// The thread's own descriptor.
    pub(crate) event: c_int,
    /// That by which the kernel says that frames came.
    pub(crate) frames: c_int,
    pub(crate) waiting: Waiting,
    /// When a turn is due.
    pub(crate) due: Option<Duration>,
}

/// For reading from the descriptor.
pub(crate) fn awaited(fd: c_int) -> pollfd {
    pollfd { fd, events: POLLIN, revents: 0 }
}

/// The connection to the service, or -1; and whether a thread was woken by it.
static SERVICE: AtomicI32 = AtomicI32::new(-1);
static SPOKE: AtomicBool = AtomicBool::new(false);

/// The descriptor of the connection to the service, or -1.
pub(crate) fn service() -> c_int {
    SERVICE.load(Ordering::Relaxed)
}

/// The connection to the service has this descriptor from now on, or there is none (-1). The lock
/// is held.
pub(crate) fn set_service(fd: c_int) {
    SPOKE.store(false, Ordering::Relaxed);
    SERVICE.store(fd, Ordering::Relaxed);
}

/// Whether the service has ended, where a thread was woken by its connection. The lock is held, so
/// no answer is awaited: one that had come woke the thread as well, and is gone.
pub(crate) fn service_has_ended() -> bool {
    if !SPOKE.load(Ordering::Relaxed) {
        return false;
    }
    SPOKE.store(false, Ordering::Relaxed);
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let said = rustix::net::recv(descriptor::borrow(service()), &mut [0_u8; 1], flags);
    !matches!(said, Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR))
}

/// What a thread sleeps for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cause<'w> {
    /// One of these.
    Events(&'w [Wants]),
    /// What an instance of epoll tells.
    Epoll(c_int),
    /// Frames: it is the helper.
    Frames,
}

impl Cause<'_> {
    /// The descriptor of which something is awaited; -1: several, or none.
    pub(crate) fn descriptor(self) -> c_int {
        match self {
            Cause::Events([wants]) => wants.fd,
            Cause::Epoll(epoll) => epoll,
            Cause::Events(_) | Cause::Frames => -1,
        }
    }
}

/// All threads that sleep, and the descriptors for those that will.
#[derive(Debug)]
pub(crate) struct Sleepers {
    asleep: Vec<Sleeper>,
    events: Vec<OwnedFd>,
}

impl Sleepers {
    pub(crate) const fn new() -> Sleepers {
        Sleepers { asleep: vec![], events: vec![] }
    }

    /// A thread is to sleep until its cause is there, frames come, or a turn is due. None: it
    /// cannot.
    pub(crate) fn add(
        &mut self,
        cause: Cause<'_>,
        waiting: Waiting,
        sources: [BorrowedFd<'_>; 2],
        due: Option<Duration>,
    ) -> Option<Plan> {
        let event = self.events.pop().or_else(new_event)?;
        let number = event.as_raw_fd();
        let mut fds: Vec<pollfd> = vec![awaited(number)];
        fds.extend(sources.map(|fd| awaited(fd.as_raw_fd())));
        let (wants, epoll) = match cause {
            Cause::Events(wants) => (wants.to_vec(), None),
            Cause::Epoll(epoll) => (vec![], Some(epoll)),
            Cause::Frames => (vec![], None),
        };
        let is_helper = matches!(cause, Cause::Frames);
        let thread = record::thread();
        if !is_helper {
            waiting.sleeps();
        }
        let is_woken = Cell::new(false);
        self.asleep.push(Sleeper { event, wants, epoll, is_helper, waiting, thread, is_woken });
        let frames = sources[0].as_raw_fd();
        Some(Plan { fds, event: number, frames, waiting, due })
    }

    /// A thread sleeps no more. Whether that was the last one of the program.
    pub(crate) fn remove(&mut self, event: c_int) -> bool {
        let of = |sleeper: &Sleeper| sleeper.event.as_raw_fd() == event;
        let Some(place) = self.asleep.iter().position(of) else { return false };
        let sleeper = self.asleep.swap_remove(place);
        if sleeper.is_woken.get() {
            // It may have been written to when the thread ran again: that is not for who sleeps next.
            let _ = rustix::io::read(&sleeper.event, &mut [0; 8]);
        }
        self.events.push(sleeper.event);
        !sleeper.is_helper && !self.has_any()
    }

    /// Whether a thread of the program sleeps.
    pub(crate) fn has_any(&self) -> bool {
        self.asleep.iter().any(|sleeper| !sleeper.is_helper)
    }

    /// Whether none sleeps, nor the helper.
    pub(crate) fn is_empty(&self) -> bool {
        self.asleep.is_empty()
    }

    /// Wakes all.
    pub(crate) fn wake_all(&self) {
        self.asleep.iter().for_each(Sleeper::wake);
    }

    /// Wakes those for which one of their events is there, or their instance of epoll has
    /// something.
    pub(crate) fn wake(&self, is_there: impl Fn(&Wants) -> bool, tells: impl Fn(c_int) -> bool) {
        for sleeper in &self.asleep {
            if sleeper.wants.iter().any(&is_there) || sleeper.epoll.is_some_and(&tells) {
                sleeper.wake();
            }
        }
    }

    /// Closes the descriptors that no thread has.
    pub(crate) fn forget_idle(&mut self) {
        for event in std::mem::take(&mut self.events) {
            table::set(event.as_raw_fd(), Kind::Plain);
        }
    }

    /// Forgets the threads, which a process that was forked does not have.
    pub(crate) fn forget_all(&mut self) {
        let asleep = std::mem::take(&mut self.asleep);
        self.events.extend(asleep.into_iter().map(|sleeper| sleeper.event));
        self.forget_idle();
    }
}

/// Takes the signal, if a thread was woken by its own descriptor, which is among those that it has
/// slept by, and the end of the service.
pub(crate) fn take_signal(event: c_int, fds: &[pollfd]) {
    let service = service();
    if fds.iter().any(|polled| polled.fd == service && polled.fd >= 0 && polled.revents != 0) {
        SPOKE.store(true, Ordering::Relaxed);
    }
    if fds.iter().any(|polled| polled.fd == event && polled.revents != 0) {
        let _ = rustix::io::read(descriptor::borrow(event), &mut [0; 8]);
    }
}

/// Takes what the kernel has woken a thread by, if that is among those that it has slept by; whether
/// it was. The thread then turns, also for others that sleep by it.
pub(crate) fn take_frame(frames: c_int, fds: &[pollfd]) -> bool {
    let is_there = fds.iter().any(|polled| polled.fd == frames && polled.revents != 0);
    if is_there {
        let _ = rustix::io::read(descriptor::borrow(frames), &mut [0; 64]);
    }
    is_there
}

/// Wakes the thread that sleeps by it.
pub(crate) fn signal(event: &OwnedFd) {
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

/// A descriptor of the library's own, by which a thread is woken.
pub(crate) fn new_event() -> Option<OwnedFd> {
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
    let event = rustix::io::fcntl_dupfd_cloexec(&event, ASIDE).unwrap_or(event);
    table::set(event.as_raw_fd(), Kind::Own);
    Some(event)
}
