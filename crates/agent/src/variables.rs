//! A component's environment variables.

use std::collections::BTreeMap;
use std::path::Path;

use crate::account::Account;

/// The path where none is inherited or given.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The path of what has more rights than its user: only root changes what is there.
const ROOTS_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// The variables of what has more rights than its user. None is the user's, because some load code
/// into a program (`LD_PRELOAD`) or choose which program it starts (`PATH`).
pub(crate) fn of_rights(state_dir: &Path) -> BTreeMap<String, String> {
    let state_dir = state_dir.display().to_string();
    [("PATH", ROOTS_PATH.to_owned()), ("LOOPSCOPE_STATE_DIR", state_dir)]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
}

/// This process's variables, without those that are not UTF-8.
pub(crate) fn of_process() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Where the variables of a component come from, the later before the earlier.
pub(crate) struct Sources<'a> {
    /// Names, and beginnings of names with `*` behind, of the agent's own variables.
    pub(crate) inherit: &'a [String],
    /// A user has its own home and names.
    pub(crate) account: Option<&'a Account>,
    /// Variables that the experiment file gives the component.
    pub(crate) given: BTreeMap<String, String>,
    /// Where this very binary is; at the end of the path.
    pub(crate) own_folder: Option<&'a Path>,
}

impl Sources<'_> {
    /// All variables of the component; `PATH` is always one.
    pub(crate) fn variables(
        self,
        own: impl Iterator<Item = (String, String)>,
    ) -> BTreeMap<String, String> {
        let mut variables: BTreeMap<String, String> =
            own.filter(|(name, _)| matches(self.inherit, name)).collect();
        if let Some(account) = self.account {
            for name in ["USER", "LOGNAME"] {
                variables.insert(name.to_owned(), account.name.clone());
            }
            variables.insert("HOME".to_owned(), account.home.display().to_string());
            variables.insert("SHELL".to_owned(), account.shell.display().to_string());
        }
        variables.extend(self.given);
        let path = variables.entry("PATH".to_owned()).or_insert_with(|| PATH.to_owned());
        if let Some(folder) = self.own_folder {
            // So that a shell line finds it too; last, so that it hides nothing.
            *path = format!("{path}:{}", folder.display());
        }
        variables
    }
}

fn matches(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => pattern == name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(of: &[(&str, &str)]) -> BTreeMap<String, String> {
        of.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn only_what_is_named_is_inherited_and_what_is_given_wins() {
        let own = texts(&[("A", "1"), ("LC_ALL", "C"), ("LC_TIME", "C"), ("SECRET", "x")]);
        let inherit = ["A", "LC_*", "MISSING"].map(str::to_owned);
        let given = texts(&[("A", "2")]);
        let folder = Some(Path::new("/own"));
        let sources = Sources { inherit: &inherit, account: None, given, own_folder: folder };
        let path = format!("{PATH}:/own");
        let wanted = texts(&[("A", "2"), ("LC_ALL", "C"), ("LC_TIME", "C"), ("PATH", &path)]);
        assert_eq!(sources.variables(own.into_iter()), wanted);
    }
}
