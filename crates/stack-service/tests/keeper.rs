//! What the keeper does about a connection that a service was closing when it was killed. Needs
//! root.

mod pairs;
#[path = "../../../tests/skip.rs"]
mod skip;
mod world;

use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;

use loopscope_engine::memory::Memory;
use loopscope_frames::Inlet;
use loopscope_stack_service::keep;
use loopscope_takeover::{Frozen, Kept, Taken};
use loopscope_unix_lines::{receive, send};
use nix::unistd::geteuid;
use pairs::{KINDS, Pair};
use serde::{Deserialize, Serialize};
use world::{network, read_to_end};

const MARK: u32 = 0x19;

/// What the service tells its keeper.
#[derive(Serialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
enum Told {
    Inlet { program: u64, name: String },
    Begins { program: u64, connection: u64, kept: Kept, from: SocketAddr, to: SocketAddr },
    Taken { connection: u64, send: usize, receive: usize },
    Closes { connection: u64 },
}

#[derive(Deserialize)]
struct Noted {}

/// What a service has done last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    HeldFlow,
    Disconnected,
    Released,
}

#[test]
fn a_connection_that_was_being_closed_ends_in_order() {
    if !geteuid().is_root() {
        return skip::skipped("a network namespace needs root");
    }
    std::thread::spawn(ends_in_order).join().expect("the test did not fail");
}

fn ends_in_order() {
    let machine = network();
    for kind in KINDS {
        for came in [Came::HeldFlow, Came::Disconnected, Came::Released] {
            let (service, keeper) = UnixStream::pair().unwrap();
            let keeping = std::thread::spawn(move || {
                keep(&keeper, |why| panic!("{why}")).unwrap();
            });
            let tell = |told: &Told, files: &[std::os::fd::BorrowedFd<'_>]| {
                send(&service, told, files).unwrap();
                receive::<Noted>(&service).unwrap().expect("it answers");
            };
            let Pair { here, mut there, listener } = Pair::connect(&machine, kind);
            let inlet = Inlet::make("in%d").unwrap();
            let kept = Kept::of(&here).unwrap();
            let Taken { frozen, mut state, flow } = Frozen::take(&here, kept, MARK).unwrap();
            state.queued = b"the rest".to_vec();
            let memory = Memory::of(&state, 1000, 1000).unwrap();
            let (program, connection) = (1, 1);
            tell(&Told::Inlet { program, name: inlet.name().into() }, &[inlet.as_fd()]);
            let (from, to) = (flow.from, flow.to);
            tell(&Told::Begins { program, connection, kept, from, to }, &[here.as_fd()]);
            let Memory { file, send, receive } = &memory;
            let told = Told::Taken { connection, send: *send, receive: *receive };
            tell(&told, &[file.as_fd()]);
            tell(&Told::Closes { connection }, &[]);
            let successor =
                frozen.successor(&state, &flow).unwrap().expect("nothing is in the way");
            if came != Came::HeldFlow {
                frozen.abandon().unwrap();
            }
            if came == Came::Released {
                successor.connect(&state).unwrap();
                drop(successor.release(&state).unwrap());
            } else {
                drop(successor);
            }
            drop(service);
            keeping.join().expect("it can do it");
            assert!(memory.has_returned().unwrap());
            assert!(here.peer_addr().is_err(), "{kind:?} {came:?}");
            let end = (b"the rest".to_vec(), None);
            assert_eq!(read_to_end(&mut there), end, "{kind:?} {came:?}");
            drop(listener);
        }
    }
}
