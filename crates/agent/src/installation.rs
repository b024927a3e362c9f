//! The copy of this program that sudo starts, which only root can change, and sudo's rule for it.
//!
//! It is `/usr/local/lib/loopscope/<sha256>-<gid>/loopscope-host`, root's, with mode 0750, of the
//! group of those who use it: what the agent starts of it runs as they do. The rule is a file in
//! `/etc/sudoers.d`. It allows one command with one argument, `loopscope-host limited`, to one user
//! or one group.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::{Gid, Group, Uid, User, getegid, geteuid, getgroups};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::rights::check_only_root_writes;

/// Where copies are, each in a folder that is named by its hash and its group.
pub const PLACE: &str = "/usr/local/lib/loopscope";
/// The name of a copy.
pub const NAME: &str = "loopscope-host";
/// The subcommand that sudo's rule allows.
pub const SUBCOMMAND: &str = "limited";
/// Where sudo's rules are.
const RULES: &str = "/etc/sudoers.d";
/// What the names of our rules begin with. Of rules that fit the last counts, in the order of names.
const PREFIX: &str = "zz-loopscope-";
/// A name with a dot is no rule for sudo.
const DRAFT: &str = "loopscope.draft";
const MODE: u32 = 0o750;

/// The user or group that may run the copy by sudo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// A user; the number of the user's own group.
    User(Uid, Gid),
    /// The members of a group.
    Group(Gid),
}

impl Who {
    /// The user of this name or number.
    pub fn user(text: &str) -> Result<Who, InstallError> {
        let found = match text.parse() {
            Ok(number) => User::from_uid(Uid::from_raw(number)),
            Err(_) => User::from_name(text),
        };
        let user = found.map_err(io::Error::from)?.ok_or(InstallError::NoUser(text.to_owned()))?;
        Ok(Who::User(user.uid, user.gid))
    }

    /// The group of this name or number.
    pub fn group(text: &str) -> Result<Who, InstallError> {
        let found = match text.parse() {
            Ok(number) => Group::from_gid(Gid::from_raw(number)),
            Err(_) => Group::from_name(text),
        };
        let group = found.map_err(io::Error::from)?;
        Ok(Who::Group(group.ok_or(InstallError::NoGroup(text.to_owned()))?.gid))
    }

    /// The group of the copy.
    fn gid(self) -> Gid {
        match self {
            Who::User(_, gid) | Who::Group(gid) => gid,
        }
    }

    /// The rule's file.
    fn file(self) -> PathBuf {
        let name = match self {
            Who::User(uid, _) => format!("{PREFIX}user-{uid}"),
            Who::Group(gid) => format!("{PREFIX}group-{gid}"),
        };
        Path::new(RULES).join(name)
    }

    /// The rule, by numbers: a name may have characters that mean something to sudo.
    fn rule(self, program: &Path) -> String {
        let who = match self {
            Who::User(uid, _) => format!("#{uid}"),
            Who::Group(gid) => format!("%#{gid}"),
        };
        let program = program.display();
        format!(
            "# Made by loopscope host setup, which removes it by --remove.\n\
             {who} ALL=(root) NOPASSWD: {program} {SUBCOMMAND}\n"
        )
    }
}

/// Why it could not be installed or removed.
#[derive(Debug, Error)]
pub enum InstallError {
    /// Only root can.
    #[error("installing and removing what sudo starts needs root: run it with sudo")]
    NotRoot,
    /// No such user.
    #[error("there is no user {0:?} on this machine")]
    NoUser(String),
    /// No such group.
    #[error(
        "there is no group {0:?} on this machine; make it (groupadd), and its members (usermod -aG)"
    )]
    NoGroup(String),
    /// Somebody else could change what sudo starts.
    #[error("{0}")]
    Unsafe(io::Error),
    /// There is another file in place of the copy.
    #[error(
        "{0} is not the program that its folder is named by; remove the folder, or do setup --remove"
    )]
    Other(PathBuf),
    /// sudo is missing.
    #[error("there is no sudo on this machine, whose rule would be made: install sudo ({0})")]
    NoSudo(String),
    /// sudo does not accept the rule.
    #[error("visudo does not accept the rule: {0}")]
    Rule(String),
    /// A file.
    #[error("cannot use {0}: {1}")]
    Path(PathBuf, io::Error),
    /// The system.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// The copies of the program with this hash that are there for the groups of this process.
pub fn copies(hash: &str) -> io::Result<Vec<PathBuf>> {
    let own = getegid();
    let others = getgroups()?.into_iter().filter(|&gid| gid != own);
    let paths = [own].into_iter().chain(others).map(|gid| folder(hash, gid).join(NAME));
    Ok(paths.filter(|path| path.symlink_metadata().is_ok()).collect())
}

fn folder(hash: &str, gid: Gid) -> PathBuf {
    Path::new(PLACE).join(format!("{hash}-{gid}"))
}

/// Installs `program` for `who`, with sudo's rule if it `makes_rule`. The copy.
pub fn install(program: &Path, who: Who, makes_rule: bool) -> Result<PathBuf, InstallError> {
    need_root()?;
    let content = fs::read(program).map_err(at(program))?;
    let gid = who.gid();
    let folder = folder(&hash(&content), gid);
    let copy = folder.join(NAME);
    make_folder(Path::new(PLACE))?;
    check_only_root_writes(Path::new(PLACE)).map_err(InstallError::Unsafe)?;
    if folder.exists() {
        check_only_root_writes(&copy).map_err(InstallError::Unsafe)?;
        if fs::read(&copy).map_err(at(&copy))? != content {
            return Err(InstallError::Other(copy));
        }
        give(&copy, gid)?;
    } else {
        place(&content, gid, &folder)?;
    }
    if makes_rule {
        allow(who, &copy)?;
    }
    Ok(copy)
}

/// Puts the copy into a new folder, whole or not at all.
fn place(content: &[u8], gid: Gid, folder: &Path) -> Result<(), InstallError> {
    let draft = Path::new(PLACE).join(format!(".draft-{}", std::process::id()));
    let write = || {
        make_folder(&draft)?;
        let copy = draft.join(NAME);
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(&copy);
        let write = |mut file: File| file.write_all(content).and_then(|()| file.sync_all());
        file.and_then(write).map_err(at(&copy))?;
        give(&copy, gid)?;
        fs::rename(&draft, folder).map_err(at(folder))
    };
    let written = write();
    if written.is_err() {
        // Nothing else is in it; the first error is the one to report.
        let _ = fs::remove_dir_all(&draft);
    }
    written
}

fn give(copy: &Path, gid: Gid) -> Result<(), InstallError> {
    chown(copy, Some(0), Some(gid.as_raw())).map_err(at(copy))?;
    fs::set_permissions(copy, Permissions::from_mode(MODE)).map_err(at(copy))
}

/// Makes a folder for everybody to look into, whatever the umask is; one that exists stays as it is.
fn make_folder(path: &Path) -> Result<(), InstallError> {
    match DirBuilder::new().mode(0o755).create(path) {
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(0o755)).map_err(at(path)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(at(path)(error)),
    }
}

/// Makes sudo's rule, once visudo has accepted it.
fn allow(who: Who, copy: &Path) -> Result<(), InstallError> {
    let draft = Path::new(RULES).join(DRAFT);
    // A file of an attempt that was killed.
    let _ = fs::remove_file(&draft);
    let write = || {
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o440).open(&draft);
        let file = file.map_err(|e| InstallError::NoSudo(format!("{}: {e}", draft.display())));
        file?.write_all(who.rule(copy).as_bytes()).map_err(at(&draft))?;
        fs::set_permissions(&draft, Permissions::from_mode(0o440)).map_err(at(&draft))?;
        let checked = Command::new("visudo").arg("-cf").arg(&draft).output();
        let checked = checked.map_err(|e| InstallError::NoSudo(format!("visudo: {e}")))?;
        if !checked.status.success() {
            let said = String::from_utf8_lossy(&checked.stderr).trim().to_owned();
            return Err(InstallError::Rule(said));
        }
        fs::rename(&draft, who.file()).map_err(at(&draft))
    };
    let written = write();
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&draft);
    }
    written
}

/// Removes all copies and all rules; what it removed.
pub fn remove() -> Result<Vec<PathBuf>, InstallError> {
    need_root()?;
    let mut removed = vec![];
    for entry in list(Path::new(RULES))? {
        let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name == DRAFT || name.starts_with(PREFIX) {
            fs::remove_file(&entry).map_err(at(&entry))?;
            removed.push(entry);
        }
    }
    let place = Path::new(PLACE);
    if place.symlink_metadata().is_ok() {
        check_only_root_writes(place).map_err(InstallError::Unsafe)?;
        fs::remove_dir_all(place).map_err(at(place))?;
        removed.push(place.to_owned());
    }
    Ok(removed)
}

fn list(folder: &Path) -> Result<Vec<PathBuf>, InstallError> {
    match fs::read_dir(folder) {
        Ok(entries) => {
            let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>();
            paths.map_err(at(folder))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(vec![]),
        Err(error) => Err(at(folder)(error)),
    }
}

fn need_root() -> Result<(), InstallError> {
    if geteuid().is_root() { Ok(()) } else { Err(InstallError::NotRoot) }
}

fn at(path: &Path) -> impl Fn(io::Error) -> InstallError {
    move |error| InstallError::Path(path.to_owned(), error)
}

/// SHA-256 in hexadecimal digits.
fn hash(content: &[u8]) -> String {
    hexadecimal(&Sha256::digest(content))
}

/// Bytes as hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_allows_one_command_with_one_argument_by_numbers() {
        let copy = Path::new("/usr/local/lib/loopscope/ab/loopscope-host");
        let rule = Who::Group(Gid::from_raw(7)).rule(copy);
        let line = rule.lines().last().unwrap();
        assert_eq!(line, format!("%#7 ALL=(root) NOPASSWD: {} limited", copy.display()));
        let user = Who::User(Uid::from_raw(4711), Gid::from_raw(1));
        assert!(user.rule(copy).contains("\n#4711 ALL=(root)"));
        assert_eq!(user.file(), Path::new("/etc/sudoers.d/zz-loopscope-user-4711"));
    }

    #[test]
    fn the_hash_is_sha_256() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(hash(b""), empty);
    }
}
