//! Flows that are held while their sockets are replaced. Needs root.

#[path = "../../../tests/skip.rs"]
mod skip;
mod world;

use std::net::TcpStream;
use std::time::Instant;

use loopscope_divert::{Device, Diversion, Own};
use loopscope_frames::Inlet;
use loopscope_stack::packet::{Checksums, Flow, Protocol::Tcp, Written, write};
use loopscope_stack::{Blocks, Ecn, Flags, Segment, Seq};
use nix::net::if_::if_nametoindex;
use nix::unistd::geteuid;
use rustix::net::connect_unspec;
use socket2::{Domain, Protocol, Type};
use world::{OWN, PATIENCE, connect, ip, network};

const MARK: u32 = 0x19;
/// Bytes of Ethernet's header.
const IP: usize = 14;

fn device(name: &str) -> Device {
    Device { index: if_nametoindex(name).unwrap(), name: name.to_owned() }
}

/// What comes to the devices of a network namespace.
struct Capture(socket2::Socket);

impl Capture {
    /// In the namespace of this thread.
    fn begin() -> Capture {
        let all = Protocol::from(i32::from((libc::ETH_P_ALL as u16).to_be()));
        let socket = socket2::Socket::new(Domain::PACKET, Type::RAW, Some(all)).unwrap();
        socket.set_nonblocking(true).unwrap();
        Capture(socket)
    }

    /// Waits for a frame with the second marker; whether one with the first has come.
    fn has(&self, marker: &str, last: &str) -> bool {
        let (mut found, begin) = (false, Instant::now());
        let mut frame = [0; 2048];
        loop {
            assert!(begin.elapsed() < PATIENCE, "{last} does not come");
            let Ok(length) = std::io::Read::read(&mut &self.0, &mut frame) else { continue };
            let has =
                |text: &str| frame[..length].windows(text.len()).any(|at| at == text.as_bytes());
            found |= has(marker);
            if has(last) {
                return found;
            }
        }
    }
}

/// Sends a segment of a flow.
fn send(inlet: &Inlet, flow: &Flow, marker: &str) {
    let segment = Segment {
        seq: Seq(0),
        ack: Some(Seq(0)),
        window: 0,
        flags: Flags::default(),
        ecn: Ecn::NotCapable,
        timestamps: None,
        blocks: Blocks::default(),
        payload: marker.as_bytes(),
    };
    let mut frame = [0; 256];
    let Written { length, .. } = write(flow, &segment, Checksums::Whole, &mut frame[IP..]);
    let kind = if flow.to.is_ipv4() { [0x08, 0x00] } else { [0x86, 0xdd] };
    frame[IP - 2..IP].copy_from_slice(&kind);
    inlet.write(&frame[..IP + length], None).unwrap();
}

fn flow_to(socket: &TcpStream) -> Flow {
    Flow { from: socket.peer_addr().unwrap(), to: socket.local_addr().unwrap() }
}

#[test]
fn a_flow_that_is_held_outlives_its_socket_and_is_nobodys() {
    if !geteuid().is_root() {
        return skip::skipped("a network namespace needs root");
    }
    std::thread::spawn(outlives_its_socket).join().expect("the test did not fail");
}

fn outlives_its_socket() {
    let machine = network();
    let inlet = Inlet::make("in%d").unwrap();
    let own = Own { number: 1, inlet: device(inlet.name()) };
    let mut diversion = Diversion::load().unwrap();
    diversion.attach(&device("here")).unwrap();
    let _installed = diversion.add(&own).unwrap();
    ip(&format!("link set {} up", inlet.name()));
    for address in OWN {
        let [first, second, other] = [0; 3].map(|_| connect(&machine, address));
        let [flow, leaves] = [flow_to(&first.here), flow_to(&first.there)];
        let mut divert = |connection: &world::Connection| {
            let flow = flow_to(&connection.here);
            diversion.divert(&flow, Tcp, &connection.here, &device("here"), &own, MARK).unwrap();
        };
        divert(&first);
        divert(&other);
        let there = machine.run(Capture::begin);
        // What is sent later comes later.
        let is_sent = |marker: &str| {
            send(&inlet, &leaves, marker);
            send(&inlet, &flow_to(&other.there), "<last>");
            there.has(marker, "<last>")
        };
        assert!(is_sent("<diverted>"));
        assert!(diversion.hold(&flow).unwrap());
        connect_unspec(&first.here).unwrap();
        assert!(diversion.counts(&flow, Tcp).unwrap().is_some());
        assert!(!is_sent("<held>"));
        // It ends with the socket that it was handed to, and no more with the first.
        assert!(diversion.hand_over(&flow, &first.here, &second.here).unwrap());
        assert!(is_sent("<handed over>"));
        rustix::net::connect(&first.here, &second.there.local_addr().unwrap()).unwrap_err();
        connect_unspec(&first.here).unwrap();
        assert!(diversion.counts(&flow, Tcp).unwrap().is_some());
        connect_unspec(&second.here).unwrap();
        assert_eq!(diversion.counts(&flow, Tcp).unwrap(), None);
        assert!(!diversion.hold(&flow).unwrap());
        // What is forgotten is not held for the next one.
        diversion.forget(&flow_to(&other.here), Tcp).unwrap();
    }
}
