//! The call sites of a process: from the `sites` file of its process directory, which its mapped
//! control file leads to; where it has none (a dormant program), from the files that it has mapped.
//!
//! Paths are the process's own, so they are looked up under its root.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use super::{Error, Found, elf, sites};
use crate::folder::{Folder, Id};
use crate::process::{LARGEST_SITES, process_of};

pub(super) fn read(pid: u32) -> Result<Vec<Found>, Error> {
    let proc = PathBuf::from(format!("/proc/{pid}"));
    let maps = maps(pid)?;
    let mapped: BTreeSet<&str> = maps.lines().filter_map(mapped_file).collect();
    let root = proc.join("root");
    let inside = |path: &str| root.join(path.trim_start_matches('/'));

    let mut found = Vec::new();
    let mut any = false;
    for control in controls(pid, &maps) {
        let path = inside(control).with_file_name("sites");
        match read_sites(&path) {
            Ok(bytes) => {
                any = true;
                found.extend(registered(&path, &bytes)?);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(Error::Read { path, source }),
        }
    }
    if any {
        return Ok(found);
    }
    for path in &mapped {
        match elf::read(&inside(path)) {
            Ok(sites) => found.extend(sites),
            // Fonts, databases, files removed since: what a program maps is mostly no program.
            Err(Error::NotAProgram { .. } | Error::Read { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    if found.is_empty() {
        let name = fs::read_to_string(proc.join("comm")).unwrap_or_default();
        return Err(Error::Uninstrumented { pid, name: name.trim_end().to_owned() });
    }
    Ok(found)
}

/// A file of a process directory, which the process may have replaced by anything.
fn read_sites(path: &Path) -> io::Result<Vec<u8>> {
    let folder = Folder::open_unlinked(path.parent().unwrap_or(path))?;
    let mut bytes = Vec::new();
    let file = folder.read(path.file_name().unwrap_or_default())?;
    file.take(LARGEST_SITES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Where a process waits to be recorded, or is recorded: its process directories, one for each copy
/// of the library in it.
pub(super) fn directories(pid: u32) -> Result<Vec<PathBuf>, Error> {
    let proc = PathBuf::from(format!("/proc/{pid}"));
    let maps = maps(pid)?;
    let controls = controls(pid, &maps);
    if controls.is_empty() {
        // Says why not where that is that it has no call sites.
        read(pid)?;
        let environment = fs::read(proc.join("environ")).unwrap_or_default();
        let off = environment.split(|b| *b == 0).any(|entry| entry == b"LOOPSCOPE_RUNTIME_DIR=");
        let removed = maps.lines().filter_map(|line| line.strip_suffix(" (deleted)"));
        let removed = removed.filter_map(mapped_file).any(is_control);
        return Err(Error::Dormant { pid, off, removed });
    }
    // The process may see other file systems than this one.
    let id = |path: &Path| Folder::open_unlinked(path).map(|folder| folder.id).ok();
    let checked = |control: &str| {
        let dir = Path::new(control).parent().unwrap_or(Path::new("/"));
        let inside = proc.join("root").join(dir.strip_prefix("/").unwrap_or(dir));
        let same = id(dir).is_some() && id(dir) == id(&inside);
        let dir = if same { dir.to_owned() } else { inside };
        let lines = maps.lines().filter(|line| mapped_file(line) == Some(control));
        check(pid, &dir, lines).map_err(|source| Error::Read { path: dir.clone(), source })?;
        Ok(dir)
    };
    controls.into_iter().map(checked).collect()
}

/// The control files of a process, one for each copy of the library in it. A forked child that has
/// had no hit yet has its parent's.
fn controls(pid: u32, maps: &str) -> BTreeSet<&str> {
    let mapped = || maps.lines().filter_map(mapped_file).filter(|path| is_control(path));
    let own = format!("{pid}-");
    let is_own = |path: &&str| {
        let name = Path::new(path).parent().and_then(Path::file_name);
        name.is_some_and(|name| name.as_encoded_bytes().starts_with(own.as_bytes()))
    };
    let owned: BTreeSet<&str> = mapped().filter(is_own).collect();
    if owned.is_empty() { mapped().collect() } else { owned }
}

/// Whether the directory is the process's own: it names the path, and it could name any. `lines` are
/// those of its mappings of the control file.
fn check<'a>(pid: u32, dir: &Path, lines: impl Iterator<Item = &'a str>) -> io::Result<()> {
    let folder = Folder::open_unlinked(dir)?;
    let control = folder.write(OsStr::new("control"))?.metadata()?;
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    let mut users = users.split_whitespace().filter_map(|user| user.parse::<u32>().ok());
    let owner = folder.owner;
    if owner != geteuid().as_raw() && !users.any(|user| user == owner) {
        let what = format!("it belongs to user {owner}, as whom process {pid} does not run");
        return Err(io::Error::other(what));
    }
    for line in lines {
        let range = line.split(' ').next().unwrap_or_default();
        let mapped: Option<Id> = match fs::metadata(format!("/proc/{pid}/map_files/{range}")) {
            Ok(mapped) => Some((mapped.dev(), mapped.ino())),
            // Not everybody may ask, and root not in every container: there the owner has to do.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
            Err(error) => return Err(error),
        };
        if mapped.is_some_and(|mapped| mapped != (control.dev(), control.ino())) {
            let what =
                format!("process {pid} uses another control file than the one that is there");
            return Err(io::Error::other(what));
        }
    }
    Ok(())
}

fn maps(pid: u32) -> Result<String, Error> {
    let maps = fs::read(format!("/proc/{pid}/maps")).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => Error::NoProcess(pid),
        // A process that ends while it is looked at.
        _ if source.raw_os_error() == Some(libc::ESRCH) => Error::NoProcess(pid),
        _ => Error::Process { pid, source },
    })?;
    Ok(String::from_utf8_lossy(&maps).into_owned())
}

/// Path of a line of `maps`: address, permissions, offset, device, inode, path.
fn mapped_file(line: &str) -> Option<&str> {
    let path = &line[line.find('/')?..];
    (!path.ends_with(" (deleted)")).then_some(path)
}

/// Whether a file is `<runtime directory>/<pid>-<hex stamp>/control`.
fn is_control(path: &str) -> bool {
    let path = Path::new(path);
    path.file_name().is_some_and(|name| name == "control")
        && path.parent().and_then(Path::file_name).and_then(process_of).is_some()
}

fn registered(path: &Path, bytes: &[u8]) -> Result<Vec<Found>, Error> {
    let text = String::from_utf8_lossy(bytes);
    // The process may be in the middle of writing another line.
    let whole = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    whole
        .map(|line| {
            let damaged = || Error::Damaged { path: path.to_owned(), what: format!("{line:?}") };
            sites::parse(line).ok_or_else(damaged)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_files_are_known_by_their_place() {
        assert!(is_control("/dev/shm/loopscope-0/41-1f9c/control"));
        for other in ["/tmp/control", "/tmp/41-1f9c/sites", "/tmp/41-x/control", "/tmp/a-1/control"]
        {
            assert!(!is_control(other), "{other}");
        }
    }

    #[test]
    fn lines_of_maps() {
        let line = "7f0-7f1 r--p 00000000 fe:00 1234        /usr/lib/my lib.so";
        assert_eq!(mapped_file(line), Some("/usr/lib/my lib.so"));
        assert_eq!(mapped_file("7f0-7f1 r--p 00000000 00:00 0 [stack]"), None);
        assert_eq!(mapped_file("7f0-7f1 r--p 0 fe:00 1 /tmp/gone (deleted)"), None);
    }
}
