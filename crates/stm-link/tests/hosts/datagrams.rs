//! Channels whose items go to other hosts in datagrams.

use std::time::Duration;

use loopscope_stm::{From, GetError as NoItem, Which};
use loopscope_stm_shared::{GetError, Settings, Until};

use crate::world::{OPTIONS, World, bytes_of, put, seconds, until};

const LENGTHS: [usize; 5] = [0, 1, 1384, 5000, 100_000];

fn length_of(time: i64) -> usize {
    LENGTHS[time as usize % LENGTHS.len()]
}

fn lives(lifespan: Duration) -> Settings {
    Settings::from(&OPTIONS).with_lifespan(Some(lifespan))
}

#[test]
fn each_item_comes_as_it_was_put_and_not_by_tcp() {
    let world = World::of(lives(Duration::from_secs(20)), "127.0.0.1:0");
    let mut output = world.output();
    let mut input = world.input(false);
    let puts = std::thread::spawn(move || {
        (0..500).for_each(|time| put(&mut output, time, length_of(time)));
        output
    });
    for time in 0..500 {
        let item = input.get(Which::Exact(time), seconds(20)).unwrap();
        assert_eq!(&*item, &bytes_of(time, length_of(time))[..]);
        assert!(item.put_error_ns() > 0);
        input.consume_until(time).unwrap();
    }
    assert_eq!(input.counts().unwrap().lost, 0);
    // Ten million bytes of items, of which TCP has the heads.
    assert!(world.network.sent() < 500_000, "{}", world.network.sent());
    drop(puts.join().unwrap());
    let told: Vec<_> = world.told.try_iter().collect();
    assert!(told.is_empty(), "{told:?}");
}

#[test]
fn where_datagrams_do_not_come_items_come_by_tcp() {
    // The network's connections come from the IPv6 loopback, and the mirror takes datagrams at IPv4's.
    let world = World::of(lives(Duration::from_millis(50)), "[::1]:0");
    let mut output = world.output();
    let mut input = world.input(true);
    let mut time = 0;
    let told = loop {
        put(&mut output, time, 100);
        time += 1;
        std::thread::sleep(Duration::from_millis(20));
        if let Ok(told) = world.told.try_recv() {
            break told;
        }
        assert!(time < 500);
    };
    assert!(told.contains("a firewall?), so items come by TCP from now on"), "{told}");
    // Each of them is lost, or consumed nowhere and at home still.
    let lost = input.counts().unwrap().lost;
    assert!(lost >= 5, "{lost}");
    assert_eq!(
        input.get(Which::Exact(0), Until::Now).map(|_| ()),
        Err(GetError::Get(NoItem::Gone))
    );
    let told = world.told.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(told.contains("is back"), "{told}");
    for more in time..time + 50 {
        put(&mut output, more, length_of(more));
        let item = input.get(Which::Exact(more), seconds(10)).unwrap();
        assert_eq!(&*item, &bytes_of(more, length_of(more))[..]);
        input.consume_until(more).unwrap();
    }
    assert!(world.told.try_recv().is_err());
}

#[test]
fn what_a_home_gives_up_is_lost_at_once_however_long_it_would_live() {
    // Datagrams do not come, as above, so that items wait at home after the first datagrams.
    let world = World::of(lives(Duration::from_secs(600)), "[::1]:0");
    let mut output = world.output();
    let mut input = world.input(true);
    for time in 0..20 {
        put(&mut output, time, 100_000);
        std::thread::sleep(Duration::from_millis(5));
    }
    // Four wait, and one is begun.
    until("the others are lost", || input.counts().unwrap().lost >= 15);
    assert_eq!(input.counts().unwrap().lost, 15);
    let mut get = |time| input.get(Which::Exact(time), Until::Now).map(|item| item.time());
    assert_eq!(get(10), Err(GetError::Get(NoItem::Gone)));
    assert_eq!(get(19), Err(GetError::Get(NoItem::NotYet)));
}

#[test]
fn what_is_told_comes_after_the_items_before_it() {
    let world = World::of(lives(Duration::from_secs(20)), "127.0.0.1:0");
    let mut output = world.output();
    let mut input = world.input(false);
    for round in 0..100 {
        put(&mut output, 2 * round, 100_000);
        output.bound(2 * round + 2).unwrap();
        // The promise says that there is no such item, and is told when the one before has come.
        let none = input.get(Which::Exact(2 * round + 1), seconds(10)).map(|item| item.time());
        assert_eq!(none, Err(GetError::Get(NoItem::Never)));
        assert!(input.get(Which::Exact(2 * round), Until::Now).is_ok());
        input.consume_until(2 * round + 1).unwrap();
    }
    let mut late = world.away.open("frames").input(From::Next, false, 8).unwrap();
    put(&mut output, 500, 10);
    assert_eq!(late.get(Which::Oldest, seconds(10)).unwrap().time(), 500);
}
