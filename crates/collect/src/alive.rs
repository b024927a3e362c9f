//! Whether a process runs.

use std::ffi::{CString, OsStr};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::sync::OnceLock;

use loopscope_time::Frequency;
use loopscope_time::source::read_counter;
use loopscope_trace::configure::heir;
use loopscope_trace::layout::Control;
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};

use crate::frequency;

/// When the process of this number started, in clock ticks after boot (`/proc/<pid>/stat`, field
/// 22); `None` if there is none that runs: nobody may have waited for one that has ended.
pub(crate) fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name is in parentheses and may itself contain spaces and parentheses.
    let mut fields = stat[stat.rfind(')')? + 2..].split(' ');
    let state = fields.next()?;
    let start = fields.nth(18)?.parse().ok()?;
    (state != "Z" && state != "X").then_some(start)
}

/// Whether one process runs. Another process that gets its number later does not count.
#[derive(Debug)]
pub(crate) enum Life {
    /// It had ended when it was looked for.
    Ended,
    /// It ran then, and this stays its descriptor.
    Descriptor(OwnedFd),
    /// It ran then, and there is no descriptor of it: the kernel is older than 5.3, or this process
    /// has as many open files as it may have.
    Number(Pid),
    /// Its number counts in another pid namespace, so nothing is known.
    Elsewhere,
}

impl Life {
    /// The process that made the directory `<pid>-<stamp>`, with a number of the pid namespace that
    /// has this inode.
    pub(crate) fn of(pid: u32, stamp: u64, namespace: u64) -> Life {
        if namespace == 0 || namespace != own_namespace() {
            return Life::Elsewhere;
        }
        let number = Pid::from_raw(pid.cast_signed());
        let opened = rustix::process::Pid::from_raw(pid.cast_signed())
            .ok_or(rustix::io::Errno::SRCH)
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
        let life = match opened {
            Err(rustix::io::Errno::SRCH) => Life::Ended,
            Err(_) => Life::Number(number),
            Ok(descriptor) => Life::Descriptor(descriptor),
        };
        // Only now the number cannot become another's between the two.
        if started_after(pid, stamp) { Life::Ended } else { life }
    }

    /// Whether it has ended, waited for or not.
    pub(crate) fn has_ended(&self) -> bool {
        match self {
            Life::Ended => true,
            Life::Descriptor(descriptor) => {
                let mut asked = [PollFd::new(descriptor, PollFlags::IN)];
                let now = Timespec { tv_sec: 0, tv_nsec: 0 };
                matches!(poll(&mut asked, Some(&now)), Ok(1..))
            }
            Life::Number(pid) => kill(*pid, None) == Err(Errno::ESRCH),
            Life::Elsewhere => false,
        }
    }
}

/// The inode of the pid namespace of this process; 0 if it is not known: then no process is known
/// to have ended.
fn own_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

/// Whether the process of this number started after `stamp` of this machine's counter: then it is
/// not the one that took the stamp.
fn started_after(pid: u32, stamp: u64) -> bool {
    static FREQUENCY: OnceLock<Option<Frequency>> = OnceLock::new();
    let Some(frequency) = FREQUENCY.get_or_init(|| frequency::nominal().ok()) else { return false };
    let (Some(started), Ok(now)) = (started(pid), clock_gettime(ClockId::CLOCK_BOOTTIME)) else {
        return false;
    };
    // USER_HZ is 100 for all programs. Time asleep is in the age, and may be in the counter.
    let age = now.tv_sec() as f64 + now.tv_nsec() as f64 * 1e-9 - started as f64 / 100.0;
    let since = read_counter().0.saturating_sub(stamp) as f64 / frequency.hz() as f64;
    // A tick of the one, and what the nominal frequency may be off.
    age + 0.05 < since * (1.0 - 1e-3)
}

/// Whether forked children of a process that has ended use its directory still: see [`heir`].
pub(crate) fn has_heirs(control: &Control, process_dir: &OsStr) -> bool {
    let name = CString::new(process_dir.as_bytes()).ok();
    name.is_some_and(|name| heir(control, &name).is_some())
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    use super::*;

    fn life(of: &Child) -> Life {
        Life::of(of.id(), read_counter().0, own_namespace())
    }

    fn child(program: &str) -> Child {
        Command::new(program).arg("600").spawn().unwrap()
    }

    #[test]
    fn a_process_has_ended_before_it_is_waited_for() {
        let mut sleeps = child("sleep");
        let it = life(&sleeps);
        assert!(matches!(it, Life::Descriptor(_)), "{it:?}");
        assert!(!it.has_ended());
        sleeps.kill().unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while !it.has_ended() {
            assert!(Instant::now() < until);
        }
        // Its number is taken until here.
        assert!(!Life::Number(Pid::from_raw(sleeps.id().cast_signed())).has_ended());
        sleeps.wait().unwrap();
        assert!(it.has_ended() && life(&sleeps).has_ended());
    }

    #[test]
    fn who_has_the_number_next_is_another() {
        let stamp = read_counter().0;
        std::thread::sleep(Duration::from_millis(200));
        let mut later = child("sleep");
        assert!(!life(&later).has_ended());
        assert!(Life::of(later.id(), stamp, own_namespace()).has_ended());
        later.kill().unwrap();
        later.wait().unwrap();
    }

    #[test]
    fn of_another_namespace_nothing_is_known() {
        let own = own_namespace();
        for namespace in [0, own + 1] {
            assert!(!Life::of(u32::MAX >> 1, 0, namespace).has_ended());
        }
        assert!(Life::of(u32::MAX >> 1, 0, own).has_ended());
    }
}
