//! When what was sent left this host: the kernel's stamps as it hands packets to a device
//! (SO_TIMESTAMPING with SOF_TIMESTAMPING_TX_SOFTWARE: CLOCK_REALTIME).
//!
//! The run asks for them together with the stamps of what comes, see [`crate::stamped`]. Then
//! `socket:left` follows the event of each message that was sent, in the same thread and with the
//! same id, after the program has handed over this message or one of the next, or at its end: the
//! stamps of some messages are read together, so that most receivers need not wait for a processor
//! while their sender reads them. Its fields, in nanoseconds: `after_ns`, by how much after that
//! event the message's last packet left for the first time, `within_ns`, the maximum error of that,
//! and `since_ns`, about how long ago that event was, by which the analysis finds it. A message to
//! several receivers that have a socket each has several records. A message has none if TCP puts its
//! end into one packet with what follows.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use anyhow::{Context, Result};
use loopscope_trace::{describe, event};
use nix::errno::Errno;
use nix::libc::{SO_EE_ORIGIN_TIMESTAMPING, sock_extended_err, sockaddr_in6};
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, TimestampingFlag, recvmsg, setsockopt, sockopt,
};
use nix::sys::time::TimeSpec;

use crate::deadline::realtime;
use crate::stamped::{Around, is_asked};

describe!("socket", "left", "", "When the message of an event before it left this host");

/// Messages whose stamps are waited for, at most. Beyond that the oldest goes without one.
const MOST_WAITING: usize = 4096;

/// Messages whose stamps are read together, if the first was not sent [`LONGEST_UNREAD_NS`] before
/// the last.
const TOGETHER: usize = 8;
const LONGEST_UNREAD_NS: i64 = 100_000_000;

/// A message that is being sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    id: u64,
    around: Around,
}

/// The stamps of what one socket sends; of none, where the run does not ask for them.
pub(crate) struct Departures {
    /// `None`: nobody asks.
    stamps: Option<Stamps>,
}

struct Stamps {
    /// How much was handed over, in the kernel's count: bytes of a connection, else datagrams.
    handed: u32,
    /// With the kernel's number of their last byte, or of their last datagram.
    waiting: VecDeque<(u32, Sent)>,
    /// How many messages were sent since stamps were read, and when the first of them was.
    unread: usize,
    unread_since: i64,
    control: Vec<u8>,
}

impl Departures {
    /// For a socket that has sent nothing yet.
    pub(crate) fn new(socket: &impl AsFd) -> Result<Departures> {
        if is_asked() { Departures::asked(socket) } else { Ok(Departures { stamps: None }) }
    }

    fn asked(socket: &impl AsFd) -> Result<Departures> {
        let flags = TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_TX_SOFTWARE
            | TimestampingFlag::SOF_TIMESTAMPING_OPT_ID
            | TimestampingFlag::SOF_TIMESTAMPING_OPT_TSONLY;
        setsockopt(socket, sockopt::Timestamping, &flags)
            .context("the kernel does not stamp what is sent (SO_TIMESTAMPING)")?;
        // SCM_TIMESTAMPING, IP_RECVERR or IPV6_RECVERR, and SCM_TIMESTAMPNS where what comes is
        // stamped too.
        let control = nix::cmsg_space!([TimeSpec; 3], (sock_extended_err, sockaddr_in6), TimeSpec);
        Ok(Departures {
            stamps: Some(Stamps {
                handed: 0,
                waiting: VecDeque::new(),
                unread: 0,
                unread_since: 0,
                control,
            }),
        })
    }

    /// Has `record` record that message `id` is sent.
    pub(crate) fn sending<T>(id: u64, record: impl FnOnce() -> T) -> Result<(T, Option<Sent>)> {
        if !is_asked() {
            return Ok((record(), None));
        }
        let (value, around) = Around::of(record)?;
        Ok((value, Some(Sent { id, around })))
    }

    /// The kernel has taken some more bytes of a connection, or datagrams.
    pub(crate) fn handed(&mut self, count: usize) {
        if let Some(stamps) = &mut self.stamps {
            // The kernel's count has 32 bits too.
            stamps.handed = stamps.handed.wrapping_add(count as u32);
        }
    }

    /// What was handed over last is the end of a message. Records now and then what stamps there
    /// are.
    pub(crate) fn ended(&mut self, socket: &impl AsRawFd, sent: Option<Sent>) -> Result<()> {
        let (Some(stamps), Some(sent)) = (&mut self.stamps, sent) else {
            return Ok(());
        };
        stamps.waiting.push_back((stamps.handed.wrapping_sub(1), sent));
        if stamps.waiting.len() > MOST_WAITING {
            stamps.waiting.pop_front();
        }
        if stamps.is_reading_due(sent.around.middle_ns) { self.record(socket) } else { Ok(()) }
    }

    /// Records the stamps that have come.
    pub(crate) fn record(&mut self, socket: &impl AsRawFd) -> Result<()> {
        let Some(stamps) = &mut self.stamps else {
            return Ok(());
        };
        stamps.unread = 0;
        while !stamps.waiting.is_empty() {
            let Some((number, stamp)) = next(socket, &mut stamps.control)? else {
                break;
            };
            while let Some((sent, after_ns)) = stamps.take(number, stamp) {
                let since_ns = realtime()?.saturating_sub(sent.around.middle_ns);
                event!(
                    "socket",
                    "left",
                    sent.id,
                    after_ns = after_ns,
                    within_ns = sent.around.within_ns,
                    since_ns = since_ns
                );
            }
        }
        Ok(())
    }
}

impl Stamps {
    /// Whether it is time to read stamps, when a message has been handed over.
    fn is_reading_due(&mut self, sent_ns: i64) -> bool {
        if self.unread == 0 {
            self.unread_since = sent_ns;
        }
        self.unread += 1;
        self.unread >= TOGETHER || sent_ns.saturating_sub(self.unread_since) >= LONGEST_UNREAD_NS
    }

    /// The message that ends with the stamped byte or datagram, and how long after its event it left.
    fn take(&mut self, number: u32, stamp: i64) -> Option<(Sent, i64)> {
        let place = self.waiting.iter().position(|(last, _)| *last == number)?;
        let (_, sent) = self.waiting.remove(place)?;
        Some((sent, stamp.saturating_sub(sent.around.middle_ns)))
    }
}

/// The next stamp that waits at a socket: the number of a byte or datagram, and ns since 1970.
fn next(socket: &impl AsRawFd, control: &mut [u8]) -> Result<Option<(u32, i64)>> {
    let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
    loop {
        let message =
            match recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut [], Some(control), flags) {
                Ok(message) => message,
                Err(Errno::EAGAIN) => return Ok(None),
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error).context("cannot read when a message left"),
            };
        let (mut number, mut stamp) = (None, None);
        for part in message.cmsgs().context("cannot read when a message left")? {
            match part {
                ControlMessageOwned::ScmTimestampsns(stamps) => {
                    stamp = i64::try_from(Duration::from(stamps.system).as_nanos()).ok();
                }
                ControlMessageOwned::Ipv4RecvErr(error, _)
                | ControlMessageOwned::Ipv6RecvErr(error, _)
                    if error.ee_origin == SO_EE_ORIGIN_TIMESTAMPING =>
                {
                    number = Some(error.ee_data);
                }
                _ => {}
            }
        }
        if let (Some(number), Some(stamp)) = (number, stamp) {
            return Ok(Some((number, stamp)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    use super::*;
    use crate::stamped::stamp;

    fn sent(id: u64) -> Option<Sent> {
        let (_, around) = Around::of(|| ()).unwrap();
        Some(Sent { id, around })
    }

    /// The stamps that come in a while, each with the message that it is of.
    fn stamps(departures: &mut Departures, socket: &impl AsRawFd, most: usize) -> Vec<(u64, i64)> {
        let stamps = departures.stamps.as_mut().unwrap();
        let mut found = vec![];
        for _ in 0..1000 {
            while let Some((number, stamp)) = next(socket, &mut stamps.control).unwrap() {
                while let Some((sent, after)) = stamps.take(number, stamp) {
                    found.push((sent.id, sent.around.middle_ns + after));
                }
            }
            if found.len() >= most {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        found
    }

    #[test]
    fn each_datagram_has_the_stamp_of_when_it_left() {
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut departures = Departures::asked(&socket).unwrap();
        let mut within = vec![];
        for id in 0..20 {
            let before = realtime().unwrap();
            // A message of two datagrams has the stamp of the second one.
            for _ in 0..2 {
                socket.send_to(&[0; 100], to.local_addr().unwrap()).unwrap();
                departures.handed(1);
            }
            let stamps = departures.stamps.as_mut().unwrap();
            stamps.waiting.push_back((stamps.handed - 1, sent(id).unwrap()));
            within.push(before..=realtime().unwrap());
        }
        let found = stamps(&mut departures, &socket, 20);
        assert_eq!(
            found.iter().map(|each| each.0).collect::<Vec<_>>(),
            (0..20).collect::<Vec<_>>()
        );
        for ((id, at), within) in found.iter().zip(within) {
            assert!(within.contains(at), "message {id} left at {at}, not in {within:?}");
        }
    }

    #[test]
    fn the_stamp_of_a_message_on_a_connection_is_of_its_last_byte() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        let reader = std::thread::spawn(move || std::io::copy(&mut peer, &mut std::io::sink()));
        socket.set_nodelay(true).unwrap();
        stamp(&socket).unwrap();
        let mut departures = Departures::asked(&socket).unwrap();
        let mut found = vec![];
        for (id, parts) in [(1, [4, 100_000]), (2, [70_000, 6]), (3, [1, 1])] {
            for bytes in parts {
                socket.write_all(&vec![0; bytes]).unwrap();
                departures.handed(bytes);
            }
            let stamps = departures.stamps.as_mut().unwrap();
            stamps.waiting.push_back((stamps.handed - 1, sent(id).unwrap()));
            // A message that waits for room may share a packet with the next one, and has no stamp then.
            found.extend(self::stamps(&mut departures, &socket, 1));
        }
        assert_eq!(found.iter().map(|each| each.0).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(found.is_sorted_by_key(|each| each.1));
        drop(socket);
        assert_eq!(reader.join().unwrap().unwrap(), 170_012);
    }

    #[test]
    fn stamps_of_some_messages_are_read_together() {
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut departures = Departures::asked(&socket).unwrap();
        let mut waiting = vec![];
        for number in 0..2 * TOGETHER + 2 {
            let mut sent = sent(number as u64).unwrap();
            if number > 2 * TOGETHER {
                sent.around.middle_ns += LONGEST_UNREAD_NS;
            }
            socket.send_to(&[0; 100], to.local_addr().unwrap()).unwrap();
            departures.handed(1);
            departures.ended(&socket, Some(sent)).unwrap();
            waiting.push(departures.stamps.as_ref().unwrap().waiting.len());
        }
        let together: Vec<_> = (1..TOGETHER).chain([0]).collect();
        assert_eq!(waiting, [together.clone(), together, vec![1, 0]].concat());
    }

    #[test]
    fn nobody_asks_for_stamps() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut departures = Departures::new(&socket).unwrap();
        let (value, sent) = Departures::sending(1, || 7).unwrap();
        assert_eq!((value, sent.is_none()), (7, true));
        socket.send_to(b"abc", socket.local_addr().unwrap()).unwrap();
        departures.handed(1);
        departures.ended(&socket, sent).unwrap();
        assert!(next(&socket, &mut [0; 256]).unwrap().is_none());
    }
}
