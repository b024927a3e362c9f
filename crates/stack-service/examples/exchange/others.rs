//! Traffic of others, while something looks at each packet that comes to the device.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Instant;

use loopscope_engine::Engine;
use loopscope_stack::Config;

use crate::wire::{HERE, THERE, ends, enter, run, serve};

const MESSAGE: usize = 64;
const LOT: usize = 64;

/// Does something at one end, on a processor.
fn at<T: Send>(end: &OwnedFd, processor: usize, act: impl FnOnce() -> T + Send) -> T {
    let end = end.try_clone().expect("there are descriptors");
    std::thread::scope(|scope| {
        let act = || {
            enter(end, processor);
            act()
        };
        scope.spawn(act).join().expect("it is done")
    })
}

/// Has datagrams go one way, in lots that one thread sends and then receives, and then a stream.
/// `kind` and `object` say what looks at them.
pub(crate) fn measure(kind: &str, count: usize, object: &[&str]) {
    let [here, there] = ends(false);
    let listener = at(&here, 0, || TcpListener::bind((HERE, 7000)).expect("the address is there"));
    let other = at(&there, 1, || TcpStream::connect((HERE, 7000)).expect("there is a way"));
    let (mine, _) = listener.accept().expect("it has connected");
    let engine = match (kind, object) {
        ("none", []) => None,
        ("xdp", [object]) => {
            let words = format!("link set dev here xdpdrv object {object} section xdp");
            at(&here, 0, || run("ip", &words));
            None
        }
        ("service", []) => Some(at(&here, 0, || {
            let path = serve("others");
            let mut engine = Engine::connect(&path).expect("the service is there");
            std::fs::remove_file(path).expect("it is there");
            engine.take(&mine, Config::default()).expect("it can be taken over");
            engine
        })),
        _ => panic!("no kind is called {kind} {object:?}"),
    };
    let each = datagrams(&here, &there, count);
    let rate = stream(&here, &there, count << 10);
    drop((engine, mine, other));
    println!(r#"{{"ns": {each:.1}, "gbit_per_s": {rate:.3}}}"#);
}

/// The median of the nanoseconds for a datagram.
fn datagrams(here: &OwnedFd, there: &OwnedFd, count: usize) -> f64 {
    let own = at(here, 0, || UdpSocket::bind((HERE, 7001)).expect("the address is there"));
    let other = at(there, 0, || UdpSocket::bind((THERE, 7001)).expect("the address is there"));
    other.connect((HERE, 7001)).expect("there is a way");
    let mut times = at(there, 0, || {
        let mut message = [7; MESSAGE];
        let lot = |_| {
            let begin = Instant::now();
            for _ in 0..LOT {
                other.send(&message).expect("there is room");
            }
            for _ in 0..LOT {
                own.recv(&mut message).expect("it has come");
            }
            begin.elapsed().as_nanos() as f64 / LOT as f64
        };
        (0..count.div_ceil(LOT)).map(lot).collect::<Vec<f64>>()
    });
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Gbit/s.
fn stream(here: &OwnedFd, there: &OwnedFd, bytes: usize) -> f64 {
    let listener = at(here, 0, || TcpListener::bind((HERE, 7002)).expect("the address is there"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            at(there, 1, || {
                let mut stream = TcpStream::connect((HERE, 7002)).expect("there is a way");
                let buffer = vec![7; 1 << 16];
                let mut left = bytes;
                while left > 0 {
                    let now = left.min(buffer.len());
                    stream.write_all(&buffer[..now]).expect("the other end is there");
                    left -= now;
                }
            });
        });
        at(here, 0, || {
            let (mut stream, _) = listener.accept().expect("it connects");
            let mut buffer = vec![0; 1 << 16];
            let (begin, mut came) = (Instant::now(), 0);
            while came < bytes {
                came += stream.read(&mut buffer).expect("the other end is there");
            }
            came as f64 * 8.0 / begin.elapsed().as_secs_f64() / 1e9
        })
    })
}
