//! Connections of a thread that put items, and memory to fill in place: on the channel's home, or on
//! another host.

use std::ops::{Deref, DerefMut};

use loopscope_stm::Time;

use crate::attached::Until;
use crate::error::{ConnectionError, PutError};
use crate::input::Input;
use crate::local_output::{LocalLoan, LocalOutput};
use crate::remote_output::{RemoteLoan, RemoteOutput};

/// A connection that puts items. It ends when it is dropped, and its loans are.
pub struct Output(Way);

enum Way {
    Local(LocalOutput),
    Remote(RemoteOutput),
}

/// Memory for an item, to be filled. It is given back when it is dropped.
pub struct Loan(Lent);

enum Lent {
    Local(LocalLoan),
    Remote(RemoteLoan),
}

impl Output {
    /// Memory for an item, which is filled in place. Waits for a free slot; on another host than the
    /// home it does not, and `put` waits for the slot.
    ///
    /// # Errors
    /// There is none, the connection has as many as it may, or the channel cannot be used.
    pub fn loan(&mut self, until: Until) -> Result<Loan, PutError> {
        Ok(Loan(match &mut self.0 {
            Way::Local(output) => Lent::Local(output.loan(until)?),
            Way::Remote(output) => Lent::Remote(output.loan()?),
        }))
    }

    /// Puts a copy of some bytes. `half_width` is by how much the time may be wrong at most, in its
    /// units. Waits for room.
    ///
    /// # Errors
    /// See [`PutError`].
    pub fn put(
        &mut self,
        time: Time,
        half_width: u32,
        bytes: &[u8],
        until: Until,
    ) -> Result<(), PutError> {
        match &mut self.0 {
            Way::Local(output) => output.put(time, half_width, bytes, until),
            Way::Remote(output) => output.put(time, half_width, bytes, until),
        }
    }

    /// Promises that this connection puts nothing below a time any more; what it has promised so far.
    ///
    /// # Errors
    /// The connection has ended, or the channel cannot be used.
    pub fn bound(&mut self, time: Time) -> Result<Time, ConnectionError> {
        match &mut self.0 {
            Way::Local(output) => output.bound(time),
            Way::Remote(output) => output.bound(time),
        }
    }

    /// The times of items that it has put since the first call and that were collected since the last
    /// one, the lowest, `most` at most: their bytes are of no use to anybody any more.
    ///
    /// # Errors
    /// The channel cannot be used.
    pub fn collected(&self, most: usize) -> Result<Vec<Time>, ConnectionError> {
        match &self.0 {
            Way::Local(output) => output.collected(most),
            Way::Remote(output) => output.collected(most),
        }
    }

    /// Has the promise of this connection follow what a thread gets: it puts nothing below the lowest
    /// time of which an input connection has an item or may get one. With several inputs it is the
    /// lowest of theirs.
    ///
    /// # Errors
    /// The input has left, or its channel cannot be used.
    pub fn derives(&self, from: &Input) -> Result<(), ConnectionError> {
        from.derives(match &self.0 {
            Way::Local(output) => output.follower(),
            Way::Remote(output) => output.follower(),
        })
    }
}

impl Loan {
    /// Makes its first bytes an item. `half_width` is by how much the time may be wrong at most, in its
    /// units. Waits for room.
    ///
    /// # Errors
    /// See [`PutError`]; the memory is there still.
    pub fn put(
        self,
        time: Time,
        half_width: u32,
        bytes: usize,
        until: Until,
    ) -> Result<(), (Loan, PutError)> {
        match self.0 {
            Lent::Local(loan) => loan
                .put(time, half_width, bytes, until)
                .map_err(|(loan, error)| (loan.into(), error)),
            Lent::Remote(loan) => loan
                .put(time, half_width, bytes, until)
                .map_err(|(loan, error)| (loan.into(), error)),
        }
    }

    /// Says that nobody has written to the memory since a put that failed: the next one needs not send
    /// the bytes again.
    pub fn mark_unchanged(&mut self) {
        match &mut self.0 {
            Lent::Local(_) => (),
            Lent::Remote(loan) => loan.mark_unchanged(),
        }
    }
}

impl From<LocalOutput> for Output {
    fn from(output: LocalOutput) -> Output {
        Output(Way::Local(output))
    }
}

impl From<RemoteOutput> for Output {
    fn from(output: RemoteOutput) -> Output {
        Output(Way::Remote(output))
    }
}

impl From<LocalLoan> for Loan {
    fn from(loan: LocalLoan) -> Loan {
        Loan(Lent::Local(loan))
    }
}

impl From<RemoteLoan> for Loan {
    fn from(loan: RemoteLoan) -> Loan {
        Loan(Lent::Remote(loan))
    }
}

impl Deref for Loan {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Lent::Local(loan) => loan,
            Lent::Remote(loan) => loan,
        }
    }
}

impl DerefMut for Loan {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Lent::Local(loan) => loan,
            Lent::Remote(loan) => loan,
        }
    }
}
