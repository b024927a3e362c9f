//! Space-time memory.

use loopscope_stm::{Config, From, Full, Orphans, Time, Which};
use loopscope_stm_shared::{Files, Input, Options, Output, Shared, Until};

use crate::{Ends, counter_of, item};

/// Input connections that there may be.
pub const INPUTS: u32 = 16;

/// A channel of 16 items that drops the oldest, opened so many times.
pub fn channel<const OPENED: usize>(bytes: usize, inputs: u32) -> [Shared; OPENED] {
    let config = Config {
        capacity: 16,
        slots: 20,
        inputs,
        outputs: 4,
        loans: 1,
        ahead: 64,
        remembered: 64,
        orphans: Orphans::Discard,
        full: Full::Drop,
    };
    let options = Options { config, item_bytes: bytes as u32, processes: OPENED as u32 };
    let files = Files::create(&options).unwrap();
    [(); OPENED].map(|()| Shared::open(&files.control, &files.payload).unwrap())
}

fn ends(channel: [Shared; 2], bytes: usize, receiver: fn(Input, usize) -> crate::Receive) -> Ends {
    let [writer, reader] = channel;
    Ends {
        sender: Box::new(move || {
            let (mut output, mut time): (Output, Time) = (writer.output().unwrap(), 0);
            let mut buffer = vec![0; bytes];
            Box::new(move |counter| {
                time += 1;
                output.put(time, 0, item(&mut buffer, counter), Until::Now).unwrap();
            })
        }),
        receiver: Box::new(move || receiver(reader.input(From::Next, true, 2).unwrap(), bytes)),
    }
}

/// The newest item is copied.
pub fn looks(bytes: usize) -> Ends {
    looks_of(channel(bytes, INPUTS), bytes)
}

/// The same of a channel that one end each has opened.
pub fn looks_of(channel: [Shared; 2], bytes: usize) -> Ends {
    ends(channel, bytes, |mut input, bytes| {
        let (mut buffer, mut last) = (vec![0; bytes], Time::MIN);
        Box::new(move || {
            last = input.look(Some(last), &mut buffer).ok()?.time;
            Some(counter_of(&buffer))
        })
    })
}

/// The newest unseen item is held.
pub fn polled(bytes: usize) -> Ends {
    ends(channel(bytes, INPUTS), bytes, |mut input, _| {
        Box::new(move || Some(counter_of(&input.get(Which::Unseen, Until::Now).ok()?)))
    })
}

/// The same, by a thread that sleeps until there is one.
pub fn blocked(bytes: usize) -> Ends {
    ends(channel(bytes, INPUTS), bytes, |mut input, _| {
        Box::new(move || Some(counter_of(&input.get(Which::Unseen, Until::Forever).ok()?)))
    })
}
