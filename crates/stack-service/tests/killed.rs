//! Programs of an ordinary user, and the service, that are killed or stopped at any instant. Needs
//! root.

mod killable;
#[path = "../../../tests/skip.rs"]
mod skip;
mod world;

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use fastrand::Rng;
use killable::{Killable, again, as_root, tries};
use loopscope_engine::Engine;
use loopscope_stack::Config;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use world::{
    Machine, OTHER, PATIENCE, Serving, devices, failed, network, read_to_end, wait_for_devices,
};

const NOBODY: u32 = 65534;
/// Until the other end has seen the end of the stream of a program that was killed.
const END: Duration = Duration::from_secs(5);

/// The byte of a stream at a place.
fn byte(place: u64) -> u8 {
    ((place * 2_654_435_761) >> 13) as u8
}

/// The program: connects, has its connection taken over, and writes and reads until it is killed. It
/// stores in a file how much it has written.
#[test]
fn as_a_program() {
    let Ok(words) = std::env::var("LOOPSCOPE_TEST_PROGRAM") else { return };
    let [service, other, seed, written_to] =
        words.split(' ').collect::<Vec<_>>().try_into().expect("four words");
    assert!(!geteuid().is_root());
    let mut rng = Rng::with_seed(seed.parse().unwrap());
    let file = File::options().write(true).open(written_to).unwrap();
    let mut engine = Engine::connect(Path::new(service)).expect("the service is there");
    let address: SocketAddr = other.parse().unwrap();
    let stream = TcpStream::connect(address).unwrap();
    let config = Config { send_buffer: 100_000, receive_buffer: 100_000, ..Config::default() };
    let id = engine.take(&stream, config);
    file.write_all_at(&u64::from(id.is_ok()).to_ne_bytes(), 8).unwrap();
    let mut written = 0;
    // The service may have been killed.
    while let Ok(id) = id {
        let bytes: Vec<u8> = (written..).map(byte).take(rng.usize(0..30_000)).collect();
        let Some(count) = engine.write(id, &bytes).unwrap() else { break };
        written += count as u64;
        file.write_all_at(&written.to_ne_bytes(), 0).unwrap();
        engine.turn().unwrap();
        if engine.read(id, &mut vec![0; rng.usize(1..30_000)]).unwrap().is_none() {
            break;
        }
    }
    // The kernel has it.
    let mut stream = stream;
    stream.write_all(&(written..).map(byte).take(1000).collect::<Vec<_>>()).unwrap();
    file.write_all_at(&(written + 1000).to_ne_bytes(), 0).unwrap();
}

/// Another machine, where programs connect to.
struct Others {
    machine: Machine,
    listener: TcpListener,
}

impl Others {
    fn make() -> Others {
        let machine = network();
        let listener = machine.run(|| TcpListener::bind((OTHER[0], 0)).unwrap());
        listener.set_nonblocking(true).unwrap();
        Others { machine, listener }
    }

    fn program(&self, service: &Path, seed: u64, written_to: &Path) -> Child {
        let other = self.listener.local_addr().unwrap();
        let (service, file) = (service.display(), written_to.display());
        let words = format!("{service} {other} {seed} {file}");
        again("as_a_program", "LOOPSCOPE_TEST_PROGRAM", &words)
            .uid(NOBODY)
            .gid(NOBODY)
            .spawn()
            .unwrap()
    }

    /// The other end of a program's connection, if it comes to have one before it ends.
    fn accept(&self, program: &mut Child) -> Option<TcpStream> {
        let begin = Instant::now();
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(true).unwrap();
                    return Some(stream);
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            if program.try_wait().unwrap().is_some() {
                return None;
            }
            assert!(begin.elapsed() < PATIENCE, "the program does not connect");
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Where a program of any user stores how much it has written.
fn written_file(path: &Path) -> File {
    let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
    world::run("chmod", &format!("666 {}", path.display()));
    file
}

fn written(file: &File) -> u64 {
    number(file, 0)
}

/// Whether the service has taken its connection over.
fn was_taken(file: &File) -> bool {
    number(file, 8) == 1
}

fn number(file: &File, at: u64) -> u64 {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, at).map_or(0, |()| u64::from_ne_bytes(bytes))
}

#[test]
fn a_program_that_is_killed_leaves_its_streams_in_order() {
    as_root(|| {
        let others = Others::make();
        let before = devices();
        let serving = Serving::start();
        let folder = tempfile::tempdir().unwrap();
        world::run("chmod", &format!("755 {}", folder.path().display()));
        let (mut connected, mut whole) = (0, 0);
        for seed in 0..tries() {
            let mut rng = Rng::with_seed(seed);
            let path = folder.path().join(seed.to_string());
            let file = written_file(&path);
            let mut program = others.program(serving.at(), seed, &path);
            let Some(mut there) = others.accept(&mut program) else { panic!("it failed") };
            connected += 1;
            let talks = rng.bool();
            let killed_at = Instant::now() + Duration::from_micros(rng.u64(0..30_000));
            let mut found = vec![];
            while Instant::now() < killed_at {
                let mut next = vec![0; rng.usize(1..50_000)];
                match there.read(&mut next) {
                    Ok(0) => panic!("seed {seed}: it ends before it is killed"),
                    Ok(count) => found.extend(&next[..count]),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock, "seed {seed}"),
                }
                if talks && let Err(error) = there.write(&vec![1; rng.usize(1..20_000)]) {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock, "seed {seed}");
                }
            }
            program.kill().unwrap();
            program.wait().unwrap();
            let begin = Instant::now();
            let (rest, error) = read_to_end(&mut there);
            assert!(begin.elapsed() < END, "seed {seed}: {:?}", begin.elapsed());
            found.extend(rest);
            let is_same = found.iter().zip(0..).all(|(found, place)| *found == byte(place));
            assert!(is_same, "seed {seed}");
            // As of any process: what it has not read makes the kernel reset the connection.
            assert!(error.is_none_or(|error| talks && error == ErrorKind::ConnectionReset));
            if error.is_none() {
                assert!(found.len() as u64 >= written(&file), "seed {seed}");
                whole += usize::from(!found.is_empty());
            }
        }
        assert!(connected == tries() && whole > 0, "{connected} {whole}");
        wait_for_devices(&before);
        assert_eq!(failed(), Vec::<String>::new());
        drop(others.machine);
    });
}

#[test]
fn a_program_that_is_stopped_does_not_hold_up_the_end_of_the_service() {
    as_root(|| {
        let others = Others::make();
        let before = devices();
        let mut serving = Serving::start();
        let folder = tempfile::tempdir().unwrap();
        world::run("chmod", &format!("755 {}", folder.path().display()));
        let path = folder.path().join("written");
        let file = written_file(&path);
        let mut program = others.program(serving.at(), 1, &path);
        let mut there = others.accept(&mut program).expect("it has not ended");
        let begin = Instant::now();
        while written(&file) < 100_000 {
            assert!(begin.elapsed() < PATIENCE, "it writes nothing");
        }
        let pid = Pid::from_raw(program.id().cast_signed());
        kill(pid, Signal::SIGSTOP).unwrap();
        serving.end();
        assert_eq!(devices(), before);
        assert_eq!(failed(), Vec::<String>::new());
        kill(pid, Signal::SIGCONT).unwrap();
        let (found, error) = read_to_end(&mut there);
        assert!(program.wait().unwrap().success());
        // Nothing is missing, and nothing is there twice.
        assert_eq!((found.len() as u64, error), (written(&file), None));
        assert!(found.iter().zip(0..).all(|(found, place)| *found == byte(place)));
    });
}

#[test]
fn when_the_service_is_killed_the_kernel_goes_on() {
    as_root(|| {
        let others = Others::make();
        let before = devices();
        let folder = tempfile::tempdir().unwrap();
        world::run("chmod", &format!("755 {}", folder.path().display()));
        let mut taken = 0;
        for seed in 0..tries() {
            let mut rng = Rng::with_seed(seed);
            let path = folder.path().join(seed.to_string());
            let file = written_file(&path);
            let killable = Killable::start();
            let mut program = others.program(&killable.path, seed, &path);
            let mut there = others.accept(&mut program).expect("it has not ended");
            let mut found = Vec::<u8>::new();
            // Before the connection is taken over, about meanwhile, or after it: to take it over
            // takes one millisecond, or twenty.
            let (is_after, latest) =
                [(false, 2000), (false, 20_000), (true, 20_000)][rng.usize(0..3)];
            let after = Duration::from_micros(rng.u64(0..latest));
            let mut talk = |there: &mut TcpStream, rng: &mut Rng| {
                let mut next = vec![0; rng.usize(1..50_000)];
                match there.read(&mut next) {
                    Ok(count) => {
                        found.extend(&next[..count]);
                        count == 0
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::WouldBlock, "seed {seed}");
                        false
                    }
                }
            };
            let begin = Instant::now();
            while is_after && !was_taken(&file) {
                assert!(!talk(&mut there, &mut rng), "seed {seed}: it ends before");
                assert!(begin.elapsed() < PATIENCE, "seed {seed}: it is not taken over");
            }
            let begin = Instant::now();
            while begin.elapsed() < after {
                assert!(!talk(&mut there, &mut rng), "seed {seed}: it ends before");
            }
            killable.kill();
            let begin = Instant::now();
            while !talk(&mut there, &mut rng) {
                assert!(begin.elapsed() < PATIENCE, "seed {seed}: the stream has no end");
            }
            assert!(program.wait().unwrap().success(), "seed {seed}");
            // Nothing is missing, and nothing is there twice.
            assert_eq!(found.len() as u64, written(&file), "seed {seed}");
            let is_same = found.iter().zip(0..).all(|(found, place)| *found == byte(place));
            assert!(is_same, "seed {seed}");
            assert_eq!(devices(), before, "seed {seed}");
            taken += u64::from(was_taken(&file));
        }
        // Some before it was taken over, and some after.
        assert!(taken > 0 && taken < tries(), "{taken} of {}", tries());
    });
}
