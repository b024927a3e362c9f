//! Core dumps: where the kernel has put the one of a program.

use std::fs;
use std::path::Path;

/// Where the core dump of process `pid` is, for people: a file in the component's `folder`, in whose
/// `files` it ran, or what `core_pattern` does with it (core(5)).
pub(crate) fn place(folder: &Path, pid: i32) -> String {
    match fs::read_to_string("/proc/sys/kernel/core_pattern") {
        Ok(pattern) => described(folder, pid, pattern.trim()),
        Err(error) => format!("cannot read kernel.core_pattern: {error}"),
    }
}

fn described(folder: &Path, pid: i32, pattern: &str) -> String {
    if let Some(program) = pattern.strip_prefix('|') {
        let hint = if program.contains("systemd-coredump") {
            format!("; to see it: coredumpctl info {pid}")
        } else {
            String::new()
        };
        return format!("given to {program} by kernel.core_pattern{hint}");
    }
    // Most patterns have the number in the name, and kernel.core_uses_pid adds it.
    let names =
        [pattern.to_owned(), format!("{pattern}.{pid}"), pattern.replace("%p", &pid.to_string())];
    match names
        .iter()
        .find(|name| !name.starts_with('/') && folder.join("files").join(name).is_file())
    {
        Some(name) => format!("files/{name}"),
        None => format!("where kernel.core_pattern says: {pattern}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_is_found_where_the_pattern_puts_it() {
        let folder = tempfile::tempdir().unwrap();
        let files = folder.path().join("files");
        fs::create_dir(&files).unwrap();
        let of = |pattern| described(folder.path(), 31, pattern);
        assert_eq!(of("core"), "where kernel.core_pattern says: core");
        fs::write(files.join("core.31"), "").unwrap();
        assert_eq!(of("core"), "files/core.31");
        assert_eq!(of("core.%p"), "files/core.31");
        assert_eq!(of("/var/%p"), "where kernel.core_pattern says: /var/%p");
        assert_eq!(of("|/lib/helper %p"), "given to /lib/helper %p by kernel.core_pattern");
        assert!(of("|/lib/systemd/systemd-coredump %p").ends_with("coredumpctl info 31"));
    }
}
