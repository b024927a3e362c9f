//! zenoh: <https://zenoh.io>, between two peers that know each other's address.

use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use zenoh::handlers::{FifoChannel, FifoChannelHandler};
use zenoh::pubsub::{Publisher, Subscriber};
use zenoh::qos::CongestionControl;
use zenoh::sample::Sample;
use zenoh::{Config, Session, Wait as _};

use super::{BYTES, End, LISTEN};
use crate::far::Far;

const THERE: &str = "stm-bench/there";
const BACK: &str = "stm-bench/back";

struct Zenoh {
    publisher: Publisher<'static>,
    subscriber: Subscriber<FifoChannelHandler<Sample>>,
    bytes: [u8; BYTES],
    _session: Session,
}

impl Zenoh {
    /// Waits until the other host gets what this one sends.
    fn end(session: Session, [own, others]: [&'static str; 2], mode: &str) -> Box<dyn End> {
        let subscriber = session.declare_subscriber(others).with(FifoChannel::new(64));
        let subscriber = subscriber.wait().unwrap();
        let publisher = session.declare_publisher(own);
        let publisher = publisher.congestion_control(CongestionControl::Block);
        // Items of a stream may be sent together.
        let publisher = publisher.express(mode == "ping").wait().unwrap();
        while !publisher.matching_status().wait().unwrap().matching() {
            thread::sleep(Duration::from_millis(1));
        }
        Box::new(Zenoh { publisher, subscriber, bytes: [0; BYTES], _session: session })
    }
}

impl End for Zenoh {
    fn put(&mut self, number: u64) {
        self.publisher.put(crate::item(&mut self.bytes, number)).wait().unwrap();
    }

    fn get(&mut self) -> u64 {
        crate::counter_of(&self.subscriber.recv().unwrap().payload().to_bytes())
    }
}

/// A session of a peer that listens at addresses and connects to others.
fn session(listen: &str, connect: &str) -> Session {
    let mut config = Config::default();
    for (key, value) in [
        ("mode", "\"peer\""),
        ("scouting/multicast/enabled", "false"),
        ("scouting/gossip/enabled", "false"),
        ("listen/endpoints", listen),
        ("connect/endpoints", connect),
    ] {
        config.insert_json5(key, value).unwrap();
    }
    zenoh::open(config).wait().unwrap()
}

pub fn near(start: impl FnOnce(&str) -> Far, mode: &str) -> (Box<dyn End>, Far) {
    let address = TcpListener::bind(LISTEN).unwrap().local_addr().unwrap();
    let endpoint = format!("tcp/{address}");
    let session = session(&format!("[\"{endpoint}\"]"), "[]");
    let far = start(&endpoint);
    (Zenoh::end(session, [THERE, BACK], mode), far)
}

pub fn far(endpoint: &str, mode: &str) -> Box<dyn End> {
    Zenoh::end(session("[]", &format!("[\"{endpoint}\"]")), [BACK, THERE], mode)
}
