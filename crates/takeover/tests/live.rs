//! Connections of this kernel, taken over by the stack and given back at any instant, on the loopback
//! device of a network namespace. Needs root.

mod keys;
mod namespace;
#[path = "../../stack/tests/program/mod.rs"]
mod program;
#[path = "../../../tests/skip.rs"]
mod skip;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use fastrand::Rng;
use loopscope_stack::packet::{Checksums, MOST_HEADERS, Written, parse, write};
use loopscope_stack::{Algorithm, Config, Connection};
use loopscope_takeover::{Frozen, Kept, Refusal, Taken, TakeoverError};
use namespace::in_namespace;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use program::Program;
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

const MARK: u32 = 0x19;
const ETH_P_IP: u16 = 0x0800;
const IPPROTO_RAW: i32 = 255;

/// Both ends of a connection: the one that connected, and the one that was accepted.
fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

/// The same, where the accepted socket is of IPv6 and has a connection of IPv4.
fn connected_by_ipv4() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    (client, listener.accept().unwrap().0)
}

/// The packets of the namespace. Some are lost, twice there, or late.
struct Wire {
    packets: Socket,
    raw: Socket,
    marked: Socket,
    rng: Rng,
    loses: f64,
    late: Vec<Vec<u8>>,
}

impl Wire {
    fn new(rng: Rng, loses: f64) -> Wire {
        let protocol = Protocol::from(i32::from(ETH_P_IP.to_be()));
        let packets = Socket::new(Domain::PACKET, Type::DGRAM, Some(protocol)).unwrap();
        packets.set_nonblocking(true).unwrap();
        // A packet is there twice: as it is sent, which is left out, and as it comes.
        let type_of_packet = (-0x1000i32 + 4).cast_unsigned();
        let filter = [
            SockFilter::new(0x20, 0, 0, type_of_packet),
            SockFilter::new(0x15, 0, 1, 4),
            SockFilter::new(0x06, 0, 0, 0),
            SockFilter::new(0x06, 0, 0, 0x40000),
        ];
        packets.attach_filter(&filter).unwrap();
        let raw =
            || Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(IPPROTO_RAW))).unwrap();
        let marked = raw();
        marked.set_mark(MARK).unwrap();
        Wire { packets, raw: raw(), marked, rng, loses, late: vec![] }
    }

    fn send(socket: &Socket, packet: &[u8]) -> std::io::Result<()> {
        let to = Ipv4Addr::new(packet[16], packet[17], packet[18], packet[19]);
        socket.send_to(packet, &SocketAddr::from((to, 0)).into()).map(drop)
    }

    /// How often a packet arrives.
    fn copies(&mut self) -> usize {
        match self.rng.f64() {
            lost if lost < self.loses => 0,
            twice if twice < 1.5 * self.loses => 2,
            _ => 1,
        }
    }
}

fn take(socket: impl AsFd) -> Result<Taken, TakeoverError> {
    let kept = Kept::of(&socket)?;
    Frozen::take(socket, kept, MARK)
}

/// The stack has the connection for a while.
fn accelerate(
    stream: &TcpStream,
    program: &mut Program,
    wire: &mut Wire,
    rng: &mut Rng,
    time: Duration,
) {
    let mut frame = vec![0; 70_000];
    // What the kernel has had.
    while (&wire.packets).read(&mut frame).is_ok() {}
    wire.late.clear();
    let Taken { frozen, state, flow } = take(stream).expect("it can be taken over");
    let config = Config {
        least_timeout: Duration::from_millis(5),
        delayed_ack: Duration::from_millis(1),
        no_delay: rng.bool(),
        algorithm: if rng.bool() { Algorithm::Cubic } else { Algorithm::Reno },
        send_buffer: rng.usize(10_000..1_000_000),
        receive_buffer: rng.usize(10_000..1_000_000),
        ..Config::default()
    };
    let begin = Instant::now();
    let mut connection = Connection::new(state, config, begin.elapsed());
    let mut buffer = vec![0; 70_000];
    let mut packet = vec![0; 70_000 + MOST_HEADERS];
    while begin.elapsed() < time {
        let mut came = std::mem::take(&mut wire.late);
        while let Ok(count) = (&wire.packets).read(&mut frame) {
            for _ in 0..wire.copies() {
                came.push(frame[..count].to_vec());
            }
        }
        if came.len() > 1 && wire.rng.f64() < wire.loses {
            wire.late.push(came.remove(0));
        }
        for packet in came {
            let Ok((of, segment)) = parse(&packet, Checksums::Unfinished) else { continue };
            if of == flow {
                connection.receive(begin.elapsed(), &segment);
            }
        }
        if connection.deadline().is_some_and(|at| at <= begin.elapsed()) {
            connection.wake(begin.elapsed());
        }
        assert_eq!(connection.end(), None, "{program:?}");
        program.act_by_stack(&mut connection, rng);
        while let Some(segment) = connection.poll(begin.elapsed(), &mut buffer) {
            let back = loopscope_stack::packet::Flow { from: flow.to, to: flow.from };
            let Written { length, .. } = write(&back, &segment, Checksums::Whole, &mut packet);
            for _ in 0..wire.copies() {
                // A full device is a loss.
                let _ = Wire::send(&wire.raw, &packet[..length]);
            }
        }
        std::thread::yield_now();
    }
    let state = connection.into_state(begin.elapsed());
    let mut inject = |packet: &[u8]| Wire::send(&wire.marked, packet);
    frozen.give_back(&state, &flow, &mut inject).expect("it can be given back");
}

/// A connection whose one end is taken over and given back so often. How many bytes it wrote and read
/// meanwhile.
fn transfer(seed: u64, cycles: usize, loses: f64) -> usize {
    let mut rng = Rng::with_seed(seed);
    let (client, server) = if seed.is_multiple_of(2) { connected() } else { connected_by_ipv4() };
    let (mut here, mut there) = if rng.bool() { (client, server) } else { (server, client) };
    here.set_nonblocking(true).unwrap();
    there.set_nonblocking(true).unwrap();
    let total = rng.usize(100_000..3_000_000);
    let mut of_peer = rng.fork();
    let peer = std::thread::spawn(move || {
        let mut program = Program::new(total);
        while !program.is_done() {
            program.act(&mut there, &mut of_peer);
            std::thread::sleep(Duration::from_micros(of_peer.u64(0..1500)));
        }
        there
    });
    let mut program = Program::new(total);
    let mut wire = Wire::new(rng.fork(), loses);
    let mut through_stack = 0;
    for _ in 0..cycles {
        let end = Instant::now() + Duration::from_micros(rng.u64(0..10_000));
        while Instant::now() < end {
            program.act(&mut here, &mut rng);
        }
        let time = Duration::from_micros(rng.u64(0..25_000));
        let before = program.written + program.read;
        accelerate(&here, &mut program, &mut wire, &mut rng, time);
        through_stack += program.written + program.read - before;
    }
    while !program.is_done() || !peer.is_finished() {
        program.act(&mut here, &mut rng);
        std::thread::sleep(Duration::from_micros(rng.u64(0..500)));
    }
    let there = peer.join().expect("the other end has all");
    assert!(here.take_error().unwrap().is_none() && there.take_error().unwrap().is_none());
    // It can be closed in good order.
    here.shutdown(Shutdown::Write).unwrap();
    there.set_nonblocking(false).unwrap();
    assert_eq!((&there).read(&mut [0; 1]).unwrap(), 0);
    through_stack
}

fn connections(ordinary: u64) -> u64 {
    if std::env::var_os("LOOPSCOPE_SOAK").is_some() { 50 * ordinary } else { ordinary }
}

fn all(first: u64, loses: f64) {
    in_namespace(move || {
        let only: Option<u64> = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
        let seeds = only.map_or(first..first + connections(10), |seed| seed..seed + 1);
        if loses > 0.0 {
            // Both ends agree on marks (RFC 3168).
            std::fs::write("/proc/sys/net/ipv4/tcp_ecn", "1").unwrap();
        }
        let mut through_stack = 0;
        for seed in seeds {
            eprintln!("seed {seed}");
            through_stack += transfer(seed, 6, loses);
        }
        assert!(through_stack > 1_000_000, "{through_stack} bytes went through the stack");
    });
}

#[test]
fn streams_go_on_through_the_stack_and_back() {
    all(0, 0.0);
}

#[test]
fn streams_go_on_where_packets_are_lost() {
    all(1000, 0.02);
}

#[test]
fn a_stream_may_have_gone_on_by_gigabytes() {
    in_namespace(|| {
        for bytes in [1 << 20, 0x9000_0000, u32::MAX] {
            let (client, server) = connected();
            let wire = Wire::new(Rng::with_seed(1), 0.0);
            let mut taken = [&client, &server].map(|stream| take(stream).expect("it can be"));
            let clocks = [0, 1].map(|end| taken[1 - end].state.timestamps.expect("they are on"));
            for (Taken { state, .. }, peer) in taken.iter_mut().zip(clocks) {
                for seq in [&mut state.unacknowledged, &mut state.expected] {
                    seq.0 = seq.0.wrapping_add(bytes);
                }
                state.timestamps.as_mut().expect("they are on").newest = Some(peer.now);
            }
            for Taken { frozen, state, flow } in taken {
                let mut inject = |packet: &[u8]| Wire::send(&wire.marked, packet);
                frozen.give_back(&state, &flow, &mut inject).expect("it can be given back");
            }
            let (mut client, mut server) = (client, server);
            for _ in 0..3 {
                let mut found = [0; 5];
                client.write_all(b"there").unwrap();
                server.read_exact(&mut found).unwrap();
                assert_eq!(&found, b"there", "after {bytes} bytes");
                server.write_all(b"again").unwrap();
                client.read_exact(&mut found).unwrap();
                assert_eq!(&found, b"again", "after {bytes} bytes");
            }
        }
    });
}

#[test]
fn a_connection_that_cannot_be_is_not_given_back() {
    in_namespace(|| {
        let wire = Wire::new(Rng::with_seed(1), 0.0);
        for more_to_read in [true, false] {
            let (mut client, server) = connected();
            client.write_all(b"some data").unwrap();
            let stream = if more_to_read { &server } else { &client };
            let Taken { frozen, mut state, flow } = take(stream).unwrap();
            if more_to_read {
                // Than has come.
                state.unread.push(0);
            } else {
                // Than was written.
                state.sent = state.queued.len() + 1;
            }
            let mut inject = |packet: &[u8]| Wire::send(&wire.marked, packet);
            let error = frozen.give_back(&state, &flow, &mut inject).unwrap_err();
            assert!(matches!(error, TakeoverError::Impossible), "{error}");
        }
    });
}

fn refused(socket: impl AsFd) -> Refusal {
    match take(socket) {
        Err(TakeoverError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_the_stack_cannot_do_stays_with_the_kernel() {
    in_namespace(|| {
        let (client, server) = connected();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!((&server).read(&mut [0; 1]).unwrap(), 0);
        assert_eq!(refused(&server), Refusal::Closing);
        assert_eq!(refused(&client), Refusal::Closing);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert_eq!(refused(&listener), Refusal::NotConnected);
        let (client, server) = connected();
        client.set_nodelay(true).unwrap();
        (&client).write_all(b"before").unwrap();
        let urgent = Socket::from(client);
        urgent.send_out_of_band(b"!").unwrap();
        (&urgent).write_all(b"after").unwrap();
        let mut polled = [PollFd::new(server.as_fd(), PollFlags::POLLPRI)];
        assert_eq!(poll(&mut polled, PollTimeout::from(5000u16)).unwrap(), 1);
        assert_eq!(refused(&server), Refusal::Urgent);
        // All that came is there still.
        let mut found = [0; 6];
        (&server).read_exact(&mut found).unwrap();
        assert_eq!(&found, b"before");
        let mut found = [0; 5];
        (&server).read_exact(&mut found).unwrap();
        assert_eq!(&found, b"after");
        let (client, server) = connected();
        let filtered = Socket::from(client);
        filtered.attach_filter(&[SockFilter::new(0x06, 0, 0, 0xffff)]).unwrap();
        assert_eq!(refused(&filtered), Refusal::Filter);
        // The kernel goes on with it.
        (&filtered).write_all(b"on").unwrap();
        let mut found = [0; 2];
        (&server).read_exact(&mut found).unwrap();
        assert_eq!(&found, b"on");
    });
}

/// Both ends of a connection whose sockets were changed before it was made.
fn connected_with(protocol: i32, change: impl Fn(&Socket, u16)) -> [Socket; 2] {
    let make = || Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::from(protocol))).unwrap();
    let (listener, client) = (make(), make());
    listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    listener.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let port = address.as_socket().unwrap().port();
    change(&listener, 0);
    change(&client, port);
    client.connect(&address).unwrap();
    [client, listener.accept().unwrap().0]
}

/// The kernel goes on with a connection that was refused.
fn goes_on([client, server]: [Socket; 2]) {
    (&client).write_all(b"on").unwrap();
    let mut found = [0; 2];
    (&server).read_exact(&mut found).unwrap();
    assert_eq!(&found, b"on");
}

#[test]
fn a_connection_with_keys_stays_with_the_kernel() {
    in_namespace(|| {
        let plain = connected_with(libc::IPPROTO_TCP, |_, _| {});
        if keys::sign(&plain[0], Ipv4Addr::LOCALHOST, 1).is_err() {
            return skip::skipped("this kernel has no TCP-MD5");
        }
        assert!(take(&plain[1]).is_ok());
        let signed = connected_with(libc::IPPROTO_TCP, |socket, port| {
            keys::sign(socket, Ipv4Addr::LOCALHOST, port).unwrap();
        });
        for socket in &signed {
            assert_eq!(refused(socket), Refusal::Signed);
        }
        goes_on(signed);
    });
}

#[test]
fn a_connection_of_several_ways_stays_with_the_kernel() {
    in_namespace(|| {
        if !std::path::Path::new("/proc/sys/net/mptcp/enabled").exists() {
            return skip::skipped("this kernel has no MPTCP");
        }
        let multipath = connected_with(libc::IPPROTO_MPTCP, |_, _| {});
        for socket in &multipath {
            assert_eq!(refused(socket), Refusal::Multipath);
        }
        goes_on(multipath);
    });
}

#[test]
fn sleeping_readers_and_options_notice_nothing() {
    in_namespace(|| {
        let (client, server) = connected();
        server.set_nodelay(true).unwrap();
        let socket = Socket::from(server.try_clone().unwrap());
        socket.set_keepalive(true).unwrap();
        socket.set_reuse_address(true).unwrap();
        let mut reader = server.try_clone().unwrap();
        let asleep = std::thread::spawn(move || {
            let mut found = [0; 5];
            reader.read_exact(&mut found).unwrap();
            found
        });
        std::thread::sleep(Duration::from_millis(50));
        let mut rng = Rng::with_seed(1);
        let mut wire = Wire::new(rng.fork(), 0.0);
        let mut program = Program::new(0);
        let time = Duration::from_millis(20);
        accelerate(&server, &mut program, &mut wire, &mut rng, time);
        assert!(!asleep.is_finished());
        (&client).write_all(b"hello").unwrap();
        assert_eq!(&asleep.join().unwrap(), b"hello");
        assert!(socket.keepalive().unwrap() && socket.reuse_address().unwrap());
        assert!(server.nodelay().unwrap());
    });
}
