//! Times exchanges between two network namespaces, by the kernel and by the stack; prints one JSON
//! object. Needs root.
//!
//! `exchange KIND ROUND_TRIPS` has 64 bytes go back and forth, `exchange KIND-bulk MEGABYTES` sends
//! a stream one way. KIND: `blocking` (the kernel's sockets, which sleep), `spinning` (the kernel's,
//! asked until there is something), `unsegmented` (blocking ones, whose devices get segments one by
//! one), `stack` (both ends use the engine, and look until there is something), or `unmodified`,
//! `unmodified-spin` and `unmodified-block`: the program of `blocking`, at both ends under the
//! library of crates/preload, which waits so. That has to be built before. `udp-` before `blocking`,
//! `spinning` and the unmodified ones has the 64 bytes go as datagrams of UDP.
//!
//! `exchange many KIND CONNECTIONS SECONDS` has 64 requests of 64 bytes on their way over so many
//! connections. KIND: `kernel`, or `unmodified` as above.
//!
//! `exchange lost KIND BYTES COUNT LEAST OBJECT` has COUNT messages of BYTES each lose their last
//! segment, which the program OBJECT drops; LEAST: the least retransmission time-out in µs. KIND:
//! `kernel`, or `unmodified`.
//!
//! `exchange idle KIND SECONDS` has a client wait for so long. KIND: `kernel`, or `unmodified`.
//!
//! `exchange others KIND COUNT [OBJECT]` has COUNT datagrams of 64 bytes, and then a stream of COUNT
//! KiB, go by the kernel, while something looks at each packet. KIND: `none`; `service`, which has
//! another connection on the device; or `xdp`, the program in that section of the file OBJECT.

mod idle;
mod lost;
mod many;
mod others;
mod wire;

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use loopscope_engine::Engine;
use loopscope_stack::{Config, Id};
use nix::time::{ClockId, clock_gettime};

use crate::wire::{ends, enter, program_under, serve, temporary};

const MESSAGE: usize = 64;
/// Round trips before any is timed.
const WARM_UP: usize = 1000;
const BUFFER: usize = 1 << 16;
const SERVER: &str = "10.0.0.1:7000";
const CLIENT_OF_UDP: &str = "10.0.0.2:7001";

/// One end of a connection.
enum End {
    Blocking(TcpStream),
    Spinning(TcpStream),
    Datagrams(UdpSocket),
    Stack(Box<Engine>, Id),
}

impl End {
    fn write_all(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let written = match self {
                End::Blocking(stream) | End::Spinning(stream) => or_none(stream.write(bytes)),
                End::Datagrams(socket) => socket.send(bytes).expect("it is sent"),
                End::Stack(engine, id) => {
                    let written = engine.write(*id, bytes).expect(SERVED).expect(HELD);
                    engine.turn().expect(SERVED);
                    written
                }
            };
            bytes = &bytes[written..];
        }
    }

    fn read(&mut self, target: &mut [u8]) -> usize {
        loop {
            let count = match self {
                End::Blocking(stream) | End::Spinning(stream) => or_none(stream.read(target)),
                End::Datagrams(socket) => or_none(socket.recv(target)),
                End::Stack(engine, id) => {
                    engine.turn().expect(SERVED);
                    engine.read(*id, target).expect(SERVED).expect(HELD)
                }
            };
            if count > 0 {
                return count;
            }
            std::hint::spin_loop();
        }
    }

    /// Waits until the other end has all, and gives the connection back to the kernel.
    fn finish(self) {
        if let End::Stack(mut engine, id) = self {
            while engine.get(id).expect(HELD).unacknowledged() > 0 {
                engine.turn().expect(SERVED);
            }
            engine.give_back(id).expect(SERVED);
        }
    }
}

const SERVED: &str = "the service is there";
const HELD: &str = "the other end has not closed it";

/// One end's socket of UDP, connected to the other end's.
fn datagrams(is_client: bool) -> UdpSocket {
    let (own, other) = if is_client { (CLIENT_OF_UDP, SERVER) } else { (SERVER, CLIENT_OF_UDP) };
    let socket = UdpSocket::bind(own).expect("the address is there");
    socket.connect(other).expect("there is a way to it");
    socket
}

fn or_none(result: std::io::Result<usize>) -> usize {
    match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
        result => result.expect("the other end is there"),
    }
}

/// What an exchange is, and at which end.
#[derive(Clone, Copy)]
struct Exchange {
    count: usize,
    is_bulk: bool,
    is_udp: bool,
    is_client: bool,
}

/// What one end has measured.
struct Measured {
    round_trips: Vec<Duration>,
    whole: Duration,
    cpu: Duration,
}

impl Exchange {
    /// `clock` counts the time of processors.
    fn run(self, end: &mut End, clock: ClockId) -> Measured {
        let cpu = || Duration::from(clock_gettime(clock).expect("there is one"));
        let (mut message, mut buffer) = ([7; MESSAGE], vec![7; BUFFER]);
        let mut round_trips = Vec::with_capacity(self.count);
        let (begin, at_begin) = (Instant::now(), cpu());
        if self.is_bulk {
            let mut left = self.count << 20;
            while left > 0 {
                let most = left.min(BUFFER);
                left -= if self.is_client {
                    end.write_all(&buffer[..most]);
                    most
                } else {
                    end.read(&mut buffer)
                };
            }
            // The other end has it.
            if self.is_client {
                end.read(&mut message);
            } else {
                end.write_all(&message);
            }
        } else {
            for i in 0..WARM_UP + self.count {
                let sent = Instant::now();
                if self.is_client {
                    end.write_all(&message);
                }
                let mut there = 0;
                while there < MESSAGE {
                    there += end.read(&mut message[there..]);
                }
                if !self.is_client {
                    end.write_all(&message);
                }
                if i >= WARM_UP {
                    round_trips.push(sent.elapsed());
                }
            }
        }
        Measured { round_trips, whole: begin.elapsed(), cpu: cpu() - at_begin }
    }

    /// Has a program take part that knows nothing of the stack. `is_ready` is called before it
    /// connects, or once it can be connected to.
    fn run_program(self, receive: &str, name: &str, is_ready: impl Fn()) -> Measured {
        let (path, explained) = (serve(name), temporary(&format!("{name}-explained")));
        if self.is_client {
            is_ready();
        }
        let mut child = program_under(&path, receive)
            .args([if self.is_client { CLIENT } else { SERVER_END }, &self.count.to_string()])
            .args(self.is_bulk.then_some(BULK))
            .args(self.is_udp.then_some(UDP))
            .env("LOOPSCOPE_STACK_EXPLAIN", &explained)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut line = || lines.next().expect("it says more").expect("it is text");
        if !self.is_client {
            assert_eq!(line(), READY);
            is_ready();
        }
        let said = line();
        assert!(child.wait().expect("it ends").success());
        let explained_text = std::fs::read_to_string(&explained).expect("it is there");
        assert!(explained_text.contains(r#""accelerated":true"#), "{explained_text}");
        [path, explained].iter().for_each(|path| std::fs::remove_file(path).expect("it is there"));
        Measured::of(&said)
    }

    /// Takes part as a program that knows nothing of the stack, and says what it has measured.
    fn as_program(self) {
        let mut end = if self.is_udp {
            let socket = datagrams(self.is_client);
            if !self.is_client {
                println!("{READY}");
            }
            End::Datagrams(socket)
        } else {
            let stream = if self.is_client {
                TcpStream::connect(SERVER)
            } else {
                let listener = TcpListener::bind(SERVER).expect("the address is there");
                println!("{READY}");
                listener.accept().map(|(stream, _)| stream)
            };
            let stream = stream.expect("the other end is there");
            stream.set_nodelay(true).expect("it is TCP");
            End::Blocking(stream)
        };
        let Measured { round_trips, whole, cpu } =
            self.run(&mut end, ClockId::CLOCK_PROCESS_CPUTIME_ID);
        let times = [whole, cpu].into_iter().chain(round_trips);
        let times: Vec<String> = times.map(|time| time.as_nanos().to_string()).collect();
        println!("{}", times.join(" "));
        // The other end must not see this one's close before it has what it waits for.
        std::thread::sleep(Duration::from_millis(100));
    }
}

impl Measured {
    /// What a program has said.
    fn of(said: &str) -> Measured {
        let nanoseconds = |word: &str| Duration::from_nanos(word.parse().expect("a number"));
        let mut times = said.split(' ').map(nanoseconds);
        let mut next = || times.next().expect("two at least");
        let (whole, cpu) = (next(), next());
        Measured { whole, cpu, round_trips: times.collect() }
    }
}

/// The first argument of a program at one end of `unmodified`.
const CLIENT: &str = "as-client";
const SERVER_END: &str = "as-server";
const READY: &str = "ready";
/// What follows the count.
const BULK: &str = "bulk";
const UDP: &str = "udp";

/// Takes part in an exchange as `kind` has it, on a processor and in a namespace of its own.
fn start(
    kind: String,
    exchange: Exchange,
    namespace: OwnedFd,
    name: &'static str,
    barrier: Arc<Barrier>,
) -> JoinHandle<Measured> {
    std::thread::spawn(move || {
        enter(namespace, exchange.is_client.into());
        if let Some(receive) = kind.strip_prefix("unmodified") {
            let receive = receive.strip_prefix('-').unwrap_or("adaptive");
            return exchange.run_program(receive, name, || _ = barrier.wait());
        }
        if exchange.is_udp {
            let socket = datagrams(exchange.is_client);
            socket.set_nonblocking(kind == "spinning").expect("it is a socket");
            let mut end = End::Datagrams(socket);
            barrier.wait();
            return exchange.run(&mut end, ClockId::CLOCK_THREAD_CPUTIME_ID);
        }
        let stream = if exchange.is_client {
            barrier.wait();
            TcpStream::connect(SERVER)
        } else {
            let listener = TcpListener::bind(SERVER).expect("the address is there");
            barrier.wait();
            listener.accept().map(|(stream, _)| stream)
        };
        let stream = stream.expect("the other end is there");
        stream.set_nodelay(true).expect("it is TCP");
        stream.set_nonblocking(kind == "spinning").expect("it is a socket");
        let mut end = match &kind[..] {
            "stack" => {
                let path = serve(name);
                let mut engine = Engine::connect(&path).expect(SERVED);
                std::fs::remove_file(path).expect("it is there");
                let config = Config { no_delay: true, ..Config::default() };
                let id = engine.take(&stream, config).expect("it can be taken over");
                End::Stack(Box::new(engine), id)
            }
            "spinning" => End::Spinning(stream),
            _ => End::Blocking(stream),
        };
        let measured = exchange.run(&mut end, ClockId::CLOCK_THREAD_CPUTIME_ID);
        end.finish();
        // The other end must not see this one's close before it is given back.
        barrier.wait();
        measured
    })
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if many::run(&words) || lost::run(&words) || idle::run(&words) {
        return;
    }
    if let ["others", kind, count, object @ ..] = &words[..] {
        return others::measure(kind, count.parse().expect("a count"), object);
    }
    let [kind, count, rest @ ..] = &words[..] else { panic!("exchange KIND COUNT") };
    let count = count.parse().expect("a count");
    if [CLIENT, SERVER_END].contains(kind) {
        let has = |word: &str| rest.contains(&word);
        let (is_bulk, is_udp, is_client) = (has(BULK), has(UDP), *kind == CLIENT);
        return Exchange { count, is_bulk, is_udp, is_client }.as_program();
    }
    let (kind, is_bulk) = kind.strip_suffix("-bulk").map_or((*kind, false), |kind| (kind, true));
    let (kind, is_udp) = kind.strip_prefix("udp-").map_or((kind, false), |kind| (kind, true));
    let kinds = [
        "blocking",
        "spinning",
        "unsegmented",
        "stack",
        "unmodified",
        "unmodified-spin",
        "unmodified-block",
    ];
    let is_known = match is_udp {
        true => !is_bulk && !["stack", "unsegmented"].contains(&kind),
        false => true,
    };
    assert!(is_known && kinds.contains(&kind), "no kind is called {kind}");
    let namespaces = ends(kind == "unsegmented");
    let barrier = Arc::new(Barrier::new(2));
    let ends = [(false, "here"), (true, "there")];
    let threads = namespaces.into_iter().zip(ends).map(|(namespace, (is_client, name))| {
        let exchange = Exchange { count, is_bulk, is_udp, is_client };
        start(kind.to_owned(), exchange, namespace, name, barrier.clone())
    });
    let threads: Vec<JoinHandle<Measured>> = threads.collect();
    let [server, client] = threads
        .into_iter()
        .map(|thread| thread.join().expect("it ends"))
        .collect::<Vec<_>>()
        .try_into()
        .unwrap_or_else(|_| unreachable!("there are two"));
    report(is_bulk, count, &server, &client);
}

fn report(is_bulk: bool, count: usize, server: &Measured, client: &Measured) {
    if is_bulk {
        let seconds = client.whole.as_secs_f64();
        let gbit = (count << 20) as f64 * 8.0 / seconds / 1e9;
        let cpu = (server.cpu + client.cpu).as_secs_f64() / seconds;
        println!(r#"{{"gbit_per_s": {gbit:.3}, "cpus": {cpu:.3}}}"#);
        return;
    }
    let mut times = client.round_trips.clone();
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
    let cpu = (server.cpu + client.cpu).as_secs_f64() / (WARM_UP + count) as f64 * 1e6;
    let (p50, p99, p999, max) = (at(0.5), at(0.99), at(0.999), at(1.0));
    println!(
        r#"{{"p50_us": {p50:.2}, "p99_us": {p99:.2}, "p999_us": {p999:.2}, "max_us": {max:.1}, "cpu_us": {cpu:.2}}}"#
    );
}
