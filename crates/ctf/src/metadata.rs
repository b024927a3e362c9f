//! What a trace declares about itself, and its text (TSDL).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use loopscope_time::Frequency;

use crate::class::{EventClass, StreamClass};
use crate::describe::{self, ClassText, GroupText};
use crate::field::FieldType;

/// A trace: one host's streams on one clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// UUID of this trace directory.
    pub uuid: [u8; 16],
    /// Host name.
    pub host: String,
    /// UUID of the host's counter: the same in all trace directories of a host.
    pub clock_uuid: [u8; 16],
    /// Nominal frequency of the counter.
    pub frequency: Frequency,
    /// By id.
    pub streams: BTreeMap<u32, StreamClass>,
    /// Descriptions of groups, by group.
    pub groups: BTreeMap<String, String>,
}

/// The aliases of integers and floating point in metadata.
pub const TYPES: &str = "\
typealias integer { size = 8; align = 8; signed = false; } := uint8_t;
typealias integer { size = 16; align = 8; signed = false; } := uint16_t;
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 64; align = 8; signed = false; } := uint64_t;
typealias integer { size = 8; align = 8; signed = true; } := int8_t;
typealias integer { size = 16; align = 8; signed = true; } := int16_t;
typealias integer { size = 32; align = 8; signed = true; } := int32_t;
typealias integer { size = 64; align = 8; signed = true; } := int64_t;
typealias floating_point { exp_dig = 8; mant_dig = 24; align = 8; } := float32_t;
typealias floating_point { exp_dig = 11; mant_dig = 53; align = 8; } := float64_t;
";

const STREAM: &str = "\
\tpacket.context := struct {
\t\tcounter64_t timestamp_begin;
\t\tcounter64_t timestamp_end;
\t\tuint64_t content_size;
\t\tuint64_t packet_size;
\t\tuint64_t packet_seq_num;
\t\tuint64_t events_discarded;
\t\tuint32_t pid;
\t\tuint32_t tid;
\t};
\tevent.header := struct { uint16_t id; counter32_t timestamp; };
";

impl Metadata {
    /// The text of the trace's `metadata` file. Classes must be as [`EventClass`] describes them:
    /// of others the reader refuses the text.
    pub fn to_tsdl(&self) -> String {
        let mut out = format!("/* CTF 1.8 */\n\n{TYPES}\n");
        let uuid = format_uuid(&self.uuid);
        let clock_uuid = format_uuid(&self.clock_uuid);
        let hz = self.frequency.hz();
        // Infallible: writing to a String.
        let _ = write!(
            out,
            "trace {{\n\tmajor = 1;\n\tminor = 8;\n\tuuid = \"{uuid}\";\n\tbyte_order = le;\n\
             \tpacket.header := struct {{ uint32_t magic; uint8_t uuid[16]; uint32_t stream_id; }};\n}};\n\n\
             env {{\n\ttracer_name = \"loopscope\";\n\thost = {};\n",
            quote(&self.host)
        );
        for stream in self.streams.values() {
            let _ = writeln!(out, "\tprocess_{} = {};", stream.id, quote(&stream.process));
            if stream.kernel {
                let _ = writeln!(out, "\tkernel_{} = 1;", stream.id);
            }
        }
        for (i, (group, description)) in self.groups.iter().enumerate() {
            let (group, description) = (group.clone(), description.clone());
            let text = describe::json(&GroupText { group, description });
            let _ = writeln!(out, "\tgroup_{i} = {};", quote(&text));
        }
        for stream in self.streams.values() {
            for event in &stream.events {
                if let Some(text) = ClassText::of(event) {
                    let text = quote(&describe::json(&text));
                    let _ = writeln!(out, "\tevent_{}_{} = {text};", stream.id, event.id);
                }
            }
        }
        let _ = write!(
            out,
            "}};\n\nclock {{\n\tname = \"counter\";\n\tuuid = \"{clock_uuid}\";\n\
             \tdescription = \"raw counter\";\n\tfreq = {hz};\n\toffset_s = 0;\n\toffset = 0;\n}};\n\n\
             typealias integer {{ size = 64; align = 8; signed = false; map = clock.counter.value; }} := counter64_t;\n\
             typealias integer {{ size = 32; align = 8; signed = false; map = clock.counter.value; }} := counter32_t;\n"
        );
        for stream in self.streams.values() {
            let _ = write!(out, "\nstream {{\n\tid = {};\n{STREAM}}};\n", stream.id);
            for event in &stream.events {
                write_event(&mut out, stream.id, event);
            }
        }
        out
    }
}

fn write_event(out: &mut String, stream_id: u32, event: &EventClass) {
    let name = quote(&format!("{}:{}", event.group, event.name));
    let _ = write!(
        out,
        "\nevent {{\n\tname = {name};\n\tid = {};\n\tstream_id = {stream_id};\n",
        event.id
    );
    if !event.file.is_empty() {
        let place = quote(&format!("file:{}:{}", event.file, event.line));
        let _ = writeln!(out, "\tmodel.emf.uri = {place};");
    }
    // CTF readers drop one leading underscore: it keeps field names apart from TSDL's keywords.
    let _ = write!(out, "\tfields := struct {{ int64_t _id;");
    for (field, field_type) in &event.fields {
        let _ = match field_type {
            FieldType::Bytes => {
                let length = length_name(event, field);
                write!(out, " uint32_t _{length}; uint8_t _{field}[_{length}];")
            }
            FieldType::Buckets => {
                write!(
                    out,
                    " uint32_t _{field}; uint16_t _bucket[_{field}]; uint64_t _n[_{field}];"
                )
            }
            plain => write!(out, " {} _{field};", plain.tsdl()),
        };
    }
    let _ = write!(out, " }};\n}};\n");
}

/// A name for the length of the bytes in `field` that no field of the class has.
fn length_name(event: &EventClass, field: &str) -> String {
    let mut name = format!("{field}_length");
    while event.fields.iter().any(|(other, _)| *other == name) {
        name.push('_');
    }
    name
}

/// A text as metadata writes it; control characters are lost.
pub fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => out.push('?'),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// In groups of hexadecimal digits.
pub fn format_uuid(uuid: &[u8; 16]) -> String {
    let mut out = String::new();
    for (i, byte) in uuid.iter().enumerate() {
        if [4, 6, 8, 10].contains(&i) {
            out.push('-');
        }
        let _ = write!(out, "{byte:02x}");
    }
    out
}
