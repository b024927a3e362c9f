//! An operation is whole or has not been, wherever its process ends: after each of its writes.

use std::cell::RefCell;
use std::error::Error;
use std::ops::Range;
use std::rc::Rc;

use loopscope_stm::{Channel, Config, From, Full, InputId, NewItem, Orphans, OutputId, Slot};
use loopscope_stm::{Which, Words};

/// Words that remember what was written.
#[derive(Clone)]
struct Recorded {
    words: Rc<RefCell<Vec<u64>>>,
    writes: Rc<RefCell<Vec<(usize, u64)>>>,
}

impl Words for Recorded {
    fn count(&self) -> usize {
        self.words.borrow().len()
    }

    fn load(&self, at: usize) -> u64 {
        self.words.borrow()[at]
    }

    fn store(&self, at: usize, value: u64) {
        self.words.borrow_mut()[at] = value;
        self.writes.borrow_mut().push((at, value));
    }
}

impl Recorded {
    fn new(words: Vec<u64>) -> Recorded {
        Recorded { words: Rc::new(RefCell::new(words)), writes: Rc::default() }
    }
}

/// Pseudo-random numbers (xorshift64).
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// A channel that is used at random, and what its user knows of it.
struct User {
    channel: Channel<Recorded>,
    words: Recorded,
    inputs: Vec<InputId>,
    outputs: Vec<OutputId>,
    loans: Vec<(OutputId, Slot)>,
    front: i64,
}

impl User {
    fn new(config: &Config) -> User {
        let words = Recorded::new(vec![0; Channel::<Recorded>::words_needed(config).unwrap()]);
        let channel = Channel::create(config, words.clone()).unwrap();
        User { channel, words, inputs: vec![], outputs: vec![], loans: vec![], front: 0 }
    }

    /// Does one thing; errors are answers, too.
    fn operate(&mut self, draw: &mut Draw) {
        let time = self.front - 4 + draw.below(8) as i64;
        let input = draw.below(self.inputs.len() as u64 + 1) as usize;
        let output = draw.below(self.outputs.len() as u64 + 1) as usize;
        let (input, output) = (self.inputs.get(input), self.outputs.get(output));
        let some_input = input.copied().unwrap_or(InputId(1 << 20));
        let some_output = output.copied().unwrap_or(OutputId(1 << 20));
        let channel = &mut self.channel;
        match draw.below(24) {
            0 => {
                let from = [From::Oldest, From::Newest, From::Next, From::At(time)];
                let from = from[draw.below(4) as usize];
                let joined = channel.join_input(
                    draw.below(3) as u32,
                    from,
                    draw.below(2) == 1,
                    draw.below(4) as u32,
                );
                self.inputs.extend(joined.map(|(id, _)| id));
            }
            1 => self.outputs.extend(channel.join_output(draw.below(3) as u32)),
            2 if draw.below(8) == 0 => _ = channel.leave_all(draw.below(3) as u32),
            2 if draw.below(3) == 0 => _ = channel.leave_input(some_input),
            3 if draw.below(6) == 0 => _ = channel.retire_input(some_input),
            3 if draw.below(4) == 0 => _ = channel.leave_output(some_output),
            4..8 => self.loans.extend(channel.loan(some_output).map(|slot| (some_output, slot))),
            8..13 => {
                let number = draw.below(self.loans.len() as u64 + 1) as usize;
                if let Some((output, slot)) = self.loans.get(number).copied() {
                    let item =
                        NewItem { time, half_width: 0, length: 8, put_ns: time, put_error_ns: 0 };
                    if channel.put(output, slot, item).is_ok() {
                        self.loans.swap_remove(number);
                        self.front += 1;
                    } else if draw.below(4) == 0 {
                        _ = channel.give_back(output, slot);
                        self.loans.swap_remove(number);
                    }
                }
            }
            13 => _ = channel.bound(some_output, time - 6),
            14 => _ = channel.get(some_input, Which::Exact(time)),
            15 => _ = channel.get(some_input, Which::Oldest),
            16 => _ = channel.get(some_input, Which::Unseen),
            17 => _ = channel.range(some_input, time, time + 2),
            18 => _ = channel.consume(some_input, time),
            19 => _ = channel.consume_until(some_input, time),
            20 | 21 => {
                let item =
                    NewItem { time, half_width: 0, length: 8, put_ns: time, put_error_ns: 0 };
                let put =
                    channel.put_new(some_output, item, |_| Ok::<_, Box<dyn Error>>(()), |_, _| ());
                self.front += i64::from(put.is_ok());
            }
            _ => _ = channel.release(some_input, time),
        }
    }
}

fn config(draw: &mut Draw) -> Config {
    let mut number = |least: u64, most: u64| (least + draw.below(most - least + 1)) as u32;
    let capacity = number(1, 6);
    Config {
        capacity,
        slots: capacity + number(0, 3),
        inputs: number(1, 4) * number(1, 2) * number(1, 20),
        outputs: number(1, 3),
        loans: number(1, 3),
        ahead: number(0, 3),
        remembered: number(0, 4),
        orphans: if number(0, 1) == 0 { Orphans::Keep } else { Orphans::Discard },
        full: if number(0, 1) == 0 { Full::Refuse } else { Full::Drop },
    }
}

#[test]
fn an_operation_that_ends_after_any_of_its_writes_is_undone_or_whole() {
    let (mut interrupted, mut changing) = (0, 0);
    for seed in 1..=300 {
        let mut draw = Draw(0x9e37_79b9_7f4a_7c15 ^ seed << 32);
        let mut user = User::new(&config(&mut draw));
        for _ in 0..300 {
            let before = user.words.words.borrow().clone();
            user.words.writes.borrow_mut().clear();
            user.operate(&mut draw);
            let writes = user.words.writes.borrow().clone();
            let after = user.words.words.borrow().clone();
            changing += usize::from(!writes.is_empty());
            let whole = [&before, &after].map(|words| without(words, user.channel.log()));
            for count in 0..writes.len() {
                let left = Recorded::new(written(&before, &writes[..count]));
                // The process that undoes it may end, too.
                let undoing = Recorded::new(left.words.borrow().clone());
                drop(Channel::open(undoing.clone()).unwrap());
                let undoing = undoing.writes.borrow();
                let again = draw.below(undoing.len() as u64 + 1) as usize;
                let left = Recorded::new(written(&left.words.borrow(), &undoing[..again]));
                drop(Channel::open(left.clone()).unwrap());
                let found = without(&left.words.borrow(), user.channel.log());
                assert!(whole.contains(&found), "seed {seed}, after {count} of {writes:?}");
                interrupted += 1;
            }
        }
    }
    assert!(changing > 15_000 && interrupted > 300_000, "{changing} {interrupted}");
}

/// The words but those of the log, which mean nothing where no operation goes on.
fn without(words: &[u64], log: Range<usize>) -> Vec<u64> {
    [&words[..log.start], &words[log.end..]].concat()
}

/// The words after some writes.
fn written(words: &[u64], writes: &[(usize, u64)]) -> Vec<u64> {
    let mut words = words.to_vec();
    for (at, value) in writes {
        words[*at] = *value;
    }
    words
}
