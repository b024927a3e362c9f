//! The service that knows a machine's channels by their names.
//!
//! It gives their files to processes of its user, and keeps them while nobody uses them. It is in no
//! operation's way: where it ends, those that use channels go on.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::socket::{UnixCredentials, getsockopt};
use nix::unistd::geteuid;

use loopscope_stm::{Channel, InputId, InputStatus, ItemStatus};

use crate::address;
use crate::attached::{Changes, never};
use crate::channel::{Files, Shared};
use crate::mapping::Words;
use crate::output::now_ns;
use crate::parties::{self, Process};
use crate::wire::{Answer, Connected, Held, Listed, Request, Settings, receive, send};

/// Bytes of a channel's name, at most.
const LONGEST: usize = 100;

struct Entry {
    files: Files,
    channel: Shared,
    options: Settings,
}

type Channels = Arc<Mutex<BTreeMap<String, Entry>>>;

/// A service that listens.
pub struct Service {
    listener: UnixListener,
    path: PathBuf,
    /// Its directory, if it has made that.
    made: Option<PathBuf>,
    channels: Channels,
    /// Processes whose end a thread waits for.
    watched: Arc<Mutex<BTreeSet<i32>>>,
}

impl Service {
    /// Listens at a path, in a directory that is made where it is not there.
    ///
    /// # Errors
    /// Another service is there, or the directory is another user's.
    pub fn listen(path: &Path) -> io::Result<Service> {
        let is_file = address::is_file(path);
        let made = if is_file { folder_of(path)? } else { None };
        if address::connect(path).is_ok() {
            let what = format!("a service of channels is at {} already", path.display());
            return Err(io::Error::new(io::ErrorKind::AddrInUse, what));
        }
        // What is there belongs to a service that was killed.
        match is_file.then(|| fs::remove_file(path)) {
            Some(Err(error)) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => (),
        }
        let listener = address::bind(path)?;
        let (channels, watched) = Default::default();
        Ok(Service { listener, path: path.into(), made, channels, watched })
    }

    /// Makes a channel; whether it is new. One of this name may be there with the same options.
    ///
    /// # Errors
    /// Why it refuses.
    pub fn create(&self, name: &str, settings: Settings) -> Result<bool, String> {
        create(&mut lock(&self.channels), name.into(), settings)
    }

    /// The channels and what they have, or why that cannot be told.
    ///
    /// # Errors
    /// A channel is damaged.
    pub fn list(&self) -> Result<Vec<Listed>, String> {
        lock(&self.channels).iter().map(|(name, entry)| listed(name, &entry.channel)).collect()
    }

    /// Serves processes until there is something to read from a descriptor.
    ///
    /// # Errors
    /// No process can connect any more.
    pub fn serve(&self, until: impl AsFd) -> io::Result<()> {
        loop {
            let wanted = |fd| PollFd::new(fd, PollFlags::POLLIN);
            let mut fds = [wanted(until.as_fd()), wanted(self.listener.as_fd())];
            match poll(&mut fds, PollTimeout::NONE) {
                Err(Errno::EINTR) => continue,
                done => done?,
            };
            if fds[0].any() == Some(true) {
                return Ok(());
            }
            let (stream, _) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => continue,
                    _ => return Err(error),
                },
            };
            let (channels, watched) = (Arc::clone(&self.channels), Arc::clone(&self.watched));
            thread::Builder::new().name("client".into()).spawn(move || {
                let Ok(process) = getsockopt(&stream, PeerCredentials) else { return };
                // A process that does not keep to the protocol is like one that has ended.
                _ = answer(&stream, process, &channels);
                drop(stream);
                // It may use its channels still, and be killed later.
                if !lock(&watched).insert(process.pid()) {
                    return;
                }
                parties::wait(process.pid());
                lock(&watched).remove(&process.pid());
                for entry in lock(&channels).values() {
                    // A damaged channel is said to be so where it is used.
                    _ = entry.channel.reap();
                }
            })?;
        }
    }
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

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Service {
    fn drop(&mut self) {
        if address::is_file(&self.path) {
            _ = fs::remove_file(&self.path);
        }
        // There may be other files in it.
        _ = self.made.as_ref().map(fs::remove_dir);
    }
}

/// Answers a process until it closes its connection.
fn answer(stream: &UnixStream, process: UnixCredentials, channels: &Channels) -> io::Result<()> {
    let mut is_known = false;
    while let Some((request, _)) = receive::<Request>(stream)? {
        let mut channels = lock(channels);
        let refused = Answer::Refused;
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
                create(&mut channels, name, options).map_or_else(refused, Answer::Done)
            }
            Request::Open { name, puts } => match channels.get(&name) {
                None => refused(unknown(&name, &channels)),
                Some(Entry { files, .. }) => {
                    let payload = if puts { files.payload.try_clone() } else { files.read_only() }?;
                    let fds = [files.control.as_fd(), payload.as_fd()];
                    send(stream, &Answer::Done(false), &fds)?;
                    continue;
                }
            },
            Request::List => {
                let all = channels.iter().map(|(name, entry)| listed(name, &entry.channel));
                all.collect::<Result<_, _>>().map_or_else(refused, Answer::Listed)
            }
            Request::Remove { name } => match channels.remove(&name) {
                Some(_) => Answer::Done(false),
                None => refused(unknown(&name, &channels)),
            },
        };
        drop(channels);
        send(stream, &done, &[])?;
    }
    Ok(())
}

/// Makes a channel; whether it is new.
fn create(
    channels: &mut BTreeMap<String, Entry>,
    name: String,
    options: Settings,
) -> Result<bool, String> {
    if let Some(Entry { options: others, .. }) = channels.get(&name) {
        return if *others == options {
            Ok(false)
        } else {
            Err(format!("there is a channel {name} with other options: {others}"))
        };
    }
    let is_name = !name.is_empty() && name.len() <= LONGEST && !name.chars().any(char::is_control);
    if !is_name {
        return Err(format!(
            "a channel's name has 1 to {LONGEST} bytes without control characters, and is not {name:?}"
        ));
    }
    // The service itself uses it, too.
    let mut needed = options.options();
    needed.processes = needed.processes.saturating_add(u32::from(needed.processes > 0));
    let files = Files::create(&needed).map_err(|error| error.to_string())?;
    let opened = Shared::open_named(&files.control, &files.payload, Some(&name));
    let channel = opened.map_err(|error| error.to_string())?;
    channels.insert(name, Entry { files, channel, options });
    Ok(true)
}

fn unknown(name: &str, channels: &BTreeMap<String, Entry>) -> String {
    let names: Vec<_> = channels.keys().map(String::as_str).collect();
    match names[..] {
        [] => format!("there is no channel {name}, nor any other"),
        _ => format!("there is no channel {name}; there are {}", names.join(", ")),
    }
}

/// What a channel has, or why that cannot be told.
fn listed(name: &str, shared: &Shared) -> Result<Listed, String> {
    let look = |channel: &mut Channel<Words>| {
        let (inputs, outputs) = (channel.inputs(), channel.outputs());
        never((channel.counts(), channel.bytes(), channel.oldest(), inputs, outputs))
    };
    let Ok((counts, bytes, oldest, inputs, outputs)) =
        shared.inner.operate(Changes::Nothing, look).map_err(|why| format!("{name}: {why}"))?;
    let entries = shared.inner.control.entries();
    let process = |owner| parties::process(entries, owner).map(Process::pid);
    let of = |ids: &[InputId]| {
        let found = inputs.iter().filter(|input| ids.contains(&input.id));
        found.map(|input| process(input.owner)).collect()
    };
    let held = |each: &ItemStatus| Held {
        time: each.item.time,
        age_ns: now_ns() - each.item.put_ns,
        wanted_by: of(&each.wanted_by),
        held_by: of(&each.held_by),
    };
    let connected = |each: &InputStatus| Connected {
        process: process(each.owner),
        lossy: each.lossy,
        floor: each.counts.floor,
        held: each.counts.held,
        lost: each.counts.lost,
        skipped: each.counts.skipped,
    };
    Ok(Listed {
        name: name.into(),
        capacity: shared.config().capacity,
        item_bytes: shared.item_bytes(),
        items: counts.present,
        bytes,
        put: counts.put,
        collected: counts.collected,
        dropped: counts.dropped,
        oldest: oldest.as_ref().map(held),
        inputs: inputs.iter().map(connected).collect(),
        outputs: outputs.iter().map(|each| process(each.owner)).collect(),
        processes: shared.processes(),
    })
}
