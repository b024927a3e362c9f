//! Connected sockets of UDP by the stack of a program, and what it may see and send. Needs root.

mod hostile;
mod killable;
#[path = "../../../tests/skip.rs"]
mod skip;
mod world;

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read as _};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use hostile::Hostile;
use killable::{Killable, as_root};
use loopscope_engine::wire::{Answer, Request};
use loopscope_engine::{DatagramsId, Engine, EngineError, Sent};
use loopscope_stack::datagram::{self, MOST_HEADERS};
use loopscope_stack::packet::{Checksums, Flow};
use loopscope_stack_service::status;
use nix::sys::socket::{setsockopt, sockopt};
use rustix::net::connect_unspec;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use world::{Machine, OTHER, OWN, PATIENCE, Serving, devices, network, wait_for_devices};

/// Two connected sockets, here and on another machine.
fn pair(machine: &Machine, family: usize) -> (UdpSocket, UdpSocket) {
    let here = UdpSocket::bind((OWN[family], 0)).unwrap();
    let there = machine.run(|| UdpSocket::bind((OTHER[family], 0)).unwrap());
    here.connect(there.local_addr().unwrap()).unwrap();
    there.connect(here.local_addr().unwrap()).unwrap();
    for socket in [&here, &there] {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    (here, there)
}

fn send_by(engine: &mut Engine, id: DatagramsId, payload: &[u8]) -> Sent {
    engine.send_datagram(id, &[IoSlice::new(payload)]).unwrap()
}

/// The next datagram that comes to the engine.
fn receive_by(engine: &mut Engine, id: DatagramsId) -> Vec<u8> {
    let begin = Instant::now();
    let mut payload = vec![0; 1 << 16];
    loop {
        engine.turn().unwrap();
        if let Some((copied, length)) =
            engine.receive_datagram(id, &mut [IoSliceMut::new(&mut payload)])
        {
            assert_eq!(copied, length);
            payload.truncate(copied);
            return payload;
        }
        engine.wait(Duration::from_millis(10)).unwrap();
        assert!(begin.elapsed() < PATIENCE, "nothing comes");
    }
}

/// The next datagram that comes to a socket.
fn receive_at(socket: &UdpSocket) -> Vec<u8> {
    let mut payload = vec![0; 1 << 16];
    let length = socket.recv(&mut payload).expect("it comes");
    payload.truncate(length);
    payload
}

fn has_none(socket: &UdpSocket) -> bool {
    socket.set_nonblocking(true).unwrap();
    let found = socket.recv(&mut [0; 16]);
    socket.set_nonblocking(false).unwrap();
    matches!(found, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

/// A payload of so many bytes, which differs with its number.
fn payload(number: usize, size: usize) -> Vec<u8> {
    (0..size).map(|at| (number * 31 + at * 7) as u8).collect()
}

#[test]
fn datagrams_go_both_ways_and_the_kernel_has_the_rest() {
    as_root(|| {
        let machine = network();
        let before = devices();
        let serving = Serving::start();
        let mut engine = Engine::connect(serving.at()).unwrap();
        for family in 0..2 {
            let (here, there) = pair(&machine, family);
            there.send(b"before").unwrap();
            let id = engine.take_datagrams(&here).unwrap();
            // It is the kernel's.
            assert_eq!(receive_at(&here), b"before");
            let most = 1500 - [28, 48][family];
            let (mut count, mut bytes) = (0, 0);
            for (number, size) in [0, 1, 64, 1000, most].repeat(50).into_iter().enumerate() {
                let sent = payload(number, size);
                assert_eq!(send_by(&mut engine, id, &sent), Sent::Whole(size));
                assert_eq!(receive_at(&there), sent);
                there.send(&sent).unwrap();
                assert_eq!(receive_by(&mut engine, id), sent);
                (count, bytes) = (count + 1, bytes + size as u64);
            }
            assert!(has_none(&here), "all went by the stack");
            // Larger ones are fragments, which the kernel makes and takes.
            assert_eq!(send_by(&mut engine, id, &payload(1, most + 1)), Sent::TooLarge);
            let large = payload(2, 4000);
            here.send(&large).unwrap();
            assert_eq!(receive_at(&there), large);
            there.send(&large).unwrap();
            assert_eq!(receive_at(&here), large);
            // Several in one packet, which no device has cut.
            setsockopt(&there, sockopt::UdpGsoSegment, &1000).unwrap();
            there.send(&large).unwrap();
            for part in large.chunks(1000) {
                assert_eq!(receive_at(&here), part);
            }
            setsockopt(&there, sockopt::UdpGsoSegment, &0).unwrap();
            let told = status(serving.at()).unwrap().1;
            assert_eq!((told.len(), &told[0].protocol[..]), (1, "UDP"));
            assert_eq!((told[0].local, told[0].peer), engine.datagrams_ends(id).unwrap());
            assert_eq!((told[0].packets, told[0].payload), (Some(count), Some(bytes)));
            // What was not read goes to the kernel, with what comes from then on, in order.
            let rest: Vec<_> = (0..20).map(|number| payload(number, number)).collect();
            rest.iter().for_each(|each| assert_eq!(there.send(each).unwrap(), each.len()));
            let begin = Instant::now();
            while engine.datagrams_came(id) < count + 20 {
                engine.turn().unwrap();
                assert!(begin.elapsed() < PATIENCE);
            }
            there.send(b"in the ring").unwrap();
            let left = engine.give_datagrams_back(id).unwrap();
            assert_eq!(
                (left.counts.map(|counts| counts.packets), left.dropped),
                (Some(count + 21), 0)
            );
            there.send(b"after").unwrap();
            let rest = rest.into_iter().chain([b"in the ring".to_vec(), b"after".to_vec()]);
            rest.for_each(|each| assert_eq!(receive_at(&here), each));
            assert_eq!(send_by(&mut engine, id, b"x"), Sent::NotHere);
            here.send(b"by the kernel").unwrap();
            assert_eq!(receive_at(&there), b"by the kernel");
        }
        assert!(!devices().contains(&"here tcx".into()));
        drop(engine);
        wait_for_devices(&before);
    });
}

#[test]
fn as_many_datagrams_wait_as_the_kernel_has_room_for() {
    as_root(|| {
        let machine = network();
        let serving = Serving::start();
        let mut engine = Engine::connect(serving.at()).unwrap();
        let (here, there) = pair(&machine, 0);
        let id = engine.take_datagrams(&here).unwrap();
        let count = 1000;
        for number in 0..count {
            there.send(&payload(number, 64)).unwrap();
            engine.turn().unwrap();
        }
        let begin = Instant::now();
        // The last one was dropped, too.
        while status(serving.at()).unwrap().1[0].packets < Some(count as u64) {
            assert!(begin.elapsed() < PATIENCE);
        }
        for _ in 0..count {
            engine.turn().unwrap();
        }
        let came = engine.datagrams_came(id);
        assert!((100..500).contains(&came), "{came}");
        let left = engine.give_datagrams_back(id).unwrap();
        assert_eq!(left.dropped, count as u64 - came);
        // None of those that waited was lost on the way back.
        for number in 0..came {
            assert_eq!(receive_at(&here), payload(number as usize, 64));
        }
        assert!(has_none(&here));
    });
}

/// A socket of another user that wants the port, in all ways.
fn others(address: SocketAddr) -> Vec<std::io::Result<Socket>> {
    let domain = Domain::for_address(address);
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (std::net::Ipv4Addr::UNSPECIFIED, address.port()).into(),
        SocketAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, address.port()).into(),
    };
    [(address, false, false), (address, true, true), (any, false, false), (any, true, true)]
        .into_iter()
        .map(|(address, address_reuse, port_reuse)| {
            let socket = Socket::new(domain, Type::DGRAM, None)?;
            socket.set_reuse_address(address_reuse)?;
            socket.set_reuse_port(port_reuse)?;
            socket.bind(&address.into())?;
            Ok(socket)
        })
        .collect()
}

#[test]
fn the_port_is_held_for_as_long_as_the_program_has_its_datagrams() {
    as_root(|| {
        let machine = network();
        let serving = Serving::start();
        let mut engine = Engine::connect(serving.at()).unwrap();
        for family in 0..2 {
            for closes in [false, true] {
                let (here, there) = pair(&machine, family);
                let (port, peer) = (here.local_addr().unwrap(), here.peer_addr().unwrap());
                let id = engine.take_datagrams(&here).unwrap();
                // It shares its port with nobody, and does not notice.
                assert!(!SockRef::from(&here).reuse_address().unwrap());
                let refused = |when: &str| {
                    for other in others(port) {
                        let error = other.map(drop).expect_err(when).kind();
                        assert_eq!(error, ErrorKind::AddrInUse, "{when}");
                    }
                };
                refused("while it is connected");
                if closes {
                    drop(here);
                } else {
                    connect_unspec(&here).unwrap();
                    let after = here.local_addr();
                    assert!(here.peer_addr().is_err() && after.is_ok());
                    drop(here);
                }
                refused("after it was closed");
                // The program still has the flow, which nobody else can have.
                there.send(b"to the program").unwrap();
                assert_eq!(receive_by(&mut engine, id), b"to the program");
                engine.close_datagrams(id).unwrap();
                let mine = bind_soon(port);
                mine.connect(peer).unwrap();
                mine.set_read_timeout(Some(PATIENCE)).unwrap();
                there.send(b"to the other").unwrap();
                assert_eq!(receive_at(&mine), b"to the other");
                assert_eq!(send_by(&mut engine, id, b"x"), Sent::NotHere);
            }
        }
    });
}

/// Binds a socket to a port that the service has let go. Processes that another test has forked
/// have its descriptors until they execute a program.
fn bind_soon(port: SocketAddr) -> UdpSocket {
    let begin = Instant::now();
    loop {
        match UdpSocket::bind(port) {
            Ok(socket) => return socket,
            Err(error) => assert_eq!(error.kind(), ErrorKind::AddrInUse),
        }
        assert!(begin.elapsed() < PATIENCE, "it is held for ever");
    }
}

/// What the service says to a socket.
fn refusal(engine: &mut Engine, socket: &impl AsFd) -> String {
    match engine.take_datagrams(socket) {
        Err(EngineError::Refused(why)) => why,
        other => panic!("{other:?}"),
    }
}

/// A family, what is done to a socket of it, and why it is refused then.
type Case = (usize, fn(&UdpSocket), &'static str);

#[test]
fn what_the_stack_cannot_do_stays_with_the_kernel() {
    as_root(|| {
        let machine = network();
        let serving = Serving::start();
        let mut engine = Engine::connect(serving.at()).unwrap();
        let cases: [Case; 12] = [
            (0, |socket| SockRef::from(socket).set_reuse_address(true).unwrap(), "shares its port"),
            (0, |socket| SockRef::from(socket).set_reuse_port(true).unwrap(), "shares its port"),
            (0, |socket| setsockopt(socket, sockopt::Mark, &7).unwrap(), "SO_MARK is set"),
            (
                0,
                |socket| setsockopt(socket, sockopt::ReceiveTimestampns, &true).unwrap(),
                "SO_TIMESTAMPNS is set",
            ),
            (0, |socket| setsockopt(socket, sockopt::Priority, &3).unwrap(), "SO_PRIORITY is set"),
            (0, |socket| setsockopt(socket, sockopt::UdpGroSegment, &true).unwrap(), "UDP_GRO"),
            (
                0,
                |socket| setsockopt(socket, sockopt::Ipv4PacketInfo, &true).unwrap(),
                "IP_PKTINFO is set",
            ),
            (0, |socket| setsockopt(socket, sockopt::Ipv4RecvErr, &true).unwrap(), "IP_RECVERR"),
            (0, |socket| socket.set_ttl(3).unwrap(), "IP_TTL is set"),
            (0, |socket| SockRef::from(socket).set_tos_v4(4).unwrap(), "IP_TOS is set"),
            (
                1,
                |socket| setsockopt(socket, sockopt::Ipv6RecvPacketInfo, &true).unwrap(),
                "IPV6_RECVPKTINFO is set",
            ),
            (1, |socket| SockRef::from(socket).set_tclass_v6(4).unwrap(), "IPV6_TCLASS is set"),
        ];
        for (family, change, why) in cases {
            let (here, there) = pair(&machine, family);
            change(&here);
            let found = refusal(&mut engine, &here);
            assert!(found.contains(why), "{found}");
            there.send(b"x").unwrap();
            assert_eq!(receive_at(&here), b"x");
        }
        let refused = |engine: &mut Engine, socket: &UdpSocket, why: &str| {
            let found = refusal(engine, socket);
            assert!(found.contains(why), "{found}");
        };
        let here = UdpSocket::bind((OWN[0], 0)).unwrap();
        refused(&mut engine, &here, "it is not connected");
        here.connect(here.local_addr().unwrap()).unwrap();
        refused(&mut engine, &here, "the other end is on this machine");
        here.connect("239.1.2.3:7").unwrap();
        refused(&mut engine, &here, "not that of one host");
        here.set_broadcast(true).unwrap();
        here.connect("10.0.0.255:7").unwrap();
        refused(&mut engine, &here, "the other end is not one host");
        let lo = UdpSocket::bind("127.0.0.1:0").unwrap();
        lo.connect("127.0.0.1:9").unwrap();
        refused(&mut engine, &lo, "not that of one host");
        let tcp = world::connect(&machine, OWN[0]).here;
        let found = refusal(&mut engine, &tcp);
        assert!(found.contains("not one of UDP"), "{found}");
        // A socket that another one's port was shared with before, which does not say so any more.
        let (here, _there) = pair(&machine, 0);
        SockRef::from(&here).set_reuse_address(true).unwrap();
        let second = Socket::new(Domain::IPV4, Type::DGRAM, None).unwrap();
        second.set_reuse_address(true).unwrap();
        second.bind(&here.local_addr().unwrap().into()).unwrap();
        SockRef::from(&here).set_reuse_address(false).unwrap();
        refused(&mut engine, &here, "shares its port");
        // None of them has left anything.
        assert!(!devices().contains(&"here tcx".into()));
        assert!(status(serving.at()).unwrap().1.is_empty());
    });
}

fn frame(flow: &Flow, marker: &str) -> Vec<u8> {
    let mut packet = [0; MOST_HEADERS + 100];
    let payload = [marker.as_bytes()];
    let length = datagram::write(flow, &payload, Checksums::Whole, &mut packet).length;
    let kind = if flow.to.is_ipv4() { [0x08, 0x00] } else { [0x86, 0xdd] };
    [&[0; 12][..], &kind, &packet[..length]].concat()
}

/// How often a word is in frames of the devices of this thread's network namespace.
struct Capture(Socket, Vec<u8>);

impl Capture {
    fn begin() -> Capture {
        let all = Protocol::from(i32::from((libc::ETH_P_ALL as u16).to_be()));
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(all)).unwrap();
        socket.set_nonblocking(true).unwrap();
        Capture(socket, vec![])
    }

    fn count(&mut self, marker: &str) -> usize {
        let mut frame = [0; 2048];
        while let Ok(length) = (&self.0).read(&mut frame) {
            self.1.extend(&frame[..length]);
        }
        self.1.windows(marker.len()).filter(|at| *at == marker.as_bytes()).count()
    }

    fn wait_for(&mut self, marker: &str) {
        let begin = Instant::now();
        while self.count(marker) == 0 {
            assert!(begin.elapsed() < PATIENCE, "{marker} is not seen");
        }
    }
}

#[test]
fn a_program_sends_its_own_datagrams_alone() {
    as_root(|| {
        let machine = network();
        let serving = Serving::start();
        let [mine, others] = [0, 1].map(|_| Hostile::connect(&serving));
        for family in 0..2 {
            let [(here, there), (kernels, kernels_there)] = [0, 1].map(|_| pair(&machine, family));
            let comes = Flow { from: there.local_addr().unwrap(), to: here.local_addr().unwrap() };
            let leaves = Flow { from: comes.to, to: comes.from };
            let connection = mine.take(&here);
            // A flow is one program's.
            let again = others.ask(&Request::TakeDatagrams, &[here.as_fd()]);
            assert!(matches!(again, Answer::Refused(_)), "{again:?}");
            let port = |socket: SocketAddr| SocketAddr::new(socket.ip(), socket.port() ^ 1);
            let (ip_at, protocol) = if family == 0 { (12, 9) } else { (8, 6) };
            let mut of_tcp = frame(&leaves, "<TCP>");
            of_tcp[14 + protocol] = 6;
            let mut of_another = frame(&leaves, "<address>");
            of_another[14 + ip_at + 3] ^= 4;
            let kernels = Flow {
                from: kernels.local_addr().unwrap(),
                to: kernels_there.local_addr().unwrap(),
            };
            let (mut seen, mut here_seen) = (machine.run(Capture::begin), Capture::begin());
            for bytes in [
                frame(&Flow { from: port(leaves.from), ..leaves }, "<port>"),
                frame(&Flow { to: port(leaves.to), ..leaves }, "<peer's port>"),
                frame(&Flow { from: port(comes.from), ..comes }, "<comes>"),
                frame(&kernels, "<kernel's>"),
                of_tcp,
                of_another,
            ] {
                mine.inlet.write(&bytes, None).unwrap();
            }
            others.inlet.write(&frame(&leaves, "<another's>"), None).unwrap();
            mine.inlet.write(&frame(&leaves, "<own>"), None).unwrap();
            seen.wait_for("<own>");
            assert_eq!(receive_at(&there), b"<own>");
            mine.inlet.write(&frame(&comes, "<to the kernel>"), None).unwrap();
            assert_eq!(receive_at(&here), b"<to the kernel>");
            let kinds = ["port", "peer's port", "comes", "kernel's", "TCP", "address", "another's"];
            for marker in kinds.map(|kind| format!("<{kind}>")) {
                assert_eq!(seen.count(&marker), 0, "{marker}");
                // At its own device alone.
                assert_eq!(here_seen.count(&marker), 1, "{marker}");
            }
            let forget = Request::Forget { connection };
            let answer = others.ask(&forget, &[]);
            assert!(matches!(answer, Answer::Refused(_)), "{answer:?}");
            let back = Request::GiveBack { connection, closing: false };
            assert!(matches!(mine.ask(&back, &[]), Answer::GivenBack));
            there.send(b"<stopped>").unwrap();
            assert_eq!(receive_at(&here), b"<stopped>");
            assert!(matches!(mine.ask(&forget, &[]), Answer::Forgotten { counts: Some(_) }));
            assert!(matches!(mine.ask(&forget, &[]), Answer::Refused(_)));
            mine.inlet.write(&frame(&leaves, "<late>"), None).unwrap();
            here_seen.wait_for("<late>");
            assert_eq!(seen.count("<late>"), 0);
        }
    });
}

#[test]
fn the_kernel_goes_on_where_the_program_or_the_service_ends() {
    as_root(|| {
        let machine = network();
        let before = devices();
        for way in ["the program ends", "the service ends", "the service is killed"] {
            let (here, there) = pair(&machine, 0);
            let exchange = |engine: &mut Engine| {
                let id = engine.take_datagrams(&here).unwrap();
                there.send(b"to the stack").unwrap();
                assert_eq!(receive_by(engine, id), b"to the stack");
                there.send(b"waits").unwrap();
                id
            };
            let goes_on = || {
                for number in 0..10 {
                    there.send(&payload(number, 64)).unwrap();
                    assert_eq!(receive_at(&here), payload(number, 64), "{way}");
                    here.send(&payload(number, 30)).unwrap();
                    assert_eq!(receive_at(&there), payload(number, 30), "{way}");
                }
            };
            let has_ended = |engine: &mut Engine, id: DatagramsId| {
                assert_eq!(send_by(engine, id, b"nobody sends it"), Sent::NotHere);
                let (waiting, dropped) = engine.keep_datagrams(id);
                let mut payload = [0; 16];
                let found = waiting.unwrap().pop(&mut [IoSliceMut::new(&mut payload)]);
                assert_eq!((found, &payload[..5], dropped), (Some((5, 5)), &b"waits"[..], 0));
            };
            let wait_until_diverted = |at: &Path| {
                let begin = Instant::now();
                while status(at).unwrap().1[0].packets != Some(2) {
                    assert!(begin.elapsed() < PATIENCE, "{way}");
                }
            };
            if way == "the service is killed" {
                let killable = Killable::start();
                let mut engine = Engine::connect(&killable.path).unwrap();
                let id = exchange(&mut engine);
                wait_until_diverted(&killable.path);
                killable.kill();
                goes_on();
                has_ended(&mut engine, id);
                continue;
            }
            let mut serving = Serving::start();
            let mut engine = Engine::connect(serving.at()).unwrap();
            let id = exchange(&mut engine);
            wait_until_diverted(serving.at());
            if way == "the program ends" {
                drop(engine);
                let begin = Instant::now();
                while status(serving.at()).unwrap().0 > 0 {
                    assert!(begin.elapsed() < PATIENCE, "{way}");
                }
            } else {
                serving.end();
                has_ended(&mut engine, id);
            }
            goes_on();
        }
        assert_eq!(devices(), before);
    });
}
