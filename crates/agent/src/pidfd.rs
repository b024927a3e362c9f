//! Processes by descriptors. A number can be given to another process at any time, a descriptor
//! cannot.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process. It stays the same one even if its number is used again.
#[derive(Debug)]
pub(crate) struct Pidfd(OwnedFd);

impl Pidfd {
    /// The process that has this number now; `None` if there is none.
    pub(crate) fn open(pid: i32) -> io::Result<Option<Pidfd>> {
        let opened = Pid::from_raw(pid).ok_or(Errno::SRCH);
        match opened.and_then(|pid| pidfd_open(pid, PidfdFlags::empty())) {
            Ok(descriptor) => Ok(Some(Pidfd(descriptor))),
            Err(Errno::SRCH) => Ok(None),
            Err(Errno::NOSYS) => Err(io::Error::other("this needs Linux 5.3 or later")),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Sends it a signal; `false` if it has been waited for, even if another process has its number
    /// now.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<bool> {
        match pidfd_send_signal(&self.0, signal) {
            Ok(()) => Ok(true),
            Err(Errno::SRCH) => Ok(false),
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
        assert!(process.signal(Signal::TERM).unwrap());
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
        assert!(!process.signal(Signal::TERM).unwrap());
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
            let sent = again && process.signal(Signal::KILL).unwrap();
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
