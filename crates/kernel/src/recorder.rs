//! Recording: a thread that takes what is in the kernel's buffers, now and then, and writes it to
//! files as it is. The kernel never wakes it: being woken for events would make events.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use loopscope_time::Frequency;
use loopscope_time::source::{counter_kind, read_counter};

use crate::format::{EventFormat, FormatError};
use crate::page;
use crate::recording::{Account, BufferCounts, Class, Recording, RecordingError, VERSION, failed};
use crate::tracefs::{self, Counts, Instance, Pages, TracefsError};

/// Between two looks at the buffers.
const PAUSE: Duration = Duration::from_millis(50);
/// Bytes that are written to a file at once, about.
const BLOCK: usize = 256 << 10;
/// Looks at the buffers from one look at the kernel's counts to the next.
const LOOKS: u32 = 20;
/// A page is not longer.
const LONGEST_PAGE: usize = 64 << 10;

/// Why a kernel cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecorderError {
    /// The kernel refuses.
    #[error(transparent)]
    Tracefs(#[from] TracefsError),
    /// A file of the recording.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// A tracepoint whose description is not understood.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The kernel's pages.
    #[error("{0}")]
    Pages(String),
    /// The thread.
    #[error("the thread that records kernel events {0}")]
    Thread(String),
}

/// A kernel to record.
#[derive(Clone, Debug)]
pub struct Request {
    /// Where tracefs is mounted.
    pub tracefs: PathBuf,
    /// Where the files go; it exists.
    pub folder: PathBuf,
    /// The host whose clock the events are stamped by.
    pub host: String,
    /// UUID of its counter.
    pub clock_uuid: [u8; 16],
    /// Nominal frequency of its counter.
    pub frequency: Frequency,
    /// Classes: the folder of an instance that exists, and the tracepoints as `GROUP/NAME`.
    pub classes: BTreeMap<String, (PathBuf, Vec<String>)>,
    /// Bytes that each processor has for each class.
    pub buffer: u64,
}

/// A recording that goes on. Dropping it ends the recording too, and waits for nothing.
#[derive(Debug)]
pub struct Recorder {
    end: Sender<()>,
    thread: JoinHandle<Result<Account, RecorderError>>,
}

impl Recorder {
    /// Begins to record; what is recorded.
    pub fn start(request: &Request) -> Result<(Recorder, Recording), RecorderError> {
        let Request { tracefs, folder, .. } = request;
        let mut recording = Recording {
            version: VERSION,
            host: request.host.clone(),
            clock_uuid: request.clock_uuid,
            frequency: request.frequency,
            header_page: tracefs::header_page(tracefs)?,
            classes: BTreeMap::new(),
            absent: Vec::new(),
            threads_known: true,
        };
        let mut buffers = Vec::new();
        let mut instances = Vec::new();
        for (name, (instance, events)) in &request.classes {
            let instance = Instance::set_up(instance, counter_kind(), request.buffer)?;
            let processors = instance.processors()?;
            let mut class = Class { processors, ..Class::default() };
            for event in events {
                match tracefs::format(tracefs, event)? {
                    Some(text) => {
                        EventFormat::parse(&text)?;
                        class.formats.insert(event.clone(), text);
                    }
                    None => recording.absent.push(event.clone()),
                }
            }
            if recording.classes.is_empty() {
                recording.threads_known = knows_threads(&instance, tracefs, &class.processors)?;
            }
            instance.clear()?;
            fs::create_dir(folder.join(name)).map_err(failed("make", &folder.join(name)))?;
            for &processor in &class.processors {
                let path = Recording::pages(folder, name, processor);
                let file = File::create(&path).map_err(failed("write", &path))?;
                let pages = instance.pages(processor)?;
                buffers.push(Buffer {
                    class: name.clone(),
                    instance: instances.len(),
                    processor,
                    pages,
                    path,
                    file,
                    block: Vec::new(),
                    counts: BufferCounts::default(),
                    looked: 0,
                });
            }
            recording.classes.insert(name.clone(), class);
            instances.push(instance);
        }
        recording.store(folder)?;
        // The counts begin with the first event: all is made ready before any is chosen.
        for (instance, class) in instances.iter().zip(recording.classes.values()) {
            instance.switch(true)?;
            class.formats.keys().try_for_each(|event| instance.enable(event))?;
        }
        let (end, ended) = channel();
        let mut taker = Taker { instances, buffers, page: vec![0; LONGEST_PAGE] };
        let path = folder.clone();
        let thread = std::thread::Builder::new()
            .name("kernel-events".to_owned())
            .spawn(move || taker.run(&ended, &path))
            .map_err(|error| RecorderError::Thread(format!("cannot be started: {error}")))?;
        Ok((Recorder { end, thread }, recording))
    }

    /// Ends it: what is in the buffers is taken, and counted.
    pub fn finish(self) -> Result<Account, RecorderError> {
        drop(self.end);
        let panicked = |_| RecorderError::Thread("panicked: please report this".to_owned());
        self.thread.join().map_err(panicked)?
    }
}

/// Whether the kernel gives this thread the number by which it knows itself.
fn knows_threads(
    instance: &Instance,
    tracefs: &Path,
    processors: &[u32],
) -> Result<bool, RecorderError> {
    let Some(text) = tracefs::format(tracefs, "ftrace/print")? else { return Ok(false) };
    let format = EventFormat::parse(&text)?;
    instance.switch(true)?;
    let marked = instance.mark("loopscope");
    instance.switch(false)?;
    marked?;
    let own = nix::unistd::gettid().as_raw();
    let mut bytes = vec![0; LONGEST_PAGE];
    let mut same = false;
    for &processor in processors {
        if instance.pages(processor)?.take(&mut bytes)?.is_none() {
            continue;
        }
        let wrong = |error| RecorderError::Pages(format!("the kernel's pages: {error}"));
        let (header, _) = page::header(&bytes).map_err(wrong)?;
        let records = &bytes[page::HEADER..page::HEADER + header.size];
        page::events(&header, records, |_, event| {
            let at = format.thread.offset;
            let tid = event.get(at..at + 4).and_then(|tid| tid.try_into().ok());
            same |= tid.map(i32::from_le_bytes) == Some(own);
        })
        .map_err(wrong)?;
    }
    Ok(same)
}

/// One processor's events of a class.
#[derive(Debug)]
struct Buffer {
    class: String,
    /// Its index.
    instance: usize,
    processor: u32,
    pages: Pages,
    path: PathBuf,
    file: File,
    /// Pages that are not written yet.
    block: Vec<u8>,
    counts: BufferCounts,
    /// The counter at the last look at the kernel's counts.
    looked: u64,
}

#[derive(Debug)]
struct Taker {
    instances: Vec<Instance>,
    buffers: Vec<Buffer>,
    page: Vec<u8>,
}

impl Taker {
    fn run(&mut self, ended: &Receiver<()>, folder: &Path) -> Result<Account, RecorderError> {
        let mut failure = None;
        self.look()?;
        for looks in 1_u32.. {
            if !matches!(ended.recv_timeout(PAUSE), Err(RecvTimeoutError::Timeout)) {
                break;
            }
            // After a failure buffers fill up, and the kernel counts what does not fit.
            if failure.is_none() {
                failure = self.take(false).err();
            }
            if looks.is_multiple_of(LOOKS) {
                self.look()?;
            }
        }
        for instance in &self.instances {
            instance.switch(false)?;
        }
        if failure.is_none() {
            failure = self.take(true).err();
        }
        self.look()?;
        let mut account = Account { version: VERSION, ..Account::default() };
        account.problems.extend(failure.map(|error| error.to_string()));
        for buffer in self.buffers.drain(..) {
            let of_class = account.classes.entry(buffer.class).or_default();
            of_class.insert(buffer.processor, buffer.counts);
        }
        account.store(folder)?;
        Ok(account)
    }

    /// Takes what is in the buffers. `all`: to the last event, which only is one when no more are
    /// made; and writes it.
    fn take(&mut self, all: bool) -> Result<(), RecorderError> {
        self.buffers.iter_mut().try_for_each(|buffer| buffer.take(&mut self.page, all))
    }

    /// Looks at the kernel's counts.
    fn look(&mut self) -> Result<(), RecorderError> {
        let now = read_counter().0;
        for buffer in &mut self.buffers {
            let found = self.instances[buffer.instance].counts(buffer.processor)?;
            buffer.look(now, found);
        }
        Ok(())
    }
}

impl Buffer {
    fn take(&mut self, page: &mut [u8], all: bool) -> Result<(), RecorderError> {
        while let Some(room) = self.pages.take(page)? {
            let of_class = |error| {
                let (class, processor) = (&self.class, self.processor);
                RecorderError::Pages(format!("{class} of processor {processor}: {error}"))
            };
            let (_, size) = page::header(page).map_err(of_class)?;
            self.block.extend_from_slice(&page[..size]);
            if self.block.len() >= BLOCK {
                self.write()?;
            }
            // Taking a page can make events, which would be taken for ever. One with much room left
            // is the newest.
            if !all && size < room - room / 4 {
                break;
            }
        }
        if all { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), RecorderError> {
        let written = self.file.write_all(&self.block);
        self.block.clear();
        Ok(written.map_err(failed("write", &self.path))?)
    }

    fn look(&mut self, now: u64, found: Counts) {
        let BufferCounts { recorded, overwritten, dropped, gaps } = &mut self.counts;
        let lost = found.dropped + found.overwritten;
        let before = *dropped + *overwritten;
        if lost > before {
            gaps.push((self.looked, now, lost - before));
        }
        (*recorded, *overwritten, *dropped) = (found.read, found.overwritten, found.dropped);
        self.looked = now;
    }
}
