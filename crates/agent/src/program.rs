//! Where a component's program is.

use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};
use thiserror::Error;

/// The name by which experiments call this very binary.
const OWN_NAME: &str = "loopscope-host";

/// Whether a command is this very binary as it impairs what a host sends, by its configuration. No
/// other gets rights that its user does not have: one that moves packets between devices could be
/// told to take any device of the machine.
pub fn is_sender(words: &[String], config_json: &str) -> bool {
    let config: Option<serde_json::Value> = serde_json::from_str(config_json).ok();
    words == [OWN_NAME, "emulate"] && config.is_some_and(|config| config["sender"].is_string())
}

/// Why there is no program to run.
#[derive(Debug, Error)]
pub enum LookupError {
    /// No such file anywhere.
    #[error("no program {program:?}; searched {}", searched.join(", "))]
    NotFound {
        /// The program as written.
        program: String,
        /// Files or folders.
        searched: Vec<String>,
    },
    /// A file, but not one that can be run.
    #[error("{} cannot be executed; chmod +x it, or name its interpreter", .0.display())]
    NotExecutable(PathBuf),
}

/// Finds `program`: absolute as it is, with a slash from `directory`, else along `path` (as in
/// PATH); `loopscope-host` is `own`.
pub fn find(
    program: &str,
    directory: &Path,
    path: &str,
    own: &Path,
) -> Result<PathBuf, LookupError> {
    if program == OWN_NAME {
        return Ok(own.to_owned());
    }
    let (candidates, searched): (Vec<PathBuf>, Vec<String>) = if program.contains('/') {
        let file = directory.join(program);
        (vec![file.clone()], vec![file.display().to_string()])
    } else {
        let folders = path.split(':').map(|folder| directory.join(folder));
        folders.map(|folder| (folder.join(program), folder.display().to_string())).unzip()
    };
    let mut files = candidates.into_iter().filter(|candidate| candidate.is_file());
    let Some(first) = files.next() else {
        return Err(LookupError::NotFound { program: program.to_owned(), searched });
    };
    let runs = |file: &PathBuf| access(file, AccessFlags::X_OK).is_ok();
    if runs(&first) {
        return Ok(first);
    }
    files.find(runs).ok_or(LookupError::NotExecutable(first))
}

/// The words with those after the first that begin with `./` or `../` from `directory`, where the
/// program itself is looked up: the component runs in another folder.
pub fn from_folder(words: Vec<String>, directory: &Path) -> Vec<String> {
    let mut words = words.into_iter();
    let first = words.next();
    let rest = words.map(|word| {
        let is_here = word.starts_with("./") || word.starts_with("../");
        if !is_here {
            return word;
        }
        let within = word.strip_prefix("./").unwrap_or(&word);
        directory.join(within).display().to_string()
    });
    first.into_iter().chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_a_sender_of_links_gets_rights() {
        let is = |words: &[&str], config| {
            is_sender(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>(), config)
        };
        let sender = r#"{"sender": "h1"}"#;
        assert!(is(&["loopscope-host", "emulate"], sender));
        assert!(!is(&["loopscope-host", "emulate"], "{}"));
        assert!(!is(&["loopscope-host", "emulate", "--report", "x"], sender));
        assert!(!is(&["loopscope-host", "record"], sender));
        assert!(!is(&["./loopscope-host", "emulate"], sender));
    }

    #[test]
    fn paths_that_begin_here_begin_in_the_folder() {
        let words = ["./a", "./b.py", "../c", "-o", "d", ".e", "--f=./g"].map(str::to_owned);
        let found = from_folder(words.to_vec(), Path::new("/x/y"));
        assert_eq!(found, ["./a", "/x/y/b.py", "/x/y/../c", "-o", "d", ".e", "--f=./g"]);
    }

    #[test]
    fn the_path_is_searched_in_order_for_what_can_be_run() {
        let folder = tempfile::tempdir().unwrap();
        for (name, mode) in [("a", 0o644), ("b", 0o755), ("c", 0o755)] {
            fs::create_dir(folder.path().join(name)).unwrap();
            let file = folder.path().join(name).join("tool");
            fs::write(&file, "").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        }
        let find = |program, path| find(program, folder.path(), path, Path::new("/own"));
        assert_eq!(find("tool", "none:a:b:c").unwrap(), folder.path().join("b/tool"));
        assert_eq!(find("./c/tool", "b").unwrap(), folder.path().join("./c/tool"));
        assert!(matches!(find("tool", "a"), Err(LookupError::NotExecutable(_))));
        assert_eq!(find("loopscope-host", "").unwrap(), Path::new("/own"));
        let error = find("tool", "none:/no/where").unwrap_err().to_string();
        assert!(error.contains("\"tool\"") && error.contains("/no/where"), "{error}");
        // A directory is no program.
        assert!(matches!(find("./a", ""), Err(LookupError::NotFound { .. })));
    }
}
