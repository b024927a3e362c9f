//! A program that does not keep to the rules: what it may send and see. Needs root.

mod hostile;
#[path = "../../../tests/skip.rs"]
mod skip;
mod world;

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::time::Instant;

use hostile::Hostile;
use loopscope_engine::wire::{Answer, Request};
use loopscope_stack::packet::{Checksums, Flow, Written, write};
use loopscope_stack::{Blocks, Ecn, Flags, Outline, Segment, Seq};
use loopscope_stack_service::status;
use loopscope_unix_lines::{receive, send};
use nix::unistd::geteuid;
use socket2::{Domain, Protocol, Type};
use world::{OWN, PATIENCE, Serving, connect, network, read_all};

fn flow_to(socket: &TcpStream) -> Flow {
    Flow { from: socket.peer_addr().unwrap(), to: socket.local_addr().unwrap() }
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
    if !geteuid().is_root() {
        return skip::skipped("a network namespace needs root");
    }
    std::thread::spawn(sends_what_is_its_own_alone).join().expect("the test did not fail");
}

fn sends_what_is_its_own_alone() {
    let machine = network();
    let serving = Serving::start();
    let programs = [0, 1].map(|_| Hostile::connect(&serving));
    for own in OWN {
        let [mut mine, kernels] = [0, 1].map(|_| connect(&machine, own));
        let comes = flow_to(&mine.here);
        let leaves = flow_to(&mine.there);
        let take = Request::Take { send: 4096, receive: 4096 };
        let answer = programs[0].ask(&take, &[mine.here.as_fd()]);
        let Answer::Taken { connection, .. } = answer else { panic!("{answer:?}") };
        let mut there = machine.run(Capture::begin);
        let mut here = Capture::begin();
        let cases = [others(&leaves), others(&comes)].concat();
        for (_, bytes) in &cases {
            programs[0].inlet.write(bytes, None).unwrap();
        }
        programs[1].inlet.write(&frame(&leaves, "<another's leaves>"), None).unwrap();
        programs[1].inlet.write(&frame(&comes, "<another's comes>"), None).unwrap();
        programs[0]
            .inlet
            .write(&frame(&flow_to(&kernels.there), "<kernel's leaves>"), None)
            .unwrap();
        programs[0].inlet.write(&frame(&flow_to(&kernels.here), "<kernel's comes>"), None).unwrap();
        // What is its own goes there, or to the kernel: seen at the inlet, and once more.
        programs[0].inlet.write(&frame(&leaves, "<leaves>"), None).unwrap();
        programs[0].inlet.write(&frame(&comes, "<comes>"), None).unwrap();
        there.wait_for("<leaves>", 1);
        here.wait_for("<comes>", 2);
        let by_hand = ["another's leaves", "another's comes", "kernel's leaves", "kernel's comes"];
        let by_hand = by_hand.map(|name| (format!("<{name}>"), vec![]));
        for (marker, _) in cases.iter().chain(&by_hand) {
            assert_eq!(there.count(marker), 0, "{marker}");
            // At its own device alone.
            assert_eq!(here.count(marker), marker_copies(&cases, marker), "{marker}");
        }
        // What is another's cannot be given back, nor forgotten.
        for number in [connection + 1, 0] {
            for request in [give_back(number), Request::Forget { connection: number }] {
                let answer = programs[0].ask(&request, &[]);
                assert!(matches!(answer, Answer::Refused(_)), "{answer:?}");
            }
        }
        let answer = programs[1].ask(&give_back(connection), &[]);
        assert!(matches!(answer, Answer::Refused(_)), "{answer:?}");
        // What comes goes to the kernel again, and what is its own is as before.
        let answer = programs[0].ask(&give_back(connection), &[]);
        assert!(matches!(answer, Answer::GivenBack), "{answer:?}");
        std::io::Write::write_all(&mut mine.there, b"<to the kernel>").unwrap();
        read_all(&mut mine.here, b"<to the kernel>");
        programs[0].inlet.write(&frame(&leaves, "<leaves again>"), None).unwrap();
        there.wait_for("<leaves again>", 1);
        // Once it is forgotten, nothing is its own.
        let answer = programs[0].ask(&Request::Forget { connection }, &[]);
        assert!(matches!(answer, Answer::Forgotten { .. }), "{answer:?}");
        programs[0].inlet.write(&frame(&leaves, "<late leaves>"), None).unwrap();
        programs[0].inlet.write(&frame(&comes, "<late comes>"), None).unwrap();
        here.wait_for("<late comes>", 1);
        assert_eq!((there.count("<late leaves>"), here.count("<late comes>")), (0, 1));
    }
}

#[test]
fn a_connection_that_cannot_be_given_back_ends_at_both_ends() {
    if !geteuid().is_root() {
        return skip::skipped("a network namespace needs root");
    }
    std::thread::spawn(ends_at_both_ends).join().expect("the test did not fail");
}

fn ends_at_both_ends() {
    let machine = network();
    let mut serving = Serving::start();
    for way in ["it is given back", "the program ends", "the service ends"] {
        let program = Hostile::connect(&serving);
        let mut connection = connect(&machine, OWN[0]);
        let take = Request::Take { send: 4096, receive: 4096 };
        send(&program.stream, &take, &[connection.here.as_fd()]).unwrap();
        let (answer, files) = receive(&program.stream).unwrap().unwrap();
        let Answer::Taken { connection: number, .. } = answer else { panic!("{answer:?}") };
        let [memory]: [OwnedFd; 1] = files.try_into().unwrap();
        File::from(memory).write_all_at(&[0xff; 4096], 0).unwrap();
        match way {
            "it is given back" => {
                let answer = program.ask(&give_back(number), &[]);
                let Answer::Refused(why) = answer else { panic!("{answer:?}") };
                assert!(why.contains("what no connection can be"), "{why}");
            }
            "the program ends" => drop(program),
            _ => serving.end(),
        }
        assert_eq!(error_of(&mut connection.here), ErrorKind::ConnectionAborted, "{way}");
        std::io::Write::write_all(&mut connection.there, b"anyone?").unwrap();
        assert_eq!(error_of(&mut connection.there), ErrorKind::ConnectionReset, "{way}");
    }
}

fn give_back(connection: u64) -> Request {
    Request::GiveBack { connection, closing: false }
}

/// A program may say how far its connection came, and that it closes it, as it likes.
#[test]
fn a_flow_ends_with_the_socket_that_closes_the_connection() {
    if !geteuid().is_root() {
        return skip::skipped("a network namespace needs root");
    }
    std::thread::spawn(ends_with_the_socket_that_closes).join().expect("the test did not fail");
}

fn ends_with_the_socket_that_closes() {
    let machine = network();
    let serving = Serving::start();
    let program = Hostile::connect(&serving);
    for own in OWN {
        let mine = connect(&machine, own);
        let [comes, leaves] = [flow_to(&mine.here), flow_to(&mine.there)];
        let take = Request::Take { send: 4096, receive: 4096 };
        send(&program.stream, &take, &[mine.here.as_fd()]).unwrap();
        let (answer, files) = receive(&program.stream).unwrap().unwrap();
        let Answer::Taken { connection, .. } = answer else { panic!("{answer:?}") };
        let [memory]: [OwnedFd; 1] = files.try_into().unwrap();
        go_far(&File::from(memory));
        let answer = program.ask(&Request::GiveBack { connection, closing: true }, &[]);
        assert!(matches!(answer, Answer::GivenBack), "{answer:?}");
        assert!(mine.here.peer_addr().is_err());
        let (mut there, mut here) = (machine.run(Capture::begin), Capture::begin());
        program.inlet.write(&frame(&leaves, "<leaves>"), None).unwrap();
        there.wait_for("<leaves>", 1);
        // The other end resets it. The addresses are anybody's.
        socket2::SockRef::from(&mine.there).set_linger(Some(std::time::Duration::ZERO)).unwrap();
        drop(mine.there);
        let begin = Instant::now();
        while status(serving.at()).unwrap().1.iter().any(|status| status.packets.is_some()) {
            assert!(begin.elapsed() < PATIENCE, "its flow is there");
        }
        program.inlet.write(&frame(&leaves, "<late leaves>"), None).unwrap();
        program.inlet.write(&frame(&comes, "<late comes>"), None).unwrap();
        here.wait_for("<late comes>", 1);
        assert_eq!((there.count("<late leaves>"), here.count("<late comes>")), (0, 1));
        let answer = program.ask(&Request::Forget { connection }, &[]);
        assert!(matches!(answer, Answer::Forgotten { counts: Some(_) }), "{answer:?}");
    }
}

/// Stores that the connection has sent much since it was taken over.
fn go_far(memory: &File) {
    // Behind the word that says which outline is valid.
    const AT: u64 = 64;
    let mut bytes = [0; 8 * Outline::WORDS];
    memory.read_exact_at(&mut bytes, AT).unwrap();
    let word = |at: usize| u64::from_ne_bytes(bytes[8 * at..8 * at + 8].try_into().unwrap());
    let mut outline = Outline::from_words(&std::array::from_fn(word));
    for place in [&mut outline.unacknowledged, &mut outline.next, &mut outline.written] {
        *place = *place + (2 << 20);
    }
    let words: Vec<u8> = outline.to_words().into_iter().flat_map(u64::to_ne_bytes).collect();
    memory.write_all_at(&words, AT).unwrap();
}

/// What reading comes to in a while.
fn error_of(socket: &mut TcpStream) -> ErrorKind {
    let begin = Instant::now();
    loop {
        match socket.read(&mut [0; 16]) {
            // The kernel says the second of a socket that is frozen.
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::PermissionDenied) => {}
            Err(error) => return error.kind(),
            Ok(count) => panic!("{count} bytes come"),
        }
        assert!(begin.elapsed() < PATIENCE, "it waits for ever");
    }
}

/// How often a marker is in frames that were sent.
fn marker_copies(cases: &[(String, Vec<u8>)], marker: &str) -> usize {
    cases.iter().filter(|(each, _)| each == marker).count().max(1)
}
