//! Other processes of a measurement, and the service by which they share channels.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;

use loopscope_stm_shared::Service;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

/// Another process. It ends when this is dropped.
pub struct Far {
    child: Child,
    says: BufReader<ChildStdout>,
}

impl Far {
    /// One that is `stm-bench far-KIND COUNT ADDRESS`.
    pub fn start(kind: &str, count: u64, address: &str) -> Far {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([&format!("far-{kind}"), &count.to_string(), address])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // So that those that read much wake less often.
        fcntl(child.stdin.as_ref().unwrap(), FcntlArg::F_SETPIPE_SZ(1 << 20)).unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        Far { child, says }
    }

    /// The line that it prints next.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.says.read_line(&mut line).unwrap();
        line.trim().into()
    }

    /// Writes bytes to its input.
    pub fn send(&mut self, bytes: &[u8]) {
        self.child.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        _ = self.child.wait();
    }
}

/// Makes this process one that the near one has started.
pub fn begin() {
    set_pdeathsig(Signal::SIGKILL).unwrap();
    crate::stay_on(crate::last());
}

/// Waits until the near process ends this one.
pub fn wait_for_end() {
    _ = std::io::stdin().read(&mut [0]);
}

/// A service of this process, and its path.
pub fn service() -> (Service, PathBuf) {
    let path = PathBuf::from(format!("@stm-bench-{}", std::process::id()));
    (Service::listen(&path).unwrap(), path)
}

/// Serves in a thread, until this process ends.
pub fn serve(service: Service) {
    thread::spawn(move || {
        let (until, _end) = std::io::pipe().unwrap();
        service.serve(until)
    });
}
