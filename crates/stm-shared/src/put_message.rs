//! What an output connection of another host and its channel's home tell each other.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use loopscope_stm::{self as stm, NewItem, Time};

use crate::attached::Until;
use crate::error::{PutError, Unusable};
use crate::message::{HEAD, Head, unknown};

/// For how long a put waits for room: so many ns, or as long as it takes.
const FOREVER: i64 = -1;

/// From the output connection to the home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromOutput {
    /// An item is to be put. Its instant is the home's.
    Put {
        /// The loan's number. One that the home keeps from an earlier put is used again.
        loan: u32,
        /// What is put.
        item: NewItem,
        /// Whether the item's bytes follow; else those of the last put of this loan are meant.
        has_bytes: bool,
        /// For how long it waits for room, ns; less than 0: for as long as it takes.
        wait_ns: i64,
    },
    /// A loan ends without an item.
    GivesBack(u32),
    /// Nothing below the time is put by this connection any more.
    Bound(Time),
    /// It asks for the time.
    Asks,
    /// It asks which of its items were collected since the last question, from the first one on, so many
    /// at most.
    AsksCollected(u32),
}

/// From the home to the output connection: the answer to a put or a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToOutput {
    /// Why the item was not put.
    pub done: Result<(), PutError>,
    /// Whether the home keeps the loan and the item's bytes.
    pub keeps: bool,
    /// When it answers, by its CLOCK_MONOTONIC, ns.
    pub at: i64,
    /// How many times of collected items follow, of 8 bytes each.
    pub collected: u32,
}

/// For how long a put waits, as a message says it.
pub(crate) fn wait_ns(until: Until) -> i64 {
    match until {
        Until::Now => 0,
        Until::Forever => FOREVER,
        Until::Deadline(at) => {
            let left = at.saturating_duration_since(Instant::now());
            i64::try_from(left.as_nanos()).unwrap_or(FOREVER)
        }
    }
}

/// Until when a put waits that said for how long it does.
pub fn waits_until(wait_ns: i64) -> Until {
    match u64::try_from(wait_ns).map(Duration::from_nanos) {
        Ok(Duration::ZERO) => Until::Now,
        Ok(left) => Instant::now().checked_add(left).map_or(Until::Forever, Until::Deadline),
        Err(_) => Until::Forever,
    }
}

impl FromOutput {
    pub(crate) fn head(self) -> [u8; HEAD] {
        let head = match self {
            FromOutput::Put { loan, item, has_bytes, wait_ns } => Head {
                kind: if has_bytes { 1 } else { 2 },
                small: [item.half_width, item.length, loan],
                large: [item.time, item.put_ns, item.put_error_ns, wait_ns],
            },
            FromOutput::GivesBack(loan) => Head { kind: 3, small: [0, 0, loan], ..Head::default() },
            FromOutput::Bound(time) => Head { kind: 4, large: [time, 0, 0, 0], ..Head::default() },
            FromOutput::Asks => Head { kind: 5, ..Head::default() },
            FromOutput::AsksCollected(most) => {
                Head { kind: 6, small: [most, 0, 0], ..Head::default() }
            }
        };
        head.bytes()
    }

    /// Reads the next one, without the bytes of an item.
    ///
    /// # Errors
    /// The stream's, or it makes no sense.
    pub fn receive(stream: &mut impl Read) -> io::Result<FromOutput> {
        let Head { kind, small: [first, length, loan], large } = Head::read(stream)?;
        let [time, put_ns, put_error_ns, wait_ns] = large;
        let put_error_ns = put_error_ns.max(0);
        let item = NewItem { time, half_width: first, length, put_ns, put_error_ns };
        Ok(match kind {
            1 | 2 => FromOutput::Put { loan, item, has_bytes: kind == 1, wait_ns },
            3 => FromOutput::GivesBack(loan),
            4 => FromOutput::Bound(time),
            5 => FromOutput::Asks,
            6 => FromOutput::AsksCollected(first),
            _ => return Err(unknown(kind)),
        })
    }
}

/// Why items are not put, by the numbers that messages have for it. The others do not come from a home.
const REFUSALS: [(u32, PutError); 9] = [
    (1, PutError::Put(stm::PutError::Late)),
    (2, PutError::Put(stm::PutError::Exists)),
    (3, PutError::Put(stm::PutError::Full)),
    (4, PutError::Put(stm::PutError::OutOfRange)),
    (5, PutError::Put(stm::PutError::NotConnected)),
    (6, PutError::Loan(stm::LoanError::NotConnected)),
    (7, PutError::Loan(stm::LoanError::TooManyLoans)),
    (8, PutError::Loan(stm::LoanError::NoSlot)),
    (9, PutError::Unusable(Unusable::Damaged)),
];

impl ToOutput {
    /// Sends it.
    ///
    /// # Errors
    /// The stream's.
    pub fn send(self, stream: &mut impl Write) -> io::Result<()> {
        let number = |error| REFUSALS.iter().find(|each| each.1 == error).map_or(9, |each| each.0);
        let code = self.done.map_or_else(number, |()| 0);
        let small = [code, self.keeps.into(), self.collected];
        stream.write_all(&Head { kind: 1, small, large: [self.at, 0, 0, 0] }.bytes())
    }

    pub(crate) fn receive(stream: &mut impl Read) -> io::Result<ToOutput> {
        let Head { kind, small: [code, keeps, collected], large: [at, ..] } = Head::read(stream)?;
        let refusal = REFUSALS.iter().find(|each| each.0 == code).map(|each| each.1);
        match (kind, code, refusal) {
            (1, 0, _) => Ok(ToOutput { done: Ok(()), keeps: false, at, collected }),
            (1, _, Some(error)) => {
                Ok(ToOutput { done: Err(error), keeps: keeps != 0, at, collected })
            }
            _ => Err(unknown(kind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_received() {
        let item = NewItem { time: -1, half_width: 2, length: 3, put_ns: -4, put_error_ns: 5 };
        let sent = [
            FromOutput::Put { loan: 6, item, has_bytes: true, wait_ns: 7 },
            FromOutput::Put { loan: u32::MAX, item, has_bytes: false, wait_ns: FOREVER },
            FromOutput::GivesBack(8),
            FromOutput::Bound(Time::MAX),
            FromOutput::Asks,
            FromOutput::AsksCollected(11),
        ];
        for message in sent {
            assert_eq!(FromOutput::receive(&mut &message.head()[..]).unwrap(), message);
        }
        let done = REFUSALS.iter().map(|each| Err(each.1)).chain([Ok(())]);
        for done in done {
            for keeps in [false, done.is_err()] {
                let answer = ToOutput { done, keeps, at: 9, collected: 10 };
                let mut wire = vec![];
                answer.send(&mut wire).unwrap();
                assert_eq!(ToOutput::receive(&mut &wire[..]).unwrap(), answer);
            }
        }
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        for (kind, code) in [(9, 0), (1, 99)] {
            let bytes = Head { kind, small: [code, 0, 0], ..Head::default() }.bytes();
            let error = ToOutput::receive(&mut &bytes[..]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
        let bytes = Head { kind: 7, ..Head::default() }.bytes();
        let error = FromOutput::receive(&mut &bytes[..]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn how_long_a_put_waits_is_told() {
        assert_eq!(waits_until(wait_ns(Until::Now)), Until::Now);
        assert_eq!(waits_until(wait_ns(Until::Forever)), Until::Forever);
        let (before, later) = (Instant::now(), Instant::now() + Duration::from_secs(100));
        let Until::Deadline(end) = waits_until(wait_ns(Until::Deadline(later))) else { panic!() };
        assert!(later - (Instant::now() - before) <= end && end <= later + before.elapsed());
    }
}
