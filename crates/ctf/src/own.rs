//! Recognises the dialect that [`Metadata::to_tsdl`] writes in what a metadata text declares.
//! Anything else is refused with its line: a trace is never half understood.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use loopscope_time::Frequency;

use crate::class::{EventClass, StreamClass};
use crate::describe::{ClassText, GroupText};
use crate::field::FieldType;
use crate::metadata::Metadata;
use crate::tsdl::{
    EnvEntry, EnvValue, Event, Field, Integer, List, ListLength, Member, Order, ParseError, Place,
    Role, Stream, Trace,
};

impl Metadata {
    /// Reads the text of a `metadata` file of this dialect.
    pub fn parse(text: &str) -> Result<Metadata, ParseError> {
        Metadata::of(&Trace::read(text.as_bytes())?)
    }

    /// What a trace of this dialect declares.
    pub fn of(trace: &Trace) -> Result<Metadata, ParseError> {
        let place = trace.place;
        if trace.order != Order::Little {
            return Err(place.error("only little-endian traces are loopscope's"));
        }
        let uuid = trace.uuid.ok_or_else(|| place.error("the trace has no UUID"))?;
        let mut env = Env::new(&trace.env)?;
        let host = env.host.take().ok_or_else(|| place.error("env has no host"))?;
        let [clock] = trace.clocks.as_slice() else {
            return Err(place.error("a trace of loopscope's has one clock"));
        };
        let clock_uuid = clock.uuid.ok_or_else(|| clock.place.error("the clock has no UUID"))?;
        let frequency = Frequency::from_hz(clock.frequency)
            .ok_or_else(|| clock.place.error("the clock's frequency is zero"))?;
        let mut streams = BTreeMap::new();
        for stream in &trace.streams {
            let class = stream_class(trace, stream, &mut env)?;
            streams.insert(class.id, class);
        }
        if let Some(((stream, class), (place, _))) = env.classes.first_key_value() {
            let what = format!("stream class {stream} has no event class {class}");
            return Err(place.error(what));
        }
        Ok(Metadata { uuid, host, clock_uuid, frequency, streams, groups: env.groups })
    }
}

/// The layout of packets and event headers, as this dialect's writer declares it.
fn layout() -> &'static Trace {
    static LAYOUT: OnceLock<Trace> = OnceLock::new();
    LAYOUT.get_or_init(|| {
        let class =
            StreamClass { id: 0, process: String::new(), kernel: false, events: Vec::new() };
        let metadata = Metadata {
            uuid: [0; 16],
            host: String::new(),
            clock_uuid: [0; 16],
            frequency: Frequency::from_hz(1).expect("one is not zero"),
            streams: BTreeMap::from([(0, class)]),
            groups: BTreeMap::new(),
        };
        Trace::read(metadata.to_tsdl().as_bytes()).expect("what the writer writes can be read")
    })
}

fn stream_class(trace: &Trace, stream: &Stream, env: &mut Env) -> Result<StreamClass, ParseError> {
    let place = stream.place;
    let id = small(place, stream.id)?;
    let process = env
        .processes
        .get(&id)
        .cloned()
        .ok_or_else(|| place.error(format!("env has no process_{id} for this stream")))?;
    let own = &layout().streams[0];
    let same = trace.packet_header == layout().packet_header
        && stream.packet_context == own.packet_context
        && stream.event_header == own.event_header
        && stream.event_context.is_none();
    if !same {
        return Err(place.error("packets or event headers have not loopscope's layout"));
    }
    let mut events = Vec::new();
    for event in &stream.events {
        let mut class = event_class(event)?;
        if let Some((place, text)) = env.classes.remove(&(id, class.id)) {
            text.apply(&mut class).map_err(|what| place.error(what))?;
        }
        check_fields(&class, event.place)?;
        events.push(class);
    }
    let kernel = env.kernels.contains(&id);
    Ok(StreamClass { id, process, kernel, events })
}

/// What the `env` block says.
#[derive(Default)]
struct Env {
    host: Option<String>,
    processes: BTreeMap<u32, String>,
    /// Stream classes that are kernels.
    kernels: BTreeSet<u32>,
    groups: BTreeMap<String, String>,
    /// By stream class and event class.
    classes: BTreeMap<(u32, u16), (Place, ClassText)>,
}

impl Env {
    fn new(entries: &[EnvEntry]) -> Result<Env, ParseError> {
        let mut env = Env::default();
        for EnvEntry { key, value, place } in entries {
            let place = *place;
            if let (Some(id), EnvValue::Number(1)) = (key.strip_prefix("kernel_"), value) {
                env.kernels.insert(number(place, id)?);
            }
            let EnvValue::Text(value) = value else { continue };
            if key == "host" {
                env.host = Some(value.clone());
            } else if let Some(id) = key.strip_prefix("process_") {
                env.processes.insert(number(place, id)?, value.clone());
            } else if key.starts_with("group_") {
                let text: GroupText = json(place, value)?;
                let group = text.group.clone();
                if env.groups.insert(text.group, text.description).is_some() {
                    return Err(place.error(format!("group {group:?} is described twice")));
                }
            } else if let Some(ids) = key.strip_prefix("event_") {
                let (stream, class) = ids.split_once('_').unwrap_or((ids, ""));
                let ids = (number(place, stream)?, number(place, class)?);
                env.classes.insert(ids, (place, json(place, value)?));
            }
        }
        Ok(env)
    }
}

/// Kinds with fields of their own must have exactly these.
fn check_fields(class: &EventClass, place: Place) -> Result<(), ParseError> {
    let own = class.kind.fields();
    let right = match own {
        Some(own) => {
            class.fields.iter().map(|(name, t)| (name.as_str(), *t)).eq(own.iter().copied())
        }
        None => class.fields.iter().all(|(_, t)| *t != FieldType::Buckets),
    };
    if right {
        return Ok(());
    }
    let (group, name, kind) = (&class.group, &class.name, class.kind.name());
    Err(place.error(format!("{group}:{name} has other fields than a class of kind {kind}")))
}

fn event_class(event: &Event) -> Result<EventClass, ParseError> {
    let place = event.place;
    let (group, name) = event
        .name
        .split_once(':')
        .ok_or_else(|| place.error(format!("event name {:?} is not group:name", event.name)))?;
    let (file, line) = match &event.uri {
        None => (String::new(), 0),
        Some(uri) => {
            let at = uri.strip_prefix("file:").and_then(|rest| rest.rsplit_once(':'));
            let (file, line) =
                at.ok_or_else(|| place.error(format!("{uri:?} is not file:PATH:LINE")))?;
            (file.to_owned(), number(place, line)?)
        }
    };
    if event.context.is_some() {
        return Err(place.error("events of loopscope's have no context of their own"));
    }
    let payload = event.payload.as_ref().ok_or_else(|| place.error("event without fields"))?;
    let mut fields = fields(place, payload.members())?;
    if fields.first() != Some(&("id".to_owned(), FieldType::I64)) {
        return Err(place.error("the first field is not `int64_t _id`"));
    }
    fields.remove(0);
    Ok(EventClass {
        id: small(place, event.id)?,
        group: group.to_owned(),
        name: name.to_owned(),
        fields,
        file,
        line,
        ..EventClass::default()
    })
}

/// A field for each member, but for lists: bytes are a length and a list of bytes, a histogram's
/// buckets a length and two lists.
fn fields(place: Place, members: &[Member]) -> Result<Vec<(String, FieldType)>, ParseError> {
    let mut fields: Vec<(String, FieldType)> = Vec::new();
    // The slot of the previous field, if lengths refer to it.
    let mut slot = None;
    let mut members = members.iter();
    while let Some(member) = members.next() {
        let name = member.plain_name().to_owned();
        let Field::List(list) = &member.field else {
            let plain = plain(&member.field)
                .ok_or_else(|| place.error(format!("{name} is of no type of loopscope's")))?;
            fields.push((name, plain));
            slot = match &member.field {
                Field::Integer(integer) => integer.slot,
                _ => None,
            };
            continue;
        };
        let length = fields.pop().filter(|(_, t)| *t == FieldType::U32 && is_of(list, slot));
        let Some((length, _)) = length else {
            let what = format!("the length of {name} is not the uint32_t before it");
            return Err(place.error(what));
        };
        match (plain(&list.element), member.name.as_str()) {
            (Some(FieldType::U8), _) => fields.push((name, FieldType::Bytes)),
            (Some(FieldType::U16), "_bucket") => {
                let counts = members.next().filter(|counts| counts.name == "_n");
                let right = counts.is_some_and(|counts| match &counts.field {
                    Field::List(counts) => {
                        is_of(counts, slot) && plain(&counts.element) == Some(FieldType::U64)
                    }
                    _ => false,
                });
                if !right {
                    let what = format!("no uint64_t _n[_{length}] after _bucket");
                    return Err(place.error(what));
                }
                fields.push((length, FieldType::Buckets));
            }
            _ => return Err(place.error(format!("{name} is a list of no type of loopscope's"))),
        }
        slot = None;
    }
    Ok(fields)
}

fn is_of(list: &List, slot: Option<usize>) -> bool {
    slot.is_some_and(|slot| list.length == ListLength::Slot(slot))
}

fn plain(field: &Field) -> Option<FieldType> {
    let own = |align: u64, order: Order| align == 8 && order == Order::Little;
    match field {
        Field::Integer(Integer {
            size,
            align,
            signed,
            order,
            text: false,
            clock: None,
            role,
            ..
        }) if own(*align, *order) && *role == Role::Data => Some(match (size, signed) {
            (8, false) => FieldType::U8,
            (16, false) => FieldType::U16,
            (32, false) => FieldType::U32,
            (64, false) => FieldType::U64,
            (8, true) => FieldType::I8,
            (16, true) => FieldType::I16,
            (32, true) => FieldType::I32,
            (64, true) => FieldType::I64,
            _ => return None,
        }),
        Field::Float(float) if own(float.align, float.order) => {
            Some(if float.size == 32 { FieldType::F32 } else { FieldType::F64 })
        }
        Field::String => Some(FieldType::String),
        _ => None,
    }
}

fn json<'a, T: serde::Deserialize<'a>>(place: Place, text: &'a str) -> Result<T, ParseError> {
    serde_json::from_str(text).map_err(|e| place.error(e.to_string()))
}

fn number<N: std::str::FromStr>(place: Place, word: &str) -> Result<N, ParseError> {
    word.parse().map_err(|_| place.error(format!("{word:?} is not a number in range")))
}

fn small<N: TryFrom<u64>>(place: Place, id: u64) -> Result<N, ParseError> {
    N::try_from(id).map_err(|_| place.error(format!("the id {id} is too large")))
}
