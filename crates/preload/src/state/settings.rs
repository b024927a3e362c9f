//! What a program has set of a connection that the stack has.

use libc::c_int;

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

    /// TCP_NODELAY was set or not.
    pub(crate) fn read_no_delay(&mut self, fd: c_int) {
        let is_set = descriptor::integer(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY) != Some(0);
        if let Some(id) = self.slot(fd).and_then(|slot| slot.id())
            && let Some(engine) = &mut self.engine
        {
            engine.set_no_delay(id, is_set);
            self.turn();
        }
    }
}
