//! The numbers of messages, out of what programs that know nothing of it send. Needs root, tracefs and
//! a build with clang, and says so where it cannot.

mod place;

use std::io::{IoSlice, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::thread;

use loopscope_kernel::programs::{Length, Number, TCP, UDP};
use nix::sched::{CloneFlags, unshare};
use place::programs::{Event, recorded};
use place::skip;

const PORT: u16 = 7077;
const MESSAGES: u64 = 2_000;

/// A network of this thread's own, in which the port is free; `false`, loudly, where there is none.
fn alone() -> bool {
    if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
        skip::skipped(&format!("no network namespace can be made: {error}"));
        return false;
    }
    Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success()
}

/// What goes to the port and what comes from it have their numbers at different places.
fn numbers(protocol: u8) -> [Number; 2] {
    let number =
        |from| Number { protocol, port: PORT, from, offset: offset(from) as u32, length: None };
    [number(false), number(true)]
}

fn offset(from: bool) -> usize {
    if from { 2 } else { 5 }
}

/// A message of `length` bytes with its number at its place.
fn message(number: u64, length: usize, from: bool) -> Vec<u8> {
    let mut bytes = vec![0xee; length];
    let end = bytes.len().min(offset(from) + 8);
    if end > offset(from) {
        bytes[offset(from)..end].copy_from_slice(&number.to_le_bytes()[..end - offset(from)]);
    }
    bytes
}

/// What an event is to have of a message: the bytes of its number, and how many they are.
fn expected(number: u64, length: usize, from: bool) -> (u64, u64) {
    let bytes = length.saturating_sub(offset(from)).min(8);
    let kept = if bytes == 8 { u64::MAX } else { (1 << (8 * bytes)) - 1 };
    (number & kept, bytes as u64)
}

fn found(event: &Event) -> (u64, u64) {
    (event.numbers["word"], event.numbers["word_bytes"])
}

fn of<'a>(events: &'a [Event], name: &str) -> Vec<&'a Event> {
    events.iter().filter(|event| event.name == name).collect()
}

/// Numbers that need all of their bytes.
fn number(of: u64) -> u64 {
    of.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[test]
fn datagrams_to_the_port_and_from_it_have_their_numbers() {
    if !alone() {
        return;
    }
    let length = |each: u64| each as usize % 40;
    let events =
        recorded(UDP, &["datagram_queued", "datagram_in"], &numbers(17), "udp", 1 << 20, || {
            let far = UdpSocket::bind((Ipv4Addr::LOCALHOST, PORT)).unwrap();
            let near = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            for each in 0..MESSAGES {
                near.send_to(
                    &message(number(each), length(each), false),
                    far.local_addr().unwrap(),
                )
                .unwrap();
                let (_, from) = far.recv_from(&mut [0; 100]).unwrap();
                far.send_to(&message(number(each) ^ 1, 9, true), from).unwrap();
                near.recv(&mut [0; 100]).unwrap();
            }
        });
    let Some((events, _)) = events else { return };
    for name in ["datagram_queued", "datagram_in"] {
        let of_name = of(&events, name);
        assert_eq!(of_name.len() as u64, 2 * MESSAGES, "{name}");
        for (each, pair) in (0..).zip(of_name.chunks(2)) {
            assert_eq!(
                found(pair[0]),
                expected(number(each), length(each), false),
                "{name} {each}"
            );
            assert_eq!(found(pair[1]), expected(number(each) ^ 1, 9, true), "{name} {each}");
        }
    }
}

/// Also where a call copies piece by piece, and gathers buffers.
#[test]
fn what_calls_write_to_a_connection_has_its_number() {
    if !alone() {
        return;
    }
    let length = |each: u64| if each % 100 == 50 { 300_000 } else { 1 + each as usize % 40 };
    let events = recorded(TCP, &["tcp_send"], &numbers(6), "tcp", 16 << 20, || {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PORT)).unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let reader = thread::spawn(move || {
            for each in 0..MESSAGES {
                far.read_exact(&mut vec![0; length(each)]).unwrap();
            }
        });
        for each in 0..MESSAGES {
            let bytes = message(number(each), length(each), false);
            if each % 3 == 0 && bytes.len() < 300_000 {
                // The number is in the first buffer as far as that goes.
                let (first, second) = bytes.split_at(bytes.len() - bytes.len() / 4);
                let buffers = [IoSlice::new(first), IoSlice::new(second)];
                assert_eq!(near.write_vectored(&buffers).unwrap(), bytes.len());
            } else {
                near.write_all(&bytes).unwrap();
            }
        }
        reader.join().unwrap();
    });
    let Some((events, _)) = events else { return };
    let mut sends = of(&events, "tcp_send");
    // The first event of a call has all of its bytes yet.
    let upto = |send: &Event| (send.numbers["seq"] + send.numbers["bytes"]) % (1 << 32);
    sends.dedup_by_key(|send| upto(send));
    assert_eq!(sends.len() as u64, MESSAGES);
    for (each, send) in (0..).zip(sends) {
        let whole = length(each);
        let one = whole - if each % 3 == 0 && whole < 300_000 { whole / 4 } else { 0 };
        assert_eq!(send.numbers["bytes"], whole as u64);
        assert_eq!(found(send), expected(number(each), one, false), "{each}");
    }
}

/// Three bytes, the most significant first, with the length of what follows them and a byte more.
const LENGTH: Length = Length { offset: 1, width: 3, big_endian: true, uncounted: 4 };

/// A message with its length and, at the offset behind that, its number.
fn with_length(number: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; length];
    bytes[1..4].copy_from_slice(&(length as u32 - 4).to_be_bytes()[1..]);
    bytes[4..12].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Writes each of some texts in one call, and reads all of them; the events of messages.
fn written(calls: &[Vec<u8>], test: &str) -> Option<Vec<Event>> {
    let number = Number { protocol: 6, port: PORT, from: false, offset: 4, length: Some(LENGTH) };
    let events = recorded(TCP, &["tcp_message", "tcp_send"], &[number], test, 16 << 20, || {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, PORT)).unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        let all: usize = calls.iter().map(Vec::len).sum();
        let reader = thread::spawn(move || far.read_exact(&mut vec![0; all]).unwrap());
        calls.iter().for_each(|call| near.write_all(call).unwrap());
        reader.join().unwrap();
    });
    let (events, _) = events?;
    Some(events.into_iter().filter(|event| event.name == "tcp_message").collect())
}

/// Several in one call, and one in several calls.
#[test]
fn messages_that_have_their_length_are_told_apart() {
    if !alone() {
        return;
    }
    let length = |each: u64| if each % 50 == 9 { 300_000 } else { 12 + each as usize % 90 };
    let (mut calls, mut call) = (vec![], vec![]);
    for each in 0..MESSAGES {
        let bytes = with_length(number(each), length(each));
        // Its head, and what follows that in calls of its own.
        let cut = if each % 7 == 3 { 12 } else { bytes.len() };
        call.extend_from_slice(&bytes[..cut]);
        if cut < bytes.len() || each % 5 == 0 {
            calls.push(std::mem::take(&mut call));
        }
        let rest = bytes[cut..].chunks(40_000).map(<[u8]>::to_vec);
        calls.extend(rest);
    }
    calls.push(call);
    let Some(events) = written(&calls, "length") else { return };
    assert_eq!(events.len() as u64, MESSAGES);
    let first = events[0].numbers["seq"];
    let mut at = 0;
    for (each, event) in (0..).zip(&events) {
        assert_eq!(found(event), (number(each), 8), "{each}");
        assert_eq!(event.numbers["bytes"], length(each) as u64, "{each}");
        assert_eq!(event.numbers["seq"], (first + at) % (1 << 32), "{each}");
        at += length(each) as u64;
    }
}

/// Where the length of a message is not in one call, an event without bytes says so.
#[test]
fn after_a_length_that_is_not_in_one_call_nothing_is_told() {
    if !alone() {
        return;
    }
    let whole: Vec<Vec<u8>> = (0..4).map(|each| with_length(each, 50)).collect();
    let (head, rest) = whole[2].split_at(2);
    let calls =
        [whole[0].clone(), whole[1].clone(), head.to_vec(), rest.to_vec(), whole[3].clone()];
    let Some(events) = written(&calls, "lost") else { return };
    let told: Vec<_> = events.iter().map(|each| (each.numbers["bytes"], found(each))).collect();
    assert_eq!(told, [(50, (0, 8)), (50, (1, 8)), (0, (0, 0))]);
}

/// Other ports' are not looked at.
#[test]
fn other_messages_have_none() {
    if !alone() {
        return;
    }
    let events = recorded(UDP, &["datagram_queued"], &numbers(6), "other", 1 << 20, || {
        let near = UdpSocket::bind((Ipv4Addr::LOCALHOST, PORT)).unwrap();
        near.send_to(&message(7, 20, false), near.local_addr().unwrap()).unwrap();
    });
    let Some((events, _)) = events else { return };
    let sent = of(&events, "datagram_queued");
    assert_eq!(sent.into_iter().map(found).collect::<Vec<_>>(), [(0, 0)]);
}
