//! Channels of a host on another one: two services, and a network between them that can be cut.

mod datagrams;
mod outputs;
#[path = "../../../../tests/skip.rs"]
mod skip;
mod world;

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use loopscope_stm::{Config, From, Full, GetError as NoItem, Orphans, Which};
use loopscope_stm_shared::{GetError, Options, Until, now_ns};

use crate::world::{Host, OPTIONS, World, bytes_of, home, key, put, seconds, until, with_key};

#[test]
fn a_reader_elsewhere_gets_each_item_as_it_was_put() {
    let world = World::new(&OPTIONS);
    let frames = world.home.client().open("frames", true).unwrap();
    let mut output = frames.output().unwrap();
    put(&mut output, 0, 9);
    let puts = thread::spawn(move || {
        (1..300).for_each(|time| put(&mut output, time, [0, 1, 5000, 100_000][time as usize % 4]));
        output
    });
    let mut input = world.input(false);
    // What is there is what the first item had: it was put before anybody wanted it.
    for time in 0..300 {
        let item = input.get(Which::Oldest, seconds(10)).unwrap();
        let length = if time == 0 { 9 } else { [0, 1, 5000, 100_000][time as usize % 4] };
        assert_eq!((item.time(), &*item), (time, &bytes_of(time, length)[..]));
        let age = now_ns() - item.put_ns();
        // It is this machine's clock: the true age is known to be positive, and not to be long.
        assert!(item.put_error_ns() > 0 && age >= -item.put_error_ns(), "{age}");
        input.consume_until(time).unwrap();
    }
    until("the home frees what the other host has consumed", || {
        frames.counts().unwrap().present == 0
    });
    let counts = frames.counts().unwrap();
    assert_eq!((counts.put, counts.collected, counts.dropped), (300, 300, 0));
    drop(puts.join().unwrap());
}

#[test]
fn a_reader_elsewhere_makes_the_producer_wait_and_a_lossy_one_does_not() {
    for lossy in [false, true] {
        let world = World::new(&OPTIONS);
        let mut output = world.output();
        let mut input = world.input(lossy);
        put(&mut output, 1, 10);
        let first = input.get(Which::Oldest, seconds(10)).unwrap();
        let done = (2..20).map(|time| output.put(time, 0, b"x", Until::Now).is_ok());
        let done: Vec<_> = done.collect();
        // Four are there until they are consumed, the one that is held among them.
        assert_eq!(done.iter().all(|done| *done), lossy, "{done:?}");
        // It is counted as one that was got, and not to be lost afterwards.
        input.consume_until(1).unwrap();
        drop(first);
        let (mut got, mut last) = (1, 1);
        while let Ok(item) =
            input.get(Which::Oldest, Until::Deadline(Instant::now() + Duration::from_millis(300)))
        {
            got += u64::from(item.time() > last);
            last = last.max(item.time());
            input.consume_until(item.time()).unwrap();
        }
        let lost = input.counts().unwrap().lost;
        if lossy {
            assert_eq!((got + lost, last), (19, 19), "{got} {lost}");
        } else {
            assert_eq!((got, lost, last), (4, 0, 4));
        }
    }
}

#[test]
fn a_mirror_that_wants_nothing_is_told_nothing_and_who_joins_sees_what_is_so() {
    let config = Config { full: Full::Drop, ..OPTIONS.config };
    let world = World::new(&Options { config, ..OPTIONS });
    let mut output = world.output();
    let away = world.away.open("frames");
    for round in 0..10 {
        until("nothing is wanted", || world.home.client().list().unwrap()[0].inputs.is_empty());
        let (begin, before) = (Instant::now(), world.network.sent());
        (0..500).for_each(|each| put(&mut output, 1000 * round + each, 10));
        thread::sleep(Duration::from_millis(20));
        // The home's time is asked for ten times a second.
        let answers = begin.elapsed().as_millis() as u64 / 100 + 2;
        let sent = world.network.sent() - before;
        assert!(sent <= answers * 48, "{sent} bytes in {:?}", begin.elapsed());
        let newest = 1000 * round + 499;
        let from = [From::Newest, From::Next][round as usize % 2];
        let mut input = away.input(from, false, 8).unwrap();
        put(&mut output, newest + 1, 10);
        let first = if from == From::Newest { newest } else { newest + 1 };
        assert_eq!(input.get(Which::Oldest, seconds(10)).unwrap().time(), first);
    }
}

#[test]
fn exact_times_answer_as_at_home() {
    let world = World::new(&OPTIONS);
    let mut output = world.output();
    let mut near = world.home.open("frames").input(From::Oldest, false, 8).unwrap();
    let mut input = world.input(false);
    put(&mut output, 5, 10);
    assert_eq!(input.get(Which::Exact(5), seconds(10)).unwrap().time(), 5);
    // The producer's promise comes, too.
    let gets = thread::spawn(move || {
        let got = input.get(Which::Exact(7), seconds(10)).map(|item| item.time());
        (input, got)
    });
    thread::sleep(Duration::from_millis(50));
    output.bound(8).unwrap();
    let (mut input, got) = gets.join().unwrap();
    assert_eq!(got, Err(GetError::Get(NoItem::Never)));
    // A reader that joins later has nothing of what all have consumed.
    near.consume_until(5).unwrap();
    input.consume_until(5).unwrap();
    drop(input);
    let mut late = world.input(false);
    assert_eq!(late.get(Which::Exact(5), Until::Now).map(|_| ()), Err(GetError::Get(NoItem::Gone)));
}

#[test]
fn a_host_that_is_away_for_longer_than_the_lease_has_no_right_to_anything() {
    if std::env::var_os("LOOPSCOPE_SOAK").is_none() {
        skip::skipped("a lease takes 15 s; part of make soak");
        return;
    }
    let config = Config { orphans: Orphans::Discard, ..OPTIONS.config };
    let world = World::new(&Options { config, ..OPTIONS });
    let (mut output, mut input) = (world.output(), world.input(false));
    put(&mut output, 1, 1000);
    let first = input.get(Which::Oldest, seconds(10)).unwrap();
    let (parted, begin) = (world.network.partition(), Instant::now());
    // Four are there until they are consumed.
    (2..5).for_each(|time| put(&mut output, time, 1000));
    output.put(5, 0, b"x", Until::Deadline(begin + Duration::from_secs(12))).unwrap_err();
    output.put(5, 0, b"x", seconds(20)).unwrap();
    // The mirror asks for the time each 100 ms, and the home looks when its lease may be over.
    let took = begin.elapsed();
    assert!((14..20).contains(&took.as_secs()), "{took:?}");
    // What it holds, it holds.
    assert_eq!(&*first, &bytes_of(1, 1000)[..]);
    let told: Vec<_> = world.told.try_iter().collect();
    assert!(told[0].contains("is away: it was silent for 5 s"), "{told:?}");
    drop(parted);
    until("the home is back", || world.told.try_iter().any(|told| told.contains("is back")));
    until("it wants something again", || !world.home.client().list().unwrap()[0].inputs.is_empty());
    put(&mut output, 6, 1000);
    input.consume_until(1).unwrap();
    assert_eq!(input.get(Which::Oldest, seconds(10)).unwrap().time(), 6);
    for lost in 2..6 {
        let got = input.get(Which::Exact(lost), Until::Now).map(|_| ());
        assert_eq!(got, Err(GetError::Get(NoItem::Gone)), "{lost}");
    }
}

#[test]
fn a_reader_goes_on_where_it_was_after_the_network_was_cut() {
    let world = World::new(&OPTIONS);
    let mut output = world.output();
    let mut input = world.input(false);
    put(&mut output, 1, 1000);
    assert_eq!(input.get(Which::Oldest, seconds(10)).unwrap().time(), 1);
    for round in 0..3 {
        world.network.cut();
        let told = world.told.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(told.contains("is away"), "{told}");
        // What it has, it has.
        assert!(input.get(Which::Oldest, Until::Now).is_ok());
        let told = world.told.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(told.contains("is back"), "{told}");
        input.consume_until(round + 1).unwrap();
        put(&mut output, round + 2, 1000);
        let item = input.get(Which::Oldest, seconds(10)).unwrap();
        assert_eq!((item.time(), &*item), (round + 2, &bytes_of(round + 2, 1000)[..]));
    }
}

#[test]
fn a_home_frees_what_a_host_wanted_that_is_gone() {
    let world = World::new(&OPTIONS);
    let frames = world.home.client().open("frames", true).unwrap();
    let mut output = frames.output().unwrap();
    let near = frames.input(From::Oldest, false, 8).unwrap();
    let mut near = near;
    let input = world.input(false);
    // The home knows of the reader when that has joined.
    assert_eq!(world.home.client().list().unwrap()[0].inputs.len(), 2);
    put(&mut output, 1, 10);
    near.consume_until(1).unwrap();
    assert_eq!(frames.counts().unwrap().present, 1);
    // The service forgets the mirror, and its link ends.
    world.away.client().remove("frames").unwrap();
    until("the home frees it", || frames.counts().unwrap().present == 0);
    drop(input);
}

#[test]
fn another_channel_of_the_name_is_another_channel() {
    let world = World::new(&OPTIONS);
    let mut output = world.output();
    let mut input = world.input(false);
    put(&mut output, 1, 10);
    assert_eq!(input.get(Which::Oldest, seconds(10)).unwrap().time(), 1);
    world.home.client().remove("frames").unwrap();
    world.home.client().create("frames", &OPTIONS).unwrap();
    let mut output = world.output();
    put(&mut output, 1, 20);
    world.network.cut();
    until("it is told", || {
        world.told.try_recv().is_ok_and(|told| told.contains("another channel now"))
    });
    // What was opened before has its items, and gets no others; what is opened now is the new one.
    assert_eq!(input.get(Which::Oldest, Until::Now).unwrap().len(), 10);
    let mut fresh = world.input(false);
    assert_eq!(fresh.get(Which::Oldest, seconds(10)).unwrap().len(), 20);
}

#[test]
fn what_cannot_be_opened_is_said() {
    let world = World::new(&OPTIONS);
    let error = |name: &str, away: &Host| match away.client().open(name, false) {
        Ok(_) => panic!("{name} was opened"),
        Err(error) => error.to_string(),
    };
    let none = error("poses", &world.away);
    assert!(none.contains("there is no channel poses; there are frames"), "{none}");
    // A program that makes it makes it at home, and the other one finds it.
    assert!(!world.away.client().create("poses", &OPTIONS).unwrap());
    assert!(!world.home.client().create("poses", &OPTIONS).unwrap());
    let (tell, _told) = mpsc::channel();
    let other = with_key(8, None);
    let stranger = Host::away(world.network.address, &["frames"], other, tell.clone());
    let refused = error("frames", &stranger);
    assert!(refused.contains("the other side has another key"), "{refused}");
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nowhere = Host::away(free, &["frames"], key(), tell);
    let refused = error("frames", &nowhere);
    assert!(refused.contains("does not answer: Connection refused"), "{refused}");
    // The options are the home's.
    assert!(!world.away.client().create("frames", &OPTIONS).unwrap());
    let smaller = Options { item_bytes: 64, ..OPTIONS };
    let refused = world.away.client().create("frames", &smaller).unwrap_err().to_string();
    assert!(refused.contains("other options"), "{refused}");
}

/// Nothing that a stranger sends ends the home, or makes it say something to it.
#[test]
fn a_home_bears_strangers() {
    let (host, address) = home();
    host.client().create("frames", &OPTIONS).unwrap();
    fastrand::seed(11);
    for round in 0..300 {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut bytes: Vec<u8> = (0..fastrand::usize(0..200)).map(|_| fastrand::u8(..)).collect();
        if round % 2 == 0 {
            // One that knows how to begin.
            bytes.splice(0..0, b"lsstm\0\0\x03\x06frames".iter().copied());
        }
        _ = stream.write_all(&bytes);
        _ = stream.shutdown(Shutdown::Write);
        let mut answer = vec![];
        _ = stream.read_to_end(&mut answer);
        // At most its own number for the proof.
        assert!(answer.len() <= 32, "{} bytes to a stranger", answer.len());
    }
    let (tell, _told) = mpsc::channel();
    let away = Host::away(address, &["frames"], key(), tell);
    assert!(away.client().open("frames", false).is_ok());
}
