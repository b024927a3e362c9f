//! How much memory a new channel may take: what the machine has available, and this process's cgroups
//! allow.

use std::fs;
use std::path::{Path, PathBuf};

/// The bytes that can be taken now, as far as the kernel tells; None where it does not.
pub(crate) fn available() -> Option<u64> {
    let limits = cgroups().into_iter().filter_map(|group| left(&group));
    limits.chain(machine(&fs::read_to_string("/proc/meminfo").ok()?)).min()
}

/// `MemAvailable` of proc_meminfo(5).
fn machine(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// This process's cgroup of memory and those that it is in, of version 2 or 1.
fn cgroups() -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let groups = text.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let root = match controllers {
            "" => "/sys/fs/cgroup",
            _ if controllers.split(',').any(|each| each == "memory") => "/sys/fs/cgroup/memory",
            _ => return None,
        };
        let path = Path::new(path.trim_start_matches('/'));
        Some(path.ancestors().map(|each| Path::new(root).join(each)).collect::<Vec<_>>())
    });
    groups.flatten().collect()
}

/// What a cgroup has left of its limit; None without a limit.
fn left(group: &Path) -> Option<u64> {
    let number = |name: &str| -> Option<u64> {
        fs::read_to_string(group.join(name)).ok()?.trim().parse().ok()
    };
    let of = |limit: &str, used: &str| Some(number(limit)?.saturating_sub(number(used)?));
    of("memory.max", "memory.current")
        .or_else(|| of("memory.limit_in_bytes", "memory.usage_in_bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_machine_has_is_read() {
        assert_eq!(machine("MemTotal: 8 kB\nMemAvailable:   3 kB\n"), Some(3072));
        assert_eq!(machine("MemTotal: 8 kB\n"), None);
        assert!(available().is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn a_limit_counts_less_what_is_used() {
        let folder = std::env::temp_dir().join(format!("loopscope-room-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        assert_eq!(left(&folder), None);
        write("memory.limit_in_bytes", "1000\n");
        write("memory.usage_in_bytes", "300\n");
        assert_eq!(left(&folder), Some(700));
        write("memory.current", "600\n");
        write("memory.max", "max\n");
        assert_eq!(left(&folder), Some(700));
        write("memory.max", "500\n");
        assert_eq!(left(&folder), Some(0));
        fs::remove_dir_all(folder).unwrap();
    }
}
