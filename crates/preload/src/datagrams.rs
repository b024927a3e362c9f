//! Sending and receiving datagrams as the kernel does, by the stack.

use std::io::{IoSlice, IoSliceMut};

use crate::descriptor::Name;
use crate::inside;
use crate::lock;
use crate::options::How;
use crate::sleep::{Step, attempt};
use crate::sleepers::Wants;
use crate::state::{Patience, Received};
use crate::transfer::Outcome;

/// What a call is told of a datagram besides its data.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    /// Where it is from. None: it is no datagram.
    pub(crate) peer: Option<Name>,
    /// Whether a part of it had no room.
    pub(crate) is_cut: bool,
}

/// Receives a datagram to `parts`.
pub(crate) fn receive(fd: i32, parts: &mut [IoSliceMut<'_>], how: How, told: &mut Told) -> Outcome {
    let attempted = attempt(&[Wants { fd, events: libc::POLLIN }], |state| {
        let (copied, length) = match state.receive_datagram(fd, parts, how.at_once) {
            Received::Datagram { copied, length, peer } => {
                *told = Told { peer: Some(peer), is_cut: copied < length };
                (copied, length)
            }
            Received::Fails(why) => return Step::Done(Outcome::Fails(why)),
            Received::NotHere => return Step::Done(Outcome::Kernel(0)),
            Received::Nothing => {
                return match state.patience(fd, false) {
                    Some(Patience::Waits(most)) if !how.at_once => Step::Wait(most),
                    Some(_) => Step::Done(Outcome::Fails(libc::EAGAIN)),
                    None => Step::Done(Outcome::Kernel(0)),
                };
            }
        };
        Step::Done(Outcome::Done(if how.whole { length } else { copied }))
    });
    Outcome::of(attempted, 0)
}

/// Sends what is in `parts` as a datagram, or as several. It does not wait.
pub(crate) fn send(fd: i32, parts: &[IoSlice<'_>], how: How) -> Outcome {
    // Only a handler of a fault can be inside.
    let sent = lock::with(|state| state.send_datagrams(fd, parts, how.segment));
    sent.unwrap_or(Outcome::Fails(libc::EINTR))
}

/// Whether an address that a program gives is that of the other end of a socket that the stack has.
pub(crate) fn is_peer(fd: i32, given: &[u8]) -> bool {
    !inside::is_inside() && lock::with(|state| state.is_peer(fd, given)) == Some(true)
}
