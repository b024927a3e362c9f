//! Messages whose last segment is lost the first time that it is sent: how long it takes until they
//! are answered.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::wire::{HERE, READY, programs, run as run_command};

const PORT: u16 = 7000;
const ANSWER: usize = 64;
/// Messages that are not lost, before any is.
const WARM_UP: usize = 100;
/// The last byte of those that are lost.
const LOST: u8 = 255;
/// The first words of a program at one end.
const SERVER: &str = "as-server-of-lost";
const CLIENT: &str = "as-client-of-lost";

/// What the program was started for, if it is one of these.
pub(crate) fn run(words: &[&str]) -> bool {
    let number = |word: &str| word.parse().expect("a number");
    match words {
        ["lost", kind, bytes, count, least, object] => measure(kind, [bytes, count], least, object),
        [SERVER, bytes, count] => as_server(number(bytes), number(count)),
        [CLIENT, bytes, count] => as_client(number(bytes), number(count)),
        _ => return false,
    }
    true
}

/// Has messages of so many bytes lost, by programs whose TCP is that of `kind`. The least
/// retransmission time-out of both ends is `least` µs. `object` is the program that drops them.
fn measure(kind: &str, [bytes, count]: [&str; 2], least: &str, object: &str) {
    let words = [SERVER, CLIENT].map(|word| [word, bytes, count]);
    let said = programs(kind, [&words[0], &words[1]], |at| {
        std::fs::write("/proc/sys/net/ipv4/tcp_rto_min_us", least)
            .expect("Linux 6.11 has this setting");
        if at == 0 {
            run_command("ip", &format!("link set dev here xdpdrv object {object} section xdp"));
        }
    });
    print!("{said}");
}

fn as_server(bytes: usize, count: usize) {
    let listener = TcpListener::bind((HERE, PORT)).expect("the address is there");
    println!("{READY}");
    let (mut stream, _) = listener.accept().expect("the client is there");
    stream.set_nodelay(true).expect("it is TCP");
    let mut message = vec![0; bytes];
    for _ in 0..WARM_UP + 2 * count {
        stream.read_exact(&mut message).expect("the client is there");
        stream.write_all(&[0; ANSWER]).expect("there is room");
    }
    // The other end must not see this one's close before it has what it waits for.
    std::thread::sleep(Duration::from_millis(100));
}

fn as_client(bytes: usize, count: usize) {
    let mut stream = TcpStream::connect((HERE, PORT)).expect("the server is there");
    stream.set_nodelay(true).expect("it is TCP");
    let (mut message, mut answer) = (vec![0; bytes], [0; ANSWER]);
    let mut exchange = |is_lost: bool| {
        message[bytes - 1] = if is_lost { LOST } else { 0 };
        let begin = Instant::now();
        stream.write_all(&message).expect("there is room");
        stream.read_exact(&mut answer).expect("the server is there");
        begin.elapsed()
    };
    for _ in 0..WARM_UP {
        exchange(false);
    }
    let mut took: Vec<Duration> = (0..count)
        .map(|_| {
            let took = exchange(true);
            exchange(false);
            took
        })
        .collect();
    took.sort_unstable();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    let (p50, p90, max) = (at(0.5), at(0.9), at(1.0));
    println!(r#"{{"p50_ms": {p50:.3}, "p90_ms": {p90:.3}, "max_ms": {max:.3}}}"#);
}
