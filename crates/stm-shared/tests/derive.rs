//! Promises that a thread carries from the items that it gets to those that it puts.

mod small;

use std::thread;
use std::time::Duration;

use loopscope_stm::{From, GetError as NoItem, Time, Which};
use loopscope_stm_shared::{Files, GetError, Input, Shared, Until};
use small::OPTIONS;

fn shared() -> Shared {
    let files = Files::create(&OPTIONS).unwrap();
    Shared::open(&files.control, &files.payload).unwrap()
}

/// Whether the item of a time may come still.
fn may_come(input: &mut Input, time: Time) -> bool {
    match input.get(Which::Exact(time), Until::Now).err() {
        Some(GetError::Get(NoItem::NotYet)) => true,
        Some(GetError::Get(NoItem::Never)) => false,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_due_to_an_input_is_promised() {
    let (frames, poses) = (shared(), shared());
    let mut camera = frames.output().unwrap();
    let mut of_frames = frames.input(From::Oldest, false, 4).unwrap();
    let tracker = poses.output().unwrap();
    let mut of_poses = poses.input(From::Oldest, false, 4).unwrap();
    for time in [1, 2] {
        camera.put(time, 0, b"", Until::Now).unwrap();
    }
    camera.bound(4).unwrap();
    assert!(may_come(&mut of_poses, 0));

    tracker.derives(&of_frames).unwrap();
    assert!(!may_come(&mut of_poses, 0) && may_come(&mut of_poses, 1));
    let frame = of_frames.get(Which::Oldest, Until::Now).unwrap();
    of_frames.consume_until(1).unwrap();
    // It may still put what it makes of the item that it has.
    assert!(may_come(&mut of_poses, 1));
    drop(frame);
    assert!(!may_come(&mut of_poses, 1) && may_come(&mut of_poses, 2));
    of_frames.consume(2).unwrap();
    // The camera puts nothing below 4 any more.
    assert!(!may_come(&mut of_poses, 3) && may_come(&mut of_poses, 4));
    // A promise is not taken back, and holds when the input has left.
    drop(of_frames);
    assert!(!may_come(&mut of_poses, 3) && may_come(&mut of_poses, 4));
}

#[test]
fn a_thread_that_waits_carries_promises_on() {
    let (frames, poses) = (shared(), shared());
    let mut camera = frames.output().unwrap();
    let mut of_frames = frames.input(From::Oldest, false, 4).unwrap();
    let tracker = poses.output().unwrap();
    tracker.derives(&of_frames).unwrap();
    let tracking = thread::spawn(move || {
        let item = of_frames.get(Which::Unseen, Until::Forever).unwrap();
        (item.time(), tracker)
    });
    let mut of_poses = poses.input(From::Oldest, false, 4).unwrap();
    let waiting = thread::spawn(move || of_poses.get(Which::Exact(8), Until::Forever).err());
    thread::sleep(Duration::from_millis(20));
    camera.bound(9).unwrap();
    assert_eq!(waiting.join().unwrap(), Some(GetError::Get(NoItem::Never)));
    camera.put(9, 0, b"", Until::Now).unwrap();
    assert_eq!(tracking.join().unwrap().0, 9);
}

#[test]
fn a_thread_that_polls_carries_promises_on() {
    let (frames, poses) = (shared(), shared());
    let mut camera = frames.output().unwrap();
    let mut of_frames = frames.input(From::Oldest, false, 4).unwrap();
    // Somebody else wants the item still, so that there is a newest one.
    let _others = frames.input(From::Oldest, false, 4).unwrap();
    let mut of_poses = poses.input(From::Oldest, false, 4).unwrap();
    let tracker = poses.output().unwrap();
    tracker.derives(&of_frames).unwrap();
    camera.put(3, 0, b"", Until::Now).unwrap();
    let frame = of_frames.get(Which::Unseen, Until::Now).unwrap();
    of_frames.consume_until(3).unwrap();
    drop(frame);
    camera.bound(7).unwrap();
    let nothing = of_frames.get(Which::Unseen, Until::Now).err();
    assert_eq!(nothing, Some(GetError::Get(NoItem::NotYet)));
    assert!(!may_come(&mut of_poses, 6) && may_come(&mut of_poses, 7));
}

#[test]
fn of_several_inputs_the_lowest_counts() {
    let (left, right, joined) = (shared(), shared(), shared());
    let mut of_left = left.input(From::Oldest, false, 4).unwrap();
    let mut of_right = right.input(From::Oldest, false, 4).unwrap();
    let mut of_joined = joined.input(From::Oldest, false, 4).unwrap();
    let joiner = joined.output().unwrap();
    joiner.derives(&of_left).unwrap();
    joiner.derives(&of_right).unwrap();
    joiner.derives(&of_right).unwrap();
    of_left.consume_until(7).unwrap();
    assert!(may_come(&mut of_joined, 0));
    of_right.consume_until(3).unwrap();
    assert!(!may_come(&mut of_joined, 3) && may_come(&mut of_joined, 4));
    // One that has left makes nothing any more.
    drop(of_right);
    assert!(!may_come(&mut of_joined, 7) && may_come(&mut of_joined, 8));
    of_left.consume_until(20).unwrap();
    assert!(!may_come(&mut of_joined, 20));
    // An output that has left follows nothing, and keeps nobody.
    drop(joiner);
    of_left.consume_until(30).unwrap();
    assert!(may_come(&mut of_joined, 0));
}
