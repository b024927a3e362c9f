//! Control sockets: how `loopscope trigger`, `enable` and `disable` reach what is being recorded,
//! and `loopscope net` the links that are being emulated.
//!
//! Who records or emulates binds `<state dir>/control/<pid>`, in a run `<run>-<pid>` since runs may
//! number processes each for itself; only its user can reach it. A client connects, writes one
//! [`Request`] as a line of JSON, and reads one [`Reply`].

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ledger::{RUN_MARK, check_own, make_own};
use crate::testbed::is_name;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Describe what is recorded here.
    Describe,
    /// Trigger a flight recorder, or all of them.
    Trigger {
        /// The stream.
        stream: Option<String>,
    },
    /// Add patterns to a stream's, `!` before those that leave out.
    Choose {
        /// The stream.
        stream: String,
        /// On `group:name`.
        patterns: Vec<String>,
    },
    /// The results of the links so far.
    Links,
    /// Change some of a link's settings.
    SetLink {
        /// Host.
        from: String,
        /// Host.
        to: String,
        /// Changes by key, as in schema/links.md.
        change: Map<String, Value>,
    },
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// To [`Request::Describe`].
    Description(Description),
    /// Whether any program's recorder was triggered now.
    Triggered(bool),
    /// To [`Request::Choose`]: which of its patterns match no entity that is known by now, in
    /// words.
    Chosen(Vec<String>),
    /// To [`Request::Links`] what links.json has under `links`; to [`Request::SetLink`] the
    /// settings in force.
    Links(Value),
    /// It was not done, and why.
    Refused(String),
}

/// Describes what is recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// `record`, `attach`, `run` or `links`.
    pub kind: String,
    /// The process numbers that answer, its own first; each of them also selects the target.
    pub pids: Vec<u32>,
    /// Command or program; of a run its name, of links `run NAME: HOSTS`.
    pub what: String,
    /// Names of its flight recorders.
    pub flight_recorders: Vec<String>,
}

impl Description {
    /// Whether somebody who writes `name` means this: a process number, or the name of its run.
    #[must_use]
    pub fn is_called(&self, name: &str) -> bool {
        let is_pid = |pid: u32| self.pids.contains(&pid);
        let is_run = ["run", "links"].contains(&self.kind.as_str())
            && self.what.split([' ', ':']).any(|word| word == name);
        name.parse().is_ok_and(is_pid) || is_run
    }
}

/// Enough for a client of this machine, too short for the rings of a program to fill.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long a client waits: a collector answers between two looks at the rings.
const CLIENT_PATIENCE: Duration = Duration::from_secs(10);
const LONGEST: u64 = 64 << 10;

/// The folder of control sockets below a state directory.
fn folder(state_dir: &Path) -> PathBuf {
    state_dir.join("control")
}

/// The name of this process's socket.
fn name() -> String {
    let pid = std::process::id();
    match std::env::var(RUN_MARK) {
        Ok(run) if is_name(&run) => format!("{run}-{pid}"),
        _ => pid.to_string(),
    }
}

/// This process's control socket.
pub fn path(state_dir: &Path) -> PathBuf {
    folder(state_dir).join(name())
}

/// A path to `name` in the folder that fits into a socket's address, however long the folder's own.
fn short(folder: &File, name: &str) -> String {
    format!("/proc/self/fd/{}/{name}", folder.as_raw_fd())
}

/// A bound control socket; dropping it removes it.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
}

impl Server {
    /// Binds this process's socket.
    pub fn bind(state_dir: &Path) -> io::Result<Server> {
        let folder = folder(state_dir);
        make_own(&folder)?;
        let name = name();
        let path = folder.join(&name);
        // A file that an ended process of this number left.
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(short(&File::open(&folder)?, &name))?;
        listener.set_nonblocking(true)?;
        Ok(Server { listener, path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until somebody asks something.
    pub fn wait(&self) {
        let mut ready = [PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
        // Interrupted, it is asked again.
        let _ = poll(&mut ready, PollTimeout::NONE);
    }

    /// Answers everybody who waits. A client that does not say what it wants is given up.
    pub fn answer(&self, mut each: impl FnMut(Request) -> Reply) {
        while let Ok((stream, _)) = self.listener.accept() {
            // Errors of a client are reported to that client only.
            let _ = answer_one(stream, &mut each);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // If it is gone, that is as well.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn answer_one(stream: UnixStream, each: &mut impl FnMut(Request) -> Reply) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new((&stream).take(LONGEST)).read_line(&mut line)?;
    let reply = match serde_json::from_str(&line) {
        Ok(request) => each(request),
        Err(error) => Reply::Refused(format!("this is no request: {error}")),
    };
    write_line(&stream, &reply)
}

fn write_line(mut stream: &UnixStream, value: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec(value)?;
    text.push(b'\n');
    stream.write_all(&text)
}

/// A control socket that answers.
#[derive(Clone, Debug)]
pub struct Found {
    folder: PathBuf,
    name: String,
    /// Its own description.
    pub description: Description,
}

impl Found {
    /// Asks it something.
    pub fn ask(&self, request: &Request) -> io::Result<Reply> {
        ask(&self.folder, &self.name, request).map(|(reply, _)| reply)
    }
}

/// The reply, and the number that this process knows the other one by: `None` where it knows none.
fn ask(folder: &Path, name: &str, request: &Request) -> io::Result<(Reply, Option<u32>)> {
    let stream = UnixStream::connect(short(&File::open(folder)?, name))?;
    stream.set_read_timeout(Some(CLIENT_PATIENCE))?;
    stream.set_write_timeout(Some(CLIENT_PATIENCE))?;
    write_line(&stream, request)?;
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line)?;
    let peer = getsockopt(&stream, PeerCredentials)?.pid();
    Ok((serde_json::from_str(&line)?, u32::try_from(peer).ok().filter(|&pid| pid != 0)))
}

/// Everything that is being recorded with this state directory, by number. Sockets that nobody
/// serves any more are removed.
pub fn find(state_dir: &Path) -> io::Result<Vec<Found>> {
    let folder = folder(state_dir);
    let entries = match check_own(&folder).and_then(|()| std::fs::read_dir(&folder)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        match ask(&folder, &name, &Request::Describe) {
            Ok((Reply::Description(mut description), pid)) => {
                // It may be in a PID namespace that numbers it otherwise.
                if let (Some(first), Some(pid)) = (description.pids.first_mut(), pid) {
                    *first = pid;
                }
                found.push(Found { folder: folder.clone(), name, description });
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                // Its process was killed.
                let _ = std::fs::remove_file(folder.join(&name));
            }
            _ => {}
        }
    }
    found.sort_by_key(|found| found.description.pids.first().copied());
    Ok(found)
}

/// Removes the sockets of killed processes; which.
pub fn sweep(state_dir: &Path) -> io::Result<Vec<PathBuf>> {
    let folder = folder(state_dir);
    let entries = match check_own(&folder).and_then(|()| std::fs::read_dir(&folder)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let (open, mut removed) = (File::open(&folder)?, Vec::new());
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let connected = UnixStream::connect(short(&open, &name));
        if connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
            std::fs::remove_file(folder.join(&name))?;
            removed.push(folder.join(&name));
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(pid: u32) -> Description {
        let flight_recorders = vec!["r".to_owned()];
        // A client takes the first number from the socket, whatever the other side believes.
        Description { kind: "record".into(), pids: vec![pid], what: "a".into(), flight_recorders }
    }

    #[test]
    fn requests_are_answered_and_the_dead_are_swept() {
        let dir = tempfile::tempdir().unwrap();
        // Longer than a socket's address.
        let state = dir.path().join("long".repeat(40));
        assert!(find(&state).unwrap().is_empty());
        let server = Server::bind(&state).unwrap();
        let path = server.path().to_owned();
        // A file whose process is gone.
        let dead = path.with_file_name("1");
        drop(UnixListener::bind(short(&File::open(path.parent().unwrap()).unwrap(), "1")).unwrap());
        assert!(dead.symlink_metadata().is_ok());
        let (done, over) = std::sync::mpsc::channel::<()>();
        let serving = std::thread::spawn(move || {
            let mut asked = Vec::new();
            while over.try_recv() != Err(std::sync::mpsc::TryRecvError::Disconnected) {
                server.answer(|request| {
                    asked.push(request.clone());
                    match request {
                        Request::Describe => Reply::Description(description(1)),
                        Request::Trigger { .. } => Reply::Triggered(true),
                        _ => Reply::Refused("no".into()),
                    }
                });
                std::thread::yield_now();
            }
            asked
        });
        let found = find(&state).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].description, description(std::process::id()));
        assert!(dead.symlink_metadata().is_err());
        let trigger = Request::Trigger { stream: Some("r".into()) };
        assert_eq!(found[0].ask(&trigger).unwrap(), Reply::Triggered(true));
        let choose = Request::Choose { stream: "main".into(), patterns: vec!["!a:*".into()] };
        assert_eq!(found[0].ask(&choose).unwrap(), Reply::Refused("no".into()));
        drop(done);
        assert_eq!(serving.join().unwrap(), [Request::Describe, trigger, choose]);
        assert!(path.symlink_metadata().is_err());
    }

    #[test]
    fn sockets_of_the_dead_are_removed_and_told() {
        let state = tempfile::tempdir().unwrap();
        assert!(sweep(state.path()).unwrap().is_empty());
        let server = Server::bind(state.path()).unwrap();
        let dead = server.path().with_file_name("1");
        drop(UnixListener::bind(&dead).unwrap());
        assert_eq!(sweep(state.path()).unwrap(), [dead]);
        assert!(server.path().exists());
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let state = tempfile::tempdir().unwrap();
        let server = Server::bind(state.path()).unwrap();
        let mut stream = UnixStream::connect(server.path()).unwrap();
        stream.write_all(b"{\"do\": \"dance\"}\n").unwrap();
        server.answer(|request| panic!("{request:?}"));
        let mut reply = String::new();
        BufReader::new(&stream).read_line(&mut reply).unwrap();
        assert!(reply.starts_with("{\"refused\":\"this is no request"), "{reply}");
    }
}
