//! Looking at a ring's records as soon as they are there, before their sub-buffer is complete: for
//! deadlines, which must not wait for it.

use loopscope_ctf::Records;
use loopscope_ctf::packet::{self, RECORDS, get_u64};
use loopscope_time::Counter;

use crate::packets::context_from;
use crate::ring::{Mark, RingReader, Seen};

/// A packet's head as it stands now.
struct Head {
    begin: Counter,
    content: usize,
    size: usize,
}

impl RingReader {
    /// Calls `each` with class, stamp and id of the records up to the mark that it has not been
    /// called with. To be called before what the mark covers is drained. What is damaged is passed
    /// over: draining tells.
    pub(crate) fn observe(
        &mut self,
        mark: Mark,
        records: &Records,
        mut each: impl FnMut(usize, Counter, i64),
    ) {
        if self.flight || self.broken || mark.head > self.tail.saturating_add(self.count) {
            return;
        }
        if self.seen.number < self.tail {
            // The sub-buffers before the tail were drained before this function saw them.
            self.seen = Seen { number: self.tail, ..Seen::default() };
        }
        loop {
            let open = self.seen.number == mark.head;
            let used = match (open, mark.committed) {
                (false, _) => self.size,
                (true, Some(used)) => used.min(self.size),
                (true, None) => return,
            };
            if self.seen.number > mark.head {
                return;
            }
            while self.look_at_packet(used, records, &mut each) {}
            if open {
                return;
            }
            self.seen = Seen { number: self.seen.number + 1, ..Seen::default() };
        }
    }

    /// Looks at what is new in one packet; whether it is whole, so that the next may follow.
    fn look_at_packet(
        &mut self,
        used: usize,
        records: &Records,
        each: &mut impl FnMut(usize, Counter, i64),
    ) -> bool {
        let Seen { number, packet, record } = self.seen;
        if used < packet + RECORDS {
            return false;
        }
        let Some(head) = self.head_of(number, packet) else { return false };
        // An open packet reaches to the sub-buffer's end, and its content is not told.
        let whole = (RECORDS..=head.size).contains(&head.content) && head.size <= used - packet;
        let end = if whole { packet + head.content } else { used };
        let (from, before) = record.unwrap_or((packet + RECORDS, head.begin));
        let mut last = before;
        if from < end {
            // Copied, because the program closes the sub-buffer meanwhile; what is committed it
            // leaves alone.
            let mut body = Vec::new();
            if !self.map.copy(self.offset(number) + from, end - from, &mut body) {
                return false;
            }
            let _ = records.decode(&context_from(before), &body, |record| {
                last = record.counter;
                each(record.class, record.counter, record.id);
            });
        }
        self.seen.record = Some((end.max(from), last));
        if whole {
            self.seen = Seen { number, packet: packet + head.size, record: None };
        }
        whole
    }

    fn head_of(&self, number: u64, packet: usize) -> Option<Head> {
        let mut bytes = Vec::new();
        self.map.copy(self.offset(number) + packet, RECORDS, &mut bytes).then_some(())?;
        let size = |at| usize::try_from(get_u64(&bytes, at) / 8).unwrap_or(usize::MAX);
        Some(Head {
            begin: Counter(get_u64(&bytes, packet::TIMESTAMP_BEGIN)),
            content: size(packet::CONTENT_SIZE),
            size: size(packet::PACKET_SIZE),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;
    use std::sync::atomic::Ordering;

    use loopscope_ctf::packet::{Context, RECORD, put_context};
    use loopscope_ctf::{EventClass, FieldType, StreamClass};
    use loopscope_trace::layout::{RING_MAGIC, VERSION};

    use super::*;
    use crate::mapping::Mapping;
    use crate::ring::Most;
    use crate::stream_file::{OpenFiles, StreamFile};

    const SIZE: usize = 256;
    const COUNT: u64 = 3;
    const DATA: usize = 4096;

    fn classes() -> Records {
        let event = |id, fields: &[FieldType]| {
            let fields = fields.iter().enumerate().map(|(i, t)| (format!("f{i}"), *t)).collect();
            EventClass { id, group: "a".into(), name: "b".into(), fields, ..EventClass::default() }
        };
        let events = vec![event(0, &[]), event(1, &[FieldType::U16])];
        Records::new(&StreamClass { id: 0, process: String::new(), kernel: false, events })
    }

    /// What a program does with its ring, with any number of looks in between.
    struct Program {
        file: File,
        reader: RingReader,
        number: u64,
        packet: usize,
        used: usize,
        now: u64,
        written: Vec<(usize, Counter, i64)>,
    }

    impl Program {
        fn new(dir: &std::path::Path) -> Program {
            let file = File::create_new(dir.join("ring")).unwrap();
            file.set_len((DATA + SIZE * COUNT as usize) as u64).unwrap();
            let mut head = [0; 48];
            head[..8].copy_from_slice(&RING_MAGIC.to_le_bytes());
            head[8..12].copy_from_slice(&VERSION.to_le_bytes());
            head[12..16].copy_from_slice(&(DATA as u32).to_le_bytes());
            head[32..36].copy_from_slice(&(SIZE as u32).to_le_bytes());
            head[36..40].copy_from_slice(&(COUNT as u32).to_le_bytes());
            file.write_all_at(&head, 0).unwrap();
            let map = Mapping::of(&file, usize::MAX).unwrap().unwrap();
            let stream = StreamFile::new(dir.join("s"), [0; 16], 0, 0, OpenFiles::default());
            let most = Most { size: SIZE as u32, count: COUNT as u32 };
            let reader = RingReader::new("ring".into(), map, stream, 0, most).unwrap();
            let (now, written) = (1 << 40, Vec::new());
            Program { file, reader, number: 0, packet: 0, used: 0, now, written }
        }

        fn at(&self, offset: usize) -> u64 {
            (DATA + SIZE * (self.number % COUNT) as usize + offset) as u64
        }

        fn head(&self, content: usize, size: usize) {
            let mut bytes = [0; RECORDS];
            let begin = Counter(self.now);
            let context =
                Context { content_size: content, packet_size: size, ..context_from(begin) };
            put_context(&mut bytes, &context);
            // The begin is told once.
            let told = if content == 0 { 0 } else { packet::CONTENT_SIZE };
            self.file.write_all_at(&bytes[told..], self.at(self.packet + told)).unwrap();
        }

        fn commit(&self) {
            let committed = (self.number & 0xffff_ffff) << 32 | self.used as u64;
            self.reader.map.get().committed.store(committed, Ordering::Release);
        }

        fn open_packet(&mut self) {
            self.packet = self.used;
            self.head(0, SIZE - self.packet);
            self.used += RECORDS;
            self.commit();
        }

        fn next_subbuffer(&mut self) {
            if self.used > 0 {
                self.head(self.used - self.packet, SIZE - self.packet);
            }
            self.number += 1;
            self.reader.map.get().head.store(self.number, Ordering::Release);
            (self.packet, self.used) = (0, 0);
        }

        fn next_packet(&mut self) {
            let next = self.used.next_multiple_of(8);
            if self.used == 0 || next + RECORDS + RECORD + 2 > SIZE {
                return;
            }
            self.head(self.used - self.packet, next - self.packet);
            self.used = next;
            self.open_packet();
        }

        fn record(&mut self, class: u16) {
            let size = RECORD + 2 * usize::from(class);
            if self.used + size > SIZE {
                self.next_subbuffer();
            }
            if self.used == 0 {
                self.open_packet();
            }
            let (stamp, id) = (self.now as u32, self.written.len() as i64);
            let mut bytes = class.to_le_bytes().to_vec();
            bytes.extend_from_slice(&stamp.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
            bytes.extend_from_slice(&[0xab; 2][..2 * usize::from(class)]);
            self.file.write_all_at(&bytes, self.at(self.used)).unwrap();
            self.used += size;
            self.commit();
            self.written.push((usize::from(class), Counter(self.now), id));
        }
    }

    /// Whenever one looks, each record is seen once, in order, with its whole stamp.
    #[test]
    fn every_record_is_seen_once_however_often_one_looks() {
        for seed in 1..200_u64 {
            let dir = tempfile::tempdir().unwrap();
            let records = classes();
            let mut program = Program::new(dir.path());
            let mut seen = Vec::new();
            let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            for _ in 0..150 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                program.now += random % 100_000_000;
                match random >> 32 & 15 {
                    0..=8 => program.record((random >> 40 & 1) as u16),
                    9 => program.next_packet(),
                    10 if program.used > 0 => program.next_subbuffer(),
                    _ => {
                        let mark = program.reader.mark();
                        program.reader.observe(mark, &records, |c, at, id| seen.push((c, at, id)));
                        assert_eq!(seen, program.written, "seed {seed}");
                        // Drained, and written over from now on.
                        program.reader.tail = mark.head;
                    }
                }
                // The program waits for room.
                if program.number + 1 >= program.reader.tail + COUNT {
                    let mark = program.reader.mark();
                    program.reader.observe(mark, &records, |c, at, id| seen.push((c, at, id)));
                    program.reader.tail = mark.head;
                }
            }
        }
    }
}
