//! A connection over which nothing goes: what processors its client takes.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

use crate::wire::{HERE, READY, programs};

const PORT: u16 = 7000;
const MESSAGE: usize = 64;
/// Messages before.
const WARM_UP: usize = 1000;
/// The first words of a program at one end.
const SERVER: &str = "as-server-of-idle";
const CLIENT: &str = "as-client-of-idle";

/// What the program was started for, if it is one of these.
pub(crate) fn run(words: &[&str]) -> bool {
    match words {
        ["idle", kind, seconds] => {
            print!("{}", programs(kind, [&[SERVER, seconds], &[CLIENT, seconds]], |_| {}));
        }
        [SERVER, seconds] => as_server(Duration::from_secs(seconds.parse().expect("a number"))),
        [CLIENT, seconds] => as_client(Duration::from_secs(seconds.parse().expect("a number"))),
        _ => return false,
    }
    true
}

/// Is silent for so long after the client's messages, and then answers once more.
fn as_server(time: Duration) {
    let listener = TcpListener::bind((HERE, PORT)).expect("the address is there");
    println!("{READY}");
    let (mut stream, _) = listener.accept().expect("the client is there");
    stream.set_nodelay(true).expect("it is TCP");
    let mut message = [0; MESSAGE];
    for _ in 0..WARM_UP {
        stream.read_exact(&mut message).expect("the client is there");
        stream.write_all(&message).expect("there is room");
    }
    std::thread::sleep(time);
    stream.write_all(&message).expect("there is room");
    // The other end must not see this one's close before it has what it waits for.
    std::thread::sleep(Duration::from_millis(100));
}

fn as_client(time: Duration) {
    let mut stream = TcpStream::connect((HERE, PORT)).expect("the server is there");
    stream.set_nodelay(true).expect("it is TCP");
    let mut message = [0; MESSAGE];
    for _ in 0..WARM_UP {
        stream.write_all(&message).expect("there is room");
        stream.read_exact(&mut message).expect("the server is there");
    }
    let cpu =
        || Duration::from(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("it is there"));
    let (begin, before) = (Instant::now(), cpu());
    stream.read_exact(&mut message).expect("the server is there");
    let whole = begin.elapsed();
    assert!(whole >= time / 2, "it was answered at once");
    let percent = (cpu() - before).as_secs_f64() / whole.as_secs_f64() * 100.0;
    println!(r#"{{"cpu_percent": {percent:.4}}}"#);
}
