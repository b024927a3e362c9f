//! Settings of the machine that get another value: recorded with the value before, and set.

use std::io;
use std::path::Path;
use std::sync::PoisonError;

use nix::errno::Errno;

use super::{Entry, Ledger, LedgerError, read};
use crate::setting::{self, Setting, is_same};

impl Ledger {
    /// Gives a setting of the machine another value, after recording it and the one before. A
    /// setting that could not get its value back, or that does not become what was asked for, is
    /// left as it was.
    pub fn set(&self, setting: &Setting, value: &str) -> Result<(), LedgerError> {
        let failed = |error: io::Error| {
            // An error of rtnetlink has words in place of its number.
            let denied = error.kind() == io::ErrorKind::PermissionDenied;
            let errno = error.raw_os_error().or(denied.then_some(Errno::EPERM as i32));
            let reason = setting::reason(&error);
            LedgerError::Set { what: setting.describe(), reason, errno }
        };
        self.own_settings(setting)?;
        let before = setting.read().map_err(failed)?;
        if is_same(&before, value) {
            return Ok(());
        }
        // The kernel may refuse a value that it has by itself, such as 0 of vm.dirty_bytes.
        setting.write(&before).map_err(failed)?;
        let (own, set) = (setting.clone(), value.to_owned());
        let entry = Entry::Setting { setting: own, before: before.clone(), set };
        self.record(&entry)?;
        if let Err(error) = setting.write(value) {
            self.disown(&entry)?;
            return Err(failed(error));
        }
        // What it has is what it is known by.
        let now = setting.read().map_err(failed)?;
        if !is_same(&now, value) {
            setting.write(&before).map_err(failed)?;
            self.disown(&entry)?;
            let (what, value) = (setting.describe(), value.to_owned());
            return Err(LedgerError::Changed { what, value, became: now });
        }
        Ok(())
    }

    /// Records that a setting of the machine with the value `before` is about to get the value
    /// `set`.
    pub(crate) fn record_setting(
        &self,
        setting: &Setting,
        before: &str,
        set: &str,
    ) -> Result<(), LedgerError> {
        self.own_settings(setting)?;
        let (setting, before, set) = (setting.clone(), before.to_owned(), set.to_owned());
        self.record(&Entry::Setting { setting, before, set })
    }

    /// Takes the right to change settings of this machine until the ledger is undone. Refused while
    /// another run has it: each would take the other's value for the machine's own.
    fn own_settings(&self, setting: &Setting) -> Result<(), LedgerError> {
        let refused = |reason: &str| LedgerError::Set {
            what: setting.describe(),
            reason: reason.to_owned(),
            errno: None,
        };
        if !setting.is_ours() {
            return Err(refused("loopscope does not change this"));
        }
        // The process that undoes the ledger is not in a host's network namespace, where it may be another.
        if !self.is_owner {
            return Err(refused("a host of a local testbed has nothing to do with the machine's"));
        }
        let mut machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        if machine.is_none() {
            *machine = setting::lock_machine().map_err(|error| refused(&error.to_string()))?;
        }
        if machine.is_none() {
            return Err(refused(
                "another run has changed settings of this machine; try again when it has ended",
            ));
        }
        Ok(())
    }
}

/// Settings of the machine that the run of a ledger has changed: what each is called, its value
/// before and the one that it was given.
pub(crate) fn changed_settings(ledger: &Path) -> Vec<[String; 3]> {
    let (entries, _) = read(ledger).unwrap_or_default();
    let changed = entries.into_iter().filter_map(|entry| match entry {
        Entry::Setting { setting, before, set } => Some([setting.describe(), before, set]),
        _ => None,
    });
    changed.collect()
}
