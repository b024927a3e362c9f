//! A sender and a receiver on ways that lose, delay, reorder and repeat datagrams, in virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use fastrand::Rng;
use loopscope_stm::NewItem;

use crate::datagrams::packet::{PART, Part, RANGES};
use crate::datagrams::receiver::{Receiver, Whole};
use crate::datagrams::sender::Sender;
use crate::datagrams::with_port;

const US: i64 = 1000;
const MS: i64 = 1000 * US;
const MOST_WAITING: usize = 16;

/// What a way does to datagrams.
#[derive(Clone, Copy)]
struct Way {
    loses: f64,
    repeats: f64,
    delay: i64,
    jitter: i64,
    /// A datagram takes so long on the wire, and so many wait for it at most.
    each: i64,
    waiting: i64,
}

const GOOD: Way = Way { loses: 0.0, repeats: 0.0, delay: MS, jitter: 0, each: US, waiting: 10_000 };

enum Carried {
    Down(Part, Vec<u8>),
    Up(Vec<(u64, u64)>),
}

/// What became of the items.
#[derive(Default)]
struct Told {
    /// Instants from offer to the whole item, by serial.
    took: BTreeMap<u64, i64>,
    given_up: BTreeSet<u64>,
    /// Items that the sender had at most.
    kept: usize,
    offered: u64,
    sent: u64,
    /// Datagrams that would have been enough.
    needed: u64,
}

fn item(time: i64, length: u32) -> NewItem {
    NewItem { time, half_width: 1, length, put_ns: time, put_error_ns: 0 }
}

fn bytes_of(serial: u64, length: usize) -> Vec<u8> {
    (0..length).map(|place| (serial as usize * 31 + place * 7) as u8).collect()
}

/// Sends `count` items of a size, one each `period`, and checks all that comes.
fn simulate(rng: &mut Rng, way: Way, count: u64, length: usize, period: i64, lives: i64) -> Told {
    let (mut sender, mut receiver) = (Sender::new(MOST_WAITING), Receiver::new(length));
    let mut ways: BTreeMap<(i64, u64), Carried> = BTreeMap::new();
    let (mut order, mut free, mut now) = (0, [0, 0], 0);
    let mut told = Told::default();
    let mut offers: BTreeMap<u64, i64> = BTreeMap::new();
    let mut carry =
        |rng: &mut Rng, ways: &mut BTreeMap<_, _>, now: i64, down: bool, what: Carried| {
            let wire: &mut i64 = &mut free[usize::from(down)];
            if *wire - now > way.waiting * way.each || rng.f64() < way.loses {
                return;
            }
            *wire = (*wire).max(now) + way.each;
            let again = rng.f64() < way.repeats;
            let at = *wire + way.delay + rng.i64(0..=way.jitter);
            order += 1;
            if again && let Carried::Down(part, bytes) = &what {
                let later = at + rng.i64(0..20 * MS);
                ways.insert((later, order), Carried::Down(*part, bytes.clone()));
                order += 1;
            }
            ways.insert((at, order), what);
        };
    loop {
        if told.offered < count && now >= told.offered as i64 * period {
            let serial = told.offered;
            let taken = sender.offer(
                item(serial as i64, length as u32),
                &bytes_of(serial, length),
                now + lives,
            );
            assert_eq!(taken, serial);
            offers.insert(serial, now);
            told.offered += 1;
            told.needed += length.div_ceil(PART).max(1) as u64;
        }
        while ways.first_key_value().is_some_and(|((at, _), _)| *at <= now) {
            match ways.pop_first().unwrap().1 {
                Carried::Down(part, bytes) => {
                    if let Some(whole) = receiver.arrives(now, &part, &bytes).unwrap() {
                        let Whole { serial, item: its, bytes } = whole;
                        assert_eq!(its, item(serial as i64, length as u32));
                        assert_eq!(bytes, bytes_of(serial, length));
                        assert!(!told.given_up.contains(&serial), "{serial} came twice");
                        let twice = told.took.insert(serial, now - offers[&serial]);
                        assert_eq!(twice, None, "{serial} came twice");
                    }
                }
                Carried::Up(ranges) => sender.acknowledged(now, &ranges),
            }
        }
        if let Some(ranges) = receiver.acknowledges(now) {
            assert!(ranges.len() <= RANGES);
            carry(rng, &mut ways, now, false, Carried::Up(ranges));
        }
        sender.timeout(now);
        while let Some((part, bytes)) = sender.next(now) {
            let datagram = Carried::Down(part, bytes.to_vec());
            told.sent += 1;
            carry(rng, &mut ways, now, true, datagram);
        }
        while let Some(serial) = sender.gives_up() {
            assert!(told.given_up.insert(serial), "{serial} was given up twice");
            receiver.give_up(serial);
        }
        told.kept = told.kept.max(sender.kept());
        for (serial, offered) in &offers {
            if now - offered >= lives && !receiver.is_settled(*serial) {
                receiver.give_up(*serial);
                told.given_up.insert(*serial);
            }
        }
        let settled = (0..count).all(|serial| receiver.is_settled(serial));
        if told.offered == count && settled && ways.is_empty() {
            break;
        }
        let times = [
            ways.first_key_value().map(|((at, _), _)| *at),
            receiver.says_at(),
            sender.wakes(),
            (told.offered < count).then(|| told.offered as i64 * period),
            offers.iter().find(|each| !receiver.is_settled(*each.0)).map(|each| each.1 + lives),
        ];
        let next = times.into_iter().flatten().min().unwrap();
        now = next.max(now + 1);
        assert!(now < 3600 * 1000 * MS, "it does not come to an end");
    }
    assert_eq!(told.took.len() + told.given_up.len(), count as usize);
    told
}

fn longest(told: &Told) -> i64 {
    *told.took.values().max().unwrap()
}

#[test]
fn all_items_come_at_once_where_nothing_is_lost() {
    let mut rng = Rng::with_seed(1);
    for length in [0, 1, PART, PART + 1, 300_000] {
        let told = simulate(&mut rng, GOOD, 50, length, 40 * MS, 100 * MS);
        assert!(told.given_up.is_empty());
        assert_eq!(told.sent, told.needed, "{length}");
        // The first one begins with a small window.
        assert!(longest(&told) < 10 * MS, "{length}: {}", longest(&told));
        let last = told.took[&49];
        assert!(last < MS + MS / 2 + told.needed as i64 / 50 * US, "{length}: {last}");
    }
}

#[test]
fn what_is_lost_is_sent_again_and_nothing_else() {
    for seed in 0..40 {
        let mut rng = Rng::with_seed(seed);
        let loses = [0.01, 0.05, 0.2][seed as usize % 3];
        let way = Way { loses, jitter: 200 * US, ..GOOD };
        let told = simulate(&mut rng, way, 100, 60_000, 20 * MS, 200 * MS);
        assert!(
            told.given_up.len() <= (200.0 * loses * loses) as usize,
            "{seed}: {:?}",
            told.given_up
        );
        let most = told.needed as f64 * (1.0 + 3.0 * loses);
        assert!((told.sent as f64) < most, "{seed}: {} of {}", told.sent, told.needed);
        // By TCP one loss of the last segment would take 200 ms.
        let mut took: Vec<_> = told.took.values().copied().collect();
        took.sort_unstable();
        assert!(took[took.len() / 2] < 15 * MS + (200.0 * loses) as i64 * MS, "{seed}: {took:?}");
    }
}

#[test]
fn what_a_wireless_link_loses_does_not_make_a_stream_slow() {
    // 44 datagrams each 20 ms, over 10 ms: NewReno would have 8 of them on their way.
    let way = Way { loses: 0.03, delay: 10 * MS, ..GOOD };
    for seed in 0..10 {
        let told = simulate(&mut Rng::with_seed(seed), way, 300, 60_000, 20 * MS, 150 * MS);
        let began = told.given_up.iter().filter(|serial| **serial < 20).count();
        assert!(told.given_up.len() - began <= 3, "{seed}: {:?}", told.given_up);
        assert!((told.sent as f64) < 1.1 * told.needed as f64, "{} {}", told.sent, told.needed);
    }
}

#[test]
fn a_late_item_is_given_up_and_the_next_one_comes() {
    // 60 kB take 44 ms here, and there is a new one each 30 ms.
    let way = Way { each: MS, waiting: 50, ..GOOD };
    let mut rng = Rng::with_seed(3);
    let told = simulate(&mut rng, way, 200, 60_000, 30 * MS, 120 * MS);
    println!("{} of 200 came, {} sent of {}", told.took.len(), told.sent, told.needed);
    assert!(told.took.len() > 100, "{} of 200 came", told.took.len());
    assert!(longest(&told) <= 120 * MS);
    // What is sent for nothing is in proportion.
    assert!(told.sent < 2 * told.needed, "{} of {}", told.sent, told.needed);
}

#[test]
fn a_sender_keeps_no_more_items_than_may_wait_however_long_they_live() {
    // 60 kB take 44 ms here, and there is a new one each 10 ms.
    let way = Way { each: MS, waiting: 50, ..GOOD };
    let told = simulate(&mut Rng::with_seed(4), way, 500, 60_000, 10 * MS, 3600 * 1000 * MS);
    // Datagrams of those that were begun are on their way.
    assert!(told.kept <= MOST_WAITING + 4, "{}", told.kept);
    assert_eq!(told.took.len() + told.given_up.len(), 500);
    // The last ones wait until nothing is put any more.
    assert!(told.took.len() > 100 && told.given_up.len() > 300, "{} came", told.took.len());
    assert!((484..500).all(|serial| told.took.contains_key(&serial)));
}

#[test]
fn nothing_comes_twice_or_changed_whatever_the_way_does() {
    let worlds = if std::env::var_os("LOOPSCOPE_SOAK").is_some() { 20_000 } else { 300 };
    let mut came = 0;
    for _ in 0..worlds {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut rng = Rng::with_seed(seed);
        let way = Way {
            loses: [0.0, 0.02, 0.3, 0.95][rng.usize(0..4)],
            repeats: [0.0, 0.1][rng.usize(0..2)],
            delay: rng.i64(1..20 * MS),
            jitter: rng.i64(0..5 * MS),
            each: rng.i64(0..200 * US),
            waiting: rng.i64(4..2000),
        };
        let length = [0, 100, PART * 2, 40_000][rng.usize(0..4)];
        let (period, lives) = (rng.i64(1..30 * MS), rng.i64(1..200 * MS));
        let told = simulate(&mut rng, way, 30, length, period, lives);
        came += told.took.len();
        assert!(told.took.values().all(|took| *took <= lives + 1));
    }
    println!("{came} of {} items came", worlds * 30);
    assert!(came > worlds * 10);
}

#[test]
fn what_cannot_be_is_an_error() {
    let mut receiver = Receiver::new(3000);
    let part = |serial, part, length| Part { number: 0, serial, item: item(1, length), part };
    let mut arrives = |part: Part, bytes: usize| receiver.arrives(0, &part, &vec![1; bytes]);
    assert!(arrives(part(0, 0, 3001), PART).is_err());
    assert!(arrives(part(0, 3, 3000), 0).is_err());
    assert!(arrives(part(0, 2, 3000), PART).is_err());
    assert!(arrives(Part { number: u64::MAX, ..part(0, 0, 0) }, 0).is_err());
    // One that is far ahead is not acknowledged.
    assert_eq!(arrives(part(u64::MAX, 0, 0), 0), Ok(None));
    assert_eq!(arrives(part(0, 0, 3000), PART), Ok(None));
    assert!(arrives(part(0, 0, 2000), PART).is_err());
    assert_eq!(arrives(part(0, 1, 3000), PART), Ok(None));
    let whole = arrives(part(0, 2, 3000), 3000 - 2 * PART).unwrap().unwrap();
    assert_eq!(whole, Whole { serial: 0, item: item(1, 3000), bytes: vec![1; 3000] });
    assert_eq!(receiver.acknowledges(0), Some(vec![(0, 0)]));
}

#[test]
fn a_link_local_address_keeps_its_scope() {
    let address: SocketAddr = "[fe80::1%3]:7421".parse().unwrap();
    assert_eq!(with_port(address, 9).to_string(), "[fe80::1%3]:9");
}
