//! Channels of a service that has ended, in the processes that use them: the next service goes on with them.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};

use crate::channel::{CONTROL, Files, PAYLOAD};
use crate::mapping::Control;
use crate::wire::Settings;

/// What a service says of a channel to the next one.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct About {
    pub(crate) name: String,
    pub(crate) settings: Settings,
    /// Where its items come from, if it is a mirror.
    pub(crate) home: Option<String>,
    /// Where the service is; see `place`.
    pub(crate) place: String,
}

/// A channel that was found.
pub(crate) struct Found {
    pub(crate) about: About,
    pub(crate) incarnation: u64,
    pub(crate) files: Files,
}

/// What tells the place of a service from all others of its user: a file's path, or a name and the network
/// namespace that it is of.
///
/// # Errors
/// The directory cannot be told.
pub(crate) fn place(path: &Path, is_file: bool) -> io::Result<String> {
    if is_file {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = fs::canonicalize(folder.unwrap_or(Path::new(".")))?;
        let name = path.file_name().unwrap_or_default();
        return Ok(folder.join(name).display().to_string());
    }
    let namespace = fs::read_link("/proc/self/ns/net")?;
    Ok(format!("{} {}", path.display(), namespace.display()))
}

/// The channels of a service's place which processes of this user and PID namespace keep. Where several
/// had the same name it is the latest.
pub(crate) fn find(place: &str) -> Vec<Found> {
    let mut files: BTreeMap<u64, [Vec<PathBuf>; 2]> = BTreeMap::new();
    for process in processes() {
        // It may have ended, or nobody may look at it.
        let Ok(open) = fs::read_dir(process.join("fd")) else { continue };
        for file in open.flatten().map(|entry| entry.path()) {
            if let Some((number, incarnation)) = fs::read_link(&file).ok().and_then(known) {
                files.entry(incarnation).or_default()[number].push(file);
            }
        }
    }
    let mut found = BTreeMap::new();
    for (incarnation, files) in files {
        let opened = opened(&files).filter(|(about, _)| about.place == place);
        if let Some((about, files)) = opened {
            found.insert(about.name.clone(), Found { about, incarnation, files });
        }
    }
    found.into_values().collect()
}

/// The folders of the processes of this user in this PID namespace.
fn processes() -> impl Iterator<Item = PathBuf> {
    let (user, own) = (geteuid().as_raw(), fs::read_link("/proc/self/ns/pid").ok());
    let all = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    all.filter(move |process| {
        let number = process.file_name().and_then(|name| name.to_str());
        let is_process = number.is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        is_process
            && fs::metadata(process).is_ok_and(|found| found.uid() == user)
            && fs::read_link(process.join("ns/pid")).ok() == own
    })
}

/// The place of one of a channel's files among both, by the text of its link, and the channel's incarnation.
fn known(link: PathBuf) -> Option<(usize, u64)> {
    let name = link.to_str()?.strip_prefix("/memfd:")?.strip_suffix(" (deleted)")?;
    let payload = name.strip_prefix(PAYLOAD).map(|rest| (1, rest));
    let (number, rest) = payload.or_else(|| Some((0, name.strip_prefix(CONTROL)?)))?;
    let incarnation = u64::from_str_radix(rest, 16).ok().filter(|incarnation| *incarnation != 0)?;
    Some((number, incarnation))
}

/// The files, and what is said of the channel, if it is one.
fn opened([control, payload]: &[Vec<PathBuf>; 2]) -> Option<(About, Files)> {
    let open = |path: &PathBuf| OpenOptions::new().read(true).write(true).open(path).ok();
    // The first process that has one may have ended meanwhile.
    let (control, payload) = (control.iter().find_map(open)?, payload.iter().find_map(open)?);
    let about = Control::of(&control, |_| 0).ok()?.head().about();
    // One that was forgotten says nothing.
    let about = serde_json::from_slice(&about).ok()?;
    Some((about, Files { control, payload }))
}
