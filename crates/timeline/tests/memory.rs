//! Whatever is wrong with an input, reading it takes no more memory than a constant and so much for
//! each of its bytes: no length in it is believed.

use std::fs;
use std::sync::Mutex;

use any_layout::{damaged, packet, read, stream, write};
use lab::{Written, event, metadata, packets, plain};
use loopscope_ctf::FieldType;
use loopscope_timeline::Timeline;
use peak_alloc::PeakAlloc;

#[path = "lab/any_layout.rs"]
mod any_layout;
mod lab;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// One measures at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Memory that reading may take, in addition to [`EACH`] for a byte of the input; and what writing
/// tables takes beyond that, whose compression alone has half of it.
const READING: usize = 128 << 10;
const WRITING: usize = 2 << 20;
const EACH: usize = 16;

/// What the work found, if no more was allocated at once than what `least` and the input allow.
fn within<T>(least: usize, size: usize, what: &str, work: impl FnOnce() -> T) -> T {
    HEAP.reset_peak_usage();
    let before = HEAP.current_usage();
    let found = work();
    let used = HEAP.peak_usage().saturating_sub(before);
    assert!(used <= least + EACH * size, "{what}: {used} bytes for {size}");
    found
}

fn place() -> tempfile::TempDir {
    // In memory where that can be: some disks take milliseconds to overwrite a file.
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

#[test]
fn another_tool_s_trace() {
    let _alone = ALONE.lock();
    let place = place();
    let (trace, out) = (place.path().join("trace"), place.path().join("out"));
    let text = any_layout::metadata("le").into_bytes();
    let long: Vec<u8> = (0..2000).flat_map(|sequence| packet(false, sequence)).collect();
    let first = packet(false, 0).len();
    // Damage to one packet of many.
    let of_many = damaged(&long[..first]).map(|bytes| [&bytes, &long[first..]].concat());
    let short = stream(false);
    let inputs = damaged(&text)
        .map(|text| (text, short.clone()))
        .chain(damaged(&short).map(|stream| (text.clone(), stream)))
        .chain(of_many.step_by(40).map(|stream| (text.clone(), stream)));
    write(&trace, &text, &short);
    read(&trace, Some(&out)).unwrap();
    fs::remove_dir_all(&out).unwrap();
    for (number, (text, stream)) in inputs.enumerate() {
        write(&trace, &text, &stream);
        let size = text.len() + stream.len();
        let what = format!("input {number}");
        let read_so_far = within(READING, size, &what, || read(&trace, None).is_ok());
        if number % 8 == 0 {
            let written = within(READING + WRITING, size, &what, || read(&trace, Some(&out)));
            assert_eq!(written.is_ok(), read_so_far, "{what}");
            if written.is_ok() {
                fs::remove_dir_all(&out).unwrap();
            }
        }
    }
}

#[test]
fn streams_of_a_run() {
    let _alone = ALONE.lock();
    let place = place();
    let dir = place.path().join("h");
    fs::create_dir_all(dir.join("trace")).unwrap();
    let fields = [("text", FieldType::String), ("data", FieldType::Bytes)];
    let text = metadata(vec![event(0, "sent", &fields)]).to_tsdl();
    fs::write(dir.join("trace/metadata"), text).unwrap();
    let record = |i: u64| (0, 100 * i, i.cast_signed(), b"abc\0\x02\0\0\0xy".to_vec());
    let records: Vec<Written> = (0..6).map(record).collect();
    let timeline = || {
        let mut timeline = Timeline::new();
        timeline.add_host(&dir, "h", plain()).unwrap();
        timeline
    };
    timeline().write(place.path(), &mut |_, _| true).unwrap();
    for (number, bytes) in damaged(&packets(0, &records)).enumerate() {
        fs::write(dir.join("trace/node-7-0"), &bytes).unwrap();
        let what = format!("input {number}");
        within(READING, bytes.len(), &what, || timeline().decode().unwrap());
        if number % 8 == 0 {
            let least = READING + WRITING;
            within(least, bytes.len(), &what, || {
                timeline().write(place.path(), &mut |_, _| true).unwrap()
            });
        }
    }
}
