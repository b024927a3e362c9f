//! What a home and a mirror send each other: a head of 48 bytes, and after that of an item its bytes.

use std::io::{self, Read, Write};

use loopscope_stm::{Horizon, NewItem, Time, ToHome};
use loopscope_stm_shared::message::{HEAD, Head, unknown};

/// From a mirror to its home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Up {
    /// See [`ToHome`].
    Tells(ToHome),
    /// It asks for the time, and tells its own, ns.
    Asks(i64),
}

/// From a home to a mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Down {
    /// An item whose bytes follow; its instants are the home's.
    Item(NewItem),
    Gone {
        time: Time,
        lost: bool,
    },
    Lost(u64),
    Horizon(Horizon),
    /// The time that it was asked for, ns, and what it was told with the question.
    Answers {
        asked: i64,
        at: i64,
    },
    /// See [`loopscope_stm::ToMirror`].
    Joined(u64),
    /// See [`loopscope_stm::ToMirror`].
    Looked(u64),
    /// An item whose bytes come in datagrams, with this number.
    Datagrams {
        item: NewItem,
        serial: u64,
    },
    /// Such an item does not come.
    GivenUp(u64),
}

impl Up {
    pub(crate) fn send(self, stream: &mut impl Write) -> io::Result<()> {
        let head = match self {
            Up::Tells(ToHome::Wants { floor, lossy }) => {
                Head { kind: 1, small: [lossy.into(), 0, 0], large: [floor, 0, 0, 0] }
            }
            Up::Tells(ToHome::WantsNothing) => Head { kind: 2, ..Head::default() },
            Up::Tells(ToHome::Consumed(time)) => {
                Head { kind: 3, large: [time, 0, 0, 0], ..Head::default() }
            }
            Up::Asks(at) => Head { kind: 4, large: [at, 0, 0, 0], ..Head::default() },
            Up::Tells(ToHome::Looks(count)) => {
                Head { kind: 5, large: [count.cast_signed(), 0, 0, 0], ..Head::default() }
            }
        };
        stream.write_all(&head.bytes())
    }

    pub(crate) fn receive(stream: &mut impl Read) -> io::Result<Up> {
        let Head { kind, small: [lossy, ..], large: [first, ..] } = Head::read(stream)?;
        Ok(match kind {
            1 => Up::Tells(ToHome::Wants { floor: first, lossy: lossy != 0 }),
            2 => Up::Tells(ToHome::WantsNothing),
            3 => Up::Tells(ToHome::Consumed(first)),
            4 => Up::Asks(first),
            5 => Up::Tells(ToHome::Looks(first.cast_unsigned())),
            _ => return Err(unknown(kind)),
        })
    }
}

impl Down {
    /// Writes it behind others. The bytes of an item are to follow.
    pub(crate) fn write(self, to: &mut Vec<u8>) {
        to.extend_from_slice(&self.head());
    }

    /// Its head.
    pub(crate) fn head(self) -> [u8; HEAD] {
        let head = match self {
            Down::Item(item) => Head {
                kind: 1,
                small: [item.half_width, item.length, 0],
                large: [item.time, item.put_ns, item.put_error_ns, 0],
            },
            Down::Datagrams { item, serial } => Head {
                kind: 8,
                small: [item.half_width, item.length, 0],
                large: [item.time, item.put_ns, item.put_error_ns, serial.cast_signed()],
            },
            Down::Gone { time, lost } => {
                Head { kind: 2, small: [lost.into(), 0, 0], large: [time, 0, 0, 0] }
            }
            Down::Lost(count) => {
                Head { kind: 3, large: [count.cast_signed(), 0, 0, 0], ..Head::default() }
            }
            Down::Horizon(Horizon { late, bound, next, newest }) => {
                Head { kind: 4, large: [late, bound, next, newest], ..Head::default() }
            }
            Down::Answers { asked, at } => {
                Head { kind: 5, large: [asked, at, 0, 0], ..Head::default() }
            }
            Down::Joined(count) => {
                Head { kind: 6, large: [count.cast_signed(), 0, 0, 0], ..Head::default() }
            }
            Down::Looked(count) => {
                Head { kind: 7, large: [count.cast_signed(), 0, 0, 0], ..Head::default() }
            }
            Down::GivenUp(serial) => {
                Head { kind: 9, large: [serial.cast_signed(), 0, 0, 0], ..Head::default() }
            }
        };
        head.bytes()
    }

    pub(crate) fn receive(stream: &mut impl Read) -> io::Result<Down> {
        let Head { kind, small, large } = Head::read(stream)?;
        let item = || NewItem {
            time: large[0],
            half_width: small[0],
            length: small[1],
            put_ns: large[1],
            put_error_ns: large[2].max(0),
        };
        Ok(match kind {
            1 => Down::Item(item()),
            8 => Down::Datagrams { item: item(), serial: large[3].cast_unsigned() },
            2 => Down::Gone { time: large[0], lost: small[0] != 0 },
            3 => Down::Lost(large[0].cast_unsigned()),
            4 => {
                let [late, bound, next, newest] = large;
                Down::Horizon(Horizon { late, bound, next, newest })
            }
            5 => Down::Answers { asked: large[0], at: large[1] },
            6 => Down::Joined(large[0].cast_unsigned()),
            7 => Down::Looked(large[0].cast_unsigned()),
            9 => Down::GivenUp(large[0].cast_unsigned()),
            _ => return Err(unknown(kind)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_received() {
        let mut wire = vec![];
        let ups = [
            Up::Tells(ToHome::Wants { floor: -3, lossy: true }),
            Up::Tells(ToHome::Wants { floor: Time::MAX, lossy: false }),
            Up::Tells(ToHome::WantsNothing),
            Up::Tells(ToHome::Consumed(9)),
            Up::Asks(1 << 60),
            Up::Tells(ToHome::Looks(14)),
        ];
        ups.iter().for_each(|up| up.send(&mut wire).unwrap());
        let mut from = &wire[..];
        assert_eq!(ups.map(|_| Up::receive(&mut from).unwrap()), ups);
        let item = NewItem { time: -1, half_width: 2, length: 3, put_ns: -4, put_error_ns: 5 };
        let downs = [
            Down::Item(item),
            Down::Gone { time: 6, lost: true },
            Down::Lost(7),
            Down::Horizon(Horizon { late: 8, bound: 9, next: 10, newest: Time::MIN }),
            Down::Answers { asked: 11, at: 12 },
            Down::Joined(13),
            Down::Looked(15),
            Down::Datagrams { item, serial: 16 },
            Down::GivenUp(17),
        ];
        let mut wire = vec![];
        for down in downs {
            down.write(&mut wire);
            wire.extend_from_slice(if matches!(down, Down::Item(_)) { b"abc" } else { b"" });
        }
        let mut from = &wire[..];
        for down in downs {
            assert_eq!(Down::receive(&mut from).unwrap(), down);
            if matches!(down, Down::Item(_)) {
                let mut bytes = [0; 3];
                from.read_exact(&mut bytes).unwrap();
                assert_eq!(&bytes, b"abc");
            }
        }
        assert!(from.is_empty());
    }

    #[test]
    fn an_unknown_or_unfinished_message_is_an_error() {
        let bytes = Head { kind: 10, ..Head::default() }.bytes();
        assert_eq!(Up::receive(&mut &bytes[..]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(Down::receive(&mut &bytes[..]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let short = Up::receive(&mut &bytes[..40]).unwrap_err();
        assert_eq!(short.kind(), io::ErrorKind::UnexpectedEof);
    }
}
