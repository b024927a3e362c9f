//! What memory can be a channel, and what cannot.

use std::sync::atomic::{AtomicU64, Ordering};

use loopscope_stm::{Channel, Config, From, Full, GetError, NewItem, Orphans, Which};

const CONFIG: Config = Config {
    capacity: 4,
    slots: 6,
    inputs: 70,
    outputs: 2,
    loans: 2,
    ahead: 3,
    remembered: 5,
    orphans: Orphans::Keep,
    full: Full::Refuse,
};

fn zeros(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

#[test]
fn who_opens_a_channel_finds_what_another_one_has_put() {
    let words = zeros(Channel::<&[AtomicU64]>::words_needed(&CONFIG).unwrap());
    let mut made = Channel::create(&CONFIG, &words[..]).unwrap();
    let (input, floor) = made.join_input(0, From::Oldest, false, 1).unwrap();
    assert_eq!(floor, i64::MIN);
    let output = made.join_output(0).unwrap();
    let slot = made.loan(output).unwrap();
    let item = NewItem { time: -7, half_width: 3, length: 1 << 20, put_ns: -1, put_error_ns: 0 };
    made.put(output, slot, item).unwrap();

    let mut opened = Channel::open(&words[..]).unwrap();
    assert_eq!(opened.config(), &CONFIG);
    let got = opened.get(input, Which::Newest).unwrap();
    assert_eq!((got.slot, got.item), (slot, item));
    assert_eq!(made.input_counts(input).unwrap().held, 1);
    assert!(!made.recover());
}

#[test]
fn other_memory_is_no_channel() {
    let needed = Channel::<&[AtomicU64]>::words_needed(&CONFIG).unwrap();
    for count in [0, 1, 24, needed - 1] {
        let words = zeros(count);
        assert!(Channel::create(&CONFIG, &words[..]).is_none());
        assert!(Channel::open(&words[..]).is_none());
    }
    let words = zeros(needed);
    assert!(Channel::open(&words[..]).is_none());
    Channel::create(&CONFIG, &words[..]).unwrap();
    assert!(Channel::open(&words[..needed - 1]).is_none());
    let magic = words[0].fetch_add(1, Ordering::Relaxed);
    assert!(Channel::open(&words[..]).is_none(), "another version");
    words[0].store(magic, Ordering::Relaxed);
    assert!(Channel::open(&words[..]).is_some());
}

#[test]
fn a_channel_without_room_is_refused() {
    for config in [
        Config { capacity: 0, ..CONFIG },
        Config { capacity: 7, ..CONFIG },
        Config { slots: u32::MAX, ..CONFIG },
        Config { inputs: 0, ..CONFIG },
        Config { inputs: (1 << 16) + 1, ..CONFIG },
        Config { outputs: 0, ..CONFIG },
        Config { loans: 0, ..CONFIG },
        Config { ahead: u32::MAX, ..CONFIG },
        Config { remembered: u32::MAX, ..CONFIG },
    ] {
        assert_eq!(Channel::<&[AtomicU64]>::words_needed(&config), None, "{config:?}");
    }
    let least = Config { ahead: 0, remembered: 0, inputs: 1 << 16, ..CONFIG };
    assert!(Channel::<&[AtomicU64]>::words_needed(&least).is_some());
}

#[test]
fn the_log_has_room_for_many_items_that_become_gone_at_once() {
    const COUNT: u32 = 400;
    let config = Config { capacity: COUNT, slots: COUNT, remembered: COUNT, ..CONFIG };
    let words = zeros(Channel::<&[AtomicU64]>::words_needed(&config).unwrap());
    let mut channel = Channel::create(&config, &words[..]).unwrap();
    let [one, other] = [0, 1].map(|_| channel.join_input(0, From::Oldest, false, 1).unwrap().0);
    let output = channel.join_output(0).unwrap();
    for time in 0..COUNT.into() {
        let slot = channel.loan(output).unwrap();
        channel
            .put(
                output,
                slot,
                NewItem { time, half_width: 0, length: 0, put_ns: 0, put_error_ns: 0 },
            )
            .unwrap();
        channel.consume(one, time).unwrap();
        if time % 2 == 0 {
            channel.consume(other, time).unwrap();
        }
    }
    assert_eq!(channel.counts().present, COUNT / 2);
    // Their times are between those that are gone.
    channel.leave_input(other).unwrap();
    assert_eq!((channel.counts().present, channel.counts().free), (0, COUNT));
    for time in 0..COUNT.into() {
        assert_eq!(channel.get(one, Which::Exact(time)), Err(GetError::Gone));
    }
}
