//! What threads wait for, and whether it is there.

use libc::c_int;
use loopscope_engine::Engine;

use super::State;
use crate::descriptor::Control;
use crate::epolls::{Epolls, Status};
use crate::options::events;
use crate::record::Waiting;
use crate::sleepers::{Cause, Plan, awaited};

impl State {
    /// Has the kernel wake who sleeps by [`State::sleeps`] when something comes. False: something is
    /// there by now, and a turn comes first.
    pub(crate) fn rests(&mut self) -> bool {
        self.engine.as_mut().is_none_or(Engine::rest)
    }

    /// Whether something came that no turn has taken.
    pub(crate) fn has_frames(&self) -> bool {
        self.engine.as_ref().is_some_and(Engine::has_frames)
    }

    /// A thread is to sleep, after [`State::rests`]. None: it cannot.
    pub(crate) fn sleeps(&mut self, cause: Cause<'_>) -> Option<Plan> {
        let waiting = self.waiting(cause);
        let engine = self.engine.as_ref()?;
        let mut plan = self.sleepers.add(cause, waiting, engine.sources(), engine.due())?;
        if let Cause::Events(wants) = cause {
            // What does not come by the stack comes to the kernel's socket.
            let of_both = wants.iter().filter(|wants| self.has_datagrams(wants.fd));
            plan.fds.extend(of_both.map(|wants| awaited(wants.fd)));
        }
        Some(plan)
    }

    /// What a thread waits for, as events have it.
    pub(crate) fn waiting(&self, cause: Cause<'_>) -> Waiting {
        let fd = cause.descriptor();
        let slot = usize::try_from(fd).ok().and_then(|place| self.slots.get(place)?.as_ref());
        Waiting { connection: slot.map_or(0, |slot| slot.recorded.number), fd }
    }

    /// A thread sleeps no more.
    pub(crate) fn woken(&mut self, event: c_int) {
        if self.sleepers.remove(event)
            && let Some(helper) = &mut self.helper
        {
            helper.wake();
        }
    }

    /// Whether the stack has something of a descriptor.
    pub(crate) fn has(&self, fd: c_int) -> bool {
        usize::try_from(fd).is_ok_and(|place| matches!(self.slots.get(place), Some(Some(_))))
    }

    /// Whether the stack has a connection.
    pub(crate) fn has_connections(&self) -> bool {
        self.count > 0
    }

    /// Whether a turn is due.
    pub(crate) fn is_due(&self) -> bool {
        let due = self.engine.as_ref().and_then(Engine::due);
        due.is_some_and(|due| due.is_zero())
    }

    /// The events of poll(2) that a descriptor has. None: the kernel has its connection.
    pub(crate) fn events(&self, fd: c_int, wanted: i16) -> Option<i16> {
        if self.has_datagrams(fd) {
            // One can always be sent.
            return Some(events(wanted, usize::from(self.first_datagram(fd).is_some()), 1, 0));
        }
        let connection = self.connection(fd)?;
        let [readable, writable] = [connection.readable(), connection.writable()];
        Some(events(wanted, readable, writable, connection.unacknowledged()))
    }

    /// Wakes those who have what they wait for, after a turn, and has the kernel wake the others when
    /// more comes.
    pub(super) fn wake_ready(&mut self) {
        self.sleepers.wake(
            |wants| self.events(wants.fd, wants.events).is_none_or(|found| found != 0),
            |epoll| {
                self.epolls.is_ready(epoll, |fd| self.status(fd)) || !self.epolls.is_of_stack(epoll)
            },
        );
        let Some(engine) = &mut self.engine else { return };
        if self.sleepers.is_empty() {
            engine.look();
        } else if !engine.rest() {
            self.sleepers.wake_all();
        }
    }

    fn status(&self, fd: c_int) -> Option<Status> {
        let slot = self.slots.get(usize::try_from(fd).ok()?)?.as_ref()?;
        if self.has_datagrams(fd) {
            let readable = usize::from(self.first_datagram(fd).is_some());
            let came = self.datagrams_came(fd);
            return Some(Status { readable, came, is_writable: true, was_full: false });
        }
        let connection = self.engine.as_ref()?.get(slot.id()?)?;
        let readable = connection.readable();
        Some(Status {
            readable,
            came: slot.bytes[0] + readable as u64,
            is_writable: self.events(fd, libc::POLLOUT)? != 0,
            was_full: slot.was_full,
        })
    }

    /// What an instance of epoll tells of the stack's descriptors, up to so many events.
    pub(crate) fn tell(&mut self, epoll: c_int, most: usize) -> Vec<Control> {
        let mut epolls = std::mem::replace(&mut self.epolls, Epolls::new());
        let told = epolls.tell(epoll, most, |fd| self.status(fd));
        self.epolls = epolls;
        for (fd, control) in &told {
            if control.events & libc::EPOLLOUT as u32 != 0
                && let Some(slot) = self.slot(*fd)
            {
                slot.was_full = false;
            }
        }
        told.into_iter().map(|(_, control)| control).collect()
    }
}
