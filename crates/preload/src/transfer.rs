//! Reading and writing as the kernel does, by the stack.

use std::io::{IoSlice, IoSliceMut};

use crate::options::How;
use crate::sleep::{Step, Stop, attempt};
use crate::sleepers::Wants;
use crate::state::{Patience, State};

/// What a call came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// So many bytes.
    Done(usize),
    /// An error.
    Fails(i32),
    /// The thread may have been cancelled.
    Look,
    /// So many bytes, and the kernel has the connection for the rest.
    Kernel(usize),
    /// The kernel serves this call alone.
    Once,
}

impl Outcome {
    /// The outcome of an attempt that has transferred so many bytes so far.
    pub(crate) fn of(attempted: Result<Outcome, Stop>, done: usize) -> Outcome {
        match attempted {
            Ok(outcome) => outcome,
            Err(_) if done > 0 => Outcome::Done(done),
            Err(Stop::Look) => Outcome::Look,
            Err(Stop::TimedOut) => Outcome::Fails(libc::EAGAIN),
            Err(Stop::Interrupted | Stop::Inside) => Outcome::Fails(libc::EINTR),
        }
    }
}

/// Receives to `parts`.
pub(crate) fn receive(fd: i32, mut parts: &mut [IoSliceMut<'_>], how: How) -> Outcome {
    let whole = parts.iter().map(|part| part.len()).sum();
    transfer(fd, false, (whole, how.all), how, |state| {
        let count = state.read(fd, parts)?;
        IoSliceMut::advance_slices(&mut parts, count);
        Some(count)
    })
}

/// Sends what is in `parts`.
pub(crate) fn send(fd: i32, mut parts: &mut [IoSlice<'_>], how: How) -> Outcome {
    let whole = parts.iter().map(|part| part.len()).sum();
    transfer(fd, true, (whole, true), how, |state| {
        let count = state.write(fd, parts)?;
        IoSlice::advance_slices(&mut parts, count);
        Some(count)
    })
}

/// Does `act` until it has come to `whole` bytes, or to some where not `all` are asked for.
fn transfer(
    fd: i32,
    writes: bool,
    (whole, all): (usize, bool),
    how: How,
    mut act: impl FnMut(&mut State) -> Option<usize>,
) -> Outcome {
    let mut done = 0;
    if whole == 0 {
        return Outcome::Done(0);
    }
    let events = if writes { libc::POLLOUT } else { libc::POLLIN };
    let attempted = attempt(&[Wants { fd, events }], |state| {
        let Some(count) = act(state) else { return Step::Done(Outcome::Kernel(done)) };
        done += count;
        if done == whole || done > 0 && !all {
            return Step::Done(Outcome::Done(done));
        }
        match state.patience(fd, writes) {
            _ if how.at_once => {}
            Some(Patience::Waits(most)) => return Step::Wait(most),
            Some(Patience::AtOnce) => {}
            None => return Step::Done(Outcome::Kernel(done)),
        }
        Step::Done(if done > 0 { Outcome::Done(done) } else { Outcome::Fails(libc::EAGAIN) })
    });
    Outcome::of(attempted, done)
}
