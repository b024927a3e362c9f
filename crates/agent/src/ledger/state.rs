//! The folder that outlives agents, and whether it can be trusted.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Where loopscope keeps what must survive an agent: `LOOPSCOPE_STATE_DIR`, else `/run/loopscope`
/// for root, else `loopscope` in `XDG_RUNTIME_DIR`, else in the temporary directory.
pub fn state_dir() -> PathBuf {
    state_dir_by(|name| std::env::var_os(name))
}

/// The same, by a user's variables.
pub fn state_dir_by(variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    if let Some(dir) = variable("LOOPSCOPE_STATE_DIR") {
        return PathBuf::from(dir);
    }
    let uid = nix::unistd::geteuid();
    if uid.is_root() {
        return PathBuf::from("/run/loopscope");
    }
    match variable("XDG_RUNTIME_DIR") {
        Some(dir) => PathBuf::from(dir).join("loopscope"),
        None => {
            let temporary = variable("TMPDIR").map_or_else(|| "/tmp".into(), PathBuf::from);
            temporary.join(format!("loopscope-{uid}"))
        }
    }
}

/// What this start of the machine is called, by the kernel; empty where it does not say.
pub(crate) fn boot_id() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim_end().to_owned()
}

/// The folder of ledgers below a state directory.
pub(crate) fn folder(state_dir: &Path) -> PathBuf {
    state_dir.join("ledger")
}

/// Whether nobody else can have put anything into a folder below a state directory, whose name
/// others may know: it is a directory of this user's that no other may write to. `NotFound` where
/// there is none.
pub(crate) fn check_own(folder: &Path) -> io::Result<()> {
    let own = nix::unistd::geteuid().as_raw();
    let wrong = |path: &Path, what: String| {
        let path = path.display();
        Err(io::Error::other(format!(
            "{path} cannot be trusted: {what}; remove it, or name another place in \
             LOOPSCOPE_STATE_DIR"
        )))
    };
    let metadata = folder.symlink_metadata()?;
    if !metadata.is_dir() {
        return wrong(folder, "it is no directory".to_owned());
    }
    if metadata.uid() != own {
        return wrong(folder, format!("it belongs to user {}", metadata.uid()));
    }
    if metadata.mode() & 0o022 != 0 {
        return wrong(folder, "other users may write to it".to_owned());
    }
    // A user who may write to the directory above could put another folder in place of this one.
    let state_dir = folder.parent().unwrap_or(folder);
    let metadata = state_dir.metadata()?;
    if ![0, own].contains(&metadata.uid()) {
        return wrong(state_dir, format!("it belongs to user {}", metadata.uid()));
    }
    if metadata.mode() & 0o1002 == 0o0002 {
        return wrong(state_dir, "all users may rename what is in it".to_owned());
    }
    Ok(())
}

/// Makes a folder below a state directory, for this user alone.
pub(crate) fn make_own(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    check_own(folder)
}
