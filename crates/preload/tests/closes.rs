//! A program that knows nothing of the stack closes a connection after much data. Needs root.

mod machines;
#[path = "../../../tests/skip.rs"]
mod skip;
#[path = "../../stack-service/tests/world/mod.rs"]
mod world;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use machines::At::Here;
use machines::{World, in_thread, python3};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use world::OTHER;

/// More bytes than a socket is advanced by when its program closes it.
const MUCH: usize = 3 << 20;

/// Sends, tells the number of its descriptor, and closes when it is told to, in one of three ways.
const PROGRAM: &str = "
import os, socket, sys
way, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
connection = socket.create_connection(('10.0.0.2', port))
connection.sendall(b'!')
connection.recv(1)
connection.sendall(bytes(count))
print(connection.fileno(), flush=True)
connection.recv(1)
fd = connection.detach()
other = os.open('/dev/null', os.O_RDONLY)
if way == 'close':
    os.close(fd)
elif way == 'closerange':
    os.closerange(fd, fd + 1)
else:
    os.dup2(other, fd)
print('closed', flush=True)
";

#[test]
fn a_socket_that_is_closed_after_much_data_is_replaced() {
    in_thread(|| {
        // A call of dup2(2) may fail, and then the program still has the connection.
        for (way, is_replaced) in [("close", true), ("closerange", true), ("dup2", false)] {
            let world = World::make(true);
            let listener = world.machine.run(|| TcpListener::bind((OTHER[0], 0)).unwrap());
            let port = listener.local_addr().unwrap().port().to_string();
            let words = ["-c", PROGRAM, way, &port, &MUCH.to_string()];
            let mut program = world.start(Here, true, python3(), &words);
            let mut there = listener.accept().unwrap().0;
            there.read_exact(&mut [0; 1]).unwrap();
            there.write_all(b"!").unwrap();
            there.read_exact(&mut vec![0; MUCH]).unwrap();
            let number: i32 = program.line().parse().unwrap();
            let process = Pid::from_raw(program.child.id().cast_signed()).unwrap();
            let process = pidfd_open(process, PidfdFlags::empty()).unwrap();
            let socket = pidfd_getfd(process, number, PidfdGetfdFlags::empty()).unwrap();
            there.write_all(b"!").unwrap();
            assert_eq!(program.line(), "closed");
            assert_eq!(rustix::net::getpeername(&socket).is_err(), is_replaced, "{way}");
            drop(socket);
            assert_eq!(there.read(&mut [0; 4]).unwrap(), 0, "{way}");
            drop(program.end());
            let line = world.connection(Here);
            assert_eq!(line["why"], "the program has closed it", "{line}");
            let of = |key: &str| line[key].as_u64().unwrap();
            assert_eq!(of("received"), 2, "{line}");
            // One more: this end has connected.
            assert_eq!(of("written"), MUCH as u64 + 2, "{line}");
        }
    });
}
