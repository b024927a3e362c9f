//! What to record, as the desk writes it: `schema/streams.md`.

use std::time::Duration;

use loopscope_predicate::Predicate;
use loopscope_time::Frequency;
use serde::Deserialize;

use crate::stream::{Choice, Filter, Kind, StreamSpec, validate};
use crate::{Deadline, Error, Point, Role};

/// What to record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordingSpec {
    /// Streams.
    pub streams: Vec<StreamSpec>,
    /// Deadlines of messages whose path begins or ends here.
    pub deadlines: Vec<Deadline>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    version: u32,
    streams: Vec<Stream>,
    #[serde(default)]
    deadlines: Vec<Limit>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Stream {
    name: String,
    kind: Kind,
    entities: Vec<String>,
    subbuffer: u32,
    subbuffers: u32,
    spares: u32,
    filters: Vec<Sieve>,
    post_ns: u64,
    triggers: Vec<Pull>,
    on_signal: bool,
    on_death: bool,
}

impl Default for Stream {
    fn default() -> Stream {
        let StreamSpec { name, kind, subbuffer, subbuffers, spares, on_signal, on_death, .. } =
            StreamSpec::default();
        Stream {
            name,
            kind,
            entities: vec!["*".to_owned()],
            subbuffer,
            subbuffers,
            spares,
            filters: Vec::new(),
            post_ns: 0,
            triggers: Vec::new(),
            on_signal,
            on_death,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sieve {
    entities: String,
    r#where: Option<String>,
    every: Option<u64>,
    rate: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pull {
    entities: String,
    r#where: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Limit {
    path: String,
    stream: String,
    first: Point,
    last: Point,
    limit_ns: u64,
    role: Option<Role>,
}

impl RecordingSpec {
    /// Reads a text; durations in predicates become ticks of a counter of this frequency.
    pub fn from_json(text: &str, frequency: Frequency) -> Result<RecordingSpec, Error> {
        let document: Document = serde_json::from_str(text)?;
        if document.version != 1 {
            return Err(Error::RecordingVersion(document.version));
        }
        let read = |stream: Stream| stream.into_spec(frequency);
        let streams = document.streams.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
        validate(&streams)?;
        let deadlines = document.deadlines.into_iter().map(Limit::into_deadline).collect();
        Ok(RecordingSpec { streams, deadlines })
    }
}

impl Stream {
    fn into_spec(self, frequency: Frequency) -> Result<StreamSpec, Error> {
        let parse = |text: &str| Predicate::parse(text, frequency);
        let filter = |sieve: Sieve| {
            let condition = sieve.r#where.as_deref().map(parse).transpose()?;
            let Sieve { entities: glob, every, rate, .. } = sieve;
            Ok::<_, Error>(Filter { glob, condition, every, rate })
        };
        let trigger = |pull: Pull| {
            // What always holds, where any hit will do.
            let condition = parse(pull.r#where.as_deref().unwrap_or("1"))?;
            Ok::<_, Error>((pull.entities, condition))
        };
        Ok(StreamSpec {
            name: self.name,
            kind: self.kind,
            entities: self.entities.iter().map(|pattern| Choice::parse(pattern)).collect(),
            subbuffer: self.subbuffer,
            subbuffers: self.subbuffers,
            spares: self.spares,
            post: Duration::from_nanos(self.post_ns),
            filters: self.filters.into_iter().map(filter).collect::<Result<_, _>>()?,
            triggers: self.triggers.into_iter().map(trigger).collect::<Result<_, _>>()?,
            on_signal: self.on_signal,
            on_death: self.on_death,
        })
    }
}

impl Limit {
    fn into_deadline(self) -> Deadline {
        let Limit { path, stream, first, last, limit_ns, role } = self;
        Deadline { path, stream, first, last, limit: Duration::from_nanos(limit_ns), role }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<RecordingSpec, Error> {
        RecordingSpec::from_json(text, Frequency::from_hz(2_000_000_000).unwrap())
    }

    #[test]
    fn what_is_left_out_is_the_default() {
        let recording = read(r#"{"version": 1, "streams": [{}]}"#).unwrap();
        assert_eq!(recording.streams, [StreamSpec::default()]);
        assert_eq!(recording.deadlines, []);
    }

    #[test]
    fn all_of_a_flight_recorder() {
        let recording = read(
            r#"{"version": 1, "streams": [{"name": "r", "kind": "flight-recorder",
                "entities": ["pipe:*", "!pipe:noise"], "subbuffer": 512, "subbuffers": 3,
                "spares": 1, "filters": [{"entities": "a:*", "where": "duration > 1ms", "every": 2,
                "rate": 3}], "post_ns": 5, "triggers": [{"entities": "b:*"},
                {"entities": "c:*", "where": "id == 4"}], "on_signal": false, "on_death": false}],
                "deadlines": [{"path": "loop", "stream": "r", "limit_ns": 7,
                "first": {"process": "p", "entity": "a:b"},
                "last": {"process": "q", "entity": "c:d"}, "role": "last"}]}"#,
        )
        .unwrap();
        let hz = Frequency::from_hz(2_000_000_000).unwrap();
        let predicate = |text| Predicate::parse(text, hz).unwrap();
        let point = |process: &str, entity: &str| Point {
            process: process.to_owned(),
            entity: entity.to_owned(),
        };
        let spec = StreamSpec {
            name: "r".into(),
            kind: Kind::FlightRecorder,
            entities: vec![Choice::Enable("pipe:*".into()), Choice::Disable("pipe:noise".into())],
            subbuffer: 512,
            subbuffers: 3,
            spares: 1,
            post: Duration::from_nanos(5),
            filters: vec![Filter {
                glob: "a:*".into(),
                condition: Some(predicate("duration > 1ms")),
                every: Some(2),
                rate: Some(3),
            }],
            triggers: vec![("b:*".into(), predicate("1")), ("c:*".into(), predicate("id == 4"))],
            on_signal: false,
            on_death: false,
        };
        assert_eq!(spec.filters[0].condition.as_ref().unwrap().rpn(), "f:duration i:2000000 >");
        let deadline = Deadline {
            path: "loop".into(),
            stream: "r".into(),
            first: point("p", "a:b"),
            last: point("q", "c:d"),
            limit: Duration::from_nanos(7),
            role: Some(Role::Last),
        };
        assert_eq!(recording, RecordingSpec { streams: vec![spec], deadlines: vec![deadline] });
    }

    #[test]
    fn mistakes() {
        let wrong = |text: &str| read(text).unwrap_err().to_string();
        assert!(wrong("{}").contains("version"));
        assert!(wrong(r#"{"version": 2, "streams": []}"#).contains("version 2"));
        assert!(wrong(r#"{"version": 1, "streams": [{"post": 1}]}"#).contains("post"));
        assert!(wrong(r#"{"version": 1, "streams": [{"kind": "ring"}]}"#).contains("ring"));
        let twice = r#"{"version": 1, "streams": [{}, {}]}"#;
        assert!(wrong(twice).contains("another stream of this name"));
        let filter =
            r#"{"version": 1, "streams": [{"filters": [{"entities": "a", "where": "<"}]}]}"#;
        assert!(wrong(filter).contains("column 1"));
    }
}
