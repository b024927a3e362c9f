//! Collects until it is killed: `collector OUT RUNTIME SUBBUFFER SUBBUFFERS`. Takes up the recording
//! in OUT if there is one. The tests kill it again and again.

use std::path::Path;

use loopscope_collect::stream::Kind;
use loopscope_collect::{Collector, Identity, MAIN, Predicate, StreamSpec};
use loopscope_time::Frequency;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, out, runtime, subbuffer, subbuffers] = &arguments[..] else {
        panic!("four arguments are expected")
    };
    let frequency = Frequency::from_hz(1_000_000_000).expect("it is not zero");
    let identity = Identity {
        host: "h1".into(),
        clock_uuid: *b"a clock's uuid..",
        trace_uuid: *b"a trace's uuid..",
        frequency,
    };
    let main = StreamSpec {
        name: MAIN.into(),
        subbuffer: subbuffer.parse().expect("a number"),
        subbuffers: subbuffers.parse().expect("a number"),
        ..StreamSpec::default()
    };
    let often = Predicate::parse("id % 400 == 0", frequency).expect("a predicate");
    let flight = StreamSpec {
        name: "fr".into(),
        kind: Kind::FlightRecorder,
        triggers: vec![("*".into(), often)],
        ..main.clone()
    };
    let out = Path::new(out);
    let begun = out.join(".journal").exists();
    let begin = if begun { Collector::resume } else { Collector::new };
    let mut collector = begin(out, identity, None).expect("a recording");
    collector.add_source(Path::new(runtime), None, &[main, flight]).expect("a source");
    loop {
        collector.poll().expect("a look at the rings");
        std::thread::yield_now();
    }
}
