//! A scope of the user's systemd for an agent without root: a cgroup that is its user's to divide.
//!
//! A login session's cgroup is root's. A scope with `Delegate=` is the user's (systemd.scope(5),
//! <https://systemd.io/CGROUP_DELEGATION>); it is asked for by `systemd-run`, which becomes the
//! command that it is given.

use std::ffi::OsStr;
use std::fmt::Display;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::{AccessFlags, access, geteuid};

use crate::cgroup;

const RUN: &str = "systemd-run";
/// There while systemd runs the machine (sd_booted(3)).
const BOOTED: &str = "/run/systemd/system";
/// The user's systemd is found through it.
const RUNTIME: &str = "XDG_RUNTIME_DIR";

/// Starts this program anew in a scope, and does not return, where it is in a cgroup in which it can
/// make none and the user's systemd gives it one. Else returns why that does not; `None`: none is
/// needed. There must be one thread.
pub fn enter(program: &Path) -> Option<String> {
    let own = cgroup::own().ok().flatten()?;
    if can_divide(&own) {
        return None;
    }
    let name = format!("loopscope-agent-{}", std::process::id());
    if own.file_name() == Some(OsStr::new(&format!("{name}.scope"))) {
        return Some(format!("{} is not this user's to divide", own.display()));
    }
    // systemd-run does not come back, so it is tried out first.
    Some(match try_out() {
        Ok(()) => {
            let arguments = std::env::args_os().skip(1);
            told(&command(&name).arg(program).args(arguments).exec())
        }
        Err(why) => why,
    })
}

/// Why an agent that this process starts would have no cgroup; `None`: it would. `may_enter`: whether
/// it could still start itself anew in a scope.
pub(crate) fn refusal(may_enter: bool) -> Option<String> {
    let own = match cgroup::own() {
        Ok(Some(own)) => own,
        // Root mounts a hierarchy.
        Ok(None) if geteuid().is_root() => return None,
        Ok(None) => return Some("no hierarchy of version 2 is mounted".to_owned()),
        Err(error) => return Some(error.to_string()),
    };
    if can_divide(&own) {
        return None;
    }
    let foreign = "its session's cgroup is another user's";
    match try_out() {
        Ok(()) if may_enter => None,
        Ok(()) => Some(foreign.to_owned()),
        Err(why) => Some(format!("{foreign}; {why}")),
    }
}

/// Whether the user's systemd makes a scope; the error says why it does not.
fn try_out() -> Result<(), String> {
    if !Path::new(BOOTED).is_dir() {
        return Err("no systemd runs there that could make another one".to_owned());
    }
    let name = format!("loopscope-trial-{}", std::process::id());
    match command(&name).arg("true").output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(told(&String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(told(&error)),
    }
}

fn told(what: &dyn Display) -> String {
    format!("{RUN} --user --scope: {what}")
}

/// Whether this user can make groups in a group and move what is in it.
fn can_divide(group: &Path) -> bool {
    let writable = |path: &Path| access(path, AccessFlags::W_OK).is_ok();
    writable(group) && writable(&group.join(cgroup::PROCESSES))
}

/// What runs a command, which is to be added, in a scope of this name.
fn command(name: &str) -> Command {
    let mut command = Command::new(RUN);
    command.args(["--user", "--scope", "--quiet", "--collect", "--property=Delegate=yes"]);
    command.arg(format!("--unit={name}")).arg("--");
    // A session that PAM did not open has no variable.
    let usual = PathBuf::from(format!("/run/user/{}", geteuid()));
    if std::env::var_os(RUNTIME).is_none() && usual.is_dir() {
        command.env(RUNTIME, usual);
    }
    command
}
