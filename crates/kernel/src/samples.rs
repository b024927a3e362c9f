//! What an ordinary user can know of the kernel at regular instants: how long each thread of some
//! processes has run, and waited for a processor, as `/proc/PID/task/TID/schedstat` says, and what
//! TCP counts of their connections ([`connections`]).
//!
//! It is in place of events where these cannot be recorded.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use loopscope_ctf::FieldType;
use loopscope_time::Frequency;
use loopscope_time::source::read_counter;

use self::connections::Connections;
use self::shape::Shape;
use crate::error::RecorderError;
use crate::output::Output;
use crate::recording::{Account, BufferCounts, Class, Recording, RecordingError, VERSION, failed};

mod connections;
pub(crate) mod shape;
pub(crate) mod transcode;

/// The class of the counts of threads, and the name of its one event.
pub const CLASS: &str = "schedstat";
/// The classes that are recorded.
pub(crate) static SHAPES: [&Shape; 2] = [&THREADS, &connections::SHAPE];

static THREADS: Shape = Shape {
    class: CLASS,
    name: CLASS,
    size: SIZE,
    tid: 40,
    numbers: &[
        ("root", FieldType::U32, 44),
        ("run_ns", FieldType::U64, 16),
        ("wait_ns", FieldType::U64, 24),
        ("slices", FieldType::U64, 32),
    ],
    texts: &[("comm", |record| {
        let name = &record[56..];
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        String::from_utf8_lossy(&name[..end]).into_owned()
    })],
};

/// Between two looks for threads and connections that are new, about.
const SEARCH: Duration = Duration::from_millis(100);
/// So many looks at threads there are for one at connections, which takes longer.
const LOOKS: u32 = 5;
/// The kernel keeps no more of a thread's name.
const NAME: usize = 16;
/// Bytes of a record.
const SIZE: usize = 56 + NAME;

/// What to look at.
pub struct Request {
    /// Where the files go; it exists.
    pub folder: PathBuf,
    /// The host whose threads these are, and by whose clock.
    pub host: String,
    /// UUID of its counter.
    pub clock_uuid: [u8; 16],
    /// Nominal frequency of its counter.
    pub frequency: Frequency,
    /// Between two looks at the threads.
    pub period: Duration,
    /// The first process of each program whose threads are looked at, and those that it starts.
    pub roots: Box<dyn Fn() -> Vec<u32> + Send>,
}

/// Looking that goes on. Dropping it ends that too, and waits for nothing.
#[derive(Debug)]
pub struct Sampler {
    end: Sender<()>,
    thread: JoinHandle<Result<Account, RecorderError>>,
}

impl Sampler {
    /// Begins to look; what is recorded.
    pub fn start(request: Request) -> Result<(Sampler, Recording), RecorderError> {
        // A kernel without these counts has no such file.
        let own = Path::new("/proc/self/schedstat");
        fs::read(own).map_err(failed("read", own))?;
        let Request { folder, host, clock_uuid, frequency, period, roots } = request;
        let class = |shape: &&Shape| {
            let programs = vec![shape.name.to_owned()];
            (shape.class.to_owned(), Class { programs, processors: vec![0], ..Class::default() })
        };
        let recording = Recording {
            version: VERSION,
            host,
            clock_uuid,
            frequency,
            header_page: String::new(),
            classes: SHAPES.iter().map(class).collect(),
            absent: Vec::new(),
            threads_known: true,
        };
        let file = |shape: &Shape| {
            let path = folder.join(shape.class);
            fs::create_dir(&path).map_err(failed("make", &path))?;
            Output::make(Recording::pages(&folder, shape.class, 0))
        };
        let (file, of_connections) = (file(&THREADS)?, file(&connections::SHAPE)?);
        let connections = Connections::open(of_connections);
        recording.store(&folder)?;
        let (end, ended) = channel();
        let mut looks = Looks {
            threads: BTreeMap::new(),
            period,
            file,
            recorded: 0,
            problem: None,
            connections: None,
        };
        match connections {
            Ok(connections) => looks.connections = Some(connections),
            Err(error) => looks.fail(&error),
        }
        let thread = std::thread::Builder::new()
            .name("schedstat".to_owned())
            .spawn(move || looks.run(&roots, &ended, &folder))
            .map_err(|error| RecorderError::Thread(format!("cannot be started: {error}")))?;
        Ok((Sampler { end, thread }, recording))
    }

    /// Ends it, and counts.
    pub fn finish(self) -> Result<Account, RecorderError> {
        drop(self.end);
        let panicked = |_| RecorderError::Thread("panicked: please report this".to_owned());
        self.thread.join().map_err(panicked)?
    }
}

/// The counts of a thread at a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    run_ns: u64,
    wait_ns: u64,
    slices: u64,
}

impl Counts {
    /// Reads the content of a schedstat.
    fn parse(text: &[u8]) -> Option<Counts> {
        let text = std::str::from_utf8(text).ok()?;
        let mut numbers = text.split_ascii_whitespace().map(str::parse);
        let mut next = || numbers.next()?.ok();
        Some(Counts { run_ns: next()?, wait_ns: next()?, slices: next()? })
    }
}

/// A look at a thread: the counter before it, and how many ticks it took.
#[derive(Clone, Copy, Debug)]
struct Look {
    counter: u64,
    took: u64,
    counts: Counts,
}

/// A thread that is looked at.
#[derive(Debug)]
struct Thread {
    file: File,
    root: u32,
    name: [u8; NAME],
    /// The last look, and whether it is in the file.
    last: Option<(Look, bool)>,
}

impl Thread {
    fn open(root: u32, pid: u32, tid: u32) -> io::Result<Thread> {
        let folder = format!("/proc/{pid}/task/{tid}");
        let file = File::open(format!("{folder}/schedstat"))?;
        let mut name = [0; NAME];
        let found = fs::read(format!("{folder}/comm"))?;
        let found = found.trim_ascii_end();
        name[..found.len().min(NAME)].copy_from_slice(&found[..found.len().min(NAME)]);
        Ok(Thread { file, root, name, last: None })
    }

    fn look(&self) -> Option<Look> {
        let mut text = [0; 72];
        let counter = read_counter().0;
        let size = self.file.read_at(&mut text, 0).ok()?;
        let took = read_counter().0.saturating_sub(counter);
        Some(Look { counter, took, counts: Counts::parse(&text[..size])? })
    }

    fn record(&self, tid: u32, look: Look) -> [u8; SIZE] {
        let mut record = [0; SIZE];
        let Counts { run_ns, wait_ns, slices } = look.counts;
        for (at, value) in [look.counter, look.took, run_ns, wait_ns, slices].iter().enumerate() {
            record[8 * at..8 * at + 8].copy_from_slice(&value.to_le_bytes());
        }
        record[40..44].copy_from_slice(&tid.to_le_bytes());
        record[44..48].copy_from_slice(&self.root.to_le_bytes());
        record[56..].copy_from_slice(&self.name);
        record
    }
}

struct Looks {
    threads: BTreeMap<u32, Thread>,
    period: Duration,
    file: Output,
    recorded: u64,
    connections: Option<Connections>,
    /// Why these are not looked at any more.
    problem: Option<String>,
}

impl Looks {
    fn run(
        &mut self,
        roots: &dyn Fn() -> Vec<u32>,
        ended: &Receiver<()>,
        folder: &Path,
    ) -> Result<Account, RecorderError> {
        let (mut failure, mut next) = (None, Instant::now());
        let (mut known, mut searched) = (Vec::new(), Instant::now());
        for number in 0_u32.. {
            let roots = roots();
            if roots != known || searched.elapsed() >= SEARCH {
                self.search(&roots);
                (known, searched) = (roots, Instant::now());
            }
            self.look();
            if number % LOOKS == 0 {
                self.of_connections(Connections::look);
            }
            // After a failure the rest is not written, and counted.
            if failure.is_none() {
                failure = self.write(false).err();
            }
            next += self.period;
            let now = Instant::now();
            if next < now {
                // Looks that were missed are not made up for: their times are in the records.
                next = now + self.period;
            }
            match ended.recv_timeout(next - now) {
                Err(RecvTimeoutError::Timeout) => {}
                _ => break,
            }
        }
        self.look();
        self.of_connections(Connections::look);
        if failure.is_none() {
            failure = self.write(true).err();
        }
        let counted = |recorded: u64, file: &mut Output, size: usize| {
            let unwritten = (file.give_up().len() / size) as u64;
            let counts = BufferCounts {
                recorded: recorded - unwritten,
                dropped: unwritten,
                ..BufferCounts::default()
            };
            BTreeMap::from([(0, counts)])
        };
        let mut problems: Vec<String> = failure.into_iter().map(|each| each.to_string()).collect();
        let threads = counted(self.recorded, &mut self.file, SIZE);
        let mut classes = BTreeMap::from([(CLASS.to_owned(), threads)]);
        if let Some(found) = &mut self.connections {
            let shape = &connections::SHAPE;
            let counts = counted(found.recorded, &mut found.file, shape.size);
            classes.insert(shape.class.to_owned(), counts);
        }
        problems.extend(self.problem.take());
        let account = Account { version: VERSION, classes, problems, ..Account::default() };
        account.store(folder)?;
        Ok(account)
    }

    /// Writes what there is; without `all`, where it is enough for a block.
    fn write(&mut self, all: bool) -> Result<(), RecordingError> {
        let of_connections = self.connections.as_mut().map(|found| &mut found.file);
        for file in [&mut self.file].into_iter().chain(of_connections) {
            if all || file.is_full() {
                file.write()?;
            }
        }
        Ok(())
    }

    /// Does something with the connections; after a failure nothing more.
    fn of_connections(&mut self, work: impl FnOnce(&mut Connections) -> io::Result<()>) {
        if self.problem.is_none()
            && let Some(found) = &mut self.connections
            && let Err(error) = work(found)
        {
            self.fail(&error);
        }
    }

    fn fail(&mut self, error: &io::Error) {
        self.problem = Some(format!("the kernel's counts of TCP connections: {error}"));
    }

    /// Looks for threads that are not known yet. What ends meanwhile is no thread any more.
    fn search(&mut self, roots: &[u32]) {
        let mut found = vec![];
        for &root in roots {
            let mut processes = vec![root];
            while let Some(pid) = processes.pop() {
                found.push((pid, root));
                let tasks = fs::read_dir(format!("/proc/{pid}/task"));
                for task in tasks.into_iter().flatten().flatten() {
                    let tid = task.file_name().to_str().and_then(|name| name.parse().ok());
                    let Some(tid) = tid else { continue };
                    if let Entry::Vacant(place) = self.threads.entry(tid)
                        && let Ok(thread) = Thread::open(root, pid, tid)
                    {
                        place.insert(thread);
                    }
                    let children = fs::read_to_string(task.path().join("children"));
                    let children = children.unwrap_or_default();
                    processes.extend(children.split_ascii_whitespace().flat_map(str::parse::<u32>));
                }
            }
        }
        self.of_connections(|connections| connections.search(&found));
    }

    /// Looks at all threads. Records have what has changed, and the look before that: between two
    /// records that are further apart than two looks nothing has changed.
    fn look(&mut self) {
        let (file, recorded) = (&mut self.file, &mut self.recorded);
        self.threads.retain(|&tid, thread| {
            // One that has ended is gone.
            let Some(look) = thread.look() else { return false };
            let changed = thread.last.is_none_or(|(last, _)| last.counts != look.counts);
            if changed {
                let before = thread.last.filter(|(_, written)| !written).map(|(last, _)| last);
                for look in before.into_iter().chain([look]) {
                    file.put(&thread.record(tid, look));
                    *recorded += 1;
                }
            }
            thread.last = Some((look, changed));
            true
        });
    }
}
