//! What a program has set of a connection that the stack has.

use libc::c_int;
use loopscope_stack::Connection;

use super::State;
use crate::descriptor;

impl State {
    /// O_NONBLOCK was set or not.
    pub(crate) fn read_flags(&mut self, fd: c_int) {
        let is_nonblocking = descriptor::is_nonblocking(fd);
        if let Some(slot) = self.slot(fd) {
            slot.is_nonblocking = is_nonblocking;
        }
    }

    /// SO_RCVTIMEO or SO_SNDTIMEO was set.
    pub(crate) fn read_timeouts(&mut self, fd: c_int) {
        let timeouts = [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO];
        if let Some(slot) = self.slot(fd) {
            slot.timeouts = timeouts.map(|name| descriptor::timeout(fd, name));
        }
    }

    /// TCP_NODELAY or TCP_CORK was set or not.
    pub(crate) fn read_delays(&mut self, fd: c_int) {
        let is_set = |name| descriptor::integer(fd, libc::IPPROTO_TCP, name) != Some(0);
        let (no_delay, is_corked) = (is_set(libc::TCP_NODELAY), is_set(libc::TCP_CORK));
        self.change(fd, |connection| connection.set_delays(no_delay, is_corked));
    }

    /// TCP_QUICKACK was set or not.
    pub(crate) fn read_quick(&mut self, fd: c_int) {
        let is_quick = descriptor::integer(fd, libc::IPPROTO_TCP, libc::TCP_QUICKACK) != Some(0);
        self.change(fd, |connection| connection.set_quick(is_quick));
    }

    fn change(&mut self, fd: c_int, change: impl FnOnce(&mut Connection)) {
        if let Some(id) = self.slot(fd).and_then(|slot| slot.id())
            && let Some(connection) = self.engine.as_mut().and_then(|engine| engine.change(id))
        {
            change(connection);
            self.turn();
        }
    }
}
