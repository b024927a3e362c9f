//! Connections by the stack of a program, by way of the service. Needs root.

#[path = "../../stack/tests/program/mod.rs"]
mod program;
#[path = "../../../tests/skip.rs"]
mod skip;
mod world;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use fastrand::Rng;
use loopscope_engine::{Counts, Engine, EngineError, Observe};
use loopscope_stack::{Config, Id, Segment};
use loopscope_stack_service::Status;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::geteuid;
use program::{Program, Transfers};
use rustix::net::connect_unspec;
use socket2::{Domain, Socket, Type};
use world::{
    Connection, Machine, OTHER, OWN, PATIENCE, Serving, addresses, connect, devices, ip, network,
    read_all, read_to_end, run, wait_for_devices,
};

/// The number of the device that was made last.
fn last_device() -> u32 {
    let numbers = run("ip", "-o link");
    let number = |line: &str| line.split(':').next().and_then(|number| number.parse().ok());
    numbers.lines().filter_map(number).max().expect("there is one")
}

fn in_thread(test: impl FnOnce() + Send + 'static) {
    if !geteuid().is_root() {
        return skip::skipped("a network namespace needs root");
    }
    std::thread::spawn(test).join().expect("the test did not fail");
}

fn config() -> Config {
    Config { least_timeout: Duration::from_millis(5), no_delay: true, ..Config::default() }
}

/// A connection of an engine.
struct Accelerated<'e>(&'e mut Engine, Id);

impl Transfers for Accelerated<'_> {
    fn write(&mut self, bytes: &[u8]) -> usize {
        // 0: the kernel has it.
        self.0.write(self.1, bytes).unwrap().unwrap_or(0)
    }

    fn read(&mut self, target: &mut [u8]) -> usize {
        self.0.read(self.1, target).unwrap().unwrap_or(0)
    }
}

fn unacknowledged(engine: &Engine, id: Id) -> usize {
    engine.get(id).expect("the kernel does not have it").unacknowledged()
}

/// Turns until the kernel has a connection.
fn turn_until_back(engine: &mut Engine, id: Id) {
    let begin = Instant::now();
    while engine.get(id).is_some() {
        engine.turn().unwrap();
        engine.wait(Duration::from_millis(10)).unwrap();
        assert!(begin.elapsed() < PATIENCE, "it does not go back");
    }
}

#[test]
fn connections_are_taken_over_and_come_back() {
    in_thread(|| {
        let machine = network();
        let before = devices();
        let serving = Serving::start();
        wait_for_devices(&before);
        let ready = last_device();
        // One that only looks whether there is a service gets none.
        drop(UnixStream::connect(serving.at()).unwrap());
        let mut engine = Engine::connect(serving.at()).unwrap();
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
            let id = engine.take(&connection.here, config()).unwrap();
            // What had come before.
            let before = ours.read + engine.get(id).unwrap().readable();
            (connection, id, ours, theirs, before)
        });
        let mut is_done = false;
        while !is_done {
            engine.turn().unwrap();
            is_done = true;
            for (connection, id, ours, theirs, _) in &mut all {
                ours.act_by_stack(&mut Accelerated(&mut engine, *id), &mut rng);
                theirs.act(&mut connection.there, &mut rng);
                is_done &= ours.is_done() && theirs.is_done();
                is_done &= unacknowledged(&engine, *id) == 0;
            }
        }
        for (Connection { mut here, mut there }, id, ours, _, before) in all {
            let Counts { packets, payload, lost } =
                engine.give_back(id).unwrap().expect("it was taken over");
            assert!(packets > 0 && payload as usize >= ours.read - before, "{packets} {payload}");
            assert_eq!(lost, 0);
            assert_eq!(engine.give_back(id).unwrap(), None);
            // The kernel goes on with it.
            let (mut ours, mut theirs) = (Program::new(100_000), Program::new(100_000));
            while !ours.is_done() || !theirs.is_done() {
                ours.act(&mut here, &mut rng);
                theirs.act(&mut there, &mut rng);
            }
        }
        // None is diverted, so nothing is on the device; the program still has its own.
        assert!(devices().len() > before.len() && !devices().contains(&"here tcx".into()));
        drop(engine);
        wait_for_devices(&before);
        // That which was ready was this program's.
        assert!(last_device() > ready);
        drop(serving);
        assert_eq!(devices(), before);
    });
}

/// Bytes of data of the largest segment that came.
#[derive(Debug, Default)]
struct Largest(usize);

impl Observe for Largest {
    fn received(&mut self, _id: Id, segment: &Segment<'_>) {
        self.0 = self.0.max(segment.payload.len());
    }
}

#[test]
fn what_another_end_on_this_machine_has_not_cut_comes_whole() {
    in_thread(|| {
        for own in OWN {
            let machine = network();
            let serving = Serving::start();
            let mut engine = Engine::observed(serving.at(), Largest::default()).unwrap();
            let mut connection = connect(&machine, own);
            let id = engine.take(&connection.here, config()).unwrap();
            let bytes: Vec<u8> = (0..430_000_u32).map(|at| (at >> 7) as u8).collect();
            let (mut sent, mut found, begin) = (0, Vec::<u8>::new(), Instant::now());
            while found.len() < 400_000 {
                sent += connection.there.write(&bytes[sent..400_000]).unwrap_or(0);
                engine.turn().unwrap();
                let mut next = [0; 100_000];
                let count = engine.read(id, &mut next).unwrap().expect("it is the stack's");
                found.extend(&next[..count]);
                assert!(begin.elapsed() < PATIENCE, "{} bytes came", found.len());
            }
            assert!(engine.observer().0 > 8000, "{:?}", engine.observer());
            // What waits in the ring goes to the kernel, whole as well: the other end cannot send it
            // again.
            connection.there.write_all(&bytes[400_000..]).unwrap();
            let came = || match &loopscope_stack_service::status(serving.at()).unwrap().1[..] {
                [Status { payload, .. }] => payload.expect("its socket is open"),
                other => panic!("{other:?}"),
            };
            while came() < 430_000 {
                assert!(begin.elapsed() < PATIENCE, "{} bytes came", came());
            }
            machine.run(|| ip("link set there down"));
            engine.give_back(id).unwrap().expect("it was the stack's");
            read_all(&mut connection.here, &bytes[400_000..]);
            assert_eq!(found, bytes[..400_000]);
        }
    });
}

#[test]
fn the_service_tells_of_connections() {
    in_thread(|| {
        let machine = network();
        let serving = Serving::start();
        let status = || loopscope_stack_service::status(serving.at()).unwrap();
        assert!(matches!(status(), (0, connections) if connections.is_empty()));
        let mut engine = Engine::connect(serving.at()).unwrap();
        let mut connection = connect(&machine, OWN[0]);
        let id = engine.take(&connection.here, config()).unwrap();
        // What comes is not read, and what is written is not sent.
        connection.there.write_all(&[1; 3000]).unwrap();
        let begin = Instant::now();
        while engine.get(id).unwrap().readable() < 3000 {
            engine.turn().unwrap();
            assert!(begin.elapsed() < PATIENCE, "it does not come");
        }
        assert_eq!(engine.write(id, &[2; 500]).unwrap(), Some(500));
        let (programs, connections) = status();
        assert_eq!((programs, connections.len()), (1, 1));
        let only = connections.into_iter().next().unwrap();
        let Status { process, user, protocol, local, peer, device, packets, payload, .. } = only;
        assert_eq!(protocol, "TCP");
        assert_eq!((process, user), (Some(std::process::id().cast_signed()), Some(0)));
        assert_eq!(Some(local), connection.here.local_addr().ok());
        assert_eq!(Some(peer), connection.here.peer_addr().ok());
        assert_eq!((&device[..], payload), ("here", Some(3000)));
        assert!(packets >= Some(1), "{packets:?}");
        assert_eq!(only.lost, Some(0));
        let streams = only.streams.unwrap();
        assert_eq!((streams.unacknowledged, streams.unsent, streams.unread), (500, 500, 3000));
        engine.give_back(id).unwrap();
        assert!(matches!(status(), (1, connections) if connections.is_empty()));
    });
}

#[test]
fn what_came_meanwhile_goes_to_the_kernel() {
    in_thread(|| {
        for own in OWN {
            let machine = network();
            let serving = Serving::start();
            let mut engine = Engine::connect(serving.at()).unwrap();
            let Connection { mut here, mut there } = connect(&machine, own);
            let id = engine.take(&here, config()).unwrap();
            engine.turn().unwrap();
            there.write_all(b"some data").unwrap();
            // It is in the ring.
            engine.wait(PATIENCE).unwrap();
            // From now on nothing is sent again.
            machine.run(|| ip("link set there down"));
            engine.give_back(id).unwrap();
            read_all(&mut here, b"some data");
        }
    });
}

#[test]
fn the_kernel_closes_what_the_other_end_closes() {
    in_thread(|| {
        let machine = network();
        let serving = Serving::start();
        let mut engine = Engine::connect(serving.at()).unwrap();
        for own in OWN {
            let Connection { mut here, mut there } = connect(&machine, own);
            let id = engine.take(&here, config()).unwrap();
            engine.write(id, b"first").unwrap();
            engine.turn().unwrap();
            read_all(&mut there, b"first");
            there.write_all(b"last").unwrap();
            there.shutdown(std::net::Shutdown::Write).unwrap();
            turn_until_back(&mut engine, id);
            assert_eq!(engine.read(id, &mut [0; 4]).unwrap(), None);
            assert_eq!(read_to_end(&mut here), (b"last".to_vec(), None));
            // The other direction is as open as before.
            here.write_all(b"answer").unwrap();
            drop(here);
            assert_eq!(read_to_end(&mut there), (b"answer".to_vec(), None));
        }
    });
}

#[test]
fn the_kernel_has_resets_and_urgent_data() {
    in_thread(|| {
        let machine = network();
        let serving = Serving::start();
        let mut engine = Engine::connect(serving.at()).unwrap();
        for own in OWN {
            let Connection { mut here, there } = connect(&machine, own);
            let id = engine.take(&here, config()).unwrap();
            engine.turn().unwrap();
            // It closes by a reset.
            Socket::from(there).set_linger(Some(Duration::ZERO)).unwrap();
            turn_until_back(&mut engine, id);
            assert_eq!(here.read(&mut [0; 4]).unwrap_err().kind(), ErrorKind::ConnectionReset);

            let Connection { here, there } = connect(&machine, own);
            let id = engine.take(&here, config()).unwrap();
            engine.turn().unwrap();
            let (here, there) = (Socket::from(here), Socket::from(there));
            there.send_out_of_band(b"!").unwrap();
            turn_until_back(&mut engine, id);
            let begin = Instant::now();
            let mut byte = [std::mem::MaybeUninit::uninit()];
            while here.recv_out_of_band(&mut byte).is_err() {
                assert!(begin.elapsed() < PATIENCE, "urgent data do not come");
            }
        }
    });
}

#[test]
fn when_the_service_ends_the_kernel_goes_on() {
    in_thread(|| {
        let machine = network();
        let before = devices();
        let mut serving = Serving::start();
        let mut engine = Engine::connect(serving.at()).unwrap();
        let mut rng = Rng::with_seed(2);
        let mut all = OWN.map(|own| {
            let connection = connect(&machine, own);
            let id = engine.take(&connection.here, config()).unwrap();
            (connection, id, Program::new(5_000_000), Program::new(5_000_000))
        });
        let mut ends = Some(Instant::now() + Duration::from_millis(30));
        while !engine.is_empty() {
            engine.turn().unwrap();
            for (connection, id, ours, theirs) in &mut all {
                // None of its bytes is written or read twice, or not at all.
                if engine.get(*id).is_some() {
                    ours.act_by_stack(&mut Accelerated(&mut engine, *id), &mut rng);
                }
                theirs.act(&mut connection.there, &mut rng);
            }
            if ends.take_if(|ends| Instant::now() > *ends).is_some() {
                serving.end();
            }
        }
        assert!(ends.is_none());
        let refused = engine.take(&all[0].0.here, config());
        assert!(matches!(refused, Err(EngineError::Service(_))), "{refused:?}");
        assert_eq!(devices(), before);
        while !all.iter().all(|(_, _, ours, theirs)| ours.is_done() && theirs.is_done()) {
            for (connection, _, ours, theirs) in &mut all {
                ours.act(&mut connection.here, &mut rng);
                theirs.act(&mut connection.there, &mut rng);
            }
        }
    });
}

#[test]
fn a_program_that_only_reads_learns_that_the_service_has_ended() {
    in_thread(|| {
        let machine = network();
        let mut serving = Serving::start();
        let mut engine = Engine::connect(serving.at()).unwrap();
        let Connection { mut here, mut there } = connect(&machine, OWN[0]);
        let id = engine.take(&here, config()).unwrap();
        engine.turn().unwrap();
        serving.end();
        assert_eq!(engine.read(id, &mut [0; 9]).unwrap(), None);
        there.write_all(b"by the kernel").unwrap();
        read_all(&mut here, b"by the kernel");
    });
}

#[test]
fn a_program_that_waits_learns_that_the_service_has_ended() {
    in_thread(|| {
        let machine = network();
        let mut serving = Serving::start();
        let mut engine = Engine::connect(serving.at()).unwrap();
        let Connection { mut here, mut there } = connect(&machine, OWN[0]);
        let id = engine.take(&here, config()).unwrap();
        engine.turn().unwrap();
        // What is due before.
        engine.wait(Duration::from_millis(50)).unwrap();
        engine.turn().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| serving.end());
            let begin = Instant::now();
            while engine.get(id).is_some() {
                engine.wait(PATIENCE).unwrap();
                engine.turn().unwrap();
            }
            assert!(begin.elapsed() < PATIENCE / 2, "{:?}", begin.elapsed());
        });
        there.write_all(b"by the kernel").unwrap();
        read_all(&mut here, b"by the kernel");
        // It sleeps, although the service is not there.
        let begin = Instant::now();
        engine.wait(Duration::from_millis(50)).unwrap();
        assert!(begin.elapsed() >= Duration::from_millis(50));
    });
}

fn refusal(engine: &mut Engine, socket: impl std::os::fd::AsFd) -> String {
    match engine.take(socket, config()) {
        Err(EngineError::Refused(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_refused_stays_with_the_kernel() {
    in_thread(|| {
        let machine = network();
        let serving = Serving::start();
        let mut engine = Engine::connect(serving.at()).unwrap();
        let on_loopback = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(on_loopback.local_addr().unwrap()).unwrap();
        let mut far = on_loopback.accept().unwrap().0;
        let why = refusal(&mut engine, &near);
        assert!(why.contains("the other end is on this machine"), "{why}");
        near.write_all(b"by the kernel").unwrap();
        read_all(&mut far, b"by the kernel");

        let why = refusal(&mut engine, &on_loopback);
        assert!(why.contains("not connected"), "{why}");
        let datagrams = UdpSocket::bind((OWN[0], 0)).unwrap();
        datagrams.connect((OTHER[0], 7)).unwrap();
        assert!(!refusal(&mut engine, &datagrams).is_empty());

        let Connection { here, mut there } = connect(&machine, OWN[0]);
        let why = refusal(&mut engine, &there);
        assert!(why.contains("another network namespace"), "{why}");
        let id = engine.take(&here, config()).unwrap();
        let mut other = Engine::connect(serving.at()).unwrap();
        for engine in [&mut engine, &mut other] {
            let why = refusal(engine, &here);
            assert!(why.contains("go to a program already"), "{why}");
        }
        // It is the first one's as before.
        engine.write(id, b"by the stack").unwrap();
        engine.turn().unwrap();
        read_all(&mut there, b"by the stack");
        assert!(!devices().contains(&"lo tcx".into()));
        let another = loopscope_stack_service::Service::listen(serving.at(), None);
        let why = another.err().expect("there is one").to_string();
        assert!(why.contains("another service is there"), "{why}");
    });
}

/// Connects to an address from another one, which may have been used before.
fn connect_from(from: SocketAddr, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::for_address(from), Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.bind(&from.into()).unwrap();
    socket.connect(&to.into()).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket.into()
}

#[test]
fn a_flow_is_a_programs_only_while_its_socket_is_connected() {
    in_thread(|| {
        let machine = network();
        let serving = Serving::start();
        let mut engine = Engine::connect(serving.at()).unwrap();
        for (own, other) in OWN.into_iter().zip(OTHER) {
            let listener = machine.run(|| TcpListener::bind((other, 7000)).unwrap());
            let accept = || {
                let there = listener.accept().unwrap().0;
                there.set_nonblocking(true).unwrap();
                there
            };
            let from = SocketAddr::new(own.parse().unwrap(), 7001);
            let to = listener.local_addr().unwrap();
            let here = connect_from(from, to);
            let mut there = accept();
            let id = engine.take(&here, config()).unwrap();
            engine.write(id, b"mine").unwrap();
            engine.turn().unwrap();
            read_all(&mut there, b"mine");
            // The program gives its addresses away, and says nothing.
            connect_unspec(&here).unwrap();
            there.write_all(b"!").unwrap();
            assert_eq!(read_to_end(&mut there).1, Some(ErrorKind::ConnectionReset));
            // They are another's now.
            let mut new_here = connect_from(from, to);
            let mut new_there = accept();
            engine.write(id, b"forged").unwrap();
            for _ in 0..10 {
                engine.turn().unwrap();
                new_there.write_all(b"secret").unwrap();
                engine.wait(Duration::from_millis(10)).unwrap();
            }
            engine.turn().unwrap();
            read_all(&mut new_here, &b"secret".repeat(10));
            assert_eq!(engine.get(id).unwrap().readable(), 0);
            new_here.write_all(b"real").unwrap();
            drop(new_here);
            assert_eq!(read_to_end(&mut new_there), (b"real".to_vec(), None));
            assert!(engine.give_back(id).is_err());
        }
    });
}

#[test]
fn packets_become_smaller_where_a_router_asks_for_it() {
    in_thread(|| {
        let [_router, machine] = network_with_router(1300);
        let serving = Serving::start();
        let mut engine = Engine::connect(serving.at()).unwrap();
        for own in OWN {
            let Connection { here, mut there } = connect(&machine, own);
            let mut rng = Rng::with_seed(1);
            let id = engine.take(&here, config()).unwrap();
            let (mut ours, mut theirs) = (Program::new(500_000), Program::new(500_000));
            while !ours.is_done() || !theirs.is_done() || unacknowledged(&engine, id) > 0 {
                engine.turn().unwrap();
                ours.act_by_stack(&mut Accelerated(&mut engine, id), &mut rng);
                theirs.act(&mut there, &mut rng);
            }
            let counts = engine.get(id).unwrap().counts();
            assert_eq!(counts.too_big, 1, "{own}: {counts:?}");
            engine.give_back(id).unwrap();
        }
    });
}

/// Makes a router between `here` and another machine, whose way there has room for smaller packets.
/// Returns both.
fn network_with_router(mtu: u32) -> [Machine; 2] {
    unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace can be made");
    ip("link set lo up");
    let [router, machine] = [0, 1].map(|_| Machine::make());
    ip(&format!("link add here type veth peer left netns {}", router.path()));
    addresses("here", OWN);
    router.run(|| {
        ip(&format!("link add right type veth peer there netns {}", machine.path()));
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
