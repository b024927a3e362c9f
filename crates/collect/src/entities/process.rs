//! The call sites of a process: from the `sites` file of its process directory, which its mapped
//! control file leads to; where it has none (a dormant program), from the files that it has mapped.
//!
//! Paths are the process's own, so they are looked up under its root.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::{Error, Found, elf, sites};

pub(super) fn read(pid: u32) -> Result<Vec<Found>, Error> {
    let proc = PathBuf::from(format!("/proc/{pid}"));
    let maps = maps(pid)?;
    let mapped: BTreeSet<&str> = maps.lines().filter_map(mapped_file).collect();
    let root = proc.join("root");
    let inside = |path: &str| root.join(path.trim_start_matches('/'));

    // A forked child shares its parent's mapping, but has the same call sites.
    for control in mapped.iter().filter(|path| is_control(path)) {
        let path = inside(control).with_file_name("sites");
        match fs::read(&path) {
            Ok(bytes) => return registered(&path, &bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(Error::Read { path, source }),
        }
    }
    let mut found = Vec::new();
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

/// Where a process waits to be recorded, or is recorded: its process directory.
pub(super) fn directory(pid: u32) -> Result<PathBuf, Error> {
    let proc = PathBuf::from(format!("/proc/{pid}"));
    let maps = maps(pid)?;
    let controls: Vec<&Path> =
        maps.lines().filter_map(mapped_file).filter(|p| is_control(p)).map(Path::new).collect();
    // A forked child may still have its parent's mapped.
    let own = format!("{pid}-");
    let is_own = |path: &&&Path| {
        let name = path.parent().and_then(Path::file_name);
        name.is_some_and(|name| name.as_encoded_bytes().starts_with(own.as_bytes()))
    };
    let Some(control) = controls.iter().find(is_own).or(controls.first()) else {
        // Says why not where that is that it has no call sites.
        read(pid)?;
        let environment = fs::read(proc.join("environ")).unwrap_or_default();
        let off = environment.split(|b| *b == 0).any(|entry| entry == b"LOOPSCOPE_RUNTIME_DIR=");
        return Err(Error::Dormant { pid, off });
    };
    let dir = control.parent().unwrap_or(control);
    // The process may see other file systems than this one.
    let inside = proc.join("root").join(dir.strip_prefix("/").unwrap_or(dir));
    let id = |path: &Path| fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
    Ok(if id(dir).is_some() && id(dir) == id(&inside) { dir.to_owned() } else { inside })
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
    let process = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    let (pid, stamp) = process.and_then(|name| name.split_once('-')).unwrap_or_default();
    path.file_name().is_some_and(|name| name == "control")
        && pid.parse::<u32>().is_ok()
        && u64::from_str_radix(stamp, 16).is_ok()
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
