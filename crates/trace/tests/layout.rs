//! The C core and Rust agree on every offset that they share.

use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use loopscope_ctf::{FieldType, packet};
use loopscope_trace::layout::{
    ACTIVE, BARE, CAUSES, CELLS_MAGIC, CONTROL_MAGIC, Cells, Control, FILTER_BLOCK, FILTER_BLOCKS,
    FLIGHT_RECORDER, FREE, LOG_BUCKETS, MAX_SITES, MOST_CELLS, NORMAL, RING_FIRST, RING_MAGIC,
    Ring, SLOW, STREAMS, Section, Stream, TAKEN, VERSION, site,
};
use loopscope_trace::{Field, Site};

/// Prints each expression's value as the C compiler sees it.
fn ask_c(expressions: &[&str]) -> Vec<u64> {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("ask.c");
    let program = dir.path().join("ask");
    let prints: String = expressions
        .iter()
        .map(|e| format!("    printf(\"%llu\\n\", (unsigned long long)({e}));\n"))
        .collect();
    let text = format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include \"layout.h\"\n\
         #include \"loopscope/trace.h\"\n\
         void loopscope_register(struct loopscope_site *start, struct loopscope_site *stop)\n\
         {{\n    (void)start, (void)stop;\n}}\n\
         int main(void)\n{{\n{prints}}}\n"
    );
    std::fs::write(&source, text).unwrap();
    let of_crate = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut compiler = Command::new("cc");
    compiler.arg("-I").arg(of_crate.join("c")).arg("-I").arg(of_crate.join("../../include"));
    let status = compiler.arg(&source).arg("-o").arg(&program).status();
    assert!(status.unwrap().success());
    let output = Command::new(&program).output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(|l| l.parse().unwrap()).collect()
}

macro_rules! same {
    ($($c:literal => $rust:expr),* $(,)?) => {
        let values = ask_c(&[$($c),*]);
        let expected = [$(($c, $rust as u64)),*];
        for ((name, rust), c) in expected.into_iter().zip(values) {
            assert_eq!(c, rust, "{name}");
        }
    };
}

#[test]
fn control_and_ring_files() {
    same! {
        "LOOPSCOPE_CONTROL_MAGIC" => CONTROL_MAGIC,
        "LOOPSCOPE_RING_MAGIC" => RING_MAGIC,
        "LOOPSCOPE_CELLS_MAGIC" => CELLS_MAGIC,
        "LOOPSCOPE_LAYOUT_VERSION" => VERSION,
        "LOOPSCOPE_MAX_SITES" => MAX_SITES,
        "LOOPSCOPE_STREAMS" => STREAMS,
        "LOOPSCOPE_SLOW" => SLOW,
        "LOOPSCOPE_CAUSES" => CAUSES.len(),
        "LOOPSCOPE_NORMAL" => NORMAL,
        "LOOPSCOPE_FLIGHT_RECORDER" => FLIGHT_RECORDER,
        "LOOPSCOPE_FREE" => FREE,
        "LOOPSCOPE_TAKEN" => TAKEN,
        "LOOPSCOPE_ACTIVE" => ACTIVE,
        "LOOPSCOPE_BARE" => BARE,
        "LOOPSCOPE_FILTER_BLOCK" => FILTER_BLOCK,
        "LOOPSCOPE_FILTER_BLOCKS" => FILTER_BLOCKS,
        "LOOPSCOPE_MOST_CELLS" => MOST_CELLS,
        "LOOPSCOPE_LOG_BUCKETS" => LOG_BUCKETS,
        "offsetof(struct loopscope_site, kind)" => site::KIND,
        "offsetof(struct loopscope_site, group)" => site::GROUP,
        "offsetof(struct loopscope_site, name)" => site::NAME,
        "offsetof(struct loopscope_site, fields)" => site::FIELDS,
        "offsetof(struct loopscope_site, file)" => site::FILE,
        "offsetof(struct loopscope_site, line)" => site::LINE,
        "sizeof(struct loopscope_site)" => size_of::<Site>(),
        "sizeof(struct loopscope_control)" => size_of::<Control>(),
        "offsetof(struct loopscope_control, version)" => offset_of!(Control, version),
        "offsetof(struct loopscope_control, pid)" => offset_of!(Control, pid),
        "offsetof(struct loopscope_control, site_count)" => offset_of!(Control, site_count),
        "offsetof(struct loopscope_control, sites_refused)" => offset_of!(Control, sites_refused),
        "offsetof(struct loopscope_control, orphans)" => offset_of!(Control, orphans),
        "offsetof(struct loopscope_control, pid_namespace)" => offset_of!(Control, pid_namespace),
        "offsetof(struct loopscope_control, parent_stamp)" => offset_of!(Control, parent_stamp),
        "offsetof(struct loopscope_control, frequency)" => offset_of!(Control, frequency),
        "offsetof(struct loopscope_control, parent_pid)" => offset_of!(Control, parent_pid),
        "offsetof(struct loopscope_control, cells)" => offset_of!(Control, cells),
        "offsetof(struct loopscope_control, process)" => offset_of!(Control, process),
        "offsetof(struct loopscope_control, sites_error)" => offset_of!(Control, sites_error),
        "offsetof(struct loopscope_control, forked)" => offset_of!(Control, forked),
        "offsetof(struct loopscope_control, heir)" => offset_of!(Control, heir),
        "offsetof(struct loopscope_control, flags)" => offset_of!(Control, flags),
        "offsetof(struct loopscope_control, streams)" => offset_of!(Control, streams),
        "LOOPSCOPE_CONTROL_HEAD" => offset_of!(Control, sections),
        "offsetof(struct loopscope_control, sections)" => offset_of!(Control, sections),
        "sizeof(struct loopscope_stream)" => size_of::<Stream>(),
        "offsetof(struct loopscope_stream, kind)" => offset_of!(Stream, kind),
        "offsetof(struct loopscope_stream, subbuffer_count)" => offset_of!(Stream, subbuffer_count),
        "offsetof(struct loopscope_stream, spares)" => offset_of!(Stream, spares),
        "offsetof(struct loopscope_stream, generation)" => offset_of!(Stream, generation),
        "offsetof(struct loopscope_stream, post)" => offset_of!(Stream, post),
        "offsetof(struct loopscope_stream, trigger)" => offset_of!(Stream, trigger),
        "offsetof(struct loopscope_stream, freeze)" => offset_of!(Stream, freeze),
        "offsetof(struct loopscope_stream, trigger_site)" => offset_of!(Stream, trigger_site),
        "offsetof(struct loopscope_stream, refusal)" => offset_of!(Stream, refusal),
        "offsetof(struct loopscope_stream, trigger_id)" => offset_of!(Stream, trigger_id),
        "offsetof(struct loopscope_stream, uncounted)" => offset_of!(Stream, uncounted),
        "offsetof(struct loopscope_stream, small)" => offset_of!(Stream, small),
        "sizeof(struct loopscope_section)" => size_of::<Section>(),
        "offsetof(struct loopscope_section, drops[1][2])" =>
            offset_of!(Section, drops) + 8 * (CAUSES.len() + 2),
        "offsetof(struct loopscope_section, filtered)" => offset_of!(Section, filtered),
        "offsetof(struct loopscope_section, filter)" => offset_of!(Section, filter),
        "offsetof(struct loopscope_section, filter_changes)" => offset_of!(Section, filter_changes),
        "offsetof(struct loopscope_section, filters_ready)" => offset_of!(Section, filters_ready),
        "offsetof(struct loopscope_section, counted)" => offset_of!(Section, counted),
        "offsetof(struct loopscope_section, window)" => offset_of!(Section, window),
        "offsetof(struct loopscope_section, block_taken)" => offset_of!(Section, block_taken),
        "offsetof(struct loopscope_section, block)" => offset_of!(Section, block),
        "sizeof(struct loopscope_ring)" => size_of::<Ring>(),
        "offsetof(struct loopscope_ring, first)" => RING_FIRST,
        "offsetof(struct loopscope_ring, data)" => offset_of!(Ring, data),
        "offsetof(struct loopscope_ring, pid)" => offset_of!(Ring, pid),
        "offsetof(struct loopscope_ring, stream)" => offset_of!(Ring, stream),
        "offsetof(struct loopscope_ring, generation)" => offset_of!(Ring, generation),
        "offsetof(struct loopscope_ring, kind)" => offset_of!(Ring, kind),
        "offsetof(struct loopscope_ring, subbuffer_size)" => offset_of!(Ring, subbuffer_size),
        "offsetof(struct loopscope_ring, subbuffer_count)" => offset_of!(Ring, subbuffer_count),
        "offsetof(struct loopscope_ring, head)" => offset_of!(Ring, head),
        "offsetof(struct loopscope_ring, committed)" => offset_of!(Ring, committed),
        "offsetof(struct loopscope_ring, limit)" => offset_of!(Ring, limit),
        "offsetof(struct loopscope_ring, emitted)" => offset_of!(Ring, emitted),
        "offsetof(struct loopscope_ring, discarded)" => offset_of!(Ring, discarded),
        "offsetof(struct loopscope_ring, reentered)" => offset_of!(Ring, reentered),
        "offsetof(struct loopscope_ring, tid)" => offset_of!(Ring, tid),
        "offsetof(struct loopscope_ring, tail)" => offset_of!(Ring, tail),
        "offsetof(struct loopscope_ring, revoked)" => offset_of!(Ring, revoked),
        "offsetof(struct loopscope_cells, cell)" => size_of::<Cells>(),
        "offsetof(struct loopscope_cells, stream)" => offset_of!(Cells, stream),
        "offsetof(struct loopscope_cells, generation)" => offset_of!(Cells, generation),
        "offsetof(struct loopscope_cells, count)" => offset_of!(Cells, count),
    }
    // What filters need is allocated by itself.
    let filters = offset_of!(Control, sections) + offset_of!(Section, counted);
    assert!(filters.is_multiple_of(4096) && size_of::<Section>().is_multiple_of(4096));
    assert!(offset_of!(Ring, head).is_multiple_of(64) && offset_of!(Ring, tail).is_multiple_of(64));
}

#[test]
fn packets() {
    same! {
        "LOOPSCOPE_PACKET_MAGIC" => packet::MAGIC,
        "LOOPSCOPE_RECORD" => packet::RECORD,
        "sizeof(struct loopscope_packet)" => packet::RECORDS,
        "offsetof(struct loopscope_packet, uuid)" => packet::UUID,
        "offsetof(struct loopscope_packet, stream_id)" => packet::STREAM_ID,
        "offsetof(struct loopscope_packet, begin)" => packet::TIMESTAMP_BEGIN,
        "offsetof(struct loopscope_packet, end)" => packet::TIMESTAMP_END,
        "offsetof(struct loopscope_packet, content_bits)" => packet::CONTENT_SIZE,
        "offsetof(struct loopscope_packet, packet_bits)" => packet::PACKET_SIZE,
        "offsetof(struct loopscope_packet, sequence)" => packet::SEQUENCE,
        "offsetof(struct loopscope_packet, discarded)" => packet::DISCARDED,
        "offsetof(struct loopscope_packet, pid)" => packet::PID,
        "offsetof(struct loopscope_packet, tid)" => packet::TID,
    }
}

#[test]
fn field_types() {
    fn check<F: Field>(field_type: FieldType) {
        assert_eq!((F::CODE, F::SIZE), (field_type as u8, field_type.size().unwrap_or(0)));
    }
    check::<u8>(FieldType::U8);
    check::<u16>(FieldType::U16);
    check::<u32>(FieldType::U32);
    check::<u64>(FieldType::U64);
    check::<i8>(FieldType::I8);
    check::<i16>(FieldType::I16);
    check::<i32>(FieldType::I32);
    check::<i64>(FieldType::I64);
    check::<f32>(FieldType::F32);
    check::<f64>(FieldType::F64);
    check::<&str>(FieldType::String);
    check::<&[u8]>(FieldType::Bytes);
    assert_eq!(loopscope_trace::FieldType::String as u8, FieldType::String as u8);
    assert_eq!(loopscope_trace::FieldType::Bytes as u8, FieldType::Bytes as u8);
}
