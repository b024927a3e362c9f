//! Programs of another host that put items at home.

use std::thread;
use std::time::{Duration, Instant};

use loopscope_stm::{self as stm, Config, From, GetError as NoItem, Which};
use loopscope_stm_shared::{
    ConnectError, GetError, Input, Options, PutError, Shared, Until, now_ns,
};

use crate::world::{OPTIONS, World, bytes_of, put, seconds, until};

fn soon(ms: u64) -> Until {
    Until::Deadline(Instant::now() + Duration::from_millis(ms))
}

fn refused(put: Result<(), PutError>) -> PutError {
    put.expect_err("it is put")
}

#[test]
fn items_that_are_put_elsewhere_are_at_home_as_they_were_put() {
    let world = World::new(&OPTIONS);
    let mut readers =
        [world.home.open("frames").input(From::Oldest, false, 8).unwrap(), world.input(false)];
    let mut output = world.output_away();
    let length = |time: i64| [0, 1, 5000, 100_000][time as usize % 4];
    let puts = thread::spawn(move || {
        let mut instants = vec![];
        for time in 0..300 {
            let before = now_ns();
            if time % 3 == 0 {
                let mut loan = output.loan(Until::Now).unwrap();
                loan[..length(time)].copy_from_slice(&bytes_of(time, length(time)));
                loan.put(time, 4, length(time), seconds(10)).map_err(|failed| failed.1).unwrap();
            } else {
                output.put(time, 4, &bytes_of(time, length(time)), seconds(10)).unwrap();
            }
            instants.push((before, now_ns()));
        }
        instants
    });
    let mut told = vec![];
    for time in 0..300 {
        for input in &mut readers {
            let item = input.get(Which::Oldest, seconds(10)).unwrap();
            assert_eq!((item.time(), item.half_width()), (time, 4));
            assert_eq!(&*item, &bytes_of(time, length(time))[..]);
            told.push((time, item.put_ns(), item.put_error_ns()));
            input.consume_until(time).unwrap();
        }
    }
    let instants = puts.join().unwrap();
    for (time, put_ns, error) in told {
        // Both hosts have this machine's clock.
        let (before, after) = instants[time as usize];
        assert!(error > 0 && before - error <= put_ns && put_ns <= after + error, "{time}");
    }
}

#[test]
fn a_put_elsewhere_is_refused_as_at_home() {
    let world = World::new(&OPTIONS);
    let mut near = world.home.open("frames").input(From::Oldest, false, 8).unwrap();
    let mut output = world.output_away();
    put(&mut output, 10, 100);
    let again = refused(output.put(10, 0, b"", seconds(10)));
    assert_eq!(again, PutError::Put(stm::PutError::Exists));
    assert_eq!(output.bound(5).unwrap(), 5);
    assert_eq!(output.bound(3).unwrap(), 5);
    let below = refused(output.put(4, 0, b"", seconds(10)));
    assert_eq!(below, PutError::Put(stm::PutError::Late));
    let range = refused(output.put(i64::MAX, 0, b"", seconds(10)));
    assert_eq!(range, PutError::Put(stm::PutError::OutOfRange));
    let long = refused(output.put(11, 0, &vec![0; 200_000], seconds(10)));
    assert!(matches!(long, PutError::TooLong { bytes: 200_000, .. }), "{long:?}");
    (11..14).for_each(|time| put(&mut output, time, 100));
    // It is full: at once, for a time, and until there is room.
    let full = PutError::Put(stm::PutError::Full);
    assert_eq!(refused(output.put(14, 0, b"x", Until::Now)), full);
    let begin = Instant::now();
    assert_eq!(refused(output.put(14, 0, b"x", soon(120))), full);
    assert!(begin.elapsed() >= Duration::from_millis(120));
    // A loan is there still, and may be written to again.
    let mut loan = output.loan(Until::Now).unwrap();
    loan[..3].copy_from_slice(b"old");
    let (mut loan, error) = loan.put(14, 0, 3, Until::Now).err().unwrap();
    assert_eq!(error, full);
    loan[..3].copy_from_slice(b"new");
    let (mut loan, error) = loan.put(14, 0, 3, soon(60)).err().unwrap();
    assert_eq!(error, full);
    loan.mark_unchanged();
    let waits = thread::spawn(move || loan.put(14, 0, 3, Until::Forever).map_err(|it| it.1));
    thread::sleep(Duration::from_millis(100));
    near.consume_until(10).unwrap();
    waits.join().unwrap().unwrap();
    assert_eq!(&*near.get(Which::Exact(14), Until::Now).unwrap(), b"new");
    // As many loans as at home.
    let _loans = [output.loan(Until::Now).unwrap(), output.loan(Until::Now).unwrap()];
    let many = output.loan(Until::Now).map(|_| ()).unwrap_err();
    assert_eq!(many, PutError::Loan(stm::LoanError::TooManyLoans));
}

#[test]
fn promises_of_a_program_elsewhere_come_while_its_put_waits() {
    let world = World::new(&OPTIONS);
    let mut near = world.home.open("frames").input(From::Oldest, false, 8).unwrap();
    let mut output = world.output_away();
    // What it puts follows from the items of a channel of its own host.
    world.away.client().create("scans", &OPTIONS).unwrap();
    let scans = world.away.client().open("scans", true).unwrap();
    let mut scanner = scans.output().unwrap();
    let mut scan = scans.input(From::Oldest, false, 8).unwrap();
    output.derives(&scan).unwrap();
    [100, 101, 102, 103].into_iter().for_each(|time| put(&mut output, time, 50_000));
    let waits =
        thread::spawn(move || output.put(104, 0, &[7; 100_000], Until::Forever).map(|()| output));
    thread::sleep(Duration::from_millis(100));
    let never = |near: &mut Input, time| {
        near.get(Which::Exact(time), Until::Now).err() == Some(GetError::Get(NoItem::Never))
    };
    assert!(!never(&mut near, 50));
    // Another thread gets, and carries the promise, which the home has while the put waits.
    scanner.bound(60).unwrap();
    scan.consume_until(59).unwrap();
    until("the promise comes", || never(&mut near, 50));
    assert!(!waits.is_finished());
    near.consume_until(100).unwrap();
    let output = waits.join().unwrap().unwrap();
    drop(output);
    until("it has left", || world.home.client().list().unwrap()[0].outputs.is_empty());
}

#[test]
fn a_program_elsewhere_is_told_which_of_its_items_were_collected() {
    let world = World::new(&OPTIONS);
    let mut near = world.home.open("frames").input(From::Oldest, false, 8).unwrap();
    let (mut here, mut away) = (world.output(), world.output_away());
    put(&mut away, 1, 10);
    for output in [&here, &away] {
        assert!(output.collected(0).unwrap().is_empty());
    }
    put(&mut here, 2, 10);
    put(&mut here, 3, 10_000);
    put(&mut away, 4, 10);
    let held = near.get(Which::Exact(2), Until::Now).unwrap();
    near.consume_until(4).unwrap();
    // What is held is there still, and what was put before the first question is not told.
    assert_eq!(here.collected(9).unwrap(), [3]);
    assert_eq!(away.collected(9).unwrap(), [4]);
    drop(held);
    assert_eq!(here.collected(9).unwrap(), [2]);
    (5..9).for_each(|time| put(&mut away, time, 10));
    near.consume_until(8).unwrap();
    assert_eq!(away.collected(3).unwrap(), [5, 6, 7]);
    assert_eq!([away.collected(3).unwrap(), away.collected(3).unwrap()], [vec![8], vec![]]);
}

/// All slots are in use, so that the home has no place for the item's bytes.
#[test]
fn a_put_elsewhere_waits_for_a_slot() {
    let few = Options { config: Config { slots: 4, ..OPTIONS.config }, ..OPTIONS };
    let world = World::new(&few);
    let mut near = world.home.open("frames").input(From::Oldest, false, 8).unwrap();
    let mut output = world.output_away();
    (0..4).for_each(|time| put(&mut output, time, 100_000));
    let none = refused(output.put(4, 0, &bytes_of(4, 100_000), soon(80)));
    assert_eq!(none, PutError::Loan(stm::LoanError::NoSlot));
    assert_eq!(refused(output.put(4, 0, b"", Until::Now)), none);
    let waits = thread::spawn(move || output.put(4, 0, &bytes_of(4, 100_000), Until::Forever));
    thread::sleep(Duration::from_millis(80));
    near.consume_until(0).unwrap();
    waits.join().unwrap().unwrap();
    assert_eq!(&*near.get(Which::Exact(4), Until::Now).unwrap(), &bytes_of(4, 100_000)[..]);
}

#[test]
fn a_put_whose_home_goes_away_says_so() {
    let world = World::new(&OPTIONS);
    let frames = world.home.open("frames");
    let mut near = frames.input(From::Oldest, false, 8).unwrap();
    let mut output = world.output_away();
    (0..4).for_each(|time| put(&mut output, time, 10));
    let waits = thread::spawn(move || {
        let done = output.put(4, 0, b"x", Until::Forever);
        (done, output.put(5, 0, b"x", Until::Now))
    });
    thread::sleep(Duration::from_millis(50));
    world.network.cut();
    let (first, second) = waits.join().unwrap();
    assert!(matches!(refused(first), PutError::Away(_)));
    assert!(matches!(refused(second), PutError::Away(_)));
    // The home ends its connection, and has all slots again but those of the items.
    until("it has left", || world.home.client().list().unwrap()[0].outputs.is_empty());
    assert_eq!(frames.counts().unwrap().free, 2);
    near.consume_until(3).unwrap();
    put(&mut world.output_away(), 6, 10);
    assert_eq!(near.get(Which::Newest, Until::Now).unwrap().time(), 6);
}

#[test]
fn a_way_home_that_cannot_be_is_said() {
    let world = World::new(&OPTIONS);
    let away = world.away.client().open("frames", true).unwrap();
    let error = |shared: &Shared| shared.output().map(|_| ()).unwrap_err();
    assert!(matches!(error(&world.away.open("frames")), ConnectError::ReadOnly));
    let both = [away.output().unwrap(), away.output().unwrap()];
    let many = error(&away).to_string();
    assert!(many.contains("no room for another connection"), "{many}");
    drop(both);
    until("there is room again", || away.output().is_ok());
    // Another channel has the name.
    world.home.client().remove("frames").unwrap();
    world.home.client().create("frames", &OPTIONS).unwrap();
    let other = error(&away).to_string();
    assert!(other.contains("another channel of this name"), "{other}");
}
