//! What an engine reports while it works, to a user that asks for it.

use loopscope_stack::{Id, Segment, Timer};

/// Learns of segments and timers. Each method is called in the instant in which that happens, and
/// does nothing unless it is defined: an engine of `()` has no code for it.
pub trait Observe {
    /// A segment is about to be given to the device, or several of `size` bytes of data as one.
    /// `is_again`: its data were sent before.
    fn sends(&mut self, _id: Id, _segment: &Segment<'_>, _size: usize, _is_again: bool) {}

    /// A segment came, and is about to be taken.
    fn received(&mut self, _id: Id, _segment: &Segment<'_>) {}

    /// A timer has expired.
    fn expired(&mut self, _id: Id, _timer: Timer) {}
}

impl Observe for () {}
