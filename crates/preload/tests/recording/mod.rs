//! A recording of programs, and its events as they are read back.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use loopscope_collect::{Collector, Identity, MAIN, ProcessLoss, RUNTIME_DIR, StreamSpec, stream};
use loopscope_ctf::{Metadata, Packets, Records, Value};
use tempfile::TempDir;

use crate::world::PATIENCE;

/// A recording that goes on.
pub struct Recording {
    folder: TempDir,
    collector: Collector,
}

impl Recording {
    pub fn begin() -> Recording {
        let memory = Path::new("/dev/shm");
        let folder = tempfile::tempdir_in(memory).unwrap();
        let runtime = folder.path().join("runtime");
        std::fs::create_dir(&runtime).unwrap();
        let identity = Identity::of_this_machine().unwrap();
        let streams = [StreamSpec::default()];
        stream::write(&streams, &runtime, identity.frequency).unwrap();
        let mut collector = Collector::new(&folder.path().join("out"), identity, None).unwrap();
        collector.add_source(&runtime, None, &streams).unwrap();
        Recording { folder, collector }
    }

    /// A program that will be recorded.
    pub fn command(&self, program: &Path, words: &str) -> Command {
        let mut command = Command::new(program);
        command.args(words.split(' ')).stdin(Stdio::null());
        command.env(RUNTIME_DIR, self.folder.path().join("runtime"));
        command
    }

    /// Takes what was recorded so far.
    pub fn poll(&mut self) {
        self.collector.poll().unwrap();
    }

    /// Takes what a program records, until it ends.
    pub fn poll_until_end(&mut self, child: &mut Child) {
        let begin = Instant::now();
        while child.try_wait().unwrap().is_none() {
            assert!(begin.elapsed() < 3 * PATIENCE, "it does not end");
            self.poll();
            std::thread::sleep(Duration::from_millis(2));
        }
        self.poll();
    }

    /// Ends it, when its programs have ended. Asserts that each account balances, and that nothing
    /// was dropped.
    pub fn end(self) -> Recorded {
        let Recording { folder, collector } = self;
        let report = collector.finish().unwrap().into_stream(MAIN);
        assert_eq!(report.problems, [""; 0]);
        for process in &report.processes {
            let ProcessLoss { emitted, recorded, overwritten, dropped, torn, .. } = *process;
            assert_eq!(emitted, recorded + overwritten + dropped, "{process:?}");
            // A thread of the library may have been in a hit when the program ended.
            assert_eq!(dropped, torn, "{process:?}");
        }
        let events = read(&folder.path().join("out/trace"));
        assert_eq!(events.len() as u64, report.recorded);
        Recorded { events, processes: report.processes }
    }
}

/// What was recorded.
pub struct Recorded {
    /// In the order of the counter.
    pub events: Vec<Event>,
    pub processes: Vec<ProcessLoss>,
}

impl Recorded {
    /// The events of a process.
    pub fn of(&self, pid: u32) -> Vec<&Event> {
        self.events.iter().filter(|event| event.pid == pid).collect()
    }
}

/// An event.
#[derive(Clone, Debug)]
pub struct Event {
    pub pid: u32,
    pub tid: u32,
    pub entity: String,
    pub counter: u64,
    pub id: i64,
    numbers: BTreeMap<String, i64>,
    texts: BTreeMap<String, String>,
}

impl Event {
    pub fn number(&self, field: &str) -> i64 {
        *self.numbers.get(field).unwrap_or_else(|| panic!("{field} of {self:?}"))
    }

    pub fn text(&self, field: &str) -> &str {
        self.texts.get(field).unwrap_or_else(|| panic!("{field} of {self:?}"))
    }
}

fn read(trace: &Path) -> Vec<Event> {
    let text = std::fs::read_to_string(trace.join("metadata")).unwrap();
    let metadata = Metadata::parse(&text).unwrap();
    let mut events = vec![];
    for file in std::fs::read_dir(trace).unwrap() {
        let path = file.unwrap().path();
        if path.file_name().unwrap() == "metadata" {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        for packet in Packets::new(&bytes) {
            let (context, body) = packet.unwrap();
            let class = &metadata.streams[&context.stream_id];
            let add = |record: loopscope_ctf::Record<'_>| {
                let of = &class.events[record.class];
                let mut event = Event {
                    pid: context.pid,
                    tid: context.tid,
                    entity: format!("{}:{}", of.group, of.name),
                    counter: record.counter.0,
                    id: record.id,
                    numbers: BTreeMap::new(),
                    texts: BTreeMap::new(),
                };
                for (name, value) in of.values(record.fields) {
                    match value {
                        Value::Unsigned(value) => {
                            event.numbers.insert(name.to_owned(), value.try_into().unwrap());
                        }
                        Value::Signed(value) => {
                            event.numbers.insert(name.to_owned(), value);
                        }
                        Value::String(value) => {
                            let text = String::from_utf8_lossy(value).into_owned();
                            event.texts.insert(name.to_owned(), text);
                        }
                        _ => unreachable!("no event of a test has such a field"),
                    }
                }
                events.push(event);
            };
            Records::new(class).decode(&context, body, add).unwrap();
        }
    }
    // Stable: those of one thread with the same stamp stay in their order.
    events.sort_by_key(|event| event.counter);
    events
}
