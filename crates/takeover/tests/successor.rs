//! Sockets that go on with a connection in place of the program's, on the loopback device of a
//! network namespace. Needs root.

mod headers;
mod namespace;
#[path = "../../../tests/skip.rs"]
mod skip;

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use loopscope_takeover::{Frozen, Kept, Successor, Taken};
use namespace::in_namespace;
use nix::unistd::{Uid, fchown};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

const MARK: u32 = 0x19;
const IPPROTO_RAW: i32 = 255;

/// The ends of a connection, the first of which was accepted. The listener goes on.
fn connected(listens: IpAddr, to: IpAddr) -> (TcpListener, [TcpStream; 2]) {
    let listener = TcpListener::bind((listens, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = TcpStream::connect((to, port)).unwrap();
    let server = listener.accept().unwrap().0;
    (listener, [server, client])
}

fn on_loopback() -> (TcpListener, [TcpStream; 2]) {
    connected(Ipv4Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into())
}

fn take(socket: impl AsFd) -> Taken {
    let kept = Kept::of(&socket).expect("it is TCP");
    Frozen::take(socket, kept, MARK).expect("it can be taken over")
}

fn prepare(taken: &Taken) -> Successor {
    let Taken { frozen, state, flow } = taken;
    frozen.successor(state, flow).unwrap().expect("nothing is in the way")
}

/// Gives the kernel packets of IPv4, and counts them.
struct Injected {
    socket: Socket,
    count: usize,
}

impl Injected {
    fn new() -> Injected {
        let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::from(IPPROTO_RAW)));
        let socket = socket.unwrap();
        socket.set_mark(MARK).unwrap();
        Injected { socket, count: 0 }
    }

    fn inject(&mut self, packet: &[u8]) -> std::io::Result<()> {
        self.count += 1;
        let to = Ipv4Addr::new(packet[16], packet[17], packet[18], packet[19]);
        self.socket.send_to(packet, &SocketAddr::from((to, 0)).into()).map(drop)
    }
}

/// Has another socket go on with a connection. The packets that this took.
fn replace(taken: &Taken, injected: &mut Injected) -> OwnedFd {
    let successor = prepare(taken);
    taken.frozen.abandon().unwrap();
    successor.connect(&taken.state).unwrap();
    successor.teach(&taken.state, &mut |packet| injected.inject(packet)).unwrap();
    successor.release(&taken.state).unwrap()
}

/// Both ends have transferred so many bytes, by the stack.
fn transferred(taken: &mut [Taken; 2], bytes: u32) {
    let clocks = [1, 0].map(|end: usize| taken[end].state.timestamps.expect("they are on"));
    for (Taken { state, .. }, peer) in taken.iter_mut().zip(clocks) {
        for seq in [&mut state.unacknowledged, &mut state.expected] {
            seq.0 = seq.0.wrapping_add(bytes);
        }
        state.timestamps.as_mut().expect("they are on").newest = Some(peer.now);
    }
}

#[test]
fn however_far_the_stack_came_it_takes_one_packet() {
    in_namespace(|| {
        for bytes in [2 << 20, 0x9000_0000, u32::MAX] {
            let (listener, ends) = on_loopback();
            let mut taken = [&ends[0], &ends[1]].map(take);
            transferred(&mut taken, bytes);
            let mut ends = taken.each_ref().map(|taken| {
                assert!(taken.frozen.is_far_from(&taken.state).unwrap());
                let mut injected = Injected::new();
                let socket = replace(taken, &mut injected);
                assert_eq!(injected.count, 1, "after {bytes} bytes");
                TcpStream::from(socket)
            });
            for _ in 0..3 {
                for from in [0, 1] {
                    let mut found = [0; 5];
                    ends[from].write_all(b"there").unwrap();
                    ends[1 - from].read_exact(&mut found).unwrap();
                    assert_eq!(&found, b"there", "after {bytes} bytes");
                }
            }
            let [server, mut client] = ends;
            drop(server);
            assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
            drop(listener);
        }
    });
}

#[test]
fn the_rest_comes_before_the_end() {
    in_namespace(|| {
        let local = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
        let any = IpAddr::from(Ipv6Addr::UNSPECIFIED);
        for (listens, to) in [(local[0], local[0]), (local[1], local[1]), (any, local[0])] {
            for (accepted, has_sent) in [(true, true), (true, false), (false, true), (false, false)]
            {
                let (_listener, [server, client]) = connected(listens, to);
                let (here, mut there) = if accepted { (server, client) } else { (client, server) };
                let mut taken = take(&here);
                let rest: Vec<u8> = (0..100_000u32).map(|at| (at % 251) as u8).collect();
                taken.state.queued.clone_from(&rest);
                // What was sent, and lost.
                taken.state.sent = if has_sent { 3000 } else { 0 };
                let successor = prepare(&taken);
                taken.frozen.abandon().unwrap();
                successor.connect(&taken.state).unwrap();
                drop(successor.release(&taken.state).unwrap());
                let mut found = vec![];
                there.read_to_end(&mut found).unwrap();
                assert!(found == rest, "{} bytes came", found.len());
            }
        }
    });
}

#[test]
fn one_that_is_not_released_does_not_end_the_stream_in_order() {
    in_namespace(|| {
        for connects in [false, true] {
            let (_listener, [here, mut there]) = on_loopback();
            let mut taken = take(&here);
            taken.state.queued = vec![1; 1000];
            let successor = prepare(&taken);
            taken.frozen.abandon().unwrap();
            if connects {
                successor.connect(&taken.state).unwrap();
            }
            drop(successor);
            there.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            let error = there.read(&mut [0; 4]).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
            // Another one can go on.
            drop(replace(&taken, &mut Injected::new()));
            there.set_read_timeout(None).unwrap();
            let mut found = vec![];
            there.read_to_end(&mut found).unwrap();
            assert_eq!(found, taken.state.queued);
        }
    });
}

#[test]
fn one_that_cannot_take_the_rest_resets_the_connection() {
    in_namespace(|| {
        let (_listener, [here, mut there]) = on_loopback();
        let mut taken = take(&here);
        taken.state.queued = vec![1; 1_000_000];
        taken.state.peer_window = 0;
        let successor = prepare(&taken);
        SockRef::from(&successor).set_send_buffer_size(5000).unwrap();
        taken.frozen.abandon().unwrap();
        successor.connect(&taken.state).unwrap();
        successor.release(&taken.state).unwrap_err();
        // It would take what came for the whole stream.
        let error = there.read_to_end(&mut vec![]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    });
}

#[test]
fn it_sends_as_the_programs_socket_does() {
    in_namespace(|| {
        let (_listener, [here, there]) = on_loopback();
        let socket = SockRef::from(&here);
        socket.set_mark(77).unwrap();
        socket.set_tos_v4(0x10).unwrap();
        socket.set_ttl_v4(33).unwrap();
        socket.set_reuse_port(true).unwrap();
        socket.bind_device(Some(b"lo")).unwrap();
        let keep_alive = socket2::TcpKeepalive::new().with_time(Duration::from_secs(99));
        socket.set_tcp_keepalive(&keep_alive).unwrap();
        socket.set_tcp_user_timeout(Some(Duration::from_secs(12))).unwrap();
        socket.set_tcp_congestion(b"reno").unwrap();
        fchown(&here, Some(Uid::from_raw(4321)), None).unwrap();
        let taken = take(&here);
        let fresh = replace(&taken, &mut Injected::new());
        let found = SockRef::from(&fresh);
        assert_eq!(found.mark().unwrap(), 77);
        assert_eq!((found.tos_v4().unwrap(), found.ttl_v4().unwrap()), (0x10, 33));
        assert!(found.reuse_port().unwrap() && found.keepalive().unwrap());
        assert_eq!(found.device().unwrap().as_deref(), Some(&b"lo"[..]));
        assert_eq!(found.tcp_keepalive_time().unwrap(), Duration::from_secs(99));
        assert_eq!(found.tcp_user_timeout().unwrap(), Some(Duration::from_secs(12)));
        assert!(found.tcp_congestion().unwrap().starts_with(b"reno"));
        assert!(found.linger().unwrap().is_none());
        assert_eq!(user_of(&fresh), "4321");
        drop(there);
    });
}

/// The user of a connected socket, as others are told.
fn user_of(socket: &OwnedFd) -> String {
    let port = SockRef::from(socket).local_addr().unwrap().as_socket().unwrap().port();
    let sockets = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
    let mut lines = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    // Established ones only. The eighth word is the user.
    let is_it = |words: &Vec<&str>| words[1].ends_with(&format!(":{port:04X}")) && words[3] == "01";
    lines.find(is_it).expect("it is there")[7].to_owned()
}

#[test]
fn what_cannot_be_replaced_is_not() {
    in_namespace(|| {
        for what in ["lingers", "has options of IP"] {
            let (_listener, [here, _there]) = on_loopback();
            let socket = SockRef::from(&here);
            if what == "lingers" {
                socket.set_linger(Some(Duration::from_secs(1))).unwrap();
            } else {
                // Timestamps of routers (RFC 791 §3.1).
                headers::add(&here, &[68, 8, 5, 0, 0, 0, 0, 0]).unwrap();
            }
            let Taken { frozen, state, flow } = take(&here);
            assert!(frozen.successor(&state, &flow).unwrap().is_none(), "{what}");
            frozen.thaw().unwrap();
        }
    });
}
