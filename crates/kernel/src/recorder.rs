//! Recording: a thread that takes what is in the kernel's buffers, now and then, and writes it to
//! files as it is. The kernel never wakes it: being woken for events would make events.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use loopscope_time::Frequency;
use loopscope_time::source::{counter_kind, read_counter};

use crate::buffer::{Buffer, events_of};
use crate::cost::{self, Cost, Link};
pub use crate::error::RecorderError;
use crate::format::EventFormat;
use crate::output::{Output, Replaced};
use crate::page;
use crate::programs::reasons;
use crate::programs::recorder::ProgramRecorder;
use crate::programs::{self, ProgramsError};
use crate::recording::{Account, BufferCounts, Class, Recording, RecordingError, VERSION, failed};
use crate::tracefs::{self, Instance, TracefsError};

/// Between two looks at the buffers: the longest and the shortest time.
const PAUSE: Duration = Duration::from_millis(50);
const SHORTEST: Duration = Duration::from_millis(2);
/// The next pause is half as long where a buffer had more than this part of its room in use, and
/// twice as long where none had a quarter of that.
const USED: f64 = 0.25;
/// Between two looks at the kernel's counts, about.
const LOOK: Duration = Duration::from_secs(1);
/// The names of loopscope's instances begin so.
const PREFIX: &str = "ls-";
/// A trigger is told of this long after its cause, at most.
const SLACK: Duration = Duration::from_millis(500);
/// A page is not longer.
const LONGEST_PAGE: usize = 64 << 10;

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
    /// Bytes that each processor has for each class.
    pub buffer: u64,
    /// `None`: everything is written.
    pub flight: Option<Flight>,
}

/// What a flight recorder writes: the newest events, when it is triggered.
#[derive(Clone, Copy, Debug)]
pub struct Flight {
    /// For how long events are held before a trigger, at least.
    pub keep: Duration,
    /// Whether the end of the recording is a trigger too.
    pub at_end: bool,
}

/// A recording that goes on. Dropping it ends the recording too, and waits for nothing.
#[derive(Debug)]
pub struct Recorder {
    /// What an event costs the thread in which it happens, by class, or as `CLASS:NAME` where the
    /// events of a class differ.
    pub event_ns: BTreeMap<String, Cost>,
    /// Classes of which nothing is recorded, though they were asked for, and why.
    pub without: BTreeMap<String, ProgramsError>,
    orders: Sender<Order>,
    thread: JoinHandle<Result<Account, RecorderError>>,
}

#[derive(Debug)]
enum Order {
    /// Trigger the flight recorder, which goes on to write for so long.
    Trigger(Duration),
    /// Record these classes alone; then the answer.
    Choose(Vec<String>, Sender<()>),
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
        let (mut programs, mut without) = (Vec::new(), BTreeMap::new());
        let by_programs = request.programs.iter();
        let by_programs =
            by_programs.flat_map(|asked| asked.classes.iter().map(move |class| (asked, class)));
        for (asked, (name, events)) in by_programs {
            match ProgramRecorder::make(asked, name, events, folder, request.buffer) {
                Ok((made, mut class, absent)) => {
                    recording.absent.extend(absent);
                    if name == programs::DROP
                        && let Some(text) = tracefs::format(tracefs, reasons::TRACEPOINT)?
                    {
                        class.formats.insert(reasons::TRACEPOINT.to_owned(), text);
                    }
                    recording.classes.insert(name.clone(), class);
                    programs.push(made);
                }
                // The other classes can be recorded without.
                Err(RecorderError::Programs(error)) => {
                    without.insert(name.clone(), error);
                }
                Err(error) => return Err(error),
            }
        }
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
        // The counts begin with the first event.
        for instance in &instances {
            instance.clear()?;
            instance.switch(true)?;
        }
        programs.iter_mut().try_for_each(ProgramRecorder::begin)?;
        let (orders, given) = channel();
        let room = request.buffer.max(1) as f64;
        let page = vec![0; LONGEST_PAGE];
        let flight = request.flight.map(|flight| Flying {
            keep: ticks(flight.keep + SLACK, request.frequency),
            at_end: flight.at_end,
            until: None,
        });
        let mut instance = 0..;
        let chosen = |(name, class): (&String, &Class)| {
            let of_programs = !class.programs.is_empty();
            let events = class.formats.keys().cloned().collect();
            let tracepoints =
                if of_programs { None } else { instance.next().map(|index| (index, events)) };
            (name.clone(), Chosen { tracepoints, off: None, gaps: vec![] })
        };
        let classes = recording.classes.iter().map(chosen).collect();
        let mut taker = Taker { instances, buffers, programs, page, room, flight, classes };
        if taker.flight.is_some() {
            taker.each_output(Output::hold)?;
        }
        let path = folder.clone();
        let thread = std::thread::Builder::new()
            .name("kernel-events".to_owned())
            .spawn(move || taker.run(&given, &path))
            .map_err(|error| RecorderError::Thread(format!("cannot be started: {error}")))?;
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
        let panicked = |_| RecorderError::Thread("panicked: please report this".to_owned());
        self.thread.join().map_err(panicked)?
    }
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

/// A flight recorder that goes on.
#[derive(Debug)]
struct Flying {
    /// Ticks of the counter.
    keep: u64,
    at_end: bool,
    /// Until when everything is written, after a trigger.
    until: Option<Instant>,
}

/// A time in ticks of the counter.
fn ticks(time: Duration, frequency: Frequency) -> u64 {
    (time.as_secs_f64() * frequency.hz() as f64) as u64
}

struct Taker {
    instances: Vec<Instance>,
    buffers: Vec<Buffer>,
    programs: Vec<ProgramRecorder>,
    page: Vec<u8>,
    /// Bytes of each buffer.
    room: f64,
    flight: Option<Flying>,
    classes: BTreeMap<String, Chosen>,
}

/// A class, and whether it is being recorded.
#[derive(Debug)]
struct Chosen {
    /// The index of its instance, and its events; `None`: programs record it.
    tracepoints: Option<(usize, Vec<String>)>,
    /// The counter when it was left out.
    off: Option<u64>,
    /// When it was not recorded, as [`BufferCounts::gaps`].
    gaps: Vec<(u64, u64, u64)>,
}

impl Taker {
    fn run(&mut self, given: &Receiver<Order>, folder: &Path) -> Result<Account, RecorderError> {
        let mut failure = None;
        self.look()?;
        let (mut pause, mut since) = (PAUSE, Duration::ZERO);
        loop {
            let order = match given.recv_timeout(pause) {
                Ok(order) => Some(order),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            since += pause;
            // After a failure buffers fill up, and the kernel counts what does not fit.
            if failure.is_none() {
                let taken = self.take(false);
                match taken.and_then(|used| self.obey(order).map(|()| used)) {
                    Ok(used) if used > USED => pause = (pause / 2).max(SHORTEST),
                    Ok(used) if used < USED / 4.0 => pause = (pause * 2).min(PAUSE),
                    Ok(_) => {}
                    Err(error) => failure = Some(error),
                }
            }
            if since >= LOOK {
                self.look()?;
                since = Duration::ZERO;
            }
        }
        for instance in &self.instances {
            instance.switch(false)?;
        }
        self.programs.iter_mut().try_for_each(ProgramRecorder::end)?;
        if failure.is_none() {
            failure = self.end().err();
        }
        self.look()?;
        if failure.is_some() {
            self.give_up()?;
        }
        let mut account = Account { version: VERSION, ..Account::default() };
        account.problems.extend(failure.map(|error| error.to_string()));
        for mut buffer in self.buffers.drain(..) {
            buffer.replaced.account(&mut buffer.counts);
            let of_class = account.classes.entry(buffer.class).or_default();
            of_class.insert(buffer.processor, buffer.counts);
        }
        for recorder in self.programs.drain(..) {
            let class = recorder.class.clone();
            let (counts, problems) = recorder.account();
            account.classes.insert(class, counts);
            account.problems.extend(problems);
        }
        let now = read_counter().0;
        for (name, Chosen { gaps, off, .. }) in &mut self.classes {
            gaps.extend(off.map(|since| (since, now, 0)));
            // What is said of one processor is said of the class.
            let counts = account.classes.get_mut(name).and_then(|of| of.values_mut().next());
            counts.into_iter().for_each(|counts| counts.gaps.append(gaps));
        }
        account.store(folder)?;
        Ok(account)
    }

    /// Takes what is in the buffers; the largest part of the room of one that was in use. `all`: to
    /// the last event, which only is one when no more are made; and writes it.
    fn take(&mut self, all: bool) -> Result<f64, RecorderError> {
        let mut most = 0.0_f64;
        let keep = self.flight.as_ref().map_or(0, |flight| flight.keep);
        for buffer in &mut self.buffers {
            most = most.max(buffer.take(&mut self.page, all, keep)? as f64 / self.room);
        }
        for recorder in &mut self.programs {
            most = most.max(recorder.take(all, keep)?);
        }
        Ok(most)
    }

    /// Does what it is told to; a flight recorder holds back again what comes when it is time to.
    fn obey(&mut self, order: Option<Order>) -> Result<(), RecorderError> {
        let now = Instant::now();
        match order {
            Some(Order::Choose(classes, done)) => {
                self.choose(&classes)?;
                // The caller may have gone.
                let _ = done.send(());
            }
            Some(Order::Trigger(post)) => {
                let Some(flight) = &mut self.flight else { return Ok(()) };
                flight.until = flight.until.max(Some(now + post));
                self.each_output(Output::release)?;
            }
            None => {}
        }
        if self.flight.as_ref().is_some_and(|flight| flight.until.is_some_and(|until| until <= now))
        {
            self.each_output(Output::hold)?;
            self.flight.iter_mut().for_each(|flight| flight.until = None);
        }
        Ok(())
    }

    /// Records these classes alone.
    fn choose(&mut self, classes: &[String]) -> Result<(), RecorderError> {
        for (name, class) in &mut self.classes {
            let on = classes.contains(name);
            if on == class.off.is_none() {
                continue;
            }
            let before = read_counter().0;
            if let Some((instance, events)) = &class.tracepoints {
                let instance = &self.instances[*instance];
                events.iter().try_for_each(|event| instance.enable(event, on))?;
            } else if let Some(recorder) =
                self.programs.iter_mut().find(|recorder| recorder.class == *name)
            {
                recorder.measure(on)?;
            }
            match class.off {
                Some(since) => class.gaps.push((since, read_counter().0, 0)),
                None => class.off = Some(before),
            }
            if on {
                class.off = None;
            }
        }
        Ok(())
    }

    fn each_output(
        &mut self,
        what: impl Fn(&mut Output) -> Result<(), RecordingError>,
    ) -> Result<(), RecorderError> {
        let files = self.buffers.iter_mut().map(|buffer| &mut buffer.file);
        let of_programs = self.programs.iter_mut().flat_map(ProgramRecorder::files);
        Ok(files.chain(of_programs).try_for_each(what)?)
    }

    /// Takes the last events, and writes what is to be written of what is held.
    fn end(&mut self) -> Result<(), RecorderError> {
        self.take(true)?;
        if self.flight.as_ref().is_some_and(|flight| !flight.at_end) {
            for buffer in &mut self.buffers {
                buffer.file.replace(events_of, &mut buffer.replaced);
            }
            self.programs.iter_mut().for_each(ProgramRecorder::replace);
        }
        self.each_output(Output::release)
    }

    /// What nobody takes any more is lost, and so is what could not be written.
    fn give_up(&mut self) -> Result<(), RecorderError> {
        let now = read_counter().0;
        for buffer in &mut self.buffers {
            let found = self.instances[buffer.instance].counts(buffer.processor)?;
            buffer.give_up(now, found);
        }
        Ok(())
    }

    /// Looks at the kernel's counts.
    fn look(&mut self) -> Result<(), RecorderError> {
        let now = read_counter().0;
        for buffer in &mut self.buffers {
            let found = self.instances[buffer.instance].counts(buffer.processor)?;
            buffer.look(now, found);
        }
        self.programs.iter_mut().try_for_each(ProgramRecorder::look)?;
        Ok(())
    }
}
