//! Explicit congestion notification (RFC 3168): routers mark packets instead of dropping them.

use crate::place::Place;
use crate::segment::{Ecn, Flags};

/// What both ends have to tell each other of marks, where they have agreed to.
#[derive(Debug, Default)]
pub(crate) struct Notification {
    agreed: bool,
    /// A mark came, and the other end has not said that it knows (§6.1.3).
    echo: bool,
    /// The next new data say that the window has shrunk (§6.1.2).
    shrunk: bool,
    /// SND.NXT when it shrank last.
    until: Option<Place>,
}

impl Notification {
    pub(crate) fn new(agreed: bool) -> Notification {
        Notification { agreed, ..Notification::default() }
    }

    pub(crate) fn is_agreed(&self) -> bool {
        self.agreed
    }

    /// Takes what a segment with data says. Whether it is the first mark that the other end has to
    /// know of.
    pub(crate) fn came(&mut self, ecn: Ecn, flags: Flags) -> bool {
        if !self.agreed {
            return false;
        }
        if flags.shrunk {
            self.echo = false;
        }
        let is_first = ecn == Ecn::Marked && !self.echo;
        self.echo |= is_first;
        is_first
    }

    /// Whether the window has to shrink where an acknowledgement of all before `ack` speaks of a
    /// mark: not for what was sent before it shrank last.
    pub(crate) fn must_shrink(&self, ack: Place) -> bool {
        self.agreed && self.until.is_none_or(|until| ack > until)
    }

    /// The window has shrunk, by a mark or a loss. `next`: SND.NXT.
    pub(crate) fn shrank(&mut self, next: Place) {
        self.shrunk = self.agreed;
        self.until = Some(next);
    }

    /// Whether the next new data say something of their own. They are a segment by themselves then:
    /// only the first of a train may say it.
    pub(crate) fn is_due(&self) -> bool {
        self.shrunk
    }

    /// What a segment says; `is_new`: it has data that were not sent before. What is sent again, and
    /// segments without data, must not be marked (§6.1.4, §6.1.5).
    pub(crate) fn say(&mut self, is_new: bool, flags: &mut Flags) -> Ecn {
        flags.marked = self.echo;
        if !is_new || !self.agreed {
            return Ecn::NotCapable;
        }
        flags.shrunk = std::mem::take(&mut self.shrunk);
        Ecn::Capable
    }
}
