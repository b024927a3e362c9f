//! Recording: a thread that takes what is in the kernel's buffers, now and then, and writes it to
//! files as it is. The kernel never wakes it: being woken for events would make events.

use std::any::Any;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use loopscope_time::Frequency;
use loopscope_time::source::counter_kind;

use crate::buffer::Buffer;
use crate::cost::{self, Cost, Link};
pub use crate::error::RecorderError;
use crate::format::EventFormat;
use crate::output::{Output, Replaced};
use crate::page;
use crate::programs::histograms::Keeper;
use crate::programs::loaded::Structures;
use crate::programs::reasons;
use crate::programs::recorder::ProgramRecorder;
use crate::programs::{self, ProgramsError};
use crate::recording::{Account, BufferCounts, Class, Recording, VERSION, failed};
pub use crate::taker::Flight;
use crate::taker::{LONGEST_PAGE, Order, Taker};
use crate::tracefs::{self, Instance, TracefsError};

/// Histograms are named so among the classes.
pub const HISTOGRAMS: &str = "histograms";

/// The names of loopscope's instances begin so.
const PREFIX: &str = "ls-";

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
    /// What programs in the kernel record, which are classes too.
    pub programs: Option<programs::Request>,
    /// Histograms are kept of the threads in these network namespaces; `None`: there are none.
    pub histograms: Option<Vec<u32>>,
    /// Bytes that each processor has for each class.
    pub buffer: u64,
    /// `None`: everything is written.
    pub flight: Option<Flight>,
}

/// A recording that goes on. Dropping it ends the recording too, and waits for nothing.
#[derive(Debug)]
pub struct Recorder {
    /// What an event costs the thread in which it happens, by class, or as `CLASS:NAME` where the
    /// events of a class differ.
    pub event_ns: BTreeMap<String, Cost>,
    /// Classes of which nothing is recorded, and histograms that are not kept, though they were asked
    /// for, and why.
    pub without: BTreeMap<String, ProgramsError>,
    orders: Sender<Order>,
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
        // Making buffers mostly waits for the kernel, and loading programs takes processor time, so
        // both are done at the same time.
        let (set_up, loaded) = std::thread::scope(|scope| {
            let loading = std::thread::Builder::new().name("kernel-programs".to_owned());
            let loading = loading.spawn_scoped(scope, || load(request));
            let loading = loading.map_err(|error| cannot_start(&error))?;
            let set_up = set_up(request, &mut recording);
            Ok::<_, RecorderError>((set_up?, loading.join().map_err(panicked)??))
        })?;
        let (instances, buffers) = set_up;
        let Loaded { mut programs, classes, absent, mut without, structures } = loaded;
        recording.classes.extend(classes);
        recording.absent.extend(absent);
        recording.store(folder)?;
        let before = cost::turns(Link::Unix, cost::BLOCKS);
        let of_tracefs = recording.classes.values().filter(|class| class.programs.is_empty());
        for (instance, class) in instances.iter().zip(of_tracefs) {
            instance.switch(true)?;
            class.formats.keys().try_for_each(|event| instance.enable(event, true))?;
        }
        let of_tracefs =
            match before.and_then(|before| Ok((before, cost::turns(Link::Unix, cost::BLOCKS)?))) {
                Ok((before, with)) => {
                    let events = events_on(&instances, with.processor)?;
                    cost::event_ns(Link::Unix, &[(before, with)], events)
                }
                Err(error) => Err(error.to_string()),
            };
        let each = request.classes.keys().map(|class| (class.clone(), of_tracefs.clone()));
        let mut event_ns: BTreeMap<_, _> = each.collect();
        instances.iter().try_for_each(|instance| instance.switch(false))?;
        for recorder in &mut programs {
            event_ns.extend(recorder.event_ns()?);
        }
        let histograms = request.histograms.as_ref().and_then(|namespaces| {
            let begun = Keeper::begin(&structures, namespaces);
            begun.map_err(|error| without.insert(HISTOGRAMS.to_owned(), error)).ok()
        });
        // The counts begin with the first event.
        for instance in &instances {
            instance.clear()?;
            instance.switch(true)?;
        }
        programs.iter_mut().try_for_each(ProgramRecorder::begin)?;
        let (orders, given) = channel();
        let mut taker =
            Taker::make(instances, buffers, programs, &recording, request.buffer, request.flight)?;
        taker.histograms = histograms;
        let path = folder.clone();
        let thread = std::thread::Builder::new()
            .name("kernel-events".to_owned())
            .spawn(move || taker.run(&given, &path))
            .map_err(|error| cannot_start(&error))?;
        Ok((Recorder { event_ns, without, orders, thread }, recording))
    }

    /// Triggers the flight recorder, which goes on to write for `post`.
    pub fn trigger(&self, post: Duration) {
        // A thread that has ended says why when it is finished.
        let _ = self.orders.send(Order::Trigger(post));
    }

    /// Records these of its classes alone from now on; returns when that is so. When the others
    /// were not recorded is in the account, as gaps.
    pub fn choose(&self, classes: Vec<String>) {
        let (done, answer) = channel();
        // A thread that has ended says why when it is finished.
        let _ = self.orders.send(Order::Choose(classes, done));
        let _ = answer.recv();
    }

    /// Ends it: what is in the buffers is taken, and counted.
    pub fn finish(self) -> Result<Account, RecorderError> {
        drop(self.orders);
        self.thread.join().map_err(panicked)?
    }
}

/// Sets up the instances of tracefs and adds their classes to `recording`. Returns the instances, and a
/// buffer of each for each processor.
fn set_up(
    request: &Request,
    recording: &mut Recording,
) -> Result<(Vec<Instance>, Vec<Buffer>), RecorderError> {
    let Request { tracefs, folder, .. } = request;
    let (mut instances, mut buffers) = (Vec::new(), Vec::new());
    let nobody_traces = tracefs::nobody_traces(tracefs, PREFIX)?;
    for (name, (instance, events)) in &request.classes {
        let instance = Instance::set_up(instance, counter_kind(), request.buffer)?;
        if nobody_traces {
            instance.keep_no_names()?;
        }
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
            buffers.push(Buffer {
                class: name.clone(),
                instance: instances.len(),
                processor,
                pages: instance.pages(processor)?,
                file: Output::make(Recording::pages(folder, name, processor))?,
                emptied: 0,
                counts: BufferCounts::default(),
                replaced: Replaced::default(),
                looked: 0,
            });
        }
        recording.classes.insert(name.clone(), class);
        instances.push(instance);
    }
    Ok((instances, buffers))
}

/// Programs that are in the kernel and record nothing yet.
#[derive(Default)]
struct Loaded {
    programs: Vec<ProgramRecorder>,
    classes: BTreeMap<String, Class>,
    /// Events that this kernel does not have.
    absent: Vec<String>,
    /// Classes that cannot be recorded, and why.
    without: BTreeMap<String, ProgramsError>,
    structures: Structures,
}

/// Loads the programs that were asked for.
fn load(request: &Request) -> Result<Loaded, RecorderError> {
    let Request { tracefs, folder, .. } = request;
    let mut loaded = Loaded::default();
    let Some(asked) = &request.programs else { return Ok(loaded) };
    for (name, events) in &asked.classes {
        let structures = &loaded.structures;
        match ProgramRecorder::make(asked, structures, name, events, folder, request.buffer) {
            Ok((made, mut class, absent)) => {
                loaded.absent.extend(absent);
                if name == programs::DROP
                    && let Some(text) = tracefs::format(tracefs, reasons::TRACEPOINT)?
                {
                    class.formats.insert(reasons::TRACEPOINT.to_owned(), text);
                }
                loaded.classes.insert(name.clone(), class);
                loaded.programs.push(made);
            }
            // The other classes can be recorded without.
            Err(RecorderError::Programs(error)) => {
                loaded.without.insert(name.clone(), error);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(loaded)
}

fn cannot_start(error: &io::Error) -> RecorderError {
    RecorderError::Thread(format!("cannot be started: {error}"))
}

fn panicked(_: Box<dyn Any + Send>) -> RecorderError {
    RecorderError::Thread("panicked: please report this".to_owned())
}

/// How many events of a processor there were.
fn events_on(instances: &[Instance], processor: u32) -> Result<u64, TracefsError> {
    let counts = instances.iter().map(|instance| instance.counts(processor));
    counts.map(|counts| counts.map(|c| c.held + c.overwritten + c.dropped)).sum()
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
