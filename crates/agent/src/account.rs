//! The user that a component runs as.

use std::ffi::CString;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{
    Gid, Uid, User, chown, fchown, geteuid, getgrouplist, setgid, setgroups, setuid,
};
use thiserror::Error;

use crate::rootless;

/// A user, and what becoming one takes.
#[derive(Clone, Debug)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) home: PathBuf,
    pub(crate) shell: PathBuf,
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
    /// Whether it is the agent's own, which cannot be any other.
    is_own: bool,
}

/// Why a program cannot run as a user.
#[derive(Debug, Error)]
pub(crate) enum AccountError {
    #[error("there is no user {0:?} on its host; make one (useradd), or change `user:`")]
    Unknown(String),
    #[error("it is to run as user {0}, which only root can have it do")]
    NotRoot(String),
    #[error("cannot look up user {0:?}: {1}")]
    Lookup(String, Errno),
}

impl Account {
    /// The user of this name or number.
    pub(crate) fn find(text: &str) -> Result<Account, AccountError> {
        let failed = |errno| AccountError::Lookup(text.to_owned(), errno);
        let user = match text.parse() {
            Ok(number) => User::from_uid(Uid::from_raw(number)),
            Err(_) => User::from_name(text),
        };
        let user = user.map_err(failed)?.ok_or_else(|| AccountError::Unknown(text.to_owned()))?;
        let only = if geteuid().is_root() { rootless::only_user() } else { Some(geteuid()) };
        if only.is_some_and(|only| user.uid != only) {
            return Err(AccountError::NotRoot(user.name));
        }
        let name = CString::new(user.name.as_str()).map_err(|_| failed(Errno::EINVAL))?;
        let groups = getgrouplist(&name, user.gid).map_err(failed)?;
        let User { name, uid, gid, dir: home, shell, .. } = user;
        Ok(Account { name, home, shell, uid, gid, groups, is_own: only.is_some() })
    }

    /// Gives it a file or folder.
    pub(crate) fn own(&self, path: &Path) -> io::Result<()> {
        if self.is_own {
            return Ok(());
        }
        Ok(chown(path, Some(self.uid), Some(self.gid))?)
    }

    /// Makes the calling process one of this user's, its outputs included, which it may open again
    /// as /dev/stdout. Allocates nothing and takes no lock: it is called between fork and exec.
    pub(crate) fn become_it(&self) -> nix::Result<()> {
        if self.is_own {
            return Ok(());
        }
        fchown(io::stdout(), Some(self.uid), Some(self.gid))?;
        fchown(io::stderr(), Some(self.uid), Some(self.gid))?;
        setgroups(&self.groups)?;
        setgid(self.gid)?;
        setuid(self.uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_number_and_the_missing_is_named() {
        let own = User::from_uid(geteuid()).unwrap().unwrap();
        for text in [own.name.clone(), own.uid.to_string()] {
            let found = Account::find(&text).unwrap();
            assert_eq!((found.name, found.home), (own.name.clone(), own.dir.clone()));
            assert!(found.groups.contains(&own.gid));
        }
        let missing = Account::find("no-such-user").unwrap_err().to_string();
        assert!(missing.contains("\"no-such-user\"") && missing.contains("useradd"), "{missing}");
    }
}
