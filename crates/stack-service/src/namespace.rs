//! A network namespace without a name.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;

use nix::sched::{CloneFlags, setns, unshare};

/// A network namespace. It is gone when nobody has it, nor a socket of it.
pub(crate) struct Namespace(OwnedFd);

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Namespace {
    /// Makes one, in which there is nothing.
    pub(crate) fn make() -> io::Result<Namespace> {
        let make = || {
            unshare(CloneFlags::CLONE_NEWNET)?;
            Ok(Namespace(File::open("/proc/thread-self/ns/net")?.into()))
        };
        thread::scope(|scope| scope.spawn(make).join().expect("it does not panic"))
    }

    /// Acts in it.
    pub(crate) fn run<T: Send>(&self, act: impl FnOnce() -> T + Send) -> io::Result<T> {
        let act = || {
            setns(&self.0, CloneFlags::CLONE_NEWNET)?;
            Ok(act())
        };
        thread::scope(|scope| scope.spawn(act).join().expect("it does not panic"))
    }
}
