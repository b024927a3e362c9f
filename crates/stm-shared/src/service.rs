//! The service that knows a machine's channels by their names.
//!
//! It gives their files to processes of its user, and keeps them while nobody uses them. It is in no
//! operation's way: where it ends, those that use channels go on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{UnixCredentials, getsockopt};
use nix::unistd::geteuid;

use crate::channels::{Channels, Mirrored, lock};
use crate::found;
use crate::parties;
use crate::wire::{Answer, Listed, Request, Settings};
use loopscope_unix_lines::{accept, receive, send};

/// A channel whose home is on another host.
pub trait Elsewhere: Send + Sync {
    /// Makes the mirror. `create` is what the home makes the channel with, if it has none.
    ///
    /// # Errors
    /// Why that cannot be.
    fn mirror(&self, create: Option<Settings>) -> Result<(), String>;

    /// Goes on with the mirror of the service that was at this place before.
    ///
    /// # Errors
    /// Why that cannot be.
    fn resume(&self, mirror: Mirrored) -> Result<(), String>;

    /// Makes a connection to the home by which items are put, if the channel there has this incarnation;
    /// also returns how many loans it may have.
    ///
    /// # Errors
    /// Why that cannot be.
    fn output(&self, incarnation: u64) -> Result<(OwnedFd, u32), String>;
}

/// Channels of other hosts by their names, and a lock for making the mirror.
type Others = BTreeMap<String, (Mutex<()>, Box<dyn Elsewhere>)>;

/// A service that listens.
pub struct Service {
    listener: UnixListener,
    path: PathBuf,
    /// Its directory, if it has made that.
    made: Option<PathBuf>,
    channels: Channels,
    /// How channels of other hosts are opened.
    elsewhere: Arc<Others>,
    /// Processes whose end a thread waits for.
    watched: Arc<Mutex<BTreeSet<i32>>>,
}

impl Service {
    /// Listens at a path, in a directory that is made where it is not there. Goes on with the channels of the
    /// service that was there before, as far as processes use them.
    ///
    /// # Errors
    /// Another service is there, or the directory is another user's.
    pub fn listen(path: &Path) -> io::Result<Service> {
        let is_file = loopscope_unix_lines::is_file(path);
        let made = if is_file { folder_of(path)? } else { None };
        if loopscope_unix_lines::connect(path).is_ok() {
            let what = format!("a service of channels is at {} already", path.display());
            return Err(io::Error::new(io::ErrorKind::AddrInUse, what));
        }
        // What is there belongs to a service that was killed.
        match is_file.then(|| fs::remove_file(path)) {
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => (),
        }
        let listener = loopscope_unix_lines::bind(path)?;
        let channels = Channels::of(&found::place(path, is_file)?);
        let (elsewhere, watched) = Default::default();
        Ok(Service { listener, path: path.into(), made, channels, elsewhere, watched })
    }

    /// Makes a channel; whether it is new. One of this name may be there with the same options.
    ///
    /// # Errors
    /// Why it refuses.
    pub fn create(&self, name: &str, settings: Settings) -> Result<bool, String> {
        self.channels.create(name, settings)
    }

    /// The channels that it knows.
    pub fn channels(&self) -> Channels {
        self.channels.clone()
    }

    /// Says how channels of other hosts are opened, when a program first asks for them, or at once where
    /// programs use them since the service before.
    pub fn knows_elsewhere(&mut self, others: BTreeMap<String, Box<dyn Elsewhere>>) {
        let others = others.into_iter().map(|(name, other)| (name, (Mutex::new(()), other)));
        self.elsewhere = Arc::new(others.collect());
        for (name, mirror) in self.channels.mirrors() {
            let life = mirror.life.clone();
            let other = self.elsewhere.get(&name);
            // Programs wait for ever at a mirror that nobody keeps; these are told when they open it.
            if other.is_none_or(|(_, other)| other.resume(mirror).is_err()) {
                self.channels.forget(&name, &life);
            }
        }
    }

    /// The channels and what they have, or why that cannot be told.
    ///
    /// # Errors
    /// A channel is damaged.
    pub fn list(&self) -> Result<Vec<Listed>, String> {
        self.channels.list()
    }

    /// Serves processes until there is something to read from a descriptor.
    ///
    /// # Errors
    /// No process can connect any more.
    pub fn serve(&self, until: impl AsFd) -> io::Result<()> {
        for process in self.channels.processes() {
            let (channels, watched) = (self.channels.clone(), Arc::clone(&self.watched));
            let watches = move || watch(process.cast_signed(), &channels, &watched);
            thread::Builder::new().name("client".into()).spawn(watches)?;
        }
        while let Some(stream) = accept(&self.listener, &until)? {
            let (channels, watched) = (self.channels.clone(), Arc::clone(&self.watched));
            let elsewhere = Arc::clone(&self.elsewhere);
            thread::Builder::new().name("client".into()).spawn(move || {
                let Ok(process) = getsockopt(&stream, PeerCredentials) else { return };
                // A process that does not keep to the protocol is like one that has ended.
                _ = answer(&stream, process, &channels, &elsewhere);
                drop(stream);
                // It may use its channels still, and be killed later.
                watch(process.pid(), &channels, &watched);
            })?;
        }
        Ok(())
    }
}

/// Waits for the end of a process, unless another thread does, and ends its connections.
fn watch(process: i32, channels: &Channels, watched: &Mutex<BTreeSet<i32>>) {
    if !lock(watched).insert(process) {
        return;
    }
    parties::wait(process);
    lock(watched).remove(&process);
    channels.reap();
}

/// Makes the directory of a socket where it is not there, and returns it then.
fn folder_of(path: &Path) -> io::Result<Option<PathBuf>> {
    let folder = path.parent().unwrap_or(Path::new("."));
    if folder.as_os_str().is_empty() {
        return Ok(None);
    }
    let made = match DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => Some(folder.into()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
        Err(error) => return Err(error),
    };
    let found = fs::metadata(folder)?;
    // In a sticky directory, as /tmp is, others cannot take our files away.
    let is_sticky = found.mode() & 0o1000 != 0;
    let is_ours = found.uid() == geteuid().as_raw() && found.mode() & 0o022 == 0;
    if !is_sticky && !is_ours {
        let what = format!("other users may write to {}", folder.display());
        return Err(io::Error::other(what));
    }
    Ok(made)
}

impl Drop for Service {
    fn drop(&mut self) {
        if loopscope_unix_lines::is_file(&self.path) {
            _ = fs::remove_file(&self.path);
        }
        // There may be other files in it.
        _ = self.made.as_ref().map(fs::remove_dir);
    }
}

/// Answers a process until it closes its connection.
fn answer(
    client: &UnixStream,
    process: UnixCredentials,
    channels: &Channels,
    elsewhere: &Others,
) -> io::Result<()> {
    let mut is_known = false;
    while let Some((request, _)) = receive::<Request>(client)? {
        let refused = Answer::Refused;
        let asked = match &request {
            Request::Create { name, options } => Some((name, Some(*options))),
            Request::Open { name, .. } => Some((name, None)),
            _ => None,
        };
        if is_known
            && let Some((name, options)) = asked
            && let Some((making, other)) = elsewhere.get(name)
        {
            let _one_at_a_time = lock(making);
            if !channels.has(name)
                && let Err(why) = other.mirror(options)
            {
                send(client, &refused(why), &[])?;
                continue;
            }
        }
        let done = match request {
            Request::Hello { pid } => {
                let (user, own) = (process.uid(), geteuid().as_raw());
                is_known = (user == own || user == 0) && process.pid().cast_unsigned() == pid;
                if is_known {
                    Answer::Done(false)
                } else if user != own {
                    refused(format!("the service is user {own}'s, and you are user {user}"))
                } else {
                    refused("the service is in another PID namespace: it cannot see you end".into())
                }
            }
            _ if !is_known => refused("say first who you are".into()),
            Request::Create { name, options } => {
                channels.create(&name, options).map_or_else(refused, Answer::Done)
            }
            Request::Open { name, puts } => match channels.files(&name, puts) {
                Err(why) => refused(why),
                Ok(files) => {
                    let [control, payload] = files?;
                    send(client, &Answer::Done(false), &[control.as_fd(), payload.as_fd()])?;
                    continue;
                }
            },
            Request::Output { name, incarnation } => {
                let other = elsewhere.get(&name).map(|(_, other)| other.output(incarnation));
                match other.unwrap_or_else(|| Err(format!("{name} has its home here"))) {
                    Err(why) => refused(why),
                    Ok((stream, loans)) => {
                        send(client, &Answer::Loans(loans), &[stream.as_fd()])?;
                        continue;
                    }
                }
            }
            Request::List => channels.list().map_or_else(refused, Answer::Listed),
            Request::Remove { name } => {
                channels.remove(&name).map_or_else(refused, |()| Answer::Done(false))
            }
        };
        send(client, &done, &[])?;
    }
    Ok(())
}
