//! Where packets go: a connected socket and the memory that they are made in.

use std::io::{IoSlice, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use loopscope_time::MonotonicNs;
use loopscope_timer::now;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, MsgFlags, MultiHeaders, SockaddrIn, send, sendmmsg, sendmsg,
};
use nix::time::{ClockId, clock_gettime};

use super::options::TimerKind;
use super::packet::{End, Head, hello};
use super::txtime;

/// Packets that go to the kernel by one call, at most; all of them are due.
const BATCH: usize = 64;

/// Bytes that go to the kernel by one call, at most: what one UDP datagram could have.
const BUFFER_LIMIT: usize = 65_000;

/// How long to wait for the receiver to confirm the end, and between two attempts.
const PATIENCE: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_millis(50);

/// How long to wait for a receiver to be there at all, where the other machine says that nobody is
/// yet; and where it says nothing.
const ABSENCE: Duration = Duration::from_secs(3);
const SILENCE: Duration = Duration::from_secs(1);

enum Socket {
    Udp(UdpSocket),
    /// The kernel sends at the time that comes with each packet, on this clock.
    Timed(UdpSocket, ClockId),
    Tcp(TcpStream),
}

/// A way to the receiver, for packets of one size.
pub(super) struct Outlet {
    socket: Socket,
    to: String,
    packets: Vec<u8>,
    size: usize,
    headers: MultiHeaders<SockaddrIn>,
    /// The kernel cuts a buffer into packets (UDP_SEGMENT), as far as is known.
    segments: bool,
    /// Times that the peer's kernel has said that nobody listens.
    refused: u64,
}

impl Outlet {
    /// For datagrams to the first of `addresses` that there is a way to; `to` is its name for people.
    pub(super) fn connect(
        to: &str,
        addresses: &[SocketAddr],
        timer: TimerKind,
        size: usize,
    ) -> Result<Outlet> {
        let udp = udp(addresses).with_context(|| format!("cannot send to {to}"))?;
        let socket = if timer == TimerKind::Kernel {
            let clock = txtime::enable(&udp)?;
            Socket::Timed(udp, clock)
        } else {
            Socket::Udp(udp)
        };
        Ok(Outlet::new(socket, to, size))
    }

    /// Over a connection.
    pub(super) fn over(stream: TcpStream, to: &str, size: usize) -> Outlet {
        Outlet::new(Socket::Tcp(stream), to, size)
    }

    fn new(socket: Socket, to: &str, size: usize) -> Outlet {
        let batch = if matches!(socket, Socket::Udp(_)) {
            (BUFFER_LIMIT / size).clamp(1, BATCH)
        } else {
            1
        };
        Outlet {
            socket,
            to: to.to_owned(),
            packets: vec![0; size * batch],
            size,
            headers: MultiHeaders::preallocate(BATCH, None),
            segments: true,
            refused: 0,
        }
    }

    /// How many packets may go by one call.
    pub(super) fn most(&self) -> usize {
        self.packets.len() / self.size
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Makes the packet at `place` of the batch.
    pub(super) fn write(&mut self, place: usize, head: &Head) {
        head.write(&mut self.packets[place * self.size..]);
    }

    /// Sends the first `count` packets, for `instant` where the kernel paces. Returns a bit for each
    /// packet that the kernel had no room for.
    pub(super) fn send(&mut self, count: usize, instant: MonotonicNs) -> Result<u64> {
        let mut rejected = 0;
        let mut done = 0;
        while done < count {
            match self.send_some(done, count, instant) {
                Ok(sent) => done += sent,
                // The answer to an earlier packet. This one has not gone yet.
                Err(Errno::ECONNREFUSED) => self.refused += 1,
                Err(Errno::EINTR) => {}
                Err(Errno::ENOBUFS) => {
                    rejected |= 1 << done;
                    done += 1;
                }
                Err(Errno::EMSGSIZE) => bail!(
                    "a packet of {} B is too large for the way to {}; give a smaller `size`",
                    self.size,
                    self.to
                ),
                Err(error) => {
                    return Err(error).with_context(|| format!("lost {} while sending", self.to));
                }
            }
        }
        Ok(rejected)
    }

    fn send_some(&mut self, from: usize, to: usize, instant: MonotonicNs) -> Result<usize, Errno> {
        let packets = &self.packets[from * self.size..to * self.size];
        let flags = MsgFlags::MSG_NOSIGNAL;
        match &mut self.socket {
            Socket::Udp(socket) if to - from == 1 => {
                send(socket.as_raw_fd(), packets, flags).map(|_| 1)
            }
            // One buffer of many packets, which the kernel cuts as late as it can.
            Socket::Udp(socket) if self.segments => {
                let size = self.size as u16;
                let slices = [IoSlice::new(packets)];
                let control = [ControlMessage::UdpGsoSegments(&size)];
                match sendmsg::<()>(socket.as_raw_fd(), &slices, &control, flags, None) {
                    Ok(_) => Ok(to - from),
                    // Packets above the MTU, or a device without checksum offload.
                    Err(Errno::EINVAL | Errno::EMSGSIZE | Errno::EIO | Errno::EOPNOTSUPP) => {
                        self.segments = false;
                        Err(Errno::EINTR)
                    }
                    Err(error) => Err(error),
                }
            }
            Socket::Udp(socket) => {
                let slices: Vec<[IoSlice; 1]> =
                    packets.chunks(self.size).map(|packet| [IoSlice::new(packet)]).collect();
                let addresses = [const { None::<SockaddrIn> }; BATCH];
                let fd = socket.as_raw_fd();
                let sent = sendmmsg(fd, &mut self.headers, &slices, addresses, [], flags)?;
                Ok(sent.count())
            }
            Socket::Timed(socket, clock) => {
                let time = on_clock(*clock, instant)?;
                let slices = [IoSlice::new(packets)];
                let control = [ControlMessage::TxTime(&time)];
                sendmsg::<()>(socket.as_raw_fd(), &slices, &control, flags, None).map(|_| 1)
            }
            Socket::Tcp(stream) => {
                let written = stream.write_all(packets);
                written
                    .map(|()| 1)
                    .map_err(|error| error.raw_os_error().map_or(Errno::EPIPE, Errno::from_raw))
            }
        }
    }

    /// Tells the receiver that this was all; whether it has said that it knows.
    pub(super) fn finish(mut self, end: &End) -> Result<bool> {
        let bytes = end.bytes();
        match &mut self.socket {
            Socket::Udp(socket) | Socket::Timed(socket, _) => Ok(confirm(socket, &bytes)),
            Socket::Tcp(stream) => {
                let lost = || format!("lost {} at the end", self.to);
                stream.write_all(&bytes).with_context(lost)?;
                stream.shutdown(Shutdown::Write).with_context(lost)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                Ok(matches!(stream.read(&mut [0]), Ok(0)))
            }
        }
    }
}

fn udp(addresses: &[SocketAddr]) -> std::io::Result<UdpSocket> {
    let mut last = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        let own: SocketAddr = match address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        match UdpSocket::bind(own).and_then(|socket| socket.connect(address).map(|()| socket)) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Waits until a receiver of datagrams is there; whether one has said so. That also has the
/// neighbour's address looked up before anything is measured. An error: there is none.
pub(super) fn greet(to: &str, addresses: &[SocketAddr]) -> Result<bool> {
    let socket = udp(addresses).with_context(|| format!("cannot send to {to}"))?;
    socket.set_read_timeout(Some(AGAIN))?;
    let begin = Instant::now();
    loop {
        let sent = socket.send(&hello());
        let mut answer = [0; 256];
        let refused = match sent.and_then(|_| socket.recv(&mut answer)) {
            Ok(_) => return Ok(true),
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
        };
        if refused && begin.elapsed() > ABSENCE {
            bail!("nobody listens at {to}; start `pace receive` there first");
        }
        if refused {
            std::thread::sleep(AGAIN);
        } else if begin.elapsed() > SILENCE {
            return Ok(false);
        }
    }
}

/// Sends `end` until it comes back, nobody listens, or patience ends.
fn confirm(socket: &UdpSocket, end: &[u8]) -> bool {
    let until = Instant::now() + PATIENCE;
    if socket.set_read_timeout(Some(AGAIN)).is_err() {
        return false;
    }
    let mut refusals = 0;
    while Instant::now() < until {
        // A refusal may still answer a packet of the run, at most one each for send and receive.
        let sent = socket.send(end);
        let mut answer = [0; 256];
        let answer = sent.and_then(|_| socket.recv(&mut answer).map(|n| answer[..n] == *end));
        match answer {
            Ok(true) => return true,
            Ok(false) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                refusals += 1;
                if refusals > 3 {
                    return false;
                }
            }
            Err(_) => {}
        }
    }
    false
}

/// `instant` on another clock.
fn on_clock(clock: ClockId, instant: MonotonicNs) -> Result<u64, Errno> {
    if clock == ClockId::CLOCK_MONOTONIC {
        return Ok(instant.0);
    }
    let there = Duration::from(clock_gettime(clock)?).as_nanos() as i64;
    Ok((there + instant.ns_since(now())).cast_unsigned())
}

#[cfg(test)]
mod tests {
    use nix::libc::sock_txtime;
    use nix::sys::socket::{setsockopt, sockopt};

    use super::super::packet::{self, Message};
    use super::*;

    fn pair() -> (UdpSocket, UdpSocket) {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let sender = udp(&[receiver.local_addr().unwrap()]).unwrap();
        (sender, receiver)
    }

    fn head(sequence: u64) -> Head {
        Head { number: sequence + 1, intended: 0, sent: 0, sequence, process: 0, run: 1, size: 100 }
    }

    fn expect(receiver: &UdpSocket, numbers: std::ops::Range<u64>) {
        for number in numbers {
            let mut bytes = [0; 200];
            let length = receiver.recv(&mut bytes).unwrap();
            assert_eq!(length, 100);
            assert_eq!(packet::read(&bytes[..length]), Some(Message::Packet(head(number))));
        }
    }

    /// Cut by the kernel or one by one: the same packets come.
    #[test]
    fn a_batch_is_so_many_packets() {
        let (sender, receiver) = pair();
        let mut outlet = Outlet::new(Socket::Udp(sender), "here", 100);
        assert_eq!(outlet.most(), BATCH);
        for (segments, numbers) in [(true, 0..64), (false, 64..128), (true, 128..129)] {
            outlet.segments = segments;
            for (place, number) in numbers.clone().enumerate() {
                outlet.write(place, &head(number));
            }
            let count = (numbers.end - numbers.start) as usize;
            assert_eq!(outlet.send(count, now()).unwrap(), 0);
            assert_eq!(outlet.segments, segments);
            expect(&receiver, numbers);
        }
    }

    /// Loopback paces nothing, but takes the time.
    #[test]
    fn a_time_goes_with_a_packet() {
        let (sender, receiver) = pair();
        let txtime = sock_txtime { clockid: ClockId::CLOCK_MONOTONIC.as_raw(), flags: 0 };
        setsockopt(&sender, sockopt::TxTime, &txtime).unwrap();
        let mut outlet = Outlet::new(Socket::Timed(sender, ClockId::CLOCK_MONOTONIC), "here", 100);
        assert_eq!(outlet.most(), 1);
        outlet.write(0, &head(0));
        assert_eq!(outlet.send(1, now().plus(1_000_000)).unwrap(), 0);
        expect(&receiver, 0..1);
        // The other clock's time is the same instant, 37 s or none ahead of UTC.
        let instant = now().plus(5_000_000_000);
        let tai = on_clock(ClockId::CLOCK_TAI, instant).unwrap();
        let there = Duration::from(clock_gettime(ClockId::CLOCK_TAI).unwrap()).as_nanos() as u64;
        assert!((tai - there).abs_diff(5_000_000_000) < 1_000_000_000);
    }
}
