//! Connections that a program has by the stack, behind the programs on a device: what comes is in an
//! AF_XDP socket, and what it sends goes into a TAP device.

use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::process::Command;
use std::time::{Duration, Instant};

use loopscope_divert::{Counts, Device, Diversion, Own};
use loopscope_frames::{Inlet, Offload, Redirect, Socket, Train};
use loopscope_stack::icmp::TooBig;
use loopscope_stack::packet::{
    CHECKSUM, Checksums, Flow, MOST_HEADERS, Written, parse, set_checksum, write,
};
use loopscope_stack::{Config, Connection, Connections, Id, Segment};
use loopscope_takeover::Frozen;
use nix::net::if_::if_nametoindex;

const MARK: u32 = 0x19;
const ETHERNET: usize = 14;
/// Bytes of data that are sent at once.
const TRAIN: usize = 60_000;
const BATCH: usize = 64;
/// Frames that the ring has room for.
const RECEIVED: usize = 2048;

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
        let socket = Socket::open(far, 1600, RECEIVED as u32).unwrap();
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

/// The stack of a program: its connections over its devices.
pub struct Stack {
    diversion: Diversion,
    devices: Devices,
    connections: Connections,
    clock: Instant,
    data: Vec<u8>,
    frame: Vec<u8>,
}

/// A connection that was taken over.
pub struct Held {
    id: Id,
    flow: Flow,
    frozen: Frozen,
}

impl Stack {
    /// Makes the devices of a program, of a device in the network namespace of this thread.
    pub fn make(name: &str) -> Stack {
        let mut diversion = Diversion::attach(device(name)).unwrap();
        let devices = Devices::make(0, &mut diversion);
        Stack {
            diversion,
            devices,
            connections: Connections::default(),
            clock: Instant::now(),
            data: vec![0; TRAIN],
            frame: vec![0; ETHERNET + MOST_HEADERS + TRAIN],
        }
    }

    /// Takes over the connection of a socket.
    pub fn take(&mut self, socket: &TcpStream, config: Config) -> Held {
        let flow = Flow { from: socket.peer_addr().unwrap(), to: socket.local_addr().unwrap() };
        self.diversion.divert(&flow, &self.devices.own, MARK).unwrap();
        let taken = Frozen::take(socket, MARK).unwrap();
        assert_eq!(taken.flow, flow);
        let connection = Connection::new(taken.state, config, self.clock.elapsed());
        let id = self.connections.add(&flow, connection).expect("it is not held");
        Held { id, flow, frozen: taken.frozen }
    }

    /// A connection, for its program to read and write.
    pub fn connection(&mut self, held: &Held) -> &mut Connection {
        self.connections.change(held.id).expect("it is held")
    }

    /// Takes what came, and sends what is due.
    pub fn turn(&mut self) {
        let now = self.clock.elapsed();
        self.receive(now);
        self.connections.wake(now);
        let Stack { devices, connections, data, frame, .. } = self;
        connections.send(now, data, |flow, segment, size| {
            devices.send(flow, segment, size, frame);
        });
    }

    fn receive(&mut self, now: Duration) {
        let Stack { devices, connections, .. } = self;
        // What came for a connection that has been given back.
        let mut late = vec![];
        devices.socket.receive(BATCH, |_, frame| {
            let packet = &frame[ETHERNET..];
            if let Some(TooBig { flow, seq, most }) = TooBig::of(packet) {
                if let Some(connection) =
                    connections.of(&flow).and_then(|id| connections.change(id))
                {
                    connection.too_big(seq, most);
                }
                return;
            }
            let found = parse(packet, Checksums::Unfinished);
            let (flow, segment) = found.expect("nothing else is diverted");
            match connections.of(&flow).and_then(|id| connections.change(id)) {
                Some(connection) => {
                    connection.receive(now, &segment);
                    assert_eq!(connection.end(), None);
                }
                None => late.push(packet.to_vec()),
            }
        });
        for mut packet in late {
            set_checksum(&mut packet).unwrap();
            devices.send_packet(&packet).unwrap();
        }
    }

    /// What the programs on the device counted.
    #[allow(dead_code)] // The example of the bench has no use for it.
    pub fn counts(&self, held: &Held) -> Counts {
        self.diversion.counts(&held.flow).unwrap()
    }

    /// Gives a connection back to the kernel, and what came meanwhile.
    pub fn give_back(&mut self, held: Held) {
        let Held { id, flow, frozen } = held;
        let connection = self.connections.remove(id).expect("it is held");
        let state = connection.into_state(self.clock.elapsed());
        let mut inject = |packet: &[u8]| self.devices.send_packet(packet);
        frozen.give_back(&state, &flow, &mut inject).unwrap();
        self.diversion.stop(&flow).unwrap();
        // All that waits in the ring.
        for _ in 0..RECEIVED.div_ceil(BATCH) {
            self.receive(self.clock.elapsed());
        }
        self.diversion.forget(&flow).unwrap();
    }
}
