//! A program that speaks with the service itself, and does not keep to the rules.
#![allow(dead_code)] // Each test uses a part.

use std::net::UdpSocket;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use loopscope_engine::wire::{Answer, Request, VERSION};
use loopscope_frames::Inlet;
use loopscope_unix_lines::{receive, send};

use crate::world::Serving;

/// What it has from the service.
pub struct Hostile {
    pub stream: UnixStream,
    pub ring: OwnedFd,
    /// Bytes of its ring.
    pub size: usize,
    pub inlet: Inlet,
}

impl Hostile {
    pub fn connect(serving: &Serving) -> Hostile {
        let stream = UnixStream::connect(serving.at()).unwrap();
        send(&stream, &Request::Begin { version: VERSION }, &[]).unwrap();
        let (answer, files) = receive(&stream).unwrap().unwrap();
        let Answer::Welcome { inlet, ring: size } = answer else { panic!("{answer:?}") };
        let [ring, tap]: [OwnedFd; 2] = files.try_into().unwrap();
        Hostile { stream, ring, size, inlet: Inlet::of(tap, inlet) }
    }

    pub fn ask(&self, request: &Request, files: &[BorrowedFd<'_>]) -> Answer {
        send(&self.stream, request, files).unwrap();
        receive(&self.stream).unwrap().unwrap().0
    }

    /// Takes the datagrams of a socket; its number.
    pub fn take(&self, socket: &UdpSocket) -> u64 {
        let answer = self.ask(&Request::TakeDatagrams, &[socket.as_fd()]);
        let Answer::TakenDatagrams { connection, mtu: 1500, .. } = answer else {
            panic!("{answer:?}")
        };
        connection
    }
}
