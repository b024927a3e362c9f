//! A connection that a program has by the stack, behind the programs on a device: what comes is in an
//! AF_XDP socket, and what it sends goes into a TAP device.

use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::process::Command;
use std::time::Instant;

use loopscope_divert::{Counts, Device, Diversion, Own};
use loopscope_frames::{Inlet, Offload, Redirect, Socket, Train};
use loopscope_stack::icmp::TooBig;
use loopscope_stack::packet::{
    CHECKSUM, Checksums, Flow, MOST_HEADERS, Written, parse, set_checksum, write,
};
use loopscope_stack::{Config, Connection, Segment};
use loopscope_takeover::{Frozen, Taken};
use nix::net::if_::if_nametoindex;

const MARK: u32 = 0x19;
const ETHERNET: usize = 14;
/// Bytes of data that are sent at once.
const TRAIN: usize = 60_000;
const BATCH: usize = 64;

/// Runs `ip` with these words.
pub fn ip(words: &str) {
    run("ip", words);
}

/// Runs a program with these words.
pub fn run(program: &str, words: &str) {
    let done = Command::new(program).args(words.split(' ')).output().expect("it runs");
    assert!(done.status.success(), "{program} {words}: {done:?}");
}

/// A device in the network namespace of this thread.
pub fn device(name: &str) -> Device {
    Device { index: if_nametoindex(name).unwrap(), name: name.to_owned() }
}

/// The devices of a program, in the network namespace of the thread that has made them.
pub struct Devices {
    own: Own,
    _redirect: Redirect,
    socket: Socket,
    inlet: Inlet,
}

impl Devices {
    /// Makes them, with a number in their names. From none of them comes something by itself.
    pub fn make(number: usize, diversion: &mut Diversion) -> Devices {
        let (near, far) = (format!("near{number}"), format!("far{number}"));
        ip(&format!("link add {near} type veth peer {far}"));
        let inlet = Inlet::make(&format!("inlet{number}")).unwrap();
        for device in [&near, &far, inlet.name()] {
            ip(&format!("link set {device} addrgenmode none"));
            ip(&format!("link set {device} up"));
        }
        let own = Own { near: device(&near), inlet: device(inlet.name()) };
        diversion.add(&own).unwrap();
        let far = device(&far).index;
        let socket = Socket::open(far, 1600, 2048).unwrap();
        let redirect = Redirect::attach(far, socket.as_fd()).unwrap();
        Devices { own, _redirect: redirect, socket, inlet }
    }

    #[allow(dead_code)] // The example of the bench diverts nothing by hand.
    pub fn divert(&self, flow: &Flow, diversion: &mut Diversion, mark: u32) {
        diversion.divert(flow, &self.own, mark).unwrap();
    }

    /// Sends a frame by the inlet.
    #[allow(dead_code)] // The example of the bench sends none.
    pub fn send_frame(&self, frame: &[u8]) {
        self.inlet.write(frame, None).unwrap();
    }

    /// Sends a frame at the far end.
    #[allow(dead_code)] // The example of the bench sends none.
    pub fn send_at_far_end(&mut self, frame: &[u8]) {
        assert!(self.socket.push(frame));
        self.socket.flush(|_| {}).unwrap();
    }

    fn send_packet(&self, packet: &[u8]) -> std::io::Result<()> {
        let mut frame = [0; ETHERNET + 2048];
        frame[..ETHERNET].copy_from_slice(&ethernet(packet));
        frame[ETHERNET..][..packet.len()].copy_from_slice(packet);
        self.inlet.write(&frame[..ETHERNET + packet.len()], None)
    }

    /// Sends a segment, or several of `size` bytes of data.
    fn send(&self, flow: &Flow, segment: &Segment<'_>, size: usize, frame: &mut [u8]) {
        let Written { length, tcp, data } =
            write(flow, segment, Checksums::Unfinished, &mut frame[ETHERNET..]);
        let (header, packet) = frame.split_at_mut(ETHERNET);
        header.copy_from_slice(&ethernet(packet));
        let train = Train {
            headers: (ETHERNET + data) as u16,
            size: size as u16,
            is_ipv6: flow.to.is_ipv6(),
        };
        let offload = Offload {
            checked: (ETHERNET + tcp) as u16,
            checksum: CHECKSUM as u16,
            train: (segment.payload.len() > size).then_some(train),
        };
        self.inlet.write(&frame[..ETHERNET + length], Some(offload)).unwrap();
    }
}

/// The header of Ethernet of an IP packet. The kernel sets its addresses.
fn ethernet(packet: &[u8]) -> [u8; ETHERNET] {
    let mut header = [0; ETHERNET];
    header[12..].copy_from_slice(if packet[0] >> 4 == 4 { &[0x08, 0x00] } else { &[0x86, 0xdd] });
    header
}

/// A connection that was taken over.
pub struct Stacked<'p> {
    diversion: &'p mut Diversion,
    devices: &'p mut Devices,
    frozen: Frozen,
    /// The stack's.
    pub connection: Connection,
    flow: Flow,
    back: Flow,
    clock: Instant,
    data: Vec<u8>,
    frame: Vec<u8>,
}

impl Stacked<'_> {
    /// Takes over the connection of a socket.
    pub fn take<'p>(
        diversion: &'p mut Diversion,
        devices: &'p mut Devices,
        socket: &TcpStream,
        config: Config,
    ) -> Stacked<'p> {
        let flow = Flow { from: socket.peer_addr().unwrap(), to: socket.local_addr().unwrap() };
        let back = Flow { from: flow.to, to: flow.from };
        diversion.divert(&flow, &devices.own, MARK).unwrap();
        let taken = Frozen::take(socket, MARK).unwrap();
        assert_eq!(taken.flow, flow);
        let Taken { frozen, state, .. } = taken;
        let clock = Instant::now();
        let connection = Connection::new(state, config, clock.elapsed());
        let (data, frame) = (vec![0; TRAIN], vec![0; ETHERNET + MOST_HEADERS + TRAIN]);
        Stacked { diversion, devices, frozen, connection, flow, back, clock, data, frame }
    }

    /// Takes what came, and sends what is due.
    pub fn turn(&mut self) {
        let Stacked { devices, connection, flow, back, clock, data, frame, .. } = self;
        let now = clock.elapsed();
        devices.socket.receive(BATCH, |_, frame| {
            let packet = &frame[ETHERNET..];
            if let Some(too_big) = TooBig::of(packet) {
                assert_eq!(too_big.flow, *flow);
                return connection.too_big(too_big.seq, too_big.most);
            }
            let found = parse(packet, Checksums::Unfinished);
            let (of, segment) = found.expect("nothing else is diverted");
            assert_eq!(of, *flow);
            connection.receive(now, &segment);
        });
        if connection.deadline().is_some_and(|at| at <= now) {
            connection.wake(now);
        }
        assert_eq!(connection.end(), None);
        while let Some((segment, size)) = connection.poll_train(now, data) {
            devices.send(back, &segment, size, frame);
        }
    }

    /// What the programs on the device counted.
    #[allow(dead_code)] // The example of the bench has no use for it.
    pub fn counts(&self) -> Counts {
        self.diversion.counts(&self.flow).unwrap()
    }

    /// Gives the connection back to the kernel, and what came meanwhile.
    pub fn give_back(self) {
        let Stacked { diversion, devices, frozen, connection, flow, clock, .. } = self;
        let state = connection.into_state(clock.elapsed());
        let mut inject = |packet: &[u8]| devices.send_packet(packet);
        frozen.give_back(&state, &flow, &mut inject).unwrap();
        diversion.stop(&flow).unwrap();
        let mut late = vec![];
        while devices.socket.receive(BATCH, |_, frame| late.push(frame[ETHERNET..].to_vec())) > 0 {}
        for mut packet in late {
            set_checksum(&mut packet).unwrap();
            devices.send_packet(&packet).unwrap();
        }
        diversion.forget(&flow).unwrap();
    }
}
