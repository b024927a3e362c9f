//! The blocks of the metadata: trace, environment, clocks, streams, events.

use std::collections::HashMap;

use super::layout::{Field, Integer, Order, Role};
use super::paths::{Builder, Root, Roots, integers, set_role};
use super::scope::Scopes;
use super::syntax::{Entry, Item, ValueKind};
use super::types::Type;
use super::{Clock, EnvEntry, EnvValue, Event, ParseError, Place, Stream, Trace, Warnings};

/// What a block sets, by key.
#[derive(Default)]
struct Block<'a> {
    entries: HashMap<&'a str, &'a Entry>,
    types: HashMap<&'a str, (Place, Type)>,
}

impl<'a> Block<'a> {
    /// Evaluates a block in a scope of its own; `roots` are the keys that have types, and `keys` those
    /// of the others that have a meaning.
    fn new(
        items: &'a [Item],
        keys: &[&str],
        roots: &[&str],
        scopes: &mut Scopes,
    ) -> Result<Block<'a>, ParseError> {
        let mut block = Block::default();
        scopes.enter();
        for item in items {
            let again = match scopes.declaration(item)? {
                None => false,
                Some(Item::Entry(Entry { place, key, .. })) if roots.contains(&key.as_str()) => {
                    return Err(place.error(format!("{key} is a type: write {key} := TYPE;")));
                }
                Some(Item::Entry(entry)) => block.entries.insert(&entry.key, entry).is_some(),
                Some(Item::Assign { place, key, .. }) if keys.contains(&key.as_str()) => {
                    return Err(place.error(format!("{key} is no type: write {key} = VALUE;")));
                }
                Some(Item::Assign { place, key, .. }) if !roots.contains(&key.as_str()) => {
                    let what = format!("unknown key {key}, which is left out with its type");
                    scopes.warnings.push(place.error(what));
                    false
                }
                Some(Item::Assign { place, key, spec }) => {
                    let meant = scopes.meaning(spec, 0)?;
                    block.types.insert(key, (*place, meant)).is_some()
                }
                Some(other) => return Err(other.place().error("expected `key = value;`")),
            };
            if again {
                return Err(item.place().error("this is set twice in its block"));
            }
        }
        scopes.leave();
        Ok(block)
    }

    fn unsigned(&self, key: &str) -> Result<Option<u64>, ParseError> {
        self.entries.get(key).map(|entry| entry.value.unsigned()).transpose()
    }

    fn signed(&self, key: &str) -> Result<i64, ParseError> {
        self.entries.get(key).map_or(Ok(0), |entry| entry.value.signed())
    }

    fn text(&self, key: &str) -> Result<Option<String>, ParseError> {
        self.entries.get(key).map(|entry| entry.value.text()).transpose()
    }

    fn uuid(&self) -> Result<Option<[u8; 16]>, ParseError> {
        self.entries.get("uuid").map(|entry| entry.value.uuid()).transpose()
    }
}

/// The trace that a metadata text of so many bytes describes.
pub(super) fn trace(items: &[Item], bytes: usize) -> Result<Trace, ParseError> {
    let blocks = |wanted: &'static str| {
        items.iter().filter_map(move |item| match item {
            Item::Block { place, keyword, items } if keyword == wanted => {
                Some((*place, items.as_slice()))
            }
            _ => None,
        })
    };
    let mut traces = blocks("trace");
    let (trace_place, trace_items) =
        traces.next().ok_or_else(|| Place::default().error("the metadata has no trace block"))?;
    if let Some((place, _)) = traces.next() {
        return Err(place.error("a second trace block"));
    }
    // Byte order and clocks first: types before these blocks use them.
    let mut warnings = Warnings::new();
    let order = byte_order(trace_place, trace_items, &mut warnings)?;
    let mut env = Vec::new();
    for (_, items) in blocks("env") {
        for item in items {
            let Entry { place, key, value } = match item {
                Item::Entry(entry) => entry,
                // Types of its own scope, which nothing in it can use.
                Item::Alias { .. } | Item::Typedef { .. } => continue,
                Item::Assign { place, key, .. } => {
                    let what = format!("{key} is no type, and is left out: write {key} = VALUE");
                    warnings.push(place.error(what));
                    continue;
                }
                other => return Err(other.place().error("expected `key = value;`")),
            };
            let value = match &value.kind {
                ValueKind::Number { .. } => EnvValue::Number(value.number()?),
                _ => EnvValue::Text(value.text()?),
            };
            env.push(EnvEntry { key: key.clone(), value, place: *place });
        }
    }
    let mut clocks: Vec<Clock> = Vec::new();
    for (place, items) in blocks("clock") {
        let mut scopes = Scopes::new(order, &[]);
        let keys =
            ["name", "uuid", "description", "freq", "precision", "offset_s", "offset", "absolute"];
        let block = Block::new(items, &keys, &[], &mut scopes)?;
        warnings.append(&mut scopes.warnings);
        let clock = clock(place, &block, &mut warnings)?;
        let what = format!("a second clock {}", clock.name);
        match clocks.iter().find(|other| other.name == clock.name) {
            Some(other) if Clock { place, ..other.clone() } == clock => {
                warnings.push(place.error(format!("{what}, the same as the first")));
            }
            Some(_) => return Err(place.error(what)),
            None => clocks.push(clock),
        }
    }
    let known = clocks.clone();
    let trace = Trace {
        uuid: None,
        order,
        env,
        clocks,
        packet_header: None,
        streams: Vec::new(),
        slots: 0,
        doubled: None,
        warnings,
        place: trace_place,
    };
    let mut reader = Reader {
        trace,
        scopes: Scopes::new(order, &known),
        builder: Builder::new(bytes),
        stream_by_id: HashMap::new(),
        events: Vec::new(),
    };
    // Types outside of blocks may stand behind those that use them.
    for item in items {
        match reader.scopes.outermost(item)? {
            None | Some(Item::Block { .. }) => {}
            Some(other) => return Err(other.place().error("expected a block or a type")),
        }
    }
    for item in items {
        if let Item::Block { place, keyword, items } = item {
            reader.block(*place, keyword, items)?;
        }
    }
    // An event may stand before its stream.
    for (place, block) in std::mem::take(&mut reader.events) {
        reader.event(place, &block)?;
    }
    let Reader { mut trace, scopes, builder, .. } = reader;
    trace.slots = builder.slots;
    trace.doubled = scopes.doubled;
    trace.warnings.extend(scopes.warnings);
    let unknown = scopes.unknown.into_iter().filter(|(at, _)| !builder.connected.contains(at));
    trace.warnings.extend(unknown.map(|(place, what)| place.error(what)));
    for stream in &mut trace.streams {
        check_ids(stream)?;
        find_clock(&mut trace.packet_header, stream)?;
    }
    Ok(trace)
}

fn byte_order(place: Place, items: &[Item], warnings: &mut Warnings) -> Result<Order, ParseError> {
    let entry = items.iter().find_map(|item| match item {
        Item::Entry(entry) if entry.key == "byte_order" => Some(entry),
        _ => None,
    });
    let entry = entry.ok_or_else(|| place.error("the trace block has no byte_order"))?;
    entry.value.order(None, warnings)
}

fn clock(place: Place, block: &Block, warnings: &mut Warnings) -> Result<Clock, ParseError> {
    block.unsigned("precision")?;
    block.entries.get("description").map(|entry| entry.value.quoted()).transpose()?;
    let frequency = block.unsigned("freq")?.unwrap_or(1_000_000_000);
    if frequency == 0 {
        return Err(place.error("the clock's frequency is zero"));
    }
    Ok(Clock {
        name: block.text("name")?.ok_or_else(|| place.error("a clock without a name"))?,
        uuid: block.uuid()?,
        frequency,
        offset_s: block.signed("offset_s")?,
        offset: block.signed("offset")?,
        absolute: match block.entries.get("absolute") {
            Some(entry) => entry.value.truth(warnings)?,
            None => false,
        },
        place,
    })
}

struct Reader<'a> {
    trace: Trace,
    scopes: Scopes<'a>,
    builder: Builder,
    stream_by_id: HashMap<u64, usize>,
    /// Evaluated where they stand, for the types that are known there.
    events: Vec<(Place, Block<'a>)>,
}

impl<'a> Reader<'a> {
    fn block(&mut self, place: Place, keyword: &str, items: &'a [Item]) -> Result<(), ParseError> {
        match keyword {
            "trace" => self.trace_block(place, items),
            "stream" => self.stream(place, items),
            "event" => {
                let keys = ["name", "id", "stream_id", "loglevel", "model.emf.uri"];
                let block = Block::new(items, &keys, &["context", "fields"], &mut self.scopes)?;
                self.events.push((place, block));
                Ok(())
            }
            // Environment and clocks were read before; call sites say nothing of the streams.
            _ => Ok(()),
        }
    }

    fn trace_block(&mut self, place: Place, items: &[Item]) -> Result<(), ParseError> {
        let keys = ["major", "minor", "uuid", "byte_order"];
        let block = Block::new(items, &keys, &["packet.header"], &mut self.scopes)?;
        let version = (block.unsigned("major")?, block.unsigned("minor")?);
        if version != (Some(1), Some(8)) {
            let shown = |part: Option<u64>| part.map_or("?".to_owned(), |part| part.to_string());
            let (major, minor) = (shown(version.0), shown(version.1));
            return Err(place.error(format!("CTF of version {major}.{minor}, known is 1.8")));
        }
        self.trace.uuid = block.uuid()?;
        let mut roots = Roots::default();
        if let Some((place, declared)) = block.types.get("packet.header") {
            self.builder.put(*place, Root::PacketHeader, declared, &mut roots)?;
            let [header, ..] = &mut roots;
            for (name, role) in [
                ("magic", Role::Magic),
                ("uuid", Role::Uuid),
                ("stream_id", Role::StreamId),
                ("stream_instance_id", Role::InstanceId),
            ] {
                set_role(*place, header, name, role)?;
            }
        }
        [self.trace.packet_header, ..] = roots;
        Ok(())
    }

    fn stream(&mut self, place: Place, items: &[Item]) -> Result<(), ParseError> {
        let roots = ["packet.context", "event.header", "event.context"];
        let block = Block::new(items, &["id"], &roots, &mut self.scopes)?;
        let id = block.unsigned("id")?.unwrap_or(0);
        let mut roots = Roots::default();
        roots[0] = self.trace.packet_header.take();
        for (key, root) in [
            ("packet.context", Root::PacketContext),
            ("event.header", Root::EventHeader),
            ("event.context", Root::StreamEventContext),
        ] {
            if let Some((place, declared)) = block.types.get(key) {
                self.builder.put(*place, root, declared, &mut roots)?;
            }
        }
        let [packet_header, mut packet_context, mut event_header, event_context, ..] = roots;
        self.trace.packet_header = packet_header;
        for (name, role) in [
            ("timestamp_begin", Role::Begin),
            ("timestamp_end", Role::End),
            ("content_size", Role::ContentSize),
            ("packet_size", Role::PacketSize),
            ("packet_seq_num", Role::Sequence),
            ("events_discarded", Role::Discarded),
            ("cpu_id", Role::Cpu),
            ("compression_scheme", Role::Compression),
            ("encryption_scheme", Role::Encryption),
        ] {
            set_role(place, &mut packet_context, name, role)?;
        }
        let header = block.types.get("event.header").map_or(place, |(place, _)| *place);
        let mut signed = None;
        integers(&mut event_header, &mut |name, integer| {
            let bad = match name {
                Some("id") => {
                    integer.role = Role::EventId;
                    integer.signed.then_some("id")
                }
                Some("timestamp") if integer.clock.is_none() => {
                    integer.signed.then_some("timestamp")
                }
                _ => None,
            };
            signed = signed.or(bad);
        });
        if let Some(name) = signed {
            return Err(header.error(format!("the event header's {name} is a signed integer")));
        }
        self.imply_clock(header, &mut event_header, |name, _| name == Some("timestamp"))?;
        self.imply_clock(place, &mut packet_context, |_, integer| integer.role == Role::Begin)?;
        let stream = Stream {
            id,
            packet_context,
            event_header,
            event_context,
            events: Vec::new(),
            by_id: HashMap::new(),
            clock: None,
            place,
        };
        self.add_stream(stream)
    }

    /// Puts those integers that are `stamps`, and do not say on which clock, on the trace's; where it
    /// has none, on one that babeltrace2 takes for granted too.
    fn imply_clock(
        &mut self,
        place: Place,
        field: &mut Option<Field>,
        stamps: impl Fn(Option<&str>, &Integer) -> bool,
    ) -> Result<(), ParseError> {
        let mut unsaid = false;
        let of = |name: Option<&str>, integer: &Integer| {
            integer.clock.is_none() && stamps(name, integer)
        };
        integers(field, &mut |name, integer| unsaid |= of(name, integer));
        if !unsaid {
            return Ok(());
        }
        let clocks = &mut self.trace.clocks;
        if clocks.is_empty() {
            clocks.push(Clock {
                name: "default".into(),
                uuid: None,
                frequency: 1_000_000_000,
                offset_s: 0,
                offset: 0,
                absolute: false,
                place,
            });
        }
        if clocks.len() > 1 {
            let names: Vec<&str> = clocks.iter().map(|clock| clock.name.as_str()).collect();
            let names = names.join(", ");
            return Err(place.error(format!(
                "a stamp that does not say which clock it is of: {names}; expected `map = \
                 clock.NAME.value` in its type"
            )));
        }
        integers(field, &mut |name, integer| {
            if of(name, integer) {
                integer.clock = Some(0);
            }
        });
        Ok(())
    }

    fn add_stream(&mut self, stream: Stream) -> Result<(), ParseError> {
        let index = self.trace.streams.len();
        if self.stream_by_id.insert(stream.id, index).is_some() {
            return Err(stream.place.error(format!("a second stream class {}", stream.id)));
        }
        self.trace.streams.push(stream);
        Ok(())
    }

    fn event(&mut self, place: Place, block: &Block) -> Result<(), ParseError> {
        if self.trace.streams.is_empty() && !block.entries.contains_key("stream_id") {
            // A trace without stream blocks has one stream of events without a header.
            self.add_stream(Stream {
                id: 0,
                packet_context: None,
                event_header: None,
                event_context: None,
                events: Vec::new(),
                by_id: HashMap::new(),
                clock: None,
                place,
            })?;
        }
        let stream_id = match block.unsigned("stream_id")? {
            Some(id) => id,
            None if self.trace.streams.len() == 1 => self.trace.streams[0].id,
            None => return Err(place.error("an event without stream_id, with several streams")),
        };
        let stream = *self.stream_by_id.get(&stream_id).ok_or_else(|| {
            let place = block.entries.get("stream_id").map_or(place, |entry| entry.place);
            place.error(format!("event of the undeclared stream class {stream_id}"))
        })?;
        let mut event = Event {
            id: block.unsigned("id")?.unwrap_or(0),
            name: block.text("name")?.ok_or_else(|| place.error("an event without a name"))?,
            uri: block.text("model.emf.uri")?,
            context: None,
            payload: None,
            place,
        };
        let stream = &mut self.trace.streams[stream];
        let mut roots = [
            self.trace.packet_header.take(),
            stream.packet_context.take(),
            stream.event_header.take(),
            stream.event_context.take(),
            None,
            None,
        ];
        for (key, root) in [("context", Root::EventContext), ("fields", Root::EventFields)] {
            if let Some((place, declared)) = block.types.get(key) {
                self.builder.put(*place, root, declared, &mut roots)?;
            }
        }
        [
            self.trace.packet_header,
            stream.packet_context,
            stream.event_header,
            stream.event_context,
            event.context,
            event.payload,
        ] = roots;
        if stream.by_id.insert(event.id, stream.events.len()).is_some() {
            return Err(place.error(format!("a second event class {}", event.id)));
        }
        stream.events.push(event);
        Ok(())
    }
}

/// Refuses a stream whose packets cannot say which of its classes an event is of.
fn check_ids(stream: &mut Stream) -> Result<(), ParseError> {
    let Stream { id, event_header, events, .. } = stream;
    let mut found = false;
    integers(event_header, &mut |_, integer| found |= integer.role == Role::EventId);
    let [_, second, ..] = &events[..] else { return Ok(()) };
    if found {
        return Ok(());
    }
    Err(second.place.error(format!(
        "a second event class of stream class {id}, whose event.header has no id to tell them apart"
    )))
}

/// The clock that the stream's integers stand for; there may be one.
fn find_clock(packet_header: &mut Option<Field>, stream: &mut Stream) -> Result<(), ParseError> {
    let Stream { packet_context, event_header, event_context, events, clock, place, .. } = stream;
    let of_events = events.iter_mut().flat_map(|event| [&mut event.context, &mut event.payload]);
    let fields = [packet_header, packet_context, event_header, event_context];
    let mut several = false;
    for field in fields.into_iter().chain(of_events) {
        integers(field, &mut |_, integer| {
            several |= clock.is_some() && integer.clock.is_some() && *clock != integer.clock;
            *clock = clock.or(integer.clock);
        });
    }
    if several { Err(place.error("the stamps of a stream are on several clocks")) } else { Ok(()) }
}
