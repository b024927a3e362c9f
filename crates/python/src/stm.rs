//! Space-time memory for `loopscope.stm`, which adds views of the items' bytes.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use loopscope_stm as stm;
use loopscope_stm::{Config, From, Full as WhenFull, Orphans, Time, Which};
use loopscope_stm_shared::{
    Client, GetError, Input, Item, Kind, Loan, Options, Output, PutError, ServiceError, Settings,
    Shared, Until, socket_path,
};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::pace::StmPace;

create_exception!(loopscope.stm, StmError, PyException, "A channel does not do something.");
create_exception!(loopscope.stm, Ambiguous, StmError, "Several items may be the nearest one.");
create_exception!(loopscope.stm, Exists, StmError, "The channel has an item of this time.");
create_exception!(loopscope.stm, Full, StmError, "The channel is full.");
create_exception!(loopscope.stm, Gone, StmError, "The time was consumed or collected.");
create_exception!(loopscope.stm, Late, StmError, "Nobody may have an item of this time any more.");
create_exception!(loopscope.stm, Never, StmError, "The producers promised no item of this time.");
create_exception!(loopscope.stm, NoSlot, StmError, "All slots of the channel are in use.");
create_exception!(loopscope.stm, NotConnected, StmError, "The connection has ended.");
create_exception!(loopscope.stm, NotYet, StmError, "There is no such item yet.");
create_exception!(loopscope.stm, TooMany, StmError, "There are as many as there may be.");

/// A wait goes on in parts of this length, between which Python's signal handlers run.
const SLICE: Duration = Duration::from_millis(50);

/// The exception of an error.
fn raised<E: std::fmt::Display>(error: E) -> PyErr
where
    for<'a> Kind: std::convert::From<&'a E>,
{
    let text = error.to_string();
    match Kind::from(&error) {
        Kind::NotYet => NotYet::new_err(text),
        Kind::Gone => Gone::new_err(text),
        Kind::Never => Never::new_err(text),
        Kind::Ambiguous => Ambiguous::new_err(text),
        Kind::Late => Late::new_err(text),
        Kind::Exists => Exists::new_err(text),
        Kind::Full => Full::new_err(text),
        Kind::NoSlot => NoSlot::new_err(text),
        Kind::TooMany => TooMany::new_err(text),
        Kind::NotConnected => NotConnected::new_err(text),
        Kind::Invalid => PyValueError::new_err(text),
        Kind::Failed => StmError::new_err(text),
    }
}

/// Repeats an operation that waits, until it is done or `timeout_s` seconds have passed (None: for
/// as long as it takes). `may_change`: an error that may be another one later.
fn wait<T: Send, E: Send>(
    py: Python<'_>,
    timeout_s: Option<f64>,
    may_change: impl Fn(&E) -> bool,
    mut operation: impl FnMut(Until) -> Result<T, E> + Send,
) -> PyResult<Result<T, E>> {
    let length = timeout_s.map(Duration::try_from_secs_f64).transpose();
    let length = length.map_err(|why| PyValueError::new_err(format!("timeout: {why}")))?;
    // One that is too long to be an instant is for ever.
    let end = length.and_then(|length| Instant::now().checked_add(length));
    if length == Some(Duration::ZERO) {
        return Ok(py.detach(|| operation(Until::Now)));
    }
    loop {
        let slice = Instant::now() + SLICE;
        let last = end.filter(|end| *end <= slice);
        match py.detach(|| operation(Until::Deadline(last.unwrap_or(slice)))) {
            Err(error) if last.is_none() && may_change(&error) => py.check_signals()?,
            done => return Ok(done),
        }
    }
}

/// What a program has until it ends it. Other threads may use it at the same time.
struct Ends<T>(Mutex<Option<T>>);

impl<T> Ends<T> {
    fn new(value: T) -> Ends<T> {
        Ends(Mutex::new(Some(value)))
    }

    /// What an operation answers; None if it has ended. One that may wait is to be called without the
    /// interpreter.
    fn with<A>(&self, operation: impl FnOnce(&mut T) -> A) -> Option<A> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut().map(operation)
    }

    fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A way to the machine's service of channels.
#[pyclass(frozen)]
struct StmService(Ends<Client>);

#[pymethods]
impl StmService {
    #[new]
    fn new(py: Python<'_>, path: Option<PathBuf>) -> PyResult<StmService> {
        let path = path.unwrap_or_else(socket_path);
        let client = py.detach(|| Client::connect(&path)).map_err(raised)?;
        Ok(StmService(Ends::new(client)))
    }

    #[pyo3(signature = (
        name, *, capacity, slots, item_bytes, inputs, outputs, processes, loans, ahead, remembered,
        discard_orphans, drop_when_full, lifespan_us
    ))]
    #[expect(clippy::too_many_arguments, reason = "Python calls it")]
    fn create(
        &self,
        py: Python<'_>,
        name: &str,
        capacity: u32,
        slots: u32,
        item_bytes: u32,
        inputs: u32,
        outputs: u32,
        processes: u32,
        loans: u32,
        ahead: u32,
        remembered: u32,
        discard_orphans: bool,
        drop_when_full: bool,
        lifespan_us: u32,
    ) -> PyResult<bool> {
        let orphans = if discard_orphans { Orphans::Discard } else { Orphans::Keep };
        let full = if drop_when_full { WhenFull::Drop } else { WhenFull::Refuse };
        let config =
            Config { capacity, slots, inputs, outputs, loans, ahead, remembered, orphans, full };
        let lifespan = (lifespan_us > 0).then(|| Duration::from_micros(lifespan_us.into()));
        let options = Options { config, item_bytes, processes };
        let settings = Settings::from(&options).with_lifespan(lifespan);
        self.ask(py, |client| client.create(name, settings))
    }

    fn channel(&self, py: Python<'_>, name: &str, puts: bool) -> PyResult<StmChannel> {
        self.ask(py, |client| client.open(name, puts)).map(StmChannel)
    }

    /// The channels, as JSON.
    fn list(&self, py: Python<'_>) -> PyResult<String> {
        let channels = self.ask(py, Client::list)?;
        serde_json::to_string(&channels).map_err(crate::refuse)
    }

    fn remove(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.ask(py, |client| client.remove(name))
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.0.take()));
    }
}

impl StmService {
    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        question: impl FnOnce(&mut Client) -> Result<T, ServiceError> + Send,
    ) -> PyResult<T> {
        let answer = py.detach(|| self.0.with(question));
        answer.ok_or_else(ended)?.map_err(raised)
    }
}

/// A channel that this process uses.
#[pyclass(frozen)]
struct StmChannel(Shared);

#[pymethods]
impl StmChannel {
    #[getter]
    fn item_bytes(&self) -> usize {
        self.0.item_bytes()
    }

    #[getter]
    fn capacity(&self) -> u32 {
        self.0.config().capacity
    }

    /// `begin`: `oldest`, `newest`, `next`, or `at` a time.
    fn input(
        &self,
        py: Python<'_>,
        begin: &str,
        time: Time,
        lossy: bool,
        holds: u32,
    ) -> PyResult<StmInput> {
        let from = match begin {
            "oldest" => From::Oldest,
            "newest" => From::Newest,
            "next" => From::Next,
            "at" => From::At(time),
            _ => return Err(PyValueError::new_err(format!("no begin is {begin:?}"))),
        };
        let input = py.detach(|| self.0.input(from, lossy, holds)).map_err(raised)?;
        let (floor, looked) = (input.floor, Ends::new(vec![]));
        Ok(StmInput { floor, input: Ends::new(input), looked })
    }

    /// `watches`: it tells by `collected` of items that were collected.
    fn output(&self, py: Python<'_>, watches: bool) -> PyResult<StmOutput> {
        let output = py.detach(|| self.0.output()).map_err(raised)?;
        if watches {
            py.detach(|| output.collected(0)).map_err(raised)?;
        }
        Ok(StmOutput(Ends::new(output)))
    }

    #[getter]
    fn restarts(&self) -> u64 {
        self.0.restarts()
    }

    /// Items put, collected, dropped, present, and free slots.
    fn counts(&self, py: Python<'_>) -> PyResult<(u64, u64, u64, u32, u32)> {
        let counts = py.detach(|| self.0.counts()).map_err(raised)?;
        Ok((counts.put, counts.collected, counts.dropped, counts.present, counts.free))
    }
}

/// A connection that gets items.
#[pyclass(frozen)]
struct StmInput {
    #[pyo3(get)]
    floor: Time,
    input: Ends<Input>,
    /// Memory for what a look copies.
    looked: Ends<Vec<u8>>,
}

#[pymethods]
impl StmInput {
    /// `which`: `exact`, `newest`, `oldest`, `unseen` or `nearest`.
    fn get(
        &self,
        py: Python<'_>,
        which: &str,
        time: Time,
        tolerance: u64,
        half_width: u32,
        timeout_s: Option<f64>,
    ) -> PyResult<StmItem> {
        let which = match which {
            "exact" => Which::Exact(time),
            "newest" => Which::Newest,
            "oldest" => Which::Oldest,
            "unseen" => Which::Unseen,
            "nearest" => Which::Nearest { time, tolerance, half_width },
            _ => return Err(PyValueError::new_err(format!("no item is {which:?}"))),
        };
        let may_change = |error: &GetError| *error == GetError::Get(stm::GetError::NotYet);
        let got = wait(py, timeout_s, may_change, |until| {
            let done = self.input.with(|input| input.get(which, until));
            done.unwrap_or(Err(stm::GetError::NotConnected.into()))
        })?;
        got.map(StmItem::new).map_err(raised)
    }

    /// The newest item, if it is later than `after`: its time, half-width, instant of its put, the bytes
    /// that were copied, and how many it has.
    fn look<'py>(
        &self,
        py: Python<'py>,
        after: Option<Time>,
        most: usize,
    ) -> PyResult<(Time, u32, i64, i64, Bound<'py, PyBytes>, usize)> {
        // Another thread that looks at the same time has one of its own.
        let mut bytes = self.looked.with(std::mem::take).unwrap_or_default();
        bytes.resize(bytes.len().max(most), 0);
        let look = py.detach(|| self.input.with(|input| input.look(after, &mut bytes[..most])));
        let told = look.ok_or_else(ended).and_then(|look| look.map_err(raised)).map(|look| {
            let copied = PyBytes::new(py, &bytes[..look.bytes.min(most)]);
            (look.time, look.half_width, look.put_ns, look.put_error_ns, copied, look.bytes)
        });
        self.looked.with(|kept| *kept = bytes);
        told
    }

    fn range(&self, py: Python<'_>, first: Time, last: Time) -> PyResult<Vec<StmItem>> {
        let got = py.detach(|| self.input.with(|input| input.range(first, last)));
        let items = got.ok_or_else(ended)?.map_err(raised)?;
        Ok(items.into_iter().map(StmItem::new).collect())
    }

    fn consume(&self, py: Python<'_>, time: Time) -> PyResult<()> {
        let done = py.detach(|| self.input.with(|input| input.consume(time)));
        done.ok_or_else(ended)?.map_err(raised)
    }

    fn consume_each(&self, py: Python<'_>, times: Vec<Time>) -> PyResult<()> {
        let done = py.detach(|| self.input.with(|input| input.consume_each(&times)));
        done.ok_or_else(ended)?.map_err(raised)
    }

    fn consume_until(&self, py: Python<'_>, time: Time) -> PyResult<()> {
        let done = py.detach(|| self.input.with(|input| input.consume_until(time)));
        done.ok_or_else(ended)?.map_err(raised)
    }

    /// The floor, and items held, lost and skipped.
    fn counts(&self, py: Python<'_>) -> PyResult<(Time, u32, u64, u64)> {
        let counts = py.detach(|| self.input.with(|input| input.counts()));
        let counts = counts.ok_or_else(ended)?.map_err(raised)?;
        Ok((counts.floor, counts.held, counts.lost, counts.skipped))
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.input.take()));
    }
}

/// A connection that puts items.
#[pyclass(frozen)]
struct StmOutput(Ends<Output>);

#[pymethods]
impl StmOutput {
    fn loan(&self, py: Python<'_>, timeout_s: Option<f64>) -> PyResult<StmLoan> {
        let may_change = |error: &PutError| *error == PutError::Loan(stm::LoanError::NoSlot);
        let loan = wait(py, timeout_s, may_change, |until| {
            let done = self.0.with(|output| output.loan(until));
            done.unwrap_or(Err(stm::LoanError::NotConnected.into()))
        })?;
        let mut loan = loan.map_err(raised)?;
        Ok(StmLoan {
            address: loan.as_mut_ptr() as usize,
            bytes: loan.len(),
            loan: Ends::new(loan),
        })
    }

    fn derives(&self, py: Python<'_>, from: &StmInput) -> PyResult<()> {
        let done = py.detach(|| {
            let follow = |input: &mut Input| self.0.with(|output| output.derives(input));
            from.input.with(follow).flatten()
        });
        done.ok_or_else(ended)?.map_err(raised)
    }

    fn collected(&self, py: Python<'_>) -> PyResult<Vec<Time>> {
        let times = py.detach(|| self.0.with(|output| output.collected(usize::MAX)));
        times.ok_or_else(ended)?.map_err(raised)
    }

    fn bound(&self, py: Python<'_>, time: Time) -> PyResult<Time> {
        let done = py.detach(|| self.0.with(|output| output.bound(time)));
        done.ok_or_else(ended)?.map_err(raised)
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.0.take()));
    }
}

/// Memory for an item.
#[pyclass(frozen)]
struct StmLoan {
    #[pyo3(get)]
    address: usize,
    #[pyo3(get)]
    bytes: usize,
    loan: Ends<Loan>,
}

#[pymethods]
impl StmLoan {
    fn put(
        &self,
        py: Python<'_>,
        time: Time,
        half_width: u32,
        bytes: usize,
        timeout_s: Option<f64>,
    ) -> PyResult<()> {
        let mut goes_on = false;
        let put = wait(py, timeout_s, PutError::may_end, |until| {
            let mut kept = self.loan.0.lock().unwrap_or_else(PoisonError::into_inner);
            let mut loan = kept.take().ok_or(PutError::Put(stm::PutError::NotLoaned))?;
            // In the next part of a wait the bytes are the same. Before the next call they may change.
            if std::mem::replace(&mut goes_on, true) {
                loan.mark_unchanged();
            }
            loan.put(time, half_width, bytes, until).map_err(|(loan, error)| {
                *kept = Some(loan);
                error
            })
        })?;
        put.map_err(raised)
    }
}

/// An item that was got.
#[pyclass(frozen)]
struct StmItem {
    #[pyo3(get)]
    time: Time,
    #[pyo3(get)]
    half_width: u32,
    #[pyo3(get)]
    put_ns: i64,
    #[pyo3(get)]
    put_error_ns: i64,
    #[pyo3(get)]
    address: usize,
    #[pyo3(get)]
    bytes: usize,
    item: Ends<Item>,
}

#[pymethods]
impl StmItem {
    fn release(&self, py: Python<'_>) {
        py.detach(|| drop(self.item.take()));
    }
}

impl StmItem {
    fn new(item: Item) -> StmItem {
        StmItem {
            time: item.time(),
            half_width: item.half_width(),
            put_ns: item.put_ns(),
            put_error_ns: item.put_error_ns(),
            address: item.as_ptr() as usize,
            bytes: item.len(),
            item: Ends::new(item),
        }
    }
}

fn ended() -> PyErr {
    NotConnected::new_err("the connection has ended")
}

/// Adds all of it to the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<StmService>()?;
    module.add_class::<StmChannel>()?;
    module.add_class::<StmInput>()?;
    module.add_class::<StmOutput>()?;
    module.add_class::<StmLoan>()?;
    module.add_class::<StmItem>()?;
    module.add_class::<StmPace>()?;
    let py = module.py();
    for (name, exception) in [
        ("StmError", py.get_type::<StmError>()),
        ("Ambiguous", py.get_type::<Ambiguous>()),
        ("Exists", py.get_type::<Exists>()),
        ("Full", py.get_type::<Full>()),
        ("Gone", py.get_type::<Gone>()),
        ("Late", py.get_type::<Late>()),
        ("Never", py.get_type::<Never>()),
        ("NoSlot", py.get_type::<NoSlot>()),
        ("NotConnected", py.get_type::<NotConnected>()),
        ("NotYet", py.get_type::<NotYet>()),
        ("TooMany", py.get_type::<TooMany>()),
    ] {
        module.add(name, exception)?;
    }
    Ok(())
}
