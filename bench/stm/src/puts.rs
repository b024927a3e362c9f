//! Puts to a channel of another host, one after the other, by their size; and messages of that size
//! with an answer.
//!
//! The near host is on the first processor and puts; the far one, the channel's home, is on the last.
//! `stm-BYTES`: the channel keeps 64 items and drops the oldest. `tcp-BYTES`: a connection on which the
//! near host writes a head and so many bytes, and the far host answers by another head.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;

use loopscope_stm::{Config, Full, Orphans};
use loopscope_stm_link::{Home, Homes, Key, Transport};
use loopscope_stm_shared::message::HEAD;
use loopscope_stm_shared::{Client, Elsewhere, Options, Until};

use crate::far::{self, Far};

const CHANNEL: &str = "items";
const LISTEN: &str = "127.0.0.1:0";
/// Puts before the first one that is measured.
const WARM: u64 = 200;

fn transport() -> Transport {
    Transport::new(Key::new(vec![7; 32]).unwrap(), None).unwrap()
}

fn report(what: &str) {
    eprintln!("stm-bench: {what}");
}

/// Measures a kind such as `stm-4096` and returns JSON; None: there is no such kind.
pub fn near(kind: &str, count: u64) -> Option<String> {
    let (transport, bytes) = kind.split_once('-')?;
    let bytes: usize = bytes.parse().ok()?;
    crate::stay_on(0);
    let (mut put, _far) = match transport {
        "stm" => channel(kind, count, bytes),
        "tcp" => connection(kind, count, bytes),
        _ => return None,
    };
    (0..WARM).for_each(&mut put);
    let mut took = vec![];
    for number in WARM..WARM + count {
        let begin = Instant::now();
        put(number);
        took.push(begin.elapsed().as_nanos() as f64 / 1000.0);
    }
    // The far host of a connection ends with it.
    drop(put);
    let all: f64 = took.iter().sum();
    took.sort_by(f64::total_cmp);
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
    Some(format!(
        "{{\"p50_us\": {:.2}, \"p99_us\": {:.2}, \"mb_per_s\": {:.2}, \"items\": {count}}}",
        at(0.5),
        at(0.99),
        count as f64 * bytes as f64 / all,
    ))
}

/// Is the far host, until the near one ends.
pub fn far(kind: &str, address: &str) {
    let (transport, bytes) = kind.split_once('-').unwrap();
    let bytes: usize = bytes.parse().unwrap();
    match transport {
        "stm" => home(bytes),
        _ => answers(address, bytes),
    }
}

type Put = Box<dyn FnMut(u64)>;

fn channel(kind: &str, count: u64, bytes: usize) -> (Put, Far) {
    let mut far = Far::start(&format!("puts-{kind}"), count, LISTEN);
    let address = far.line().parse().unwrap();
    let (mut service, path) = far::service();
    let (channels, name) = (service.channels(), CHANNEL.to_owned());
    let home = Home { channels, name, address, transport: transport(), report };
    let home: Box<dyn Elsewhere> = Box::new(home);
    service.knows_elsewhere(BTreeMap::from([(CHANNEL.to_owned(), home)]));
    far::serve(service);
    let channel = Client::connect(&path).unwrap().open(CHANNEL, true).unwrap();
    let (mut output, mut item) = (channel.output().unwrap(), vec![0; bytes]);
    let put = move |number| {
        let bytes = crate::item(&mut item, number);
        output.put(number as i64, 0, bytes, Until::Forever).unwrap();
    };
    (Box::new(put), far)
}

fn home(bytes: usize) {
    let (service, path) = far::service();
    let channels = service.channels();
    far::serve(service);
    let config = Config {
        capacity: 64,
        slots: 66,
        inputs: 2,
        outputs: 2,
        loans: 1,
        ahead: 64,
        remembered: 64,
        orphans: Orphans::Keep,
        full: Full::Drop,
    };
    let options = Options { config, item_bytes: bytes as u32, processes: 4 };
    Client::connect(&path).unwrap().create(CHANNEL, &options).unwrap();
    let homes = Homes::listen(LISTEN.parse().unwrap()).unwrap();
    println!("{}", homes.address().unwrap());
    homes.serve(channels, transport(), report).unwrap();
    far::wait_for_end();
}

fn connection(kind: &str, count: u64, bytes: usize) -> (Put, Far) {
    let listener = TcpListener::bind(LISTEN).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let far = Far::start(&format!("puts-{kind}"), count, &address);
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_nodelay(true).unwrap();
    let mut message = vec![0; HEAD + bytes];
    let put = move |number| {
        stream.write_all(crate::item(&mut message, number)).unwrap();
        let mut answer = [0; HEAD];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(crate::counter_of(&answer), number);
    };
    (Box::new(put), far)
}

fn answers(address: &str, bytes: usize) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut message = vec![0; HEAD + bytes];
    while stream.read_exact(&mut message).is_ok() {
        stream.write_all(&message[..HEAD]).unwrap();
    }
}
