//! Connections that are taken over behind the programs on a device, and what a program may send
//! there. Needs root.

#[path = "../../stack/tests/program/mod.rs"]
mod program;
#[path = "../../../tests/skip.rs"]
mod skip;
mod taken;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use fastrand::Rng;
use loopscope_divert::Diversion;
use loopscope_stack::packet::{Checksums, Flow, Written, write};
use loopscope_stack::{Blocks, Config, Ecn, Flags, Segment, Seq};
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::geteuid;
use program::Program;
use socket2::{Domain, Protocol, Type};
use taken::{Devices, Stack, device, ip};

const OWN: [&str; 2] = ["10.0.0.1", "fd00::1"];
const OTHER: [&str; 2] = ["10.0.0.2", "fd00::2"];
/// For what comes at once.
const PATIENCE: Duration = Duration::from_secs(20);

fn addresses(device: &str, own: [&str; 2]) {
    ip(&format!("link set {device} up"));
    ip(&format!("address add {}/24 dev {device}", own[0]));
    ip(&format!("address add {}/64 dev {device} nodad", own[1]));
}

/// The network namespace of another machine.
struct Machine(OwnedFd);

impl Machine {
    fn make() -> Machine {
        let make = || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace can be made");
            Machine(std::fs::File::open("/proc/thread-self/ns/net").unwrap().into())
        };
        std::thread::spawn(make).join().unwrap()
    }

    fn run<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        let act = || {
            setns(&self.0, CloneFlags::CLONE_NEWNET).unwrap();
            act()
        };
        std::thread::scope(|scope| scope.spawn(act).join().expect("it is done"))
    }
}

/// A connection from another machine, and its end there.
struct Connection {
    here: TcpStream,
    there: TcpStream,
}

/// This thread has a network namespace with the device `here`, whose other end is `there` in another
/// machine's.
fn network() -> Machine {
    unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace can be made");
    ip("link set lo up");
    let machine = Machine::make();
    let fd = std::os::fd::AsRawFd::as_raw_fd(&machine.0);
    let pid = std::process::id();
    ip(&format!("link add here type veth peer there netns /proc/{pid}/fd/{fd}"));
    addresses("here", OWN);
    machine.run(|| addresses("there", OTHER));
    machine
}

fn connect(machine: &Machine, own: &str) -> Connection {
    let listener = TcpListener::bind((own, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let there = machine.run(|| TcpStream::connect(address).unwrap());
    let here = listener.accept().unwrap().0;
    for stream in [&here, &there] {
        stream.set_nonblocking(true).unwrap();
        stream.set_nodelay(true).unwrap();
    }
    Connection { here, there }
}

fn flow_to(socket: &TcpStream) -> Flow {
    Flow { from: socket.peer_addr().unwrap(), to: socket.local_addr().unwrap() }
}

fn in_thread(test: impl FnOnce() + Send + 'static) {
    if !geteuid().is_root() {
        return skip::skipped("a network namespace needs root");
    }
    std::thread::spawn(test).join().expect("the test did not fail");
}

#[test]
fn connections_are_taken_over_and_come_back() {
    in_thread(|| {
        let machine = network();
        let mut stack = Stack::make("here");
        let config = Config { least_timeout: Duration::from_millis(5), ..Config::default() };
        let mut rng = Rng::with_seed(1);
        // Both at the same time.
        let mut all = OWN.map(|own| {
            let mut connection = connect(&machine, own);
            let (mut ours, mut theirs) = (Program::new(3_000_000), Program::new(3_000_000));
            for _ in 0..50 {
                ours.act(&mut connection.here, &mut rng);
                theirs.act(&mut connection.there, &mut rng);
            }
            assert!(!ours.is_done());
            let held = stack.take(&connection.here, config);
            // What had come before.
            let before = ours.read + stack.connection(&held).readable();
            (connection, held, ours, theirs, before)
        });
        let mut is_done = false;
        while !is_done {
            stack.turn();
            is_done = true;
            for (connection, held, ours, theirs, _) in &mut all {
                ours.act_by_stack(stack.connection(held), &mut rng);
                theirs.act(&mut connection.there, &mut rng);
                is_done &= ours.is_done() && theirs.is_done();
                is_done &= stack.connection(held).unacknowledged() == 0;
            }
        }
        for (Connection { mut here, mut there }, held, ours, _, before) in all {
            let counts = stack.counts(&held);
            assert!(counts.payload as usize >= ours.read - before, "{counts:?}");
            stack.give_back(held);
            // The kernel goes on with it.
            let (mut ours, mut theirs) = (Program::new(100_000), Program::new(100_000));
            while !ours.is_done() || !theirs.is_done() {
                ours.act(&mut here, &mut rng);
                theirs.act(&mut there, &mut rng);
            }
        }
    });
}

/// Reads what is expected next.
fn read_all(socket: &mut TcpStream, expected: &[u8]) {
    let (mut found, begin) = (Vec::<u8>::new(), Instant::now());
    while found.len() < expected.len() {
        let mut next = vec![0; expected.len() - found.len()];
        match socket.read(&mut next) {
            Ok(count) => found.extend(&next[..count]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(begin.elapsed() < PATIENCE, "it did not come");
    }
    assert_eq!(found, expected);
}

#[test]
fn what_came_meanwhile_goes_to_the_kernel() {
    in_thread(|| {
        for own in OWN {
            let machine = network();
            let mut stack = Stack::make("here");
            let Connection { mut here, mut there } = connect(&machine, own);
            let held = stack.take(&here, Config::default());
            there.write_all(b"some data").unwrap();
            let begin = Instant::now();
            while stack.counts(&held).payload < 9 {
                assert!(begin.elapsed() < PATIENCE, "it is not diverted");
            }
            // From now on nothing is sent again.
            machine.run(|| ip("link set there down"));
            stack.give_back(held);
            read_all(&mut here, b"some data");
        }
    });
}

/// Makes a router between `here` and another machine, whose way there has room for smaller packets.
/// Returns both.
fn network_with_router(mtu: u32) -> [Machine; 2] {
    unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace can be made");
    ip("link set lo up");
    let [router, machine] = [0, 1].map(|_| Machine::make());
    let pid = std::process::id();
    let [to_router, to_machine] =
        [&router, &machine].map(|each| std::os::fd::AsRawFd::as_raw_fd(&each.0));
    ip(&format!("link add here type veth peer left netns /proc/{pid}/fd/{to_router}"));
    addresses("here", OWN);
    router.run(|| {
        let there = format!("/proc/{pid}/fd/{to_machine}");
        ip(&format!("link add right type veth peer there netns {there}"));
        addresses("left", ["10.0.0.9", "fd00::9"]);
        addresses("right", ["10.0.1.9", "fd01::9"]);
        // In place of the routes that the addresses have brought.
        for route in ["10.0.1.0/24 metric 0", "fd01::/64 metric 256"] {
            ip(&format!("route replace {route} dev right mtu lock {mtu}"));
        }
        for forward in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            std::fs::write(format!("/proc/sys/net/{forward}"), "1").unwrap();
        }
    });
    machine.run(|| {
        addresses("there", ["10.0.1.2", "fd01::2"]);
        ip("route add 10.0.0.0/24 via 10.0.1.9");
        ip("route add fd00::/64 via fd01::9");
    });
    ip("route add 10.0.1.0/24 via 10.0.0.9");
    ip("route add fd01::/64 via fd00::9");
    [router, machine]
}

#[test]
fn packets_become_smaller_where_a_router_asks_for_it() {
    in_thread(|| {
        let [_router, machine] = network_with_router(1300);
        let mut stack = Stack::make("here");
        for own in OWN {
            let Connection { here, mut there } = connect(&machine, own);
            let mut rng = Rng::with_seed(1);
            let config = Config { least_timeout: Duration::from_millis(5), ..Config::default() };
            let held = stack.take(&here, config);
            let (mut ours, mut theirs) = (Program::new(500_000), Program::new(500_000));
            while !ours.is_done()
                || !theirs.is_done()
                || stack.connection(&held).unacknowledged() > 0
            {
                stack.turn();
                ours.act_by_stack(stack.connection(&held), &mut rng);
                theirs.act(&mut there, &mut rng);
            }
            let counts = stack.connection(&held).counts();
            assert_eq!(counts.too_big, 1, "{own}: {counts:?}");
            stack.give_back(held);
        }
    });
}

/// All that the devices of a network namespace take and send.
struct Capture {
    socket: socket2::Socket,
    found: Vec<Vec<u8>>,
}

impl Capture {
    /// In the namespace of this thread.
    fn begin() -> Capture {
        let all = Protocol::from(i32::from((libc::ETH_P_ALL as u16).to_be()));
        let socket = socket2::Socket::new(Domain::PACKET, Type::RAW, Some(all)).unwrap();
        socket.set_nonblocking(true).unwrap();
        Capture { socket, found: vec![] }
    }

    /// How often a frame was seen.
    fn count(&mut self, marker: &str) -> usize {
        let mut frame = [0; 2048];
        while let Ok(length) = (&self.socket).read(&mut frame) {
            self.found.push(frame[..length].to_vec());
        }
        let has = |frame: &&Vec<u8>| frame.windows(marker.len()).any(|at| at == marker.as_bytes());
        self.found.iter().filter(has).count()
    }

    fn wait_for(&mut self, marker: &str, count: usize) {
        let begin = Instant::now();
        while self.count(marker) < count {
            assert!(begin.elapsed() < PATIENCE, "{marker} is not seen {count} times");
        }
    }
}

/// A frame of a flow.
fn frame(flow: &Flow, marker: &str) -> Vec<u8> {
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
    let mut packet = [0; 256];
    let Written { length, .. } = write(flow, &segment, Checksums::Whole, &mut packet);
    let protocol = if flow.to.is_ipv4() { [0x08, 0x00] } else { [0x86, 0xdd] };
    [&[0; 12][..], &protocol, &packet[..length]].concat()
}

/// Where the header of IP begins.
const IP: usize = 14;

/// Frames that are almost of a flow.
fn others(flow: &Flow) -> Vec<(String, Vec<u8>)> {
    let changed = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let marker = format!("<{name}>");
        let mut bytes = frame(flow, &marker);
        change(&mut bytes);
        (marker, bytes)
    };
    let is_ipv4 = flow.to.is_ipv4();
    let (address, protocol, ports) = if is_ipv4 { (12, 9, 20) } else { (8, 6, 40) };
    let address_length = if is_ipv4 { 4 } else { 16 };
    let mut cases = vec![
        changed("source", &|bytes| bytes[IP + address + address_length - 1] ^= 4),
        changed("target", &|bytes| bytes[IP + address + 2 * address_length - 1] ^= 4),
        changed("source port", &|bytes| bytes[IP + ports + 1] ^= 1),
        changed("target port", &|bytes| bytes[IP + ports + 3] ^= 1),
        changed("UDP", &|bytes| bytes[IP + protocol] = 17),
        changed("VLAN", &|bytes| drop(bytes.splice(12..12, [0x81, 0, 0, 1]))),
        changed("ARP", &|bytes| bytes[13] = 6),
        changed("other family", &|bytes| {
            let other = if is_ipv4 { [0x86, 0xdd] } else { [0x08, 0x00] };
            bytes[12..14].copy_from_slice(&other);
        }),
    ];
    if let (IpAddr::V4(from), IpAddr::V4(to)) = (flow.from.ip(), flow.to.ip()) {
        // The addresses of IPv4 are as the beginnings of these.
        let wide = |address: Ipv4Addr, port| {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&address.octets());
            SocketAddr::new(octets.into(), port)
        };
        let wide = Flow { from: wide(from, flow.from.port()), to: wide(to, flow.to.port()) };
        cases.push(("<wide>".to_owned(), frame(&wide, "<wide>")));
        cases.push(changed("first fragment", &|bytes| bytes[IP + 6] |= 0x20));
        cases.push(changed("last fragment", &|bytes| bytes[IP + 7] = 1));
        cases.push(changed("options", &|bytes| {
            bytes[IP] = 0x46;
            bytes.splice(IP + 20..IP + 20, [1; 4]);
        }));
    } else {
        cases.push(changed("extension", &|bytes| {
            let next = bytes[IP + 6];
            bytes[IP + 6] = 0;
            bytes.splice(IP + 40..IP + 40, [next, 0, 1, 4, 0, 0, 0, 0]);
        }));
    }
    cases
}

#[test]
fn a_program_sends_what_is_its_own_alone() {
    in_thread(|| {
        let machine = network();
        let mut diversion = Diversion::attach(device("here")).unwrap();
        let mut programs = [0, 1].map(|number| Devices::make(number, &mut diversion));
        for own in OWN {
            let [mut mine, kernels] = [0, 1].map(|_| connect(&machine, own));
            let comes = flow_to(&mine.here);
            let leaves = flow_to(&mine.there);
            programs[0].divert(&comes, &mut diversion, 1);
            let mut there = machine.run(Capture::begin);
            let mut here = Capture::begin();
            let cases = [others(&leaves), others(&comes)].concat();
            for (_, bytes) in &cases {
                programs[0].send_frame(bytes);
            }
            programs[1].send_frame(&frame(&leaves, "<another's leaves>"));
            programs[1].send_frame(&frame(&comes, "<another's comes>"));
            programs[0].send_frame(&frame(&flow_to(&kernels.there), "<kernel's leaves>"));
            programs[0].send_frame(&frame(&flow_to(&kernels.here), "<kernel's comes>"));
            programs[0].send_at_far_end(&frame(&leaves, "<leaves at the far end>"));
            programs[0].send_at_far_end(&frame(&comes, "<comes at the far end>"));
            // What is its own goes there, or to the kernel: seen at the inlet, and once more.
            programs[0].send_frame(&frame(&leaves, "<leaves>"));
            programs[0].send_frame(&frame(&comes, "<comes>"));
            there.wait_for("<leaves>", 1);
            here.wait_for("<comes>", 2);
            let by_hand = [
                "another's leaves",
                "another's comes",
                "kernel's leaves",
                "kernel's comes",
                "leaves at the far end",
                "comes at the far end",
            ];
            let by_hand = by_hand.map(|name| (format!("<{name}>"), vec![]));
            for (marker, _) in cases.iter().chain(&by_hand) {
                assert_eq!(there.count(marker), 0, "{marker}");
                // At its own device alone.
                assert_eq!(here.count(marker), marker_copies(&cases, marker), "{marker}");
            }
            // What comes goes to the kernel again, and what is its own is as before.
            diversion.stop(&comes).unwrap();
            mine.there.write_all(b"<to the kernel>").unwrap();
            read_all(&mut mine.here, b"<to the kernel>");
            programs[0].send_frame(&frame(&leaves, "<leaves again>"));
            there.wait_for("<leaves again>", 1);
            // Once it is forgotten, nothing is its own.
            diversion.forget(&comes).unwrap();
            programs[0].send_frame(&frame(&leaves, "<late leaves>"));
            programs[0].send_frame(&frame(&comes, "<late comes>"));
            here.wait_for("<late comes>", 1);
            assert_eq!((there.count("<late leaves>"), here.count("<late comes>")), (0, 1));
        }
    });
}

/// How often a marker is in frames that were sent.
fn marker_copies(cases: &[(String, Vec<u8>)], marker: &str) -> usize {
    cases.iter().filter(|(each, _)| each == marker).count().max(1)
}
