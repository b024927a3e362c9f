//! Programs connect to the service at a socket.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::net::{IpAddr, Shutdown};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use loopscope_engine::wire::{Answer, Request, VERSION};
use loopscope_unix_lines::{accept, bind, connect, is_file, receive_within, send};
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::error::MachineError;
use crate::keeper::Keeper;
use crate::machine::Machine;
use crate::program::Program;
use crate::spare::Spare;
use crate::undo::Failed;

/// Programs at once. Each has a device and a ring of 8 MB.
const MOST: usize = 256;
/// Those of one user, but of root: others are to have some, too.
const MOST_OF_USER: usize = 128;
/// Bytes of a request at most.
const LINE: usize = 4096;
/// A process that has connected asks for devices within this time.
const PATIENCE: Duration = Duration::from_secs(10);
/// A process that has closed its connection to the service has ended within so many milliseconds.
const ENDING: u8 = 100;

/// The service of a network namespace.
pub struct Service {
    listener: UnixListener,
    path: PathBuf,
    machine: Arc<Machine>,
    programs: Arc<Programs>,
    spare: Arc<Spare>,
}

/// With the connections by which they ask.
type Programs = Mutex<Vec<(Arc<Mutex<Program>>, UnixStream)>>;

impl Service {
    /// Listens at a path, for programs of all users; at `@` and a name without a file. It serves the network namespace of this thread,
    /// and needs CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON.
    ///
    /// `keeper` leads to a process that [`crate::keep`]s what the service has in hand, for the case that
    /// it is killed.
    ///
    /// # Errors
    /// The kernel lacks what is needed, or the path is taken.
    pub fn listen(path: &Path, keeper: Option<UnixStream>) -> Result<Service, MachineError> {
        let machine = Arc::new(Machine::new(Keeper::new(keeper))?);
        let spare = Arc::new(Spare::new(Arc::clone(&machine)));
        let system = |what| move |source| MachineError::System { what, source };
        if connect(path).is_ok() {
            let source = io::Error::from(io::ErrorKind::AddrInUse);
            return Err(system("another service is there")(source));
        }
        // A socket that nobody listens at is that of a service that was killed.
        let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
        if is_socket {
            fs::remove_file(path).map_err(system("cannot remove an old socket"))?;
        }
        let listener = bind(path).map_err(system("cannot listen"))?;
        if is_file(path) {
            fs::set_permissions(path, Permissions::from_mode(0o666))
                .map_err(system("cannot let programs of other users connect"))?;
        }
        let programs = Arc::default();
        Ok(Service { listener, path: path.into(), machine, programs, spare })
    }

    /// Prepares the device with this address, which takes some milliseconds, in which the first
    /// connection over it would stand still otherwise.
    ///
    /// # Errors
    /// No device has the address, or the kernel refuses.
    pub fn prepare(&self, address: IpAddr) -> Result<(), MachineError> {
        self.machine.prepare(address)
    }

    /// Serves programs until there is something to read from a descriptor. Then it gives all
    /// connections back to the kernel.
    ///
    /// # Errors
    /// No program can connect any more.
    pub fn serve(&self, until: impl AsFd, failed: Failed) -> io::Result<()> {
        self.spare.make(failed);
        let served = self.accept(until, failed);
        self.spare.end().iter().for_each(|why| failed(why));
        for (program, stream) in std::mem::take(&mut *lock(&self.programs)) {
            // From here on it is answered nothing. That it fails means that it has gone.
            let _ = stream.shutdown(Shutdown::Both);
            lock(&program).return_all(false).iter().for_each(|why| failed(why));
        }
        self.machine.keeper.end();
        served
    }

    fn accept(&self, until: impl AsFd, failed: Failed) -> io::Result<()> {
        let connected = Arc::new(());
        let mut of_users: BTreeMap<Option<u32>, Arc<()>> = BTreeMap::new();
        while let Some(stream) = accept(&self.listener, &until)? {
            let (spare, programs) = (Arc::clone(&self.spare), Arc::clone(&self.programs));
            let one = Arc::clone(&connected);
            if Arc::strong_count(&connected) > MOST + 1 {
                refuse(&stream, format!("{MOST} programs have connections by the stack already"));
                continue;
            }
            let (_, user) = peer(&stream);
            let of_user = Arc::clone(of_users.entry(user).or_default());
            if Arc::strong_count(&of_user) > MOST_OF_USER + 1 && user != Some(0) {
                let why = "programs of this user have connections by the stack already";
                refuse(&stream, format!("{MOST_OF_USER} {why}"));
                continue;
            }
            let serve = move || {
                serve_one(&stream, &spare, &programs, failed);
                drop((one, of_user));
            };
            thread::Builder::new().name("program".into()).spawn(serve)?;
        }
        Ok(())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if is_file(&self.path) {
            _ = fs::remove_file(&self.path);
        }
    }
}

fn refuse(stream: &UnixStream, why: String) {
    // That it fails means that the program has ended.
    let _ = send(stream, &Answer::Refused(why), &[]);
}

/// Whether the program asks for devices. Others ask for the state of all programs, or only look
/// whether there is a service.
fn begins(stream: &UnixStream, programs: &Programs) -> io::Result<bool> {
    stream.set_read_timeout(Some(PATIENCE))?;
    match receive_within(stream, LINE)? {
        Some((Request::Begin { version: VERSION }, _)) => {
            stream.set_read_timeout(None)?;
            return Ok(true);
        }
        Some((Request::Begin { version }, _)) => {
            let why = format!("it speaks version {VERSION}, the program's library {version}");
            refuse(stream, format!("{why}: both have to be of one installation"));
        }
        Some((Request::Status, _)) => send(stream, &status(programs), &[])?,
        Some(_) => refuse(stream, "it has to ask for devices first".into()),
        None => {}
    }
    Ok(false)
}

/// The connections of all programs.
fn status(programs: &Programs) -> Answer {
    let mut connections = vec![];
    // While it looks at one, others come and go.
    let all: Vec<_> =
        lock(programs).iter().map(|(one, stream)| (one.clone(), peer(stream))).collect();
    for (program, (process, user)) in &all {
        connections.extend(lock(program).status(*process, *user));
    }
    Answer::Status { programs: all.len(), connections }
}

/// The process and user of a program. A process of another namespace has no number here.
fn peer(stream: &UnixStream) -> (Option<i32>, Option<u32>) {
    let found = getsockopt(stream, PeerCredentials).ok();
    let process = found.map(|found| found.pid()).filter(|pid| *pid > 0);
    (process, found.map(|found| found.uid()))
}

/// Serves a program until it ends.
fn serve_one(stream: &UnixStream, spare: &Arc<Spare>, programs: &Programs, failed: Failed) {
    if !begins(stream, programs).unwrap_or(false) {
        return;
    }
    let made = spare.take().and_then(|made| {
        let stream = stream.try_clone().map_err(MachineError::Devices)?;
        Ok((made, stream))
    });
    let ((program, welcome), other) = match made {
        Ok(made) => made,
        Err(error) => return refuse(stream, error.to_string()),
    };
    let program = Arc::new(Mutex::new(program));
    lock(programs).push((Arc::clone(&program), other));
    // A program that does not keep to the protocol is like one that has ended.
    if send(stream, &welcome.answer, &welcome.files()).is_ok() {
        spare.make(failed);
        while let Ok(Some((request, files))) = receive_within::<Request>(stream, LINE) {
            let reply = lock(&program).answer(request, files);
            if send(stream, &reply.answer, &reply.files()).is_err() {
                break;
            }
        }
    }
    let has_connections = lock(&program).has_connections();
    let closing = has_connections && has_ended(stream);
    lock(&program).return_all(closing).iter().for_each(|why| failed(why));
    lock(programs).retain(|(other, _)| !Arc::ptr_eq(other, &program));
}

/// Whether the process of a program has ended, and with it the use of its sockets. One that still
/// ends is waited for: its descriptors are closed one after the other. False also where nothing
/// tells.
fn has_ended(stream: &UnixStream) -> bool {
    let Some(process) = peer(stream).0.and_then(Pid::from_raw) else { return false };
    match pidfd_open(process, PidfdFlags::empty()) {
        Ok(process) => {
            let mut polled = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
            poll(&mut polled, ENDING).is_ok_and(|ended| ended > 0)
        }
        Err(error) => error == Errno::SRCH,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
