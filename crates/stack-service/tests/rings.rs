//! What a program can do with its ring, which is the kernel's as well. Needs root.
#![allow(unsafe_code)]

mod hostile;
#[path = "../../../tests/skip.rs"]
mod skip;
mod world;

use std::net::UdpSocket;
use std::num::NonZero;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use hostile::Hostile;
use loopscope_engine::Engine;
use loopscope_engine::wire::{Answer, Counts, Request, VERSION};
use loopscope_frames::packets::{Packets, Summed};
use loopscope_stack::datagram;
use loopscope_stack::packet::Checksums;
use loopscope_stack_service::status;
use loopscope_unix_lines::{receive, send};
use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, mprotect};
use nix::unistd::{SysconfVar, geteuid, sysconf};
use world::{Machine, OTHER, OWN, PATIENCE, Serving, network};

const ETHERNET: usize = 14;
/// Payloads of packets of each size of place in a ring, but for the largest.
const SIZES: [usize; 4] = [0, 100, 400, 1400];

/// In a thread of its own, whose network namespace is changed.
fn as_root(test: fn()) {
    if !geteuid().is_root() {
        return skip::skipped("a network namespace needs root");
    }
    std::thread::spawn(test).join().expect("the test did not fail");
}

/// Two connected sockets, here and on another machine.
fn pair(machine: &Machine) -> (UdpSocket, UdpSocket) {
    let here = UdpSocket::bind((OWN[0], 0)).unwrap();
    let there = machine.run(|| UdpSocket::bind((OTHER[0], 0)).unwrap());
    here.connect(there.local_addr().unwrap()).unwrap();
    there.connect(here.local_addr().unwrap()).unwrap();
    (here, there)
}

/// What came of the only socket that the service has.
fn counts(serving: &Serving) -> Counts {
    let [found] = <[_; 1]>::try_from(status(serving.at()).unwrap().1).unwrap();
    let [packets, payload, lost] = [found.packets, found.payload, found.lost].map(Option::unwrap);
    Counts { packets, payload, lost }
}

fn page() -> usize {
    sysconf(SysconfVar::PAGE_SIZE).unwrap().unwrap() as usize
}

/// The page where a program says how far it has read, as the program may write to it.
fn reader(program: &Hostile) -> &'static AtomicUsize {
    let both = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    let length = NonZero::new(page()).unwrap();
    // SAFETY: a new mapping, which stays until the process ends.
    unsafe {
        mmap(None, length, both, MapFlags::MAP_SHARED, &program.ring, 0).unwrap().cast().as_ref()
    }
}

#[test]
fn a_library_of_another_version_is_refused() {
    as_root(|| {
        network();
        let serving = Serving::start();
        for version in [0, VERSION + 1] {
            let stream = UnixStream::connect(serving.at()).unwrap();
            send(&stream, &Request::Begin { version }, &[]).unwrap();
            let (answer, files) = receive::<Answer>(&stream).unwrap().unwrap();
            assert!(files.is_empty());
            let Answer::Refused(why) = answer else { panic!("{answer:?}") };
            assert!(why.contains(&format!("the program's library {version}")), "{why}");
        }
        assert_eq!(status(serving.at()).unwrap().0, 0);
    });
}

/// Connects as a user without rights.
fn connect_as(user: libc::uid_t, serving: &Serving) -> UnixStream {
    let connect = || {
        // SAFETY: it changes this thread alone, which ends.
        assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) }, 0);
        UnixStream::connect(serving.at()).unwrap()
    };
    std::thread::scope(|scope| scope.spawn(connect).join().unwrap())
}

#[test]
fn one_user_does_not_have_all_programs() {
    as_root(|| {
        network();
        let serving = Serving::start();
        let connected: Vec<UnixStream> = (0..128).map(|_| connect_as(65534, &serving)).collect();
        let refused = connect_as(65534, &serving);
        let (answer, _) = receive::<Answer>(&refused).unwrap().unwrap();
        let Answer::Refused(why) = answer else { panic!("{answer:?}") };
        assert_eq!(why, "128 programs of this user have connections by the stack already");
        let begin_as = |user| {
            let stream = connect_as(user, &serving);
            // It may have been refused before it asks.
            let _ = send(&stream, &Request::Begin { version: VERSION }, &[]);
            receive::<Answer>(&stream).unwrap().unwrap().0
        };
        for other in [0, 65533] {
            let answer = begin_as(other);
            assert!(matches!(answer, Answer::Welcome { .. }), "{answer:?}");
        }
        drop(connected);
        let begin = Instant::now();
        while !matches!(begin_as(65534), Answer::Welcome { .. }) {
            assert!(begin.elapsed() < PATIENCE, "they have gone");
        }
    });
}

#[test]
fn a_program_writes_nothing_into_its_ring() {
    as_root(|| {
        network();
        let serving = Serving::start();
        let program = Hostile::connect(&serving);
        let whole = NonZero::new(page() + 2 * program.size).unwrap();
        let map = |access| {
            let from = page().try_into().unwrap();
            // SAFETY: a new mapping, which nobody uses.
            unsafe { mmap(None, whole, access, MapFlags::MAP_SHARED, &program.ring, from) }
        };
        let both = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        assert_eq!(map(both), Err(Errno::EPERM));
        let read = map(ProtFlags::PROT_READ).unwrap();
        // SAFETY: the mapping is this one, and nobody uses it.
        assert_eq!(unsafe { mprotect(read, whole.get(), both) }, Err(Errno::EACCES));
    });
}

/// Wherever it says that it is, all that comes is counted, the rings of others have what is
/// theirs, and its own is whole again once it says what is true.
#[test]
fn a_program_may_say_of_its_ring_what_it_likes() {
    as_root(|| {
        let machine = network();
        let serving = Serving::start();
        let program = Hostile::connect(&serving);
        let (here, there) = pair(&machine);
        program.take(&here);
        let (said, mut rng) = (reader(&program), fastrand::Rng::with_seed(11));
        let sent = 20_000;
        for number in 0..sent {
            let position = match rng.u8(..4) {
                0 => rng.usize(..),
                1 => rng.usize(..2 * program.size),
                2 => usize::MAX - rng.usize(..100),
                _ => 8 * rng.usize(..1000),
            };
            said.store(position, Ordering::SeqCst);
            there.send(&vec![1; SIZES[number % SIZES.len()]]).unwrap();
        }
        let begin = Instant::now();
        let last = loop {
            let found = counts(&serving);
            if found.packets + found.lost == sent as u64 {
                break found;
            }
            assert!(begin.elapsed() < PATIENCE, "{found:?} of {sent}");
        };
        assert!(last.packets > 0 && last.lost > 0, "{last:?}");
        honest(&machine, &serving);
        // The kernel's position follows the reader's page.
        let read = ProtFlags::PROT_READ;
        let length = NonZero::new(page()).unwrap();
        let from = page().try_into().unwrap();
        // SAFETY: a new mapping, which stays until the process ends.
        let kernel: &AtomicUsize = unsafe {
            mmap(None, length, read, MapFlags::MAP_SHARED, &program.ring, from)
                .unwrap()
                .cast()
                .as_ref()
        };
        said.store(kernel.load(Ordering::SeqCst), Ordering::SeqCst);
        let mut packets = Packets::map(&program.ring, program.size).unwrap();
        for size in SIZES {
            there.send(&vec![2; size]).unwrap();
            let (begin, mut found) = (Instant::now(), None);
            while found.is_none() {
                packets.receive(1, |frame| {
                    assert_eq!(frame.summed, Summed::Unfinished);
                    let packet = &frame.bytes[ETHERNET..];
                    let (_, payload) = datagram::parse(packet, Checksums::Unfinished).unwrap();
                    found = Some(payload.to_vec());
                });
                assert!(begin.elapsed() < PATIENCE, "it does not come");
            }
            assert_eq!(found, Some(vec![2; size]));
        }
    });
}

/// Another program gets its datagrams as ever.
fn honest(machine: &Machine, serving: &Serving) {
    let mut engine = Engine::connect(serving.at()).unwrap();
    let (here, there) = pair(machine);
    let id = engine.take_datagrams(&here).unwrap();
    for number in 0..100_u8 {
        there.send(&[number; 100]).unwrap();
        let begin = Instant::now();
        let mut buffer = [0; 200];
        while engine.receive_datagram(id, &mut [std::io::IoSliceMut::new(&mut buffer)]).is_none() {
            engine.wait(PATIENCE).unwrap();
            engine.turn().unwrap();
            assert!(begin.elapsed() < PATIENCE, "it does not come");
        }
        assert_eq!(buffer[..100], [number; 100]);
    }
    let left = engine.give_datagrams_back(id).unwrap();
    assert_eq!(left.counts.map(|counts| (counts.packets, counts.lost)), Some((100, 0)));
}

#[test]
fn what_a_full_ring_has_no_room_for_is_counted_and_the_rest_is_whole() {
    as_root(|| {
        let machine = network();
        let serving = Serving::start();
        let program = Hostile::connect(&serving);
        let (here, there) = pair(&machine);
        let connection = program.take(&here);
        let sent = 10_000_u32;
        for number in 0..sent {
            there.send(&[&number.to_be_bytes()[..], &[0; 1300]].concat()).unwrap();
        }
        let begin = Instant::now();
        let found = loop {
            let found = counts(&serving);
            if found.packets + found.lost == u64::from(sent) {
                break found;
            }
            assert!(begin.elapsed() < PATIENCE, "{found:?}");
        };
        // Each takes 2 kB and the header of a record.
        let room = program.size as u64 / 2056;
        assert!((room - 1..=room).contains(&found.packets), "{found:?}, {room}");
        let mut packets = Packets::map(&program.ring, program.size).unwrap();
        let mut numbers = vec![];
        packets.receive(sent as usize, |frame| {
            let at = frame.bytes.len() - 1304;
            numbers.push(u32::from_be_bytes(frame.bytes[at..at + 4].try_into().unwrap()));
        });
        assert!(numbers.iter().copied().eq(0..found.packets as u32), "{numbers:?}");
        // There is room again.
        there.send(b"more").unwrap();
        while packets.receive(1, |frame| assert!(frame.bytes.ends_with(b"more"))) == 0 {}
        let back = Request::GiveBack { connection, closing: false };
        program.ask(&back, &[]);
        assert_eq!(counts(&serving).lost, found.lost);
    });
}
