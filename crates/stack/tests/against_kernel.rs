//! Connections between the stack and this kernel's TCP over a network that loses, delays, reorders
//! and doubles packets: both have the same streams, and neither stalls. Needs root.

mod program;
#[path = "../../../tests/skip.rs"]
mod skip;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use etherparse::{
    IpEcn, Ipv4Header, PacketBuilder, SlicedPacket, TcpHeader, TcpOptionElement, TransportSlice,
};
use fastrand::Rng;
use loopscope_stack::packet::{Checksums, Flow, MOST_HEADERS, Written, parse, write};
use loopscope_stack::{Algorithm, Clocks, Config, Connection, Seq, State};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{geteuid, gettid};
use program::Program;
use socket2::{Domain, Protocol, Socket, Type};

const KERNEL: [&str; 2] = ["10.0.0.1", "fd00::1"];
const STACK: [&str; 2] = ["10.0.0.2", "fd00::2"];
/// The stack's port in the first connection; each further one has the next.
const FIRST_PORT: u16 = 20_000;
const AT_ONCE: u64 = 16;
/// An AF_PACKET socket of this protocol sees all packets, also those that are sent.
const ETH_P_ALL: u16 = 3;
const IPPROTO_RAW: i32 = 255;
const FRAME: usize = 70_000;
/// The window of a SYN, which has no scale (RFC 7323 §2.2).
const WINDOW: u16 = 65_535;

fn ip(words: &str) {
    let done = Command::new("ip").args(words.split(' ')).status().expect("ip runs");
    assert!(done.success(), "ip {words}");
}

/// The far end of a veth pair whose near end has the kernel's addresses. It is in a namespace that has
/// none of the stack's addresses, so no kernel answers there. It reads and writes IP packets.
struct Wire {
    packets: Socket,
    raw: [Socket; 2],
}

impl Wire {
    /// Gives this thread a network namespace with the near end.
    fn make() -> Wire {
        unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace can be made");
        let (near, far) = ("02:00:00:00:00:01", "02:00:00:00:00:02");
        // The kernel sends one segment in a packet: nothing would cut a larger one.
        let cut = "gso_max_segs 1";
        ip(&format!("link add near address {near} {cut} type veth peer far address {far} {cut}"));
        let (tell, told) = channel();
        let (moved, wait) = channel();
        let thread = std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace can be made");
            tell.send(gettid()).unwrap();
            wait.recv().unwrap();
            ip("link set far up");
            // The kernel looks for an address of the device, though the packets have one.
            ip("address add fd01::2/128 dev far nodad");
            for (subnet, address) in ["10.0.0.0/24", "fd00::/64"].into_iter().zip(KERNEL) {
                ip(&format!("route add {subnet} dev far"));
                ip(&format!("neighbour add {address} lladdr {near} dev far"));
            }
            let protocol = Some(Protocol::from(i32::from(ETH_P_ALL.to_be())));
            let packets = Socket::new(Domain::PACKET, Type::DGRAM, protocol).unwrap();
            packets.set_nonblocking(true).unwrap();
            packets.set_recv_buffer_size(1 << 26).unwrap();
            let raw = [Domain::IPV4, Domain::IPV6].map(|family| {
                Socket::new(family, Type::RAW, Some(Protocol::from(IPPROTO_RAW))).unwrap()
            });
            Wire { packets, raw }
        });
        // The kernel asks for marks itself, too.
        std::fs::write("/proc/sys/net/ipv4/tcp_ecn", "1").unwrap();
        ip(&format!("link set far netns {}", told.recv().unwrap()));
        ip("link set near up");
        for (width, (own, other)) in [24, 64].into_iter().zip(KERNEL.into_iter().zip(STACK)) {
            let at_once = if width == 64 { " nodad" } else { "" };
            ip(&format!("address add {own}/{width} dev near{at_once}"));
            ip(&format!("neighbour add {other} lladdr {far} dev near"));
        }
        moved.send(()).unwrap();
        thread.join().unwrap()
    }

    /// Sends a packet to the kernel. Where the device is full, the packet is lost.
    fn send(&self, packet: &[u8]) {
        let (flow, _) = parse(packet, Checksums::Whole).expect("it has a segment");
        let socket = &self.raw[usize::from(flow.to.is_ipv6())];
        // A raw socket of IPv6 refuses addresses with a port.
        let to = SocketAddr::new(flow.to.ip(), 0);
        match socket.send_to(packet, &to.into()) {
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Packets that are on their way in one direction, by when they arrive.
#[derive(Default)]
struct Way {
    packets: BinaryHeap<Reverse<(Duration, u64, Vec<u8>)>>,
    number: u64,
}

impl Way {
    fn due(&mut self, now: Duration) -> Option<Vec<u8>> {
        let Reverse((at, ..)) = self.packets.peek()?;
        (*at <= now).then(|| self.packets.pop().expect("there is one").0.2)
    }

    fn next(&self) -> Option<Duration> {
        self.packets.peek().map(|Reverse((at, ..))| *at)
    }
}

/// How the network treats packets: shares that it loses, doubles and marks, and times.
#[derive(Debug)]
struct Network {
    loses: f64,
    doubles: f64,
    marks: f64,
    delay: Duration,
    jitter: Duration,
}

impl Network {
    fn drawn(rng: &mut Rng) -> Network {
        let micros = |choices: &[u64], rng: &mut Rng| {
            Duration::from_micros(choices[rng.usize(0..choices.len())])
        };
        Network {
            loses: [0.0, 0.0, 0.01, 0.03, 0.08][rng.usize(0..5)],
            doubles: [0.0, 0.0, 0.02, 0.2][rng.usize(0..4)],
            marks: [0.0, 0.05, 0.3][rng.usize(0..3)],
            delay: micros(&[0, 0, 500, 5000, 20_000], rng),
            jitter: micros(&[0, 0, 200, 2000, 10_000], rng),
        }
    }

    fn carry(&self, mut packet: Vec<u8>, now: Duration, way: &mut Way, rng: &mut Rng) {
        if rng.f64() < self.loses {
            return;
        }
        if rng.f64() < self.marks {
            mark(&mut packet);
        }
        let copies = if rng.f64() < self.doubles { 2 } else { 1 };
        for _ in 0..copies {
            way.number += 1;
            let late = self.jitter.mul_f64(rng.f64());
            way.packets.push(Reverse((now + self.delay + late, way.number, packet.clone())));
        }
    }
}

/// Marks a packet as one that came through congestion, if it may be (RFC 3168 §5).
fn mark(packet: &mut [u8]) {
    if packet[0] >> 4 == 6 {
        // The last two bits of the traffic class.
        let bits = packet[1] >> 4 & 3;
        packet[1] |= if bits == 0 { 0 } else { 0x30 };
        return;
    }
    let (mut header, _) = Ipv4Header::from_slice(packet).unwrap();
    if header.ecn != IpEcn::ZERO {
        header.ecn = IpEcn::try_new(3).unwrap();
        header.header_checksum = header.calc_header_checksum();
        packet[..header.header_len()].copy_from_slice(&header.to_bytes());
    }
}

/// The options of a SYN.
#[derive(Clone, Debug)]
struct Offer {
    segment: u16,
    scale: Option<u8>,
    selective: bool,
    timestamp: Option<u32>,
    /// Marks of congestion (RFC 3168 §6.1.1).
    ecn: bool,
}

impl Offer {
    fn drawn(rng: &mut Rng) -> Offer {
        Offer {
            segment: [536, 1000, 1220, 1440][rng.usize(0..4)],
            scale: (rng.f64() < 0.8).then(|| rng.u8(0..9)),
            selective: rng.f64() < 0.8,
            timestamp: (rng.f64() < 0.8).then(|| rng.u32(..)),
            ecn: rng.bool(),
        }
    }

    /// Makes a packet with SYN and these options; `answered`: SYN and ACK, with the number that is
    /// acknowledged and the other end's timestamp.
    fn packet(&self, flow: &Flow, seq: Seq, answered: Option<(Seq, Option<u32>)>) -> Vec<u8> {
        let mut tcp = TcpHeader::new(flow.from.port(), flow.to.port(), seq.0, WINDOW);
        tcp.syn = true;
        if let Some((Seq(ack), _)) = answered {
            (tcp.ack, tcp.acknowledgment_number) = (true, ack);
        }
        (tcp.ece, tcp.cwr) = (self.ecn, self.ecn && answered.is_none());
        let mut options = vec![TcpOptionElement::MaximumSegmentSize(self.segment)];
        if self.selective {
            options.push(TcpOptionElement::SelectiveAcknowledgementPermitted);
        }
        if let Some(value) = self.timestamp {
            let echo = answered.and_then(|(_, theirs)| theirs).unwrap_or_default();
            options.push(TcpOptionElement::Timestamp(value, echo));
        }
        options.extend(self.scale.map(TcpOptionElement::WindowScale));
        tcp.set_options(&options).unwrap();
        let builder = match (flow.from.ip(), flow.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                PacketBuilder::ipv4(from.octets(), to.octets(), 64)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                PacketBuilder::ipv6(from.octets(), to.octets(), 64)
            }
            _ => unreachable!("both are of one family"),
        };
        let mut packet = vec![];
        builder.tcp_header(tcp).write(&mut packet, &[]).unwrap();
        packet
    }

    /// Reads the options of a packet with SYN.
    fn of(packet: &[u8]) -> Offer {
        let sliced = SlicedPacket::from_ip(packet).unwrap();
        let Some(TransportSlice::Tcp(tcp)) = sliced.transport else { panic!("{sliced:?}") };
        let ecn = tcp.ece() && tcp.cwr() != tcp.ack();
        let mut offer = Offer { segment: 536, scale: None, selective: false, timestamp: None, ecn };
        for option in tcp.options_iterator().map(Result::unwrap) {
            match option {
                TcpOptionElement::MaximumSegmentSize(size) => offer.segment = size,
                TcpOptionElement::WindowScale(shift) => offer.scale = Some(shift),
                TcpOptionElement::SelectiveAcknowledgementPermitted => offer.selective = true,
                TcpOptionElement::Timestamp(value, _) => offer.timestamp = Some(value),
                _ => {}
            }
        }
        offer
    }

    /// The state of the connection that two SYNs make, whose numbers were `sent` and `came`.
    fn state(&self, theirs: &Offer, sent: Seq, came: Seq, peer_window: usize) -> State {
        let scales = self.scale.zip(theirs.scale);
        let timestamps = self.timestamp.zip(theirs.timestamp);
        let options = if timestamps.is_some() { 12 } else { 0 };
        State {
            unacknowledged: Seq(sent.0.wrapping_add(1)),
            queued: vec![],
            sent: 0,
            peer_window,
            expected: Seq(came.0.wrapping_add(1)),
            unread: vec![],
            window: usize::from(WINDOW),
            segment: usize::from(self.segment.min(theirs.segment)) - options,
            scale: scales.map_or(0, |(ours, _)| ours),
            peer_scale: scales.map_or(0, |(_, theirs)| theirs),
            selective: self.selective && theirs.selective,
            ecn: self.ecn && theirs.ecn,
            round_trip: None,
            timestamps: timestamps.map(|(now, recent)| Clocks {
                now,
                recent: Some(recent),
                newest: Some(recent),
            }),
        }
    }
}

/// How far a connection is.
enum Stage {
    /// The stack's SYN has been sent, or the kernel's has not come.
    Waiting,
    /// The kernel's SYN, with these options and this number, has been answered.
    Answered(Offer, Seq),
    Open(Box<Connection>),
}

/// A connection, and the programs at its ends.
struct Trial {
    seed: u64,
    rng: Rng,
    network: Network,
    offer: Offer,
    config: Config,
    /// The sockets of packets from the stack to the kernel.
    flow: Flow,
    first: Seq,
    stage: Stage,
    listener: Option<TcpListener>,
    stream: Option<TcpStream>,
    to_stack: Way,
    to_kernel: Way,
    of_kernel: Program,
    of_stack: Program,
    /// The programs (the kernel's, the stack's) do nothing until then.
    busy: [Duration; 2],
}

impl Trial {
    /// Begins a connection; the seed says which end connects.
    fn begin(seed: u64, number: u16, wire: &Wire) -> Trial {
        let mut rng = Rng::with_seed(seed);
        let family = rng.usize(0..2);
        let address = |of: &str, port: u16| SocketAddr::new(of.parse().unwrap(), port);
        let from = address(STACK[family], FIRST_PORT + number);
        let most = [2_000, 100_000, 600_000][rng.usize(0..3)];
        let total = rng.usize(1..most);
        let (listener, stream, to) = if rng.bool() {
            let listener = TcpListener::bind(address(KERNEL[family], 0)).unwrap();
            listener.set_nonblocking(true).unwrap();
            let to = listener.local_addr().unwrap();
            (Some(listener), None, to)
        } else {
            let domain = Domain::for_address(from);
            let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP)).unwrap();
            socket.bind(&address(KERNEL[family], 0).into()).unwrap();
            let algorithm: &[u8] = if rng.bool() { b"reno" } else { b"cubic" };
            socket.set_tcp_congestion(algorithm).unwrap();
            socket.set_nonblocking(true).unwrap();
            let begun = socket.connect(&from.into()).unwrap_err();
            assert_eq!(begun.raw_os_error(), Some(Errno::EINPROGRESS as i32));
            let to = socket.local_addr().unwrap().as_socket().unwrap();
            (None, Some(TcpStream::from(socket)), to)
        };
        let trial = Trial {
            seed,
            network: Network::drawn(&mut rng),
            offer: Offer::drawn(&mut rng),
            config: Config {
                least_timeout: Duration::from_millis([1, 10, 200][rng.usize(0..3)]),
                delayed_ack: Duration::from_millis([0, 1, 40][rng.usize(0..3)]),
                no_delay: rng.bool(),
                algorithm: if rng.bool() { Algorithm::Cubic } else { Algorithm::Reno },
                send_buffer: rng.usize(3_000..1_000_000),
                receive_buffer: rng.usize(70_000..1_000_000),
                ..Config::default()
            },
            flow: Flow { from, to },
            first: Seq(rng.u32(..)),
            stage: Stage::Waiting,
            listener,
            stream,
            to_stack: Way::default(),
            to_kernel: Way::default(),
            of_kernel: Program::new(total),
            of_stack: Program::new(total),
            busy: [Duration::ZERO; 2],
            rng,
        };
        if trial.listener.is_some() {
            wire.send(&trial.offer.packet(&trial.flow, trial.first, None));
        }
        trial
    }

    fn is_done(&self) -> bool {
        let Stage::Open(connection) = &self.stage else { return false };
        self.of_kernel.is_done() && self.of_stack.is_done() && connection.unacknowledged() == 0
    }

    /// Takes a packet that came from the kernel.
    fn take(&mut self, now: Duration, packet: &[u8], wire: &Wire) {
        let (_, segment) = parse(packet, Checksums::Unfinished).unwrap();
        if matches!(self.stage, Stage::Open(_)) {
            self.network.carry(packet.to_vec(), now, &mut self.to_stack, &mut self.rng);
            return;
        }
        let (theirs, came, window) = match &self.stage {
            Stage::Answered(theirs, came) if !segment.flags.syn => {
                // Windows have the scale from the first ACK on.
                let scale = self.offer.scale.and(theirs.scale).unwrap_or_default();
                (theirs.clone(), *came, usize::from(segment.window) << scale)
            }
            _ if segment.flags.syn && segment.ack.is_none() => {
                let theirs = Offer::of(packet);
                let next = Seq(segment.seq.0.wrapping_add(1));
                // A SYN and ACK has only options that the SYN had.
                let ours = Offer {
                    scale: self.offer.scale.filter(|_| theirs.scale.is_some()),
                    timestamp: self.offer.timestamp.filter(|_| theirs.timestamp.is_some()),
                    selective: self.offer.selective && theirs.selective,
                    ecn: self.offer.ecn && theirs.ecn,
                    ..self.offer
                };
                wire.send(&ours.packet(&self.flow, self.first, Some((next, theirs.timestamp))));
                self.stage = Stage::Answered(theirs, segment.seq);
                return;
            }
            _ if segment.flags.syn => (Offer::of(packet), segment.seq, usize::from(segment.window)),
            _ => return,
        };
        let state = self.offer.state(&theirs, self.first, came, window);
        let mut connection = Box::new(Connection::new(state, self.config, now));
        if !segment.flags.syn {
            connection.receive(now, &segment);
        }
        self.stage = Stage::Open(connection);
    }

    /// Lets both programs and the stack do what they can do now.
    fn act(&mut self, now: Duration, wire: &Wire, buffers: &mut [Vec<u8>; 2]) {
        let Stage::Open(connection) = &mut self.stage else { return };
        if let Some(accepted) = self.listener.as_ref().and_then(|each| each.accept().ok()) {
            accepted.0.set_nonblocking(true).unwrap();
            (self.stream, self.listener) = (Some(accepted.0), None);
        }
        while let Some(packet) = self.to_stack.due(now) {
            let (_, segment) = parse(&packet, Checksums::Unfinished).unwrap();
            connection.receive(now, &segment);
        }
        if connection.deadline().is_some_and(|at| at <= now) {
            connection.wake(now);
        }
        assert_eq!(connection.end(), None);
        for (program, busy) in self.busy.iter_mut().enumerate() {
            if *busy > now {
                continue;
            }
            if self.rng.f64() < 0.02 {
                *busy = now + Duration::from_micros(self.rng.u64(0..100_000));
            }
            match &mut self.stream {
                _ if program == 1 => self.of_stack.act_by_stack(&mut **connection, &mut self.rng),
                Some(stream) => self.of_kernel.act(stream, &mut self.rng),
                None => {}
            }
        }
        let [data, packet] = buffers;
        while let Some(segment) = connection.poll(now, data) {
            let Written { length, .. } = write(&self.flow, &segment, Checksums::Whole, packet);
            let packet = packet[..length].to_vec();
            self.network.carry(packet, now, &mut self.to_kernel, &mut self.rng);
        }
        while let Some(packet) = self.to_kernel.due(now) {
            wire.send(&packet);
        }
    }

    /// When the stack or the network has something to do next. Programs are asked each millisecond.
    fn next(&self) -> Option<Duration> {
        let Stage::Open(connection) = &self.stage else { return None };
        [connection.deadline(), self.to_stack.next(), self.to_kernel.next()]
            .into_iter()
            .flatten()
            .min()
    }
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Trial { seed, network, offer, config, of_kernel, of_stack, .. } = self;
        writeln!(f, "seed {seed}: {network:?}, {offer:?}, {config:?}")?;
        writeln!(f, "kernel: {of_kernel:?}\nstack: {of_stack:?}")?;
        let Stage::Open(connection) = &self.stage else { return write!(f, "it is not made") };
        let (flight, due) = (connection.in_flight(), connection.deadline());
        write!(f, "{flight} bytes on their way, next at {due:?}, {:?}", connection.counts())
    }
}

/// What happened at the stack's end of all connections.
#[derive(Debug, Default)]
struct Happened {
    sent_again: u64,
    time_outs: u64,
    recoveries: u64,
    tail_probes: u64,
    marks: u64,
}

/// Runs one connection for each seed, and adds what happened to `sum`.
fn run(seeds: impl Iterator<Item = u64>, wire: &Wire, sum: &mut Happened) {
    let clock = Instant::now();
    let mut trials: Vec<Trial> =
        seeds.zip(0..).map(|(seed, number)| Trial::begin(seed, number, wire)).collect();
    let mut frame = vec![0; FRAME];
    let mut buffers = [vec![0; FRAME], vec![0; FRAME + MOST_HEADERS]];
    while !trials.iter().all(Trial::is_done) {
        while let Ok(length) = (&wire.packets).read(&mut frame) {
            // The kernels also look for neighbours and routers.
            let Ok((flow, _)) = parse(&frame[..length], Checksums::Unfinished) else { continue };
            let number = flow.to.port().wrapping_sub(FIRST_PORT);
            let trial = trials.get_mut(usize::from(number));
            // The socket also sees what this test sends.
            let Some(trial) = trial.filter(|trial| trial.flow.to == flow.from) else { continue };
            trial.take(clock.elapsed(), &frame[..length], wire);
        }
        for trial in trials.iter_mut().filter(|trial| !trial.is_done()) {
            let acted = std::panic::AssertUnwindSafe(|| {
                trial.act(clock.elapsed(), wire, &mut buffers);
            });
            if let Err(panic) = std::panic::catch_unwind(acted) {
                eprintln!("{trial}");
                std::panic::resume_unwind(panic);
            }
        }
        let next = trials.iter().filter_map(Trial::next).min();
        let wait = next.map_or(Duration::MAX, |at| at.saturating_sub(clock.elapsed()));
        if wait >= Duration::from_millis(1) {
            let mut polled = [PollFd::new(wire.packets.as_fd(), PollFlags::POLLIN)];
            match poll(&mut polled, PollTimeout::from(1u8)) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
    for trial in &trials {
        let Stage::Open(connection) = &trial.stage else { unreachable!("all are done") };
        let counts = connection.counts();
        sum.sent_again += counts.sent_again;
        sum.time_outs += counts.time_outs;
        sum.recoveries += counts.recoveries;
        sum.tail_probes += counts.tail_probes;
        sum.marks += counts.marks;
        // It is closed by a reset, because the stack does not answer any more.
        let stream = trial.stream.as_ref().expect("its program is done");
        Socket::from(stream.try_clone().unwrap()).set_linger(Some(Duration::ZERO)).unwrap();
    }
}

/// A count of the kernel in this thread's namespace: of a file in /proc/net, by its name.
fn counted(file: &str, name: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let found = lines.chunks_exact(2).find_map(|pair| {
        let place = pair[0].split(' ').position(|word| word == name)?;
        pair[1].split(' ').nth(place)?.parse().ok()
    });
    found.unwrap_or_else(|| panic!("{file} has no {name}"))
}

#[test]
#[ignore = "twenty seconds; run by make test-all"]
fn streams_are_the_same_and_none_stalls() {
    if !geteuid().is_root() {
        return skip::skipped("a network namespace needs root");
    }
    let thread = std::thread::spawn(|| {
        let wire = Wire::make();
        let soak = std::env::var_os("LOOPSCOPE_SOAK").is_some();
        let only: Option<u64> = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
        let seeds = only.map_or(0..if soak { 5000 } else { 4 * AT_ONCE }, |seed| seed..seed + 1);
        let mut first = seeds.start;
        let mut sum = Happened::default();
        while first < seeds.end {
            run(first..seeds.end.min(first + AT_ONCE), &wire, &mut sum);
            first += AT_ONCE;
        }
        eprintln!("{sum:?}");
        if only.is_none() {
            let Happened { sent_again, time_outs, recoveries, tail_probes, marks } = sum;
            let came_marked = counted("netstat", "InCEPkts");
            let happened = [sent_again, time_outs, recoveries, tail_probes, marks, came_marked];
            assert!(happened.iter().all(|count| *count > 0), "{sum:?}");
        }
        // What the kernel finds wrong with the stack's segments. It discards reports of segments
        // that came twice where the network has doubled them.
        let doubled = counted("netstat", "TCPDSACKIgnoredDubious");
        let wrong = [("snmp", "InErrs"), ("snmp", "InCsumErrors"), ("netstat", "TCPSYNChallenge")];
        let wrong = wrong.map(|(file, name)| (name, counted(file, name)));
        assert!(wrong.iter().all(|(_, count)| *count == 0), "{wrong:?}");
        assert!(counted("netstat", "TCPSACKDiscard") <= doubled);
    });
    thread.join().expect("the test did not fail");
}
