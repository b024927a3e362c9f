//! Connections of a program that put items on another host, the channel's home.
//!
//! The program has a TCP connection to the home, which its service has made, so that the service is in
//! no put's way. A put sends the item and waits for the home's answer. The connection to the home ends
//! with the process, and the output connection at home with it.

use std::collections::BTreeSet;
use std::io::{self, Read as _};
use std::net::{Shutdown, TcpStream};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use loopscope_stm::{self as stm, NewItem, Time};

use crate::attached::{Attached, Until};
use crate::clock::{PeerClock, now_ns};
use crate::derive::Follower;
use crate::error::{ConnectionError, PutError, Unusable};
use crate::events::Call;
use crate::message::write_both;
use crate::put_message::{FromOutput, ToOutput, wait_ns};

/// A put asks for the home's time first if it has not been told for so long: its instant would be known
/// with a greater error than 1.2 ms.
const ASK_AFTER_NS: i64 = 1_000_000_000;

/// A connection of a process of another host than the channel's home. It ends when it is dropped.
pub(crate) struct RemoteOutput {
    connection: Arc<RemoteConnection>,
}

struct RemoteConnection {
    inner: Arc<Attached>,
    way: Arc<Way>,
    asks: Mutex<Asks>,
    loans: Mutex<Loans>,
    /// Loans that it may have.
    most: usize,
    follower: Arc<Follower>,
}

/// The way to the home.
struct Way {
    /// Each message is written as a whole.
    writes: Mutex<TcpStream>,
    /// What was promised; the home is told of each promise in its order.
    promised: Mutex<Time>,
    /// Why the home cannot be reached any more.
    broken: Mutex<Option<io::ErrorKind>>,
}

/// Questions to the home, one at a time.
struct Asks {
    reads: TcpStream,
    clock: PeerClock,
}

#[derive(Default)]
struct Loans {
    numbers: BTreeSet<u32>,
    /// Memory of earlier loans.
    spare: Vec<Box<[u8]>>,
}

impl RemoteOutput {
    /// One whose home answers at the other end of a TCP connection.
    pub(crate) fn new(
        inner: Arc<Attached>,
        stream: TcpStream,
        most: usize,
    ) -> io::Result<RemoteOutput> {
        let writes = Mutex::new(stream.try_clone()?);
        let way = Way { writes, promised: Mutex::new(Time::MIN), broken: Mutex::default() };
        let way = Arc::new(way);
        let promises = Arc::clone(&way);
        // Where the way has ended, the next put says so.
        let follower = Follower::new(move |time| _ = promises.bound(time));
        let asks = Asks { reads: stream, clock: PeerClock::default() };
        let connection = RemoteConnection {
            inner,
            way,
            asks: Mutex::new(asks),
            loans: Mutex::default(),
            most,
            follower: Arc::new(follower),
        };
        Ok(RemoteOutput { connection: Arc::new(connection) })
    }

    /// Memory for an item, of this process.
    pub(crate) fn loan(&mut self) -> Result<RemoteLoan, PutError> {
        let connection = Arc::clone(&self.connection);
        let _call = connection.inner.calls(Call::Loan);
        let number = connection.number()?;
        let spare = lock(&connection.loans).spare.pop();
        let bytes = connection.inner.payload.slot_bytes;
        let memory = spare.unwrap_or_else(|| vec![0; bytes].into_boxed_slice());
        Ok(RemoteLoan { connection, number, memory, kept: KeptAtHome::Nothing })
    }

    pub(crate) fn put(
        &mut self,
        time: Time,
        half_width: u32,
        bytes: &[u8],
        until: Until,
    ) -> Result<(), PutError> {
        let connection = &self.connection;
        let _call = connection.inner.calls(Call::Put);
        let loan = connection.number()?;
        let put = connection.put(loan, time, half_width, Bytes::Sent(bytes), until);
        let put = put.map_err(|(keeps, error)| {
            if keeps {
                connection.way.send(FromOutput::GivesBack(loan));
            }
            error
        });
        lock(&connection.loans).numbers.remove(&loan);
        put
    }

    pub(crate) fn bound(&mut self, time: Time) -> Result<Time, ConnectionError> {
        let RemoteConnection { inner, way, .. } = &*self.connection;
        let _call = inner.calls(Call::Bound);
        if !inner.own.is_ours() {
            return Err(Unusable::Forked.into());
        }
        way.bound(time).map_err(ConnectionError::Away)
    }

    /// The times of its items that were collected since the last call, from the first call on.
    pub(crate) fn collected(&self, most: usize) -> Result<Vec<Time>, ConnectionError> {
        let connection = &*self.connection;
        let _call = connection.inner.calls(Call::Collected);
        if !connection.inner.own.is_ours() {
            return Err(Unusable::Forked.into());
        }
        let mut asks = lock(&connection.asks);
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let times = connection.way.unless_broken(|| {
            let message = FromOutput::AsksCollected(most);
            let answer = connection.ask(&mut asks, message, &[], None)?;
            let mut times = vec![];
            for _ in 0..answer.collected {
                let mut bytes = [0; 8];
                asks.reads.read_exact(&mut bytes)?;
                times.push(Time::from_le_bytes(bytes));
            }
            Ok(times)
        });
        times.map_err(ConnectionError::Away)
    }

    /// What has its promise follow inputs.
    pub(crate) fn follower(&self) -> &Arc<Follower> {
        &self.connection.follower
    }
}

impl Way {
    /// Tells the home something that it does not answer. Where the way has ended, the next put says so.
    fn send(&self, message: FromOutput) {
        _ = write_both(&mut *lock(&self.writes), &message.head(), &[]);
    }

    fn bound(&self, time: Time) -> Result<Time, io::ErrorKind> {
        let mut promised = lock(&self.promised);
        self.unless_broken(|| {
            if time > *promised {
                write_both(&mut *lock(&self.writes), &FromOutput::Bound(time).head(), &[])?;
                *promised = time;
            }
            Ok(*promised)
        })
    }

    /// Does something with the home, unless that could not be reached before. After an error nothing is
    /// done any more: what comes may be the answer to an earlier question.
    fn unless_broken<T>(&self, work: impl FnOnce() -> io::Result<T>) -> Result<T, io::ErrorKind> {
        if let Some(kind) = *lock(&self.broken) {
            return Err(kind);
        }
        work().map_err(|error| *lock(&self.broken).insert(error.kind()))
    }
}

impl Drop for RemoteConnection {
    fn drop(&mut self) {
        // A process that was forked has the connection, too, and it goes on with the parent's end.
        if self.inner.own.is_ours() {
            _ = lock(&self.way.writes).shutdown(Shutdown::Both);
        }
    }
}

/// The bytes of an item that is to be put.
enum Bytes<'a> {
    Sent(&'a [u8]),
    /// The home has so many of them from an earlier put.
    Kept(usize),
}

impl RemoteConnection {
    /// The number of a new loan.
    fn number(&self) -> Result<u32, PutError> {
        let mut loans = lock(&self.loans);
        if loans.numbers.len() >= self.most {
            return Err(stm::LoanError::TooManyLoans.into());
        }
        let number = (0..).find(|number| !loans.numbers.contains(number)).unwrap_or_default();
        loans.numbers.insert(number);
        Ok(number)
    }

    /// Puts an item; after an error, whether the home keeps the loan.
    fn put(
        &self,
        loan: u32,
        time: Time,
        half_width: u32,
        bytes: Bytes<'_>,
        until: Until,
    ) -> Result<(), (bool, PutError)> {
        let keeps = matches!(bytes, Bytes::Kept(_));
        if !self.inner.own.is_ours() {
            return Err((keeps, Unusable::Forked.into()));
        }
        let count = match bytes {
            Bytes::Sent(bytes) => bytes.len(),
            Bytes::Kept(count) => count,
        };
        let length = PutError::length_of(count, self.inner.payload.slot_bytes)
            .map_err(|error| (keeps, error))?;
        let mut asks = lock(&self.asks);
        let answer = self.way.unless_broken(|| {
            let called = now_ns();
            if asks.clock.age(called).is_none_or(|age| age > ASK_AFTER_NS) {
                self.ask(&mut asks, FromOutput::Asks, &[], None)?;
            }
            let what = "the home's time is not known";
            let (put_ns, put_error_ns) =
                asks.clock.there(called, now_ns()).ok_or_else(|| io::Error::other(what))?;
            let item = NewItem { time, half_width, length, put_ns, put_error_ns };
            let (has_bytes, bytes) = match bytes {
                Bytes::Sent(bytes) => (true, bytes),
                Bytes::Kept(_) => (false, &[][..]),
            };
            if let Some(events) = self.inner.events.filter(|_| has_bytes) {
                events.put(time, length);
            }
            let wait_ns = wait_ns(until);
            let put = FromOutput::Put { loan, item, has_bytes, wait_ns };
            self.ask(&mut asks, put, bytes, Some(time))
        });
        match answer {
            Ok(ToOutput { done, keeps, .. }) => done.map_err(|error| (keeps, error)),
            Err(kind) => Err((false, PutError::Away(kind))),
        }
    }

    /// Asks the home something, and waits for its answer. `time`: of the item that it is about.
    fn ask(
        &self,
        asks: &mut Asks,
        message: FromOutput,
        bytes: &[u8],
        time: Option<Time>,
    ) -> io::Result<ToOutput> {
        let asked = now_ns();
        write_both(&mut *lock(&self.way.writes), &message.head(), bytes)?;
        let wait = self.inner.events.map(|events| events.put_wait).inspect(|wait| wait.begins());
        let answer = ToOutput::receive(&mut asks.reads);
        if let Some(wait) = wait {
            wait.ends(time);
        }
        let answer = answer?;
        asks.clock.exchanged(asked, answer.at, now_ns());
        Ok(answer)
    }
}

/// Memory for an item. It is given back when it is dropped.
pub(crate) struct RemoteLoan {
    connection: Arc<RemoteConnection>,
    number: u32,
    memory: Box<[u8]>,
    kept: KeptAtHome,
}

/// What the home keeps of a loan whose item could not be put.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeptAtHome {
    Nothing,
    /// So many bytes, which may be other ones by now.
    Bytes(usize),
    /// The same bytes.
    Same(usize),
}

impl RemoteLoan {
    pub(crate) fn put(
        mut self,
        time: Time,
        half_width: u32,
        bytes: usize,
        until: Until,
    ) -> Result<(), (RemoteLoan, PutError)> {
        let connection = Arc::clone(&self.connection);
        let _call = connection.inner.calls(Call::Put);
        let Some(filled) = self.memory.get(..bytes) else {
            let room = self.memory.len();
            return Err((self, PutError::TooLong { bytes, room }));
        };
        let sent = match self.kept {
            KeptAtHome::Same(length) if length == bytes => Bytes::Kept(length),
            _ => Bytes::Sent(filled),
        };
        let put = connection.put(self.number, time, half_width, sent, until);
        match put {
            Ok(()) => {
                self.kept = KeptAtHome::Nothing;
                Ok(())
            }
            Err((keeps, error)) => {
                self.kept = if keeps { KeptAtHome::Bytes(bytes) } else { KeptAtHome::Nothing };
                Err((self, error))
            }
        }
    }

    /// Nobody has written to the memory since the last put.
    pub(crate) fn mark_unchanged(&mut self) {
        if let KeptAtHome::Bytes(bytes) = self.kept {
            self.kept = KeptAtHome::Same(bytes);
        }
    }
}

impl Deref for RemoteLoan {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory
    }
}

impl DerefMut for RemoteLoan {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }
}

impl Drop for RemoteLoan {
    fn drop(&mut self) {
        if self.kept != KeptAtHome::Nothing {
            self.connection.way.send(FromOutput::GivesBack(self.number));
        }
        let mut loans = lock(&self.connection.loans);
        loans.spare.push(std::mem::take(&mut self.memory));
        loans.numbers.remove(&self.number);
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
