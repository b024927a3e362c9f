//! Takes what is in the kernel's buffers, now and then, and writes it to files as it is.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use loopscope_time::Frequency;
use loopscope_time::source::read_counter;

use crate::buffer::{Buffer, events_of};
use crate::error::RecorderError;
use crate::output::Output;
use crate::programs::histograms::Keeper;
use crate::programs::recorder::ProgramRecorder;
use crate::programs::symbols::Functions;
use crate::recording::{Account, Class, Recording, RecordingError, VERSION};
use crate::stolen::Stealing;
use crate::tracefs::Instance;

/// Between two looks at the buffers: the longest and the shortest time.
const PAUSE: Duration = Duration::from_millis(50);
const SHORTEST: Duration = Duration::from_millis(2);
/// The next pause is half as long where a buffer had more than this part of its room in use, and
/// twice as long where none had a quarter of that.
const USED: f64 = 0.25;
/// Between two looks at the kernel's counts, about.
const LOOK: Duration = Duration::from_secs(1);
/// A trigger is told of this long after its cause, at most.
const SLACK: Duration = Duration::from_millis(500);
/// A page is not longer.
pub(crate) const LONGEST_PAGE: usize = 64 << 10;

/// What a flight recorder writes: the newest events, when it is triggered.
#[derive(Clone, Copy, Debug)]
pub struct Flight {
    /// For how long events are held before a trigger, at least.
    pub keep: Duration,
    /// Whether the end of the recording is a trigger too.
    pub at_end: bool,
}

/// What a recording is told to do.
#[derive(Debug)]
pub(crate) enum Order {
    /// Trigger the flight recorder, which goes on to write for so long.
    Trigger(Duration),
    /// Record these classes alone; then the answer.
    Choose(Vec<String>, Sender<()>),
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

/// What takes the events of a recording.
pub(crate) struct Taker {
    instances: Vec<Instance>,
    buffers: Vec<Buffer>,
    programs: Vec<ProgramRecorder>,
    page: Vec<u8>,
    /// Bytes of each buffer.
    room: f64,
    flight: Option<Flying>,
    classes: BTreeMap<String, Chosen>,
    stealing: Option<Stealing>,
    /// `None`: nobody asked for them.
    pub(crate) histograms: Option<Keeper>,
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
    /// Takes the events of `recording` out of the buffers of its instances and of its programs.
    pub(crate) fn make(
        instances: Vec<Instance>,
        buffers: Vec<Buffer>,
        programs: Vec<ProgramRecorder>,
        recording: &Recording,
        buffer: u64,
        flight: Option<Flight>,
    ) -> Result<Taker, RecorderError> {
        let mut instance = 0..;
        let chosen = |(name, class): (&String, &Class)| {
            let of_programs = !class.programs.is_empty();
            let events = class.formats.keys().cloned().collect();
            let tracepoints =
                if of_programs { None } else { instance.next().map(|index| (index, events)) };
            (name.clone(), Chosen { tracepoints, off: None, gaps: vec![] })
        };
        let mut taker = Taker {
            instances,
            buffers,
            programs,
            page: vec![0; LONGEST_PAGE],
            room: buffer.max(1) as f64,
            flight: flight.map(|flight| Flying {
                keep: ticks(flight.keep + SLACK, recording.frequency),
                at_end: flight.at_end,
                until: None,
            }),
            classes: recording.classes.iter().map(chosen).collect(),
            stealing: Stealing::begin(),
            histograms: None,
        };
        if taker.flight.is_some() {
            taker.each_output(Output::hold)?;
        }
        Ok(taker)
    }

    /// Takes them until there is nobody to give orders, and ends the recording.
    pub(crate) fn run(
        &mut self,
        given: &Receiver<Order>,
        folder: &Path,
    ) -> Result<Account, RecorderError> {
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
        let functions = Functions::default();
        for recorder in self.programs.drain(..) {
            let class = recorder.class.clone();
            let (counts, problems) = recorder.account(&functions);
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
        match self.histograms.take().map(|keeper| keeper.kept()).transpose() {
            Ok(kept) => account.histograms = kept,
            Err(error) => account.problems.push(format!("histograms: {error}")),
        }
        account.stolen = self.stealing.take().map(|stealing| stealing.found);
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
        self.stealing.iter_mut().for_each(Stealing::look);
        Ok(())
    }
}
