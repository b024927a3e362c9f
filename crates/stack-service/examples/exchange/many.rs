//! Requests over many TCP connections: a client has up to 64 of 64 bytes on their way, each over the
//! connection that was idle longest, and a server answers them. Both wait by epoll(7), with one thread.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, ErrorKind, Lines, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use loopscope_stack_service::status;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use crate::wire::{HERE, ends, enter, listen, program_under, temporary, this_program};

const PORT: u16 = 7000;
const MESSAGE: usize = 64;
/// Requests on their way at once.
const MOST: usize = 64;
/// Time in which requests are not timed, after each connection has had one.
const WARM_UP: Duration = Duration::from_millis(500);
const KERNEL: &str = "kernel";
const READY: &str = "ready";
const BEGIN: &str = "begin";
const END: &str = "end";

/// The first words of a program at one end.
const SERVER: &str = "as-server-of-many";
const CLIENT: &str = "as-client-of-many";
const SERVICE: &str = "as-service-of-many";

/// What the program was started for, if it is one of these.
pub(crate) fn run(words: &[&str]) -> bool {
    let number = |word: &str| word.parse().expect("a number");
    match words {
        ["many", kind, count, seconds] => measure(kind, number(count), seconds),
        [SERVER, count] => as_server(number(count)),
        [SERVICE, path] => {
            let service = listen(path.as_ref());
            println!("{READY}");
            service.serve(std::io::stdin(), |why| eprintln!("{why}")).expect("it serves");
        }
        [CLIENT, count, seconds] => {
            as_client(number(count), Duration::from_secs(number(seconds) as u64));
        }
        _ => return false,
    }
    true
}

/// What waits for the connections, by their places.
struct Waits(Epoll);

impl Waits {
    fn new() -> Waits {
        Waits(Epoll::new(EpollCreateFlags::empty()).expect("there can be one"))
    }

    fn add(&self, stream: &TcpStream, place: usize) {
        let event = EpollEvent::new(EpollFlags::EPOLLIN, place as u64);
        stream.set_nodelay(true).expect("it is TCP");
        stream.set_nonblocking(true).expect("it is a socket");
        self.0.add(stream, event).expect("it can be watched");
    }

    /// The places of those that have something.
    fn wait<'e>(&self, events: &'e mut [EpollEvent]) -> impl Iterator<Item = usize> + 'e {
        let found = self.0.wait(events, EpollTimeout::NONE).expect("there is no signal");
        events[..found].iter().map(|event| event.data() as usize)
    }
}

/// Answers requests of so many connections, until the client has closed one.
fn as_server(count: usize) {
    let listener = TcpListener::bind((HERE, PORT)).expect("the address is there");
    println!("{READY}");
    let waits = Waits::new();
    let accept = |place| {
        let (stream, _) = listener.accept().expect("the client is there");
        waits.add(&stream, place);
        stream
    };
    let mut streams: Vec<TcpStream> = (0..count).map(accept).collect();
    let (mut events, mut message) = ([EpollEvent::empty(); MOST], [0; MESSAGE]);
    loop {
        for place in waits.wait(&mut events) {
            match read(&mut streams[place], &mut message) {
                None => return,
                Some(false) => {}
                Some(true) => streams[place].write_all(&message).expect("there is room for one"),
            }
        }
    }
}

/// Reads a message, which comes whole or not at all. None: the other end has closed.
fn read(stream: &mut TcpStream, message: &mut [u8; MESSAGE]) -> Option<bool> {
    match stream.read(message) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Some(false),
        // The measurement has ended.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => None,
        Err(error) => panic!("the other end is there: {error}"),
        Ok(0) => None,
        Ok(count) => {
            assert_eq!(count, MESSAGE);
            Some(true)
        }
    }
}

/// A connection of the client's, and when it was used last.
struct Line {
    stream: TcpStream,
    asked: Instant,
}

struct Client {
    waits: Waits,
    lines: Vec<Line>,
    /// Places of those that have no request on its way.
    idle: VecDeque<usize>,
    /// How long answers took.
    took: Vec<Duration>,
}

impl Client {
    fn connect(count: usize) -> Client {
        let waits = Waits::new();
        let connect = |place| {
            let stream = TcpStream::connect((HERE, PORT)).expect("the server is there");
            waits.add(&stream, place);
            Line { stream, asked: Instant::now() }
        };
        let lines = (0..count).map(connect).collect();
        Client { waits, lines, idle: (0..count).collect(), took: Vec::with_capacity(1 << 22) }
    }

    /// Asks, and takes the answers that are there.
    fn step(&mut self) {
        let mut message = [7; MESSAGE];
        while self.lines.len() - self.idle.len() < MOST
            && let Some(place) = self.idle.pop_front()
        {
            let line = &mut self.lines[place];
            line.asked = Instant::now();
            line.stream.write_all(&message).expect("there is room for one");
        }
        for place in self.waits.wait(&mut [EpollEvent::empty(); MOST]) {
            let line = &mut self.lines[place];
            if read(&mut line.stream, &mut message).expect("the server is there") {
                self.took.push(line.asked.elapsed());
                self.idle.push_back(place);
            }
        }
    }
}

/// Asks for so long, says when that begins and ends, and what came of it. Its connections are there
/// until what it reads ends.
fn as_client(count: usize, time: Duration) {
    let mut client = Client::connect(count);
    while client.took.len() < count {
        client.step();
    }
    for (time, said) in [(WARM_UP, BEGIN), (time, END)] {
        client.took.clear();
        let begin = Instant::now();
        while begin.elapsed() < time {
            client.step();
        }
        println!("{said}");
    }
    let rate = client.took.len() as f64 / time.as_secs_f64();
    client.took.sort_unstable();
    let last = client.took.len() - 1;
    let at = |share: f64| client.took[(last as f64 * share) as usize].as_secs_f64() * 1e6;
    println!("{rate:.0} {:.1} {:.1} {:.1}", at(0.5), at(0.99), at(0.999));
    let ended = std::io::stdin().read_to_end(&mut vec![]);
    ended.expect("it can be read");
}

/// A process of this program, which is killed at last.
struct Process {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(mut command: Command, words: &[&str]) -> Process {
        let command = command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let said = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Process { child, said }
    }

    fn line(&mut self) -> String {
        self.said.next().expect("it says more").expect("it is text")
    }

    /// The time of processors that it has taken.
    fn cpu(&self) -> Duration {
        let clock = clock_getcpuclockid(Pid::from_raw(self.child.id() as i32));
        clock_gettime(clock.expect("it runs")).expect("there is one").into()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("it runs");
    }
}

/// A service, in a process of its own: it has two descriptors for each connection.
struct Serving {
    _process: Process,
    path: PathBuf,
}

impl Serving {
    fn start(name: &str) -> Serving {
        let (command, path) = (Command::new(this_program()), temporary(name));
        let text = path.to_str().expect("it is text");
        let mut process = Process::start(command, &[SERVICE, text]);
        assert_eq!(process.line(), READY);
        Serving { _process: process, path }
    }

    /// How many connections programs have.
    fn connections(&self) -> usize {
        status(&self.path).expect("it answers").1.len()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        std::fs::remove_file(&self.path).expect("it is there");
    }
}

/// A program at one end. Its service ends before it, and so gives no connections back.
struct Program {
    service: Option<Serving>,
    process: Process,
}

impl Program {
    fn start(kind: &str, words: &[&str], namespace: OwnedFd, is_client: bool) -> Program {
        let start = || {
            enter(namespace, is_client.into());
            let service = (kind != KERNEL).then(|| Serving::start(words[0]));
            let receive = kind.strip_prefix("unmodified-").unwrap_or("adaptive");
            let command = match &service {
                None => Command::new(this_program()),
                Some(service) => program_under(&service.path, receive),
            };
            Program { service, process: Process::start(command, words) }
        };
        std::thread::scope(|scope| scope.spawn(start).join().expect("it starts"))
    }

    /// How many of its connections the stack has.
    fn by_stack(&self) -> usize {
        self.service.as_ref().map_or(0, Serving::connections)
    }
}

fn measure(kind: &str, connections: usize, seconds: &str) {
    let kinds = [KERNEL, "unmodified", "unmodified-spin", "unmodified-block"];
    assert!(kinds.contains(&kind), "no kind is called {kind}");
    let [here, there] = ends(false);
    let count = connections.to_string();
    let mut server = Program::start(kind, &[SERVER, &count], here, false);
    assert_eq!(server.process.line(), READY);
    let mut client = Program::start(kind, &[CLIENT, &count, seconds], there, true);
    let cpu = |server: &Program, client: &Program| server.process.cpu() + client.process.cpu();
    assert_eq!(client.process.line(), BEGIN);
    let before = cpu(&server, &client);
    assert_eq!(client.process.line(), END);
    let taken = cpu(&server, &client) - before;
    let said = client.process.line();
    let expected = if kind == KERNEL { 0 } else { connections };
    assert_eq!([server.by_stack(), client.by_stack()], [expected; 2]);
    let found: Vec<f64> = said.split(' ').map(|word| word.parse().expect("a number")).collect();
    let [rate, p50, p99, p999] = found[..] else { panic!("{said}") };
    let cpus = taken.as_secs_f64() / seconds.parse::<f64>().expect("a number");
    let each = cpus / rate * 1e6;
    println!(
        r#"{{"per_s": {rate:.0}, "p50_us": {p50:.1}, "p99_us": {p99:.1}, "p999_us": {p999:.1}, "cpus": {cpus:.3}, "cpu_us": {each:.2}}}"#
    );
}
