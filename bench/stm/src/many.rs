//! Space-time memory with many channels in the process, or many consumers of one.

use loopscope_stm::{From, Time};
use loopscope_stm_shared::{Input, Output, Shared, Until};

use crate::stm::{INPUTS, channel, looks_of};
use crate::{END, Ends, counter_of, item};

const CHANNELS: usize = 1000;
const CONSUMERS: usize = 100;
const OTHERS: usize = CHANNELS - 1;

/// One of the channels has the items that are looked at. After each of them another channel gets an
/// item, all others in turn.
pub fn channels(bytes: usize) -> Ends {
    looked_at(bytes, |_| 0, |number| Some(1 + number % OTHERS))
}

/// The channels have the items in turn, and each is looked at while its item is the next one.
pub fn channels_in_turn(bytes: usize) -> Ends {
    looked_at(bytes, |number| number % CHANNELS, |_| None)
}

/// `of`: the place of the channel of an item, by the item's number; `next`: that of a channel which
/// has an item right after it that nobody measures.
fn looked_at(bytes: usize, of: fn(usize) -> usize, next: fn(usize) -> Option<usize>) -> Ends {
    let channels = (0..CHANNELS).map(|_| <[Shared; 2]>::into(channel(bytes, INPUTS)));
    let (writers, readers): (Vec<_>, Vec<_>) = channels.unzip();
    Ends {
        sender: Box::new(move || {
            let mut outputs: Vec<Output> =
                writers.iter().map(|writer| writer.output().unwrap()).collect();
            let (mut buffer, mut number) = (vec![0; bytes], 0);
            Box::new(move |counter| {
                let places = [Some(of(number)), next(number)];
                number += 1;
                for place in places.into_iter().flatten() {
                    let bytes = item(&mut buffer, counter);
                    outputs[place].put(number as Time, 0, bytes, Until::Now).unwrap();
                }
            })
        }),
        receiver: Box::new(move || {
            let joins = |reader: &Shared| reader.input(From::Next, true, 2).unwrap();
            let mut inputs: Vec<Input> = readers.iter().map(joins).collect();
            let (mut buffer, mut number, mut last) = (vec![0; bytes], 0, Time::MIN);
            // Whether the reader has looked at this channel before.
            let mut is_there = true;
            Box::new(move || {
                let place = of(number);
                let Ok(look) = inputs[place].look(Some(last), &mut buffer) else {
                    is_there = true;
                    return None;
                };
                (last, number) = (look.time, number + 1);
                let (was_there, counter) = (is_there, counter_of(&buffer));
                is_there = of(number) == place;
                // What came before the reader was there has waited for it.
                (was_there || counter == END).then_some(counter)
            })
        }),
    }
}

/// One of the consumers looks. The others do nothing; they have other mappings than the two ends.
pub fn consumers(bytes: usize) -> Ends {
    let [writer, reader, others @ ..] = channel::<5>(bytes, CONSUMERS as u32);
    let joins = |number: usize| others[number % others.len()].input(From::Next, true, 2).unwrap();
    let idle: Vec<Input> = (1..CONSUMERS).map(joins).collect();
    let Ends { sender, receiver } = looks_of([writer, reader], bytes);
    Ends {
        sender: Box::new(move || {
            let mut send = sender();
            Box::new(move |counter| {
                _ = &idle;
                send(counter);
            })
        }),
        receiver,
    }
}
