//! Processes by descriptors. A number can be given to another process at any time, a descriptor
//! cannot.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::Signal;

/// A process. It stays the same one even if its number is used again.
#[derive(Debug)]
pub(crate) struct Pidfd(OwnedFd);

impl Pidfd {
    /// The process that has this number now; `None` if there is none.
    #[allow(unsafe_code)]
    pub(crate) fn open(pid: i32) -> io::Result<Option<Pidfd>> {
        // SAFETY: pidfd_open takes two numbers and returns one.
        let outcome = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        match Errno::result(outcome) {
            Err(Errno::ESRCH) => Ok(None),
            Err(Errno::ENOSYS) => Err(io::Error::other("this needs Linux 5.3 or later")),
            Err(errno) => Err(errno.into()),
            Ok(fd) => {
                let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
                // SAFETY: the kernel has just made this descriptor for us, and nobody else has it.
                Ok(Some(Pidfd(unsafe { OwnedFd::from_raw_fd(fd) })))
            }
        }
    }

    /// Sends it a signal; `false` if it has been waited for, even if another process has its number
    /// now.
    #[allow(unsafe_code)]
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<bool> {
        let (fd, number) = (self.0.as_raw_fd(), signal as libc::c_int);
        let nothing = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: pidfd_send_signal reads nothing through a null pointer; the descriptor is ours.
        let outcome = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, number, nothing, 0) };
        match Errno::result(outcome) {
            Ok(_) => Ok(true),
            Err(Errno::ESRCH) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    #[test]
    fn a_signal_reaches_the_process_and_nobody_after_it() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let process = Pidfd::open(child.id().cast_signed()).unwrap().unwrap();
        assert!(process.signal(Signal::SIGTERM).unwrap());
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::SIGTERM as i32));
        assert!(!process.signal(Signal::SIGTERM).unwrap());
    }

    /// Takes numbers until the one of a process that has ended comes again.
    #[test]
    fn who_has_the_number_next_is_left_alone() {
        let last = "/proc/sys/kernel/ns_last_pid";
        let mut first = Command::new("true").spawn().unwrap();
        let pid = first.id().cast_signed();
        let process = Pidfd::open(pid).unwrap().unwrap();
        first.wait().unwrap();
        // Others take numbers meanwhile, so it may need another try.
        for _ in 0..1000 {
            if std::fs::write(last, (pid - 1).to_string()).is_err() {
                let why = format!("{last} cannot be written, so no number can be had again");
                crate::skip::skipped(&why);
                return;
            }
            let mut next = Command::new("sleep").arg("600").spawn().unwrap();
            let again = next.id().cast_signed() == pid;
            let sent = again && process.signal(Signal::SIGKILL).unwrap();
            let lives = next.try_wait().unwrap().is_none();
            next.kill().unwrap();
            next.wait().unwrap();
            assert!(!sent && lives);
            if again {
                return;
            }
        }
        crate::skip::skipped("the number was not given again");
    }
}
