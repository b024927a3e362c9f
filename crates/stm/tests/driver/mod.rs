//! Does the same to a channel and to the model, and compares after each operation.

mod op;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::atomic::AtomicU64;

use loopscope_stm::{
    Channel, Collected, Config, ConsumeError, Counts, From, GetError, Got, InputCounts, InputId,
    JoinError, LeaveError, LoanError, NewItem, OutputId, PutError, Slot, Time, Which,
};

use crate::model::Model;
use op::{EXTREMES, WhichSlot, Who};
pub use op::{Op, config, op};

/// A channel, in memory of its own.
pub struct Memory(Channel<Vec<AtomicU64>>);

/// Defines `Subject`, and implements it for the channel and its model by methods of the same names.
macro_rules! operations {
    ($($name:ident($($arg:ident: $kind:ty),*) -> $answer:ty;)*) => {
        /// What is compared with the model. Its numbers of connections and slots may differ.
        pub trait Subject {
            fn new(config: &Config) -> Self;
            $(fn $name(&mut self, $($arg: $kind),*) -> $answer;)*

            /// The items that were collected since the last call, if it tells them.
            fn take_collected(&mut self) -> Option<Vec<Collected>> {
                None
            }

            /// A loan and a put at once; the slot.
            fn put_new(&mut self, id: OutputId, item: NewItem) -> Result<Slot, NewError> {
                let slot = self.loan(id)?;
                self.put(id, slot, item).inspect_err(|_| _ = self.give_back(id, slot))?;
                Ok(slot)
            }
        }

        impl Subject for Model {
            fn new(config: &Config) -> Self {
                Model::new(config)
            }
            $(fn $name(&mut self, $($arg: $kind),*) -> $answer {
                Model::$name(self, $($arg),*)
            })*
        }

        impl Subject for Memory {
            fn new(config: &Config) -> Self {
                let words = Channel::<Vec<AtomicU64>>::words_needed(config).unwrap();
                let zeros = (0..words).map(|_| AtomicU64::new(0)).collect();
                let mut channel = Channel::create(config, zeros).unwrap();
                channel.tell_collected(true);
                Memory(channel)
            }

            fn take_collected(&mut self) -> Option<Vec<Collected>> {
                Some(self.0.take_collected())
            }

            $(fn $name(&mut self, $($arg: $kind),*) -> $answer {
                self.0.$name($($arg),*)
            })*

            fn put_new(&mut self, id: OutputId, item: NewItem) -> Result<Slot, NewError> {
                let (mut filled, mut shown) = (None, None);
                let fill = |slot| {
                    filled = Some(slot);
                    Ok::<_, NewError>(())
                };
                let dropped = self.0.counts().dropped;
                self.0.put_new(id, item, fill, |slot, newest| shown = newest.then_some(slot))?;
                let newest = self.0.newest().filter(|(_, newest)| newest.time == item.time);
                // Where the newest item made room for it, it is not shown before.
                if shown.is_some() || self.0.counts().dropped == dropped {
                    assert_eq!(shown, newest.map(|(slot, _)| slot), "what is shown is the newest");
                }
                Ok(filled.unwrap())
            }
        }
    };
}

operations! {
    join_input(
        owner: u32, from: From, lossy: bool, holds: u32
    ) -> Result<(InputId, Time), JoinError>;
    join_output(owner: u32) -> Result<OutputId, JoinError>;
    leave_all(owner: u32) -> usize;
    leave_input(id: InputId) -> Result<(), LeaveError>;
    retire_input(id: InputId) -> Result<(), LeaveError>;
    leave_output(id: OutputId) -> Result<(), LeaveError>;
    loan(id: OutputId) -> Result<Slot, LoanError>;
    give_back(id: OutputId, slot: Slot) -> Result<(), LoanError>;
    put(id: OutputId, slot: Slot, item: NewItem) -> Result<(), PutError>;
    bound(id: OutputId, time: Time) -> Result<Time, LeaveError>;
    get(id: InputId, which: Which) -> Result<Got, GetError>;
    range(id: InputId, first: Time, last: Time) -> Result<Vec<Got>, GetError>;
    look(id: InputId) -> Result<Got, GetError>;
    release(id: InputId, time: Time) -> Result<(), ConsumeError>;
    consume(id: InputId, time: Time) -> Result<(), ConsumeError>;
    consume_until(id: InputId, time: Time) -> Result<(), ConsumeError>;
    counts() -> Counts;
    input_counts(id: InputId) -> Result<InputCounts, LeaveError>;
    due(id: InputId) -> Result<Time, LeaveError>;
}

/// Why there is no new item.
#[derive(PartialEq)]
pub enum NewError {
    Loan(LoanError),
    Put(PutError),
}

impl Debug for NewError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NewError::Loan(error) => error.fmt(f),
            NewError::Put(error) => error.fmt(f),
        }
    }
}

impl std::convert::From<LoanError> for NewError {
    fn from(error: LoanError) -> NewError {
        NewError::Loan(error)
    }
}

impl std::convert::From<PutError> for NewError {
    fn from(error: PutError) -> NewError {
        NewError::Put(error)
    }
}

/// How often each operation has given each answer.
pub type Tally = BTreeMap<String, u64>;

struct Connection<Id> {
    owner: u32,
    model: Id,
    subject: Id,
    left: bool,
}

struct Loan {
    output: usize,
    model: Slot,
    subject: Slot,
}

/// A model and a subject to which the same was done.
struct Pair<'a, S> {
    config: Config,
    model: Model,
    subject: S,
    inputs: Vec<Connection<InputId>>,
    outputs: Vec<Connection<OutputId>>,
    loans: Vec<Loan>,
    /// The subject's slot of each item that was put.
    placed: BTreeMap<Time, Slot>,
    /// What the subject has told that it has collected.
    collected: Vec<Collected>,
    /// The items that input connections got, by their index.
    got: Vec<(usize, Time)>,
    front: Time,
    /// What was done and answered.
    trace: Vec<String>,
    tally: &'a mut Tally,
}

/// Does the operations; an error says what differs, after which operations.
pub fn run<S: Subject>(config: &Config, ops: &[Op], tally: &mut Tally) -> Result<(), String> {
    let mut pair = Pair {
        config: *config,
        model: Model::new(config),
        subject: S::new(config),
        inputs: Vec::new(),
        outputs: Vec::new(),
        loans: Vec::new(),
        placed: BTreeMap::new(),
        collected: Vec::new(),
        got: Vec::new(),
        front: 0,
        trace: Vec::new(),
        tally,
    };
    for op in ops {
        if let Err(difference) = pair.step(op).and_then(|()| pair.compare_counts()) {
            return Err(format!("{difference}\n{config:?}\n{}", pair.trace.join("\n")));
        }
    }
    Ok(())
}

/// `Ok`, or the error.
fn outcome<T, E: Debug>(answer: &Result<T, E>) -> String {
    answer.as_ref().map_or_else(|error| format!("{error:?}"), |_| "Ok".into())
}

/// The name of a variant.
fn name(value: &impl Debug) -> String {
    format!("{value:?}").split(['(', ' ']).next().unwrap().to_string()
}

/// The connection that an operation is of; it is left out if there is none.
fn find<Id>(all: &[Connection<Id>], who: Who) -> Option<usize> {
    let fit: Vec<usize> = (0..all.len()).filter(|index| all[*index].left == who.left).collect();
    (!fit.is_empty()).then(|| fit[who.nth % fit.len()])
}

impl<S: Subject> Pair<'_, S> {
    /// Records an answer and compares it. `call` is the operation as it was done.
    fn compare<T, E>(
        &mut self,
        call: String,
        kind: &str,
        model: Result<T, E>,
        subject: Result<T, E>,
    ) -> Result<(), String>
    where
        T: PartialEq + Debug,
        E: PartialEq + Debug,
    {
        *self.tally.entry(format!("{kind}: {}", outcome(&model))).or_default() += 1;
        self.trace.push(format!("  {call} -> {model:?}"));
        if model == subject {
            return Ok(());
        }
        Err(format!("{call}: the model answers {model:?}, the subject {subject:?}"))
    }

    fn compare_counts(&mut self) -> Result<(), String> {
        let (model, subject) = (self.model.counts(), self.subject.counts());
        if model != subject {
            return Err(format!("counts: the model has {model:?}, the subject {subject:?}"));
        }
        if let Some(news) = self.subject.take_collected() {
            let there = self.model.times();
            let is_gone = |time| self.placed.contains_key(&time) && !there.contains(&time);
            let before = self.collected.iter().map(|each| each.time);
            let told: BTreeSet<Time> = before.chain(news.iter().map(|each| each.time)).collect();
            let fits = news.iter().all(|each| is_gone(each.time));
            self.collected.extend(&news);
            let dropped = self.collected.iter().filter(|each| each.dropped).count() as u64;
            if !fits || told.len() as u64 != model.collected || dropped != model.dropped {
                return Err(format!("the subject tells that it collected {news:?} of {model:?}"));
            }
        }
        for (index, input) in self.inputs.iter().enumerate() {
            let model = self.model.input_counts(input.model);
            let subject = self.subject.input_counts(input.subject);
            if model != subject {
                return Err(format!("input {index}: the model has {model:?}, not {subject:?}"));
            }
            *self.tally.entry(format!("InputCounts: {}", outcome(&model))).or_default() += 1;
            let (model, subject) = (self.model.due(input.model), self.subject.due(input.subject));
            if model != subject {
                return Err(format!("input {index}: {model:?} is due to it, not {subject:?}"));
            }
        }
        Ok(())
    }

    fn at(&self, time: Time) -> Time {
        if (-1000..=1000).contains(&time) { self.front + time } else { time }
    }

    /// The model's and the subject's slot.
    fn slots(&self, output: usize, which: WhichSlot) -> (Slot, Slot) {
        let loans = |own: bool| self.loans.iter().filter(move |l| (l.output == output) == own);
        let (loans, nth): (Vec<&Loan>, usize) = match which {
            WhichSlot::Own(nth) => (loans(true).collect(), nth),
            WhichSlot::Others(nth) => (loans(false).collect(), nth),
            WhichSlot::Stranger(nth) => (Vec::new(), nth),
        };
        if !loans.is_empty() {
            return (loans[nth % loans.len()].model, loans[nth % loans.len()].subject);
        }
        let stranger = |own: Vec<Slot>| {
            let numbers = (0..=self.config.slots).chain([Slot::MAX]);
            let numbers: Vec<Slot> = numbers.filter(|slot| !own.contains(slot)).collect();
            numbers[nth % numbers.len()]
        };
        let own = || self.loans.iter().filter(|loan| loan.output == output);
        (
            stranger(own().map(|loan| loan.model).collect()),
            stranger(own().map(|loan| loan.subject).collect()),
        )
    }

    /// The subject's slots that are in use.
    fn used(&self) -> BTreeSet<Slot> {
        let items = self.model.times().into_iter().map(|time| self.placed[&time]);
        items.chain(self.loans.iter().map(|l| l.subject)).collect()
    }

    /// A new loan must not be of a slot that was in use.
    fn check_loan(&self, slot: Slot, used: &BTreeSet<Slot>) -> Result<(), String> {
        if slot < self.config.slots && !used.contains(&slot) {
            return Ok(());
        }
        Err(format!("the subject lends slot {slot}; in use are {used:?}"))
    }

    /// An item must be in the slot in which it was put.
    fn check_got(&mut self, input: usize, got: &[Got]) -> Result<(), String> {
        self.got.extend(got.iter().map(|got| (input, got.item.time)));
        match got.iter().find(|got| self.placed.get(&got.item.time) != Some(&got.slot)) {
            None => Ok(()),
            Some(got) => Err(format!("the subject returns {got:?} from a wrong slot")),
        }
    }

    fn step(&mut self, op: &Op) -> Result<(), String> {
        let kind = name(op);
        match *op {
            Op::JoinInput(owner, from, lossy, holds) => {
                let from = if let From::At(time) = from { From::At(self.at(time)) } else { from };
                let model = self.model.join_input(owner, from, lossy, holds);
                let subject = self.subject.join_input(owner, from, lossy, holds);
                if let (Ok(model), Ok(subject)) = (model, subject) {
                    let (model, subject) = (model.0, subject.0);
                    self.inputs.push(Connection { owner, model, subject, left: false });
                }
                let call = format!("{kind} of {owner} {from:?} lossy {lossy} holds {holds}");
                let (model, subject) = (model.map(|new| new.1), subject.map(|new| new.1));
                self.compare(call, &format!("{kind} {}", name(&from)), model, subject)
            }
            Op::JoinOutput(owner) => {
                let model = self.model.join_output(owner);
                let subject = self.subject.join_output(owner);
                if let (Ok(model), Ok(subject)) = (model, subject) {
                    self.outputs.push(Connection { owner, model, subject, left: false });
                }
                let (model, subject) = (model.map(|_| ()), subject.map(|_| ()));
                self.compare(format!("{kind} of {owner}"), &kind, model, subject)
            }
            Op::LeaveAll(owner) => {
                self.inputs.iter_mut().for_each(|input| input.left |= input.owner == owner);
                for (index, output) in self.outputs.iter_mut().enumerate() {
                    if output.owner == owner {
                        output.left = true;
                        self.loans.retain(|loan| loan.output != index);
                    }
                }
                let model = Ok::<_, LeaveError>(self.model.leave_all(owner));
                let subject = Ok(self.subject.leave_all(owner));
                self.compare(format!("{kind} of {owner}"), &kind, model, subject)
            }
            // Most puts are by a connection that has a loan.
            Op::Put(who, WhichSlot::Own(_), ..) if !who.left && !self.loans.is_empty() => {
                self.step_output(op, kind, self.loans[who.nth % self.loans.len()].output)
            }
            Op::LeaveOutput(who)
            | Op::Loan(who)
            | Op::GiveBack(who, _)
            | Op::Put(who, ..)
            | Op::PutNew(who, ..)
            | Op::Bound(who, _) => match find(&self.outputs, who) {
                Some(output) => self.step_output(op, kind, output),
                None => Ok(()),
            },
            Op::LeaveInput(who)
            | Op::RetireInput(who)
            | Op::Get(who, _)
            | Op::Range(who, ..)
            | Op::Look(who)
            | Op::Release(who, _)
            | Op::ReleaseGot(who, _)
            | Op::Consume(who, _)
            | Op::ConsumeUntil(who, _) => match find(&self.inputs, who) {
                Some(input) => self.step_input(op, kind, input),
                None => Ok(()),
            },
        }
    }

    fn step_output(&mut self, op: &Op, kind: String, output: usize) -> Result<(), String> {
        let Connection { model: id, subject: subject_id, .. } = self.outputs[output];
        let call = format!("{kind} by output {output}");
        match *op {
            Op::LeaveOutput(_) => {
                let model = self.model.leave_output(id);
                self.outputs[output].left = true;
                self.loans.retain(|loan| loan.output != output);
                let subject = self.subject.leave_output(subject_id);
                self.compare(call, &kind, model, subject)
            }
            Op::Loan(_) => {
                let used = self.used();
                let (model, subject) = (self.model.loan(id), self.subject.loan(subject_id));
                self.compare(call, &kind, model.map(|_| ()), subject.map(|_| ()))?;
                if let (Ok(model), Ok(subject)) = (model, subject) {
                    self.check_loan(subject, &used)?;
                    self.loans.push(Loan { output, model, subject });
                }
                Ok(())
            }
            Op::GiveBack(_, which) => {
                let (slot, subject_slot) = self.slots(output, which);
                let model = self.model.give_back(id, slot);
                let subject = self.subject.give_back(subject_id, subject_slot);
                if model.is_ok() {
                    self.loans.retain(|loan| loan.model != slot);
                }
                self.compare(format!("{call} slot {subject_slot}"), &kind, model, subject)
            }
            Op::Put(_, which, time, half_width) => {
                let (slot, subject_slot) = self.slots(output, which);
                let put_ns = self.trace.len() as i64;
                let (time, length) = (self.at(time), 64 + put_ns as u32);
                let item = NewItem { time, half_width, length, put_ns, put_error_ns: 0 };
                let before = self.model.counts();
                let model = self.model.put(id, slot, item);
                let subject = self.subject.put(subject_id, subject_slot, item);
                let after = self.model.counts();
                let how = if after.dropped > before.dropped {
                    "Put with a drop"
                } else if after.collected > before.collected {
                    "Put for nobody"
                } else {
                    "Put"
                };
                if model.is_ok() {
                    self.loans.retain(|loan| loan.model != slot);
                    self.placed.insert(time, subject_slot);
                    if !EXTREMES.contains(&time) {
                        self.front = self.front.max(time);
                    }
                }
                self.compare(format!("{call} slot {subject_slot} {item:?}"), how, model, subject)
            }
            Op::PutNew(_, time, half_width) => {
                let (used, put_ns) = (self.used(), self.trace.len() as i64);
                let (time, length) = (self.at(time), 64 + put_ns as u32);
                let item = NewItem { time, half_width, length, put_ns, put_error_ns: 0 };
                let (model, subject) =
                    (self.model.put_new(id, item), self.subject.put_new(subject_id, item));
                let slot = subject.as_ref().ok().copied();
                let (model, subject) = (model.map(|_| ()), subject.map(|_| ()));
                let is_put = model.is_ok();
                self.compare(format!("{call} {item:?}"), &kind, model, subject)?;
                if let Some(slot) = slot.filter(|_| is_put) {
                    self.check_loan(slot, &used)?;
                    self.placed.insert(time, slot);
                    if !EXTREMES.contains(&time) {
                        self.front = self.front.max(time);
                    }
                }
                Ok(())
            }
            Op::Bound(_, time) => {
                let time = self.at(time);
                let model = self.model.bound(id, time);
                let subject = self.subject.bound(subject_id, time);
                self.compare(format!("{call} {time}"), &kind, model, subject)
            }
            _ => unreachable!(),
        }
    }

    fn step_input(&mut self, op: &Op, kind: String, input: usize) -> Result<(), String> {
        let Connection { model: id, subject: subject_id, .. } = self.inputs[input];
        let call = format!("{kind} by input {input}");
        match *op {
            Op::LeaveInput(_) => {
                self.inputs[input].left = true;
                let model = self.model.leave_input(id);
                let subject = self.subject.leave_input(subject_id);
                self.compare(call, &kind, model, subject)
            }
            Op::RetireInput(_) => {
                let model = self.model.retire_input(id);
                let subject = self.subject.retire_input(subject_id);
                self.compare(call, &kind, model, subject)
            }
            Op::Get(_, mut which) => {
                if let Which::Exact(time) | Which::Nearest { time, .. } = &mut which {
                    *time = self.at(*time);
                }
                let model = self.model.get(id, which);
                let subject = self.subject.get(subject_id, which);
                let items = (model.map(|got| got.item), subject.map(|got| got.item));
                let kind = format!("{kind} {}", name(&which));
                self.compare(format!("{call} {which:?}"), &kind, items.0, items.1)?;
                subject.map_or(Ok(()), |got| self.check_got(input, &[got]))
            }
            Op::Look(_) => {
                let model = self.model.look(id).map(|got| got.item);
                let subject = self.subject.look(subject_id);
                self.compare(call, &kind, model, subject.map(|got| got.item))?;
                let is_placed = |got: Got| self.placed.get(&got.item.time) == Some(&got.slot);
                match subject {
                    Ok(got) if !is_placed(got) => Err(format!("{got:?} is in a wrong slot")),
                    _ => Ok(()),
                }
            }
            Op::Range(_, first, last) => {
                let (first, last) = (self.at(first), self.at(last));
                let model = self.model.range(id, first, last);
                let subject = self.subject.range(subject_id, first, last);
                let items = |got: &Vec<Got>| got.iter().map(|got| got.item).collect::<Vec<_>>();
                let kind = match model.as_ref().map(Vec::len) {
                    Ok(0) => "Range of none",
                    Ok(1) => "Range of one",
                    Ok(_) => "Range of several",
                    Err(_) => "Range",
                };
                let call = format!("{call} {first} to {last}");
                let model = model.as_ref().map(items);
                self.compare(call, kind, model, subject.as_ref().map(items))?;
                subject.as_ref().map_or(Ok(()), |got| self.check_got(input, got))
            }
            Op::Release(..) | Op::ReleaseGot(..) => {
                let got = self.got.iter().rev().filter(|got| got.0 == input).map(|got| got.1);
                let time = match *op {
                    Op::Release(_, time) => self.at(time),
                    Op::ReleaseGot(_, nth) => got.take(nth + 1).last().unwrap_or(0),
                    _ => unreachable!(),
                };
                let kind = "Release";
                let model = self.model.release(id, time);
                let subject = self.subject.release(subject_id, time);
                self.compare(format!("{call} {time}"), kind, model, subject)
            }
            Op::Consume(_, time) => {
                let time = self.at(time);
                let model = self.model.consume(id, time);
                let subject = self.subject.consume(subject_id, time);
                self.compare(format!("{call} {time}"), &kind, model, subject)
            }
            Op::ConsumeUntil(_, time) => {
                let time = self.at(time);
                let model = self.model.consume_until(id, time);
                let subject = self.subject.consume_until(subject_id, time);
                self.compare(format!("{call} {time}"), &kind, model, subject)
            }
            _ => unreachable!(),
        }
    }
}
