//! A network namespace with a service, another machine, and connections between them.
#![allow(dead_code)] // Each test program uses a part of it.

use std::io::{ErrorKind, Read as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use aya::programs::{SchedClassifier, TcAttachType};
use loopscope_stack_service::Service;
use nix::fcntl::OFlag;
use nix::sched::{CloneFlags, setns, unshare};
use tempfile::TempDir;

pub const OWN: [&str; 2] = ["10.0.0.1", "fd00::1"];
pub const OTHER: [&str; 2] = ["10.0.0.2", "fd00::2"];
/// For what comes at once.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Runs `ip` with these words.
pub fn ip(words: &str) {
    run("ip", words);
}

/// Runs a program with these words; what it says.
pub fn run(program: &str, words: &str) -> String {
    let done = Command::new(program).args(words.split(' ')).output().expect("it runs");
    assert!(done.status.success(), "{program} {words}: {done:?}");
    String::from_utf8(done.stdout).expect("it is text")
}

pub fn addresses(device: &str, own: [&str; 2]) {
    ip(&format!("link set {device} up"));
    ip(&format!("address add {}/24 dev {device}", own[0]));
    ip(&format!("address add {}/64 dev {device} nodad", own[1]));
}

/// The network namespace of another machine.
pub struct Machine(OwnedFd);

impl Machine {
    pub fn make() -> Machine {
        let make = || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace can be made");
            Machine(std::fs::File::open("/proc/thread-self/ns/net").unwrap().into())
        };
        std::thread::spawn(make).join().unwrap()
    }

    /// By which other processes find it.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    pub fn run<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        let act = || {
            setns(&self.0, CloneFlags::CLONE_NEWNET).unwrap();
            act()
        };
        std::thread::scope(|scope| scope.spawn(act).join().expect("it is done"))
    }
}

/// This thread has a network namespace with the device `here`, whose other end is `there` in another
/// machine's.
pub fn network() -> Machine {
    unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace can be made");
    ip("link set lo up");
    let machine = Machine::make();
    ip(&format!("link add here type veth peer there netns {}", machine.path()));
    addresses("here", OWN);
    machine.run(|| addresses("there", OTHER));
    machine
}

/// A connection from another machine, and its end there.
pub struct Connection {
    pub here: TcpStream,
    pub there: TcpStream,
}

pub fn connect(machine: &Machine, own: &str) -> Connection {
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

/// Reads until the end, or an error.
pub fn read_to_end(socket: &mut TcpStream) -> (Vec<u8>, Option<ErrorKind>) {
    let (mut found, begin) = (vec![], Instant::now());
    loop {
        let mut next = [0; 1 << 16];
        match socket.read(&mut next) {
            Ok(0) => return (found, None),
            Ok(count) => found.extend(&next[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_micros(100));
            }
            Err(error) => return (found, Some(error.kind())),
        }
        assert!(begin.elapsed() < PATIENCE, "the stream has no end");
    }
}

/// Reads what is expected next.
pub fn read_all(socket: &mut TcpStream, expected: &[u8]) {
    let (mut found, begin) = (Vec::<u8>::new(), Instant::now());
    while found.len() < expected.len() {
        let mut next = vec![0; expected.len() - found.len()];
        match socket.read(&mut next) {
            Ok(0) => panic!("the stream ends after {} bytes", found.len()),
            Ok(count) => found.extend(&next[..count]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(begin.elapsed() < PATIENCE, "it did not come");
    }
    assert_eq!(found, expected);
}

/// Connections that could not be given back, of all services of this process.
static FAILED: Mutex<Vec<String>> = Mutex::new(vec![]);

pub fn failed() -> Vec<String> {
    FAILED.lock().unwrap().clone()
}

/// A service of the network namespace of this thread.
pub struct Serving {
    pub path: PathBuf,
    _folder: TempDir,
    /// Its end is seen when this is closed.
    end: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    pub fn start() -> Serving {
        let folder = tempfile::tempdir().unwrap();
        // Programs of other users find it.
        run("chmod", &format!("755 {}", folder.path().display()));
        let path = folder.path().join("stack.sock");
        let service = Service::listen(&path, None).unwrap();
        // Programs that are started must not have it.
        let (until, end) = nix::unistd::pipe2(OFlag::O_CLOEXEC).unwrap();
        let failed = |why: &str| FAILED.lock().unwrap().push(why.to_owned());
        let thread = std::thread::spawn(move || service.serve(until, failed).unwrap());
        Serving { path, _folder: folder, end: Some(end), thread: Some(thread) }
    }

    pub fn at(&self) -> &Path {
        &self.path
    }

    /// Ends it, as a signal does.
    pub fn end(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it has served");
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.end.take());
        let joined = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            assert!(joined.is_none_or(|joined| joined.is_ok()));
        }
    }
}

/// Waits until the devices are these, and that which the service has ready for the next program.
pub fn wait_for_devices(before: &[String]) {
    let begin = Instant::now();
    let is_spare = |name: &String| name.starts_with("lsi");
    loop {
        let (spare, others): (Vec<String>, _) = devices().into_iter().partition(is_spare);
        if spare.len() == 1 && others == before {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "{spare:?} and {others:?} are there");
    }
}

/// The devices of this network namespace, and whether a program is on them.
pub fn devices() -> Vec<String> {
    let shown = run("ip", "-o link");
    let line = |line: &str| {
        let name = line.split(": ").nth(1).expect("a name").split('@').next().unwrap_or_default();
        // It may be gone by now.
        let programs = SchedClassifier::query_tcx(name, TcAttachType::Ingress);
        let has_some = programs.is_ok_and(|(_, programs)| !programs.is_empty());
        format!("{name}{}", if has_some { " tcx" } else { "" })
    };
    shown.lines().map(line).collect()
}
