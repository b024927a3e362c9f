//! A service and its keeper as processes that can be killed.
#![allow(dead_code)] // Each test program uses a part of it.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use loopscope_stack_service::{Service, keep};
use nix::fcntl::OFlag;
use nix::unistd::geteuid;
use tempfile::TempDir;

use crate::skip;
use crate::world::{self, PATIENCE};

/// The service, until it is killed.
#[test]
fn as_a_service() {
    let Some(path) = std::env::var_os("LOOPSCOPE_TEST_SERVICE") else { return };
    let keeper = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let service = Service::listen(Path::new(&path), Some(keeper)).unwrap();
    let (until, _end) = nix::unistd::pipe2(OFlag::O_CLOEXEC).unwrap();
    service.serve(until, |why| panic!("{why}")).unwrap();
}

/// The service's keeper.
#[test]
fn as_a_keeper() {
    if std::env::var_os("LOOPSCOPE_TEST_KEEPER").is_none() {
        return;
    }
    let service = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    keep(&service, |why| panic!("{why}")).unwrap();
}

/// This program, as one of its tests.
pub fn again(test: &str, variable: &str, value: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--quiet"])
        .env(variable, value)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

/// A service and its keeper.
pub struct Killable {
    pub service: Child,
    pub keeper: Child,
    pub path: PathBuf,
    _folder: TempDir,
}

impl Killable {
    pub fn start() -> Killable {
        let folder = tempfile::tempdir().unwrap();
        world::run("chmod", &format!("755 {}", folder.path().display()));
        let path = folder.path().join("stack.sock");
        let (one, other) = UnixStream::pair().unwrap();
        let keeper = again("killable::as_a_keeper", "LOOPSCOPE_TEST_KEEPER", "")
            .stdin(OwnedFd::from(one))
            .spawn()
            .unwrap();
        let service =
            again("killable::as_a_service", "LOOPSCOPE_TEST_SERVICE", path.to_str().unwrap())
                .stdin(OwnedFd::from(other))
                .spawn()
                .unwrap();
        let begin = Instant::now();
        while UnixStream::connect(&path).is_err() {
            assert!(begin.elapsed() < PATIENCE, "it does not listen");
            std::thread::sleep(Duration::from_millis(1));
        }
        Killable { service, keeper, path, _folder: folder }
    }

    /// The keeper gives back what the service had in hand.
    pub fn kill(mut self) {
        self.service.kill().unwrap();
        self.service.wait().unwrap();
        assert!(self.keeper.wait().unwrap().success());
    }
}

impl Drop for Killable {
    /// Also where the test has failed.
    fn drop(&mut self) {
        let _ = self.service.kill().and_then(|()| self.service.wait());
        let _ = self.keeper.wait();
    }
}

pub fn tries() -> u64 {
    if std::env::var_os("LOOPSCOPE_SOAK").is_some() { 500 } else { 20 }
}

pub fn as_root(test: impl FnOnce() + Send + 'static) {
    if !geteuid().is_root() {
        return skip::skipped("a network namespace needs root");
    }
    std::thread::spawn(test).join().expect("the test did not fail");
}
