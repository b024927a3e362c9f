//! What the kernel is seen to do, in virtual time: the observer is shown what a kernel with a known
//! fate for each packet would show, and has to find the fates.

use loopscope_emulate::observe::Observer;
use loopscope_emulate::record::Achieved;
use loopscope_emulate::run::read_value;
use loopscope_time::MonotonicNs;
use proptest::prelude::*;
use serde_json::{Value, json};

const MS: u64 = 1_000_000;
const BROADCAST: u8 = 0xff;

fn observer(links: Value) -> Observer {
    let port = |i: u8| {
        json!({"host": format!("h{i}"), "device": format!("d{i}"),
               "address": format!("02:00:00:00:00:0{i}")})
    };
    let document = json!({"version": 1, "seed": 1, "mover": "netem",
        "ports": [port(1), port(2), port(3)], "links": links});
    Observer::new(&read_value(&document).unwrap(), MonotonicNs(0)).unwrap()
}

/// From host `from` to host `to`, of which there are no two with the same `number`.
fn frame(from: u8, to: u8, number: u64) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x88, 0xb5];
    if to == BROADCAST {
        bytes[..6].fill(BROADCAST);
    }
    bytes.extend(number.to_le_bytes());
    bytes.extend([7; 40]);
    // What a corrupted frame is told by: the number stands in both halves.
    bytes.extend(number.to_le_bytes());
    bytes
}

fn at(ns: u64) -> MonotonicNs {
    MonotonicNs(ns)
}

fn segments(observer: &Observer, from: &str, to: &str) -> Vec<Achieved> {
    let shown = observer.shown(at(0));
    let link = shown.into_iter().find(|link| link.from == from && link.to == to);
    link.map_or(vec![], |link| link.segments)
}

fn only(observer: &Observer, from: &str, to: &str) -> Achieved {
    let mut segments = segments(observer, from, to);
    assert_eq!(segments.len(), 1);
    segments.remove(0)
}

fn lost(segment: &Achieved) -> u64 {
    let all = segment.dropped;
    all.mtu + all.loss + all.queue + all.codel + all.moving + all.kernel
}

fn balances(segments: &[Achieved]) {
    let sum = |each: fn(&Achieved) -> u64| segments.iter().map(each).sum::<u64>();
    let dropped: u64 = segments.iter().map(lost).sum();
    let went = sum(|s| s.left.packets) - sum(|s| s.duplicated) + dropped + sum(|s| s.queued);
    assert_eq!(sum(|s| s.came.packets), went, "{segments:?}");
}

#[test]
fn delays_are_from_the_one_stamp_to_the_other() {
    let mut observer = observer(json!([{"from": "h1", "to": "h2",
        "settings": {"delay_ns": 20 * MS}}]));
    observer.holds(1, 20 * MS);
    for number in 0..1000 {
        observer.came(at(number * MS), 0, &frame(1, 2, number));
        if number >= 20 {
            observer.left(at(number * MS + 500), 1, &frame(1, 2, number - 20));
        }
        observer.settle(at(number * MS + 500));
    }
    observer.close(at(1000 * MS));
    let found = only(&observer, "h1", "h2");
    assert_eq!(
        (found.delay_ns.min, found.delay_ns.max),
        (Some(20 * MS + 500), Some(20 * MS + 500))
    );
    assert_eq!(found.late_ns.p50, None, "when netem meant to let it go nobody knows");
    assert_eq!((found.came.packets, found.left.packets, found.queued), (1000, 980, 20));
    assert_eq!((lost(&found), found.reordered, observer.unseen()), (0, 0, 0));
    assert_eq!((found.first_ns, found.last_ns), (Some(20_000_500), Some(999_000_500)));
    balances(&[found]);
}

/// netem says what was asked; which of a loss and a full queue it was it does not.
#[test]
fn what_does_not_come_out_is_lost_for_what_was_asked() {
    let loss = json!({"kind": "independent", "probability": 0.1});
    let rate = json!(1_000_000_000);
    for (settings, reason) in [
        (json!({"loss": loss}), "loss"),
        (json!({"rate_bps": rate}), "queue"),
        (json!({"loss": loss, "rate_bps": rate}), "kernel"),
        (json!({"delay_ns": 5}), "kernel"),
    ] {
        let mut observer = observer(json!([{"from": "h1", "to": "h2", "settings": settings}]));
        for number in 0..1000 {
            observer.came(at(number * MS), 0, &frame(1, 2, number));
            if number % 10 != 0 {
                observer.left(at(number * MS + 10), 1, &frame(1, 2, number));
            }
        }
        observer.close(at(2000 * MS));
        let found = only(&observer, "h1", "h2");
        let dropped = serde_json::to_value(found.dropped).unwrap();
        assert_eq!((&dropped[reason], lost(&found)), (&json!(100), 100), "{settings}: {dropped}");
        assert_eq!(found.queued, 0);
        balances(&[found]);
    }
}

#[test]
fn a_second_one_is_a_duplicate_and_a_late_one_is_reordered() {
    let mut observer = observer(json!([{"from": "h1", "to": "h2",
        "settings": {"duplicate": 0.1, "delay_ns": MS, "reorder": {"skip": {"probability": 0.1}}}}]));
    for number in 0..100 {
        observer.came(at(number * MS), 0, &frame(1, 2, number));
    }
    for number in 0..50 {
        // The second of each two first.
        for each in [2 * number + 1, 2 * number] {
            observer.left(at((100 + number) * MS), 1, &frame(1, 2, each));
        }
        observer.left(at((100 + number) * MS + 5), 1, &frame(1, 2, 2 * number));
    }
    observer.close(at(10_000 * MS));
    let found = only(&observer, "h1", "h2");
    assert_eq!((found.duplicated, found.left.packets, found.reordered), (50, 150, 50));
    assert_eq!((lost(&found), found.corrupted), (0, 0));
    balances(&[found]);
}

/// Any bit, those of the addresses as well: it is told which packet it was, and no other is taken
/// for lost in its place.
#[test]
fn one_flipped_bit_is_found_and_so_is_whose_it_was() {
    let mut observer = observer(json!([
        {"from": "h1", "to": "h2", "settings": {"corrupt": 0.5, "loss":
            {"kind": "independent", "probability": 0.1}}},
        {"from": "h3", "to": "h2", "settings": {}}]));
    let bits = frame(1, 2, 0).len() as u64 * 8;
    for number in 0..bits {
        let now = 10 * number * MS;
        observer.came(at(now), 0, &frame(1, 2, number));
        observer.came(at(now), 2, &frame(3, 2, 5_000_000 + number));
        // One that is lost, at the same time.
        observer.came(at(now + 10), 0, &frame(1, 2, 1_000_000 + number));
        let mut bytes = frame(1, 2, number);
        bytes[number as usize / 8] ^= 1 << (number % 8);
        observer.left(at(now + 3 * MS), 1, &bytes);
        observer.left(at(now + 3 * MS), 1, &frame(3, 2, 5_000_000 + number));
        observer.settle(at(now + 3 * MS));
    }
    observer.close(at(100_000 * MS));
    let found = only(&observer, "h1", "h2");
    assert_eq!((found.corrupted, found.dropped.loss), (bits, bits));
    assert_eq!(found.delay_ns.max.map(|ns| ns / MS), Some(3));
    let other = only(&observer, "h3", "h2");
    assert_eq!((other.corrupted, other.duplicated, lost(&other)), (0, 0, 0));
    assert_eq!(observer.unseen(), 0);
    balances(&[found]);
}

#[test]
fn a_corrupted_duplicate_is_both() {
    let mut observer = observer(json!([{"from": "h1", "to": "h2",
        "settings": {"corrupt": 0.5, "duplicate": 0.5}}]));
    observer.came(at(0), 0, &frame(1, 2, 5));
    let mut flipped = frame(1, 2, 5);
    flipped[40] ^= 4;
    observer.left(at(10), 1, &flipped);
    observer.left(at(10), 1, &frame(1, 2, 5));
    observer.close(at(1000 * MS));
    let found = only(&observer, "h1", "h2");
    assert_eq!((found.left.packets, found.duplicated, found.corrupted), (2, 1, 1));
    balances(&[found]);
}

#[test]
fn a_broadcast_goes_to_all_others_and_a_known_address_to_one() {
    let mut observer = observer(json!([]));
    observer.came(at(0), 0, &frame(1, BROADCAST, 1));
    observer.came(at(0), 0, &frame(1, 3, 2));
    // Nobody's: flooded. To itself: not handed on. To the bridge: neither.
    observer.came(at(0), 0, &frame(1, 9, 3));
    observer.came(at(0), 0, &frame(1, 1, 4));
    let mut pause = frame(1, 1, 5);
    pause[..6].copy_from_slice(&[1, 0x80, 0xc2, 0, 0, 1]);
    observer.came(at(0), 0, &pause);
    for to in [1, 2] {
        observer.left(at(10), to, &frame(1, BROADCAST, 1));
        observer.left(at(10), to, &frame(1, 9, 3));
    }
    observer.left(at(10), 2, &frame(1, 3, 2));
    observer.close(at(1000 * MS));
    let (near, far) = (only(&observer, "h1", "h2"), only(&observer, "h1", "h3"));
    assert_eq!((near.came.packets, near.left.packets), (2, 2));
    assert_eq!((far.came.packets, far.left.packets), (3, 3));
    assert_eq!(observer.unseen(), 0);
    // Links on which nothing was asked and nothing came are not told of.
    assert_eq!(observer.shown(at(0)).len(), 2);
}

/// A queue that holds packets for long: what was overtaken where nothing overtakes is lost, at
/// once.
#[test]
fn where_order_is_kept_what_was_overtaken_is_lost() {
    let settings = json!({"rate_bps": 10_000, "queue": {"limit": {"packets": 1000}}});
    let mut observer = observer(json!([{"from": "h1", "to": "h2", "settings": settings}]));
    observer.holds(1, 1_000_000 * MS);
    for number in 0..10 {
        observer.came(at(number * 50 * MS), 0, &frame(1, 2, number));
    }
    observer.left(at(600 * MS), 1, &frame(1, 2, 9));
    observer.close(at(601 * MS));
    let found = only(&observer, "h1", "h2");
    // Packets shortly before it may have taken another CPU.
    assert_eq!((found.dropped.queue, found.queued, found.left.packets), (7, 2, 1));
    balances(&[found]);
}

#[test]
fn frames_that_are_alike_have_no_delay_but_are_counted() {
    let mut observer = observer(json!([{"from": "h1", "to": "h2", "settings": {"delay_ns": MS}}]));
    for number in 0..4 {
        observer.came(at(number * MS), 0, &frame(1, 2, 5));
    }
    for number in 0..3 {
        observer.left(at((4 + number) * MS), 1, &frame(1, 2, 5));
    }
    observer.close(at(1000 * MS));
    let found = only(&observer, "h1", "h2");
    assert_eq!((found.left.packets, lost(&found), found.duplicated), (3, 1, 0));
    assert_eq!(found.delay_ns.max, None);
    balances(&[found]);
}

#[test]
fn what_was_not_seen_coming_is_told() {
    let mut observer = observer(json!([{"from": "h1", "to": "h2", "settings": {"delay_ns": MS}}]));
    observer.left(at(5), 1, &frame(1, 2, 5));
    // The switch's own.
    observer.left(at(5), 1, &frame(8, 2, 5));
    observer.close(at(1000 * MS));
    let found = only(&observer, "h1", "h2");
    assert_eq!((found.came.packets, found.left.packets), (1, 1));
    assert_eq!(observer.unseen(), 1);
    assert_eq!(found.delay_ns.max, None);
    balances(&[found]);
}

/// Packets count for the settings under which they came, and new ones break the order once.
#[test]
fn each_segment_has_the_packets_that_came_in_it() {
    let settings = json!({"delay_ns": 500 * MS});
    let mut observer = observer(json!([{"from": "h1", "to": "h2", "settings": settings}]));
    observer.holds(1, 500 * MS);
    for number in 0..20 {
        observer.came(at(number * 20 * MS), 0, &frame(1, 2, number));
    }
    let fast = serde_json::from_value(json!({"delay_ns": MS})).unwrap();
    assert_eq!(observer.set(at(390 * MS), 1, fast, false), 1);
    for number in 20..25 {
        observer.came(at(number * 20 * MS), 0, &frame(1, 2, number));
        observer.left(at(number * 20 * MS + MS), 1, &frame(1, 2, number));
        observer.settle(at(number * 20 * MS + MS));
    }
    for number in 0..20 {
        observer.left(at(number * 20 * MS + 500 * MS), 1, &frame(1, 2, number));
    }
    observer.close(at(5000 * MS));
    let found = segments(&observer, "h1", "h2");
    assert_eq!(found.iter().map(|s| s.came.packets).collect::<Vec<_>>(), [20, 5]);
    assert_eq!(found.iter().map(|s| s.left.packets).collect::<Vec<_>>(), [20, 5]);
    assert_eq!(found[0].delay_ns.max, Some(500 * MS));
    assert_eq!(found[1].delay_ns.max, Some(MS));
    assert_eq!((found[0].reordered, found[1].reordered), (20, 0));
    balances(&found);
}

/// What was in a queue that was thrown away is not the loss that was asked for.
#[test]
fn a_discarded_queue_is_no_loss_that_was_asked_for() {
    let settings = json!({"loss": {"kind": "independent", "probability": 0.5}});
    let mut observer = observer(json!([{"from": "h1", "to": "h2", "settings": settings.clone()}]));
    observer.came(at(0), 0, &frame(1, 2, 1));
    let settings = serde_json::from_value(settings).unwrap();
    observer.set(at(10), 1, settings, true);
    observer.came(at(20), 0, &frame(1, 2, 2));
    observer.close(at(1000 * MS));
    let found = segments(&observer, "h1", "h2");
    assert_eq!((found[0].dropped.kernel, found[1].dropped.loss), (1, 1));
}

#[test]
fn every_port_needs_an_address_of_its_own() {
    let open = |second: Value| {
        let document = json!({"version": 1, "seed": 1, "mover": "netem", "links": [],
            "ports": [{"host": "h1", "device": "d1", "address": "02:00:00:00:00:01"}, second]});
        read_value(&document).and_then(|document| Observer::new(&document, at(0)))
    };
    let port = |address: Value| json!({"host": "h2", "device": "d2", "address": address});
    let error = |second| open(second).unwrap_err().to_string();
    let missing = error(json!({"host": "h2", "device": "d2"}));
    assert!(missing.starts_with("`ports[1].address`: with mover netem"), "{missing}");
    let wrong = error(port(json!("2:1")));
    assert!(wrong.contains("ports[1].address") && wrong.contains("\"2:1\""), "{wrong}");
    let same = error(port(json!("02:00:00:00:00:01")));
    assert!(same.contains("h2 and h1 have the same"), "{same}");
    assert!(open(port(json!("02:00:00:00:00:02"))).is_ok());
}

proptest! {
    /// Whatever is shown, true or not: in = out - duplicated + dropped + queued, for each link.
    #[test]
    fn the_account_balances_whatever_happens(
        sights in prop::collection::vec((0..3u8, 0..5u8, 0..6u64, 0..4u8, 0..40u64), 1..300),
        ends in 0..400u64,
    ) {
        let loss = json!({"kind": "independent", "probability": 0.1});
        let mut observer = observer(json!([
            {"from": "h1", "to": "h2", "settings": {"loss": loss}},
            {"from": "h2", "to": "h1", "settings": {"rate_bps": 1000}}]));
        observer.holds(1, 20 * MS);
        let mut now = 0;
        for (from, to, number, what, later) in sights {
            now += later * MS;
            let to = if to == 4 { BROADCAST } else { to };
            let mut bytes = frame(from + 1, to, number);
            match what {
                0 | 1 => observer.came(at(now), usize::from(from), &bytes),
                2 => observer.left(at(now), usize::from(to % 3), &bytes),
                _ => {
                    bytes[number as usize * 7] ^= 2;
                    observer.left(at(now), usize::from(to % 3), &bytes);
                }
            }
            if later == 7 {
                let settings = serde_json::from_value(json!({"delay_ns": number})).unwrap();
                observer.set(at(now), 1, settings, number == 3);
            }
            if later % 3 == 0 {
                observer.settle(at(now));
            }
        }
        observer.close(at(now + ends * MS));
        for link in observer.shown(at(0)) {
            balances(&link.segments);
        }
    }
}
