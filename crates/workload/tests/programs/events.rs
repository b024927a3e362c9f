//! Reads what ended programs recorded, straight from their ring files.

use std::mem::offset_of;
use std::path::Path;

use loopscope_ctf::packet::{self, get_u16, get_u32, get_u64};
use loopscope_trace::layout::{RING_MAGIC, Ring};

/// A record.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// `group:name`.
    pub entity: String,
    pub id: i64,
    /// Low half of the counter.
    pub stamp: u32,
    /// The fields as written, and as the site describes them.
    pub payload: Vec<u8>,
    pub fields: String,
}

impl Event {
    /// Ticks from `earlier` to this event; they are far less than 2^31 apart.
    pub fn since(&self, earlier: &Event) -> i32 {
        self.stamp.wrapping_sub(earlier.stamp).cast_signed()
    }
}

/// What the one program that recorded below `runtime_dir` recorded, in its order.
pub fn events(runtime_dir: &Path) -> Vec<Event> {
    let process = std::fs::read_dir(runtime_dir).unwrap().map(|entry| entry.unwrap().path());
    let process: Vec<_> = process.filter(|path| path.is_dir()).collect();
    assert_eq!(process.len(), 1, "one process records in {}", runtime_dir.display());
    let sites = std::fs::read_to_string(process[0].join("sites")).unwrap();
    let sites: Vec<Vec<&str>> = sites.lines().map(|line| line.split('\t').collect()).collect();

    let mut events = Vec::new();
    for entry in std::fs::read_dir(&process[0]).unwrap() {
        let entry = entry.unwrap();
        if !entry.file_name().to_str().unwrap().starts_with("ring-") {
            continue;
        }
        let ring = std::fs::read(entry.path()).unwrap();
        assert_eq!(get_u64(&ring, offset_of!(Ring, magic)), RING_MAGIC);
        assert_eq!(get_u64(&ring, offset_of!(Ring, discarded)), 0);
        let data = get_u32(&ring, offset_of!(Ring, data)) as usize;
        let size = get_u32(&ring, offset_of!(Ring, subbuffer_size)) as usize;
        let head = get_u64(&ring, offset_of!(Ring, head)) as usize;
        let committed = get_u64(&ring, offset_of!(Ring, committed));
        // The last sub-buffer is still open where the thread did not come to its end.
        let open = (committed >> 32) as usize == head && committed as u32 != 0;
        for number in 0..head + usize::from(open) {
            let used = if number == head { committed as u32 as usize } else { size };
            let mut rest = &ring[data + number * size..][..used];
            while !rest.is_empty() {
                let bytes = |at| get_u64(rest, at) as usize / 8;
                // Only of the open packet the size is not told yet.
                let (end, content) = match bytes(packet::PACKET_SIZE) {
                    size if size >= rest.len() && number == head => (rest.len(), rest.len()),
                    size => (size, bytes(packet::CONTENT_SIZE)),
                };
                read_records(&rest[packet::RECORDS..content], &sites, &mut events);
                rest = &rest[end..];
            }
        }
    }
    events
}

fn read_records(mut records: &[u8], sites: &[Vec<&str>], events: &mut Vec<Event>) {
    while !records.is_empty() {
        let site = &sites[usize::from(get_u16(records, 0))];
        let [_, kind, group, name, fields, ..] = site[..] else { panic!("{site:?}") };
        // Start and duration, which the site does not list.
        let fields =
            if kind == "interval-end" { "uint64_t:start,uint64_t:duration" } else { fields };
        let size: usize = fields.split_terminator(',').map(field_size).sum();
        events.push(Event {
            entity: format!("{group}:{name}"),
            id: get_u64(records, 6).cast_signed(),
            stamp: get_u32(records, 2),
            payload: records[packet::RECORD..][..size].to_vec(),
            fields: fields.to_owned(),
        });
        records = &records[packet::RECORD + size..];
    }
}

fn field_size(field: &str) -> usize {
    let bits: String =
        field.chars().take_while(|&c| c != '_').filter(char::is_ascii_digit).collect();
    bits.parse::<usize>().unwrap() / 8
}
