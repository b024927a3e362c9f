//! A channel does what the model in `tests/model` does, operation by operation.

mod driver;
mod model;

use driver::{Memory, Subject, Tally, config, op, run};
use loopscope_stm::{
    Config, ConsumeError, Counts, From, Full, GetError, Got, InputCounts, InputId, JoinError,
    LeaveError, LoanError, NewItem, Orphans, OutputId, PutError, Slot, Time, Which,
};
use model::Model;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{RngAlgorithm, TestError, TestRng, TestRunner};

/// Draws channels and operations. Panics with the shortest list of operations that differs.
fn compare<S: Subject>(mut runner: TestRunner) {
    let strategy = (config(), vec(op(), 1..=200));
    let result = runner.run(&strategy, |(config, ops)| {
        run::<S>(&config, &ops, &mut Tally::new()).map_err(TestCaseError::fail)
    });
    if let Err(TestError::Fail(difference, (_, ops))) = result {
        panic!("after {} operations: {difference}\n{ops:#?}", ops.len());
    }
    result.unwrap();
}

/// Settings for `cases` channels. What is found is not written to a file.
fn settings(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        max_shrink_iters: 50_000,
        ..ProptestConfig::default()
    }
}

/// Draws the same each time.
fn repeatable(cases: u32) -> TestRunner {
    TestRunner::new_with_rng(settings(cases), TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

#[test]
fn a_channel_does_as_its_model() {
    // Each has up to 200 operations.
    compare::<Memory>(TestRunner::new(settings(10 * ProptestConfig::default().cases)));
}

/// Every answer that an operation can give, by the name under which the driver counts it.
const ANSWERS: &[(&str, &[&str])] = &[
    ("JoinInput Oldest", &["Ok", "NoConnection"]),
    ("JoinInput Newest", &["Ok", "NoConnection"]),
    ("JoinInput Next", &["Ok", "NoConnection"]),
    ("JoinInput At", &["Ok", "NoConnection"]),
    ("JoinOutput", &["Ok", "NoConnection"]),
    ("LeaveAll", &["Ok"]),
    ("LeaveInput", &["Ok", "NotConnected"]),
    ("RetireInput", &["Ok", "NotConnected"]),
    ("LeaveOutput", &["Ok", "NotConnected"]),
    ("Loan", &["Ok", "NotConnected", "TooManyLoans", "NoSlot"]),
    ("GiveBack", &["Ok", "NotConnected", "NotLoaned"]),
    ("Put", &["Ok", "NotConnected", "NotLoaned", "OutOfRange", "Late", "Exists", "Full"]),
    (
        "PutNew",
        &["Ok", "NotConnected", "TooManyLoans", "NoSlot", "OutOfRange", "Late", "Exists", "Full"],
    ),
    ("Put with a drop", &["Ok"]),
    ("Put for nobody", &["Ok"]),
    ("Bound", &["Ok", "NotConnected"]),
    ("Get Exact", &["Ok", "NotConnected", "Gone", "Never", "NotYet", "TooManyHolds"]),
    ("Get Newest", &["Ok", "NotConnected", "NotYet", "TooManyHolds"]),
    ("Get Oldest", &["Ok", "NotConnected", "NotYet", "TooManyHolds"]),
    ("Get Unseen", &["Ok", "NotConnected", "NotYet", "TooManyHolds"]),
    ("Get Nearest", &["Ok", "NotConnected", "NotYet", "Ambiguous", "TooManyHolds"]),
    ("Range", &["NotConnected", "TooManyHolds"]),
    ("Range of none", &["Ok"]),
    ("Range of one", &["Ok"]),
    ("Range of several", &["Ok"]),
    ("Look", &["Ok", "NotConnected", "NotYet"]),
    ("Release", &["Ok", "NotConnected", "NotHeld"]),
    ("Consume", &["Ok", "NotConnected", "TooManyAhead"]),
    ("ConsumeUntil", &["Ok", "NotConnected"]),
    ("InputCounts", &["Ok", "NotConnected"]),
];

/// A long run that is always the same, and reaches every answer of every operation, and no other.
#[test]
fn every_answer_occurs() {
    let mut runner = repeatable(1);
    let strategy = (config(), vec(op(), 200));
    let mut tally = Tally::new();
    for _ in 0..3000 {
        let (config, ops) = strategy.new_tree(&mut runner).unwrap().current();
        run::<Memory>(&config, &ops, &mut tally).unwrap();
    }
    for (answer, times) in &tally {
        println!("{times:8} {answer}");
    }
    for (operation, answers) in ANSWERS {
        for answer in *answers {
            let times = tally.remove(&format!("{operation}: {answer}")).unwrap_or(0);
            assert!(times >= 20, "{operation} answers {answer} {times} times");
        }
    }
    assert_eq!(tally, Tally::new(), "answers that were not expected");
}

/// A model that breaks one rule, chosen by `FAULT`.
struct Broken<const FAULT: u8>(Model);

impl<const FAULT: u8> Subject for Broken<FAULT> {
    fn new(config: &Config) -> Self {
        let mut config = *config;
        match FAULT {
            0 => config.remembered += 1,
            1 => config.ahead += 1,
            2 => config.orphans = Orphans::Keep,
            3 => config.full = Full::Drop,
            _ => (),
        }
        Broken(Model::new(&config))
    }
    fn join_input(
        &mut self,
        owner: u32,
        from: From,
        lossy: bool,
        holds: u32,
    ) -> Result<(InputId, Time), JoinError> {
        self.0.join_input(owner, from, lossy && FAULT != 4, holds)
    }
    fn join_output(&mut self, owner: u32) -> Result<OutputId, JoinError> {
        self.0.join_output(if FAULT == 16 { 0 } else { owner })
    }
    fn leave_all(&mut self, owner: u32) -> usize {
        self.0.leave_all(owner)
    }
    fn leave_input(&mut self, id: InputId) -> Result<(), LeaveError> {
        self.0.leave_input(id)
    }
    fn retire_input(&mut self, id: InputId) -> Result<(), LeaveError> {
        match FAULT {
            19 => self.0.consume_until(id, Time::MAX).map_err(|_| LeaveError::NotConnected),
            20 => self.0.leave_input(id),
            _ => self.0.retire_input(id),
        }
    }
    fn leave_output(&mut self, id: OutputId) -> Result<(), LeaveError> {
        self.0.leave_output(id)
    }
    fn loan(&mut self, id: OutputId) -> Result<Slot, LoanError> {
        let slot = self.0.loan(id)?;
        Ok(if FAULT == 5 { slot / 2 } else { slot })
    }
    fn give_back(&mut self, id: OutputId, slot: Slot) -> Result<(), LoanError> {
        self.0.give_back(id, slot)
    }
    fn put(&mut self, id: OutputId, slot: Slot, item: NewItem) -> Result<(), PutError> {
        let answer = self.0.put(id, slot, item);
        if FAULT == 6 && answer == Err(PutError::Exists) {
            self.0.give_back(id, slot).unwrap();
        }
        answer
    }
    fn bound(&mut self, id: OutputId, time: Time) -> Result<Time, LeaveError> {
        let bound = self.0.bound(id, if FAULT == 7 { Time::MIN } else { time })?;
        Ok(bound.max(time))
    }
    fn get(&mut self, id: InputId, mut which: Which) -> Result<Got, GetError> {
        match &mut which {
            Which::Unseen if FAULT == 8 => which = Which::Newest,
            Which::Nearest { half_width, .. } if FAULT == 9 => *half_width = 0,
            _ => (),
        }
        match self.0.get(id, which) {
            Err(GetError::Never) if FAULT == 10 => Err(GetError::NotYet),
            Ok(got) if FAULT == 11 => Ok(Got { slot: 0, ..got }),
            answer => answer,
        }
    }
    fn range(&mut self, id: InputId, first: Time, last: Time) -> Result<Vec<Got>, GetError> {
        let answer = self.0.range(id, first, last);
        if FAULT == 12 && answer == Err(GetError::TooManyHolds) {
            let _ = self.0.get(id, Which::Exact(first));
        }
        answer
    }
    fn look(&mut self, id: InputId) -> Result<Got, GetError> {
        if FAULT == 17 { self.0.get(id, Which::Newest) } else { self.0.look(id) }
    }
    fn release(&mut self, id: InputId, time: Time) -> Result<(), ConsumeError> {
        if FAULT == 13 {
            self.0.consume(id, time)?;
        }
        self.0.release(id, time)
    }
    fn consume(&mut self, id: InputId, time: Time) -> Result<(), ConsumeError> {
        self.0.consume(id, time)
    }
    fn consume_until(&mut self, id: InputId, time: Time) -> Result<(), ConsumeError> {
        self.0.consume_until(id, if FAULT == 14 { time.saturating_sub(1) } else { time })
    }
    fn counts(&mut self) -> Counts {
        self.0.counts()
    }
    fn input_counts(&mut self, id: InputId) -> Result<InputCounts, LeaveError> {
        let counts = self.0.input_counts(id)?;
        Ok(InputCounts { skipped: if FAULT == 15 { 0 } else { counts.skipped }, ..counts })
    }
    fn due(&mut self, id: InputId) -> Result<Time, LeaveError> {
        let due = self.0.due(id)?;
        Ok(if FAULT == 18 { due.max(self.0.input_counts(id)?.floor) } else { due })
    }
}

/// The comparison finds each fault, and shortens the list of operations that shows it.
#[test]
fn faults_are_found() {
    fn find<const FAULT: u8>() {
        let found = std::panic::catch_unwind(|| compare::<Broken<FAULT>>(repeatable(3000)));
        let message = *found.expect_err("not found").downcast::<String>().unwrap();
        let report = message.split("\n[\n").next().unwrap();
        println!("fault {FAULT}: {report}\n");
        let operations = report.lines().filter(|line| line.starts_with("  ")).count();
        assert!((1..=15).contains(&operations), "{message}");
    }
    find::<0>();
    find::<1>();
    find::<2>();
    find::<3>();
    find::<4>();
    find::<5>();
    find::<6>();
    find::<7>();
    find::<8>();
    find::<9>();
    find::<10>();
    find::<11>();
    find::<12>();
    find::<13>();
    find::<14>();
    find::<15>();
    find::<16>();
    find::<17>();
    find::<18>();
    find::<19>();
    find::<20>();
}
