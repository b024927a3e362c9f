//! Whether a process runs.

/// When the process of this number started, in clock ticks after boot (`/proc/<pid>/stat`, field
/// 22); `None` if there is none that runs: nobody may have waited for one that has ended.
pub(crate) fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name is in parentheses and may itself contain spaces and parentheses.
    let mut fields = stat[stat.rfind(')')? + 2..].split(' ');
    let state = fields.next()?;
    let start = fields.nth(18)?.parse().ok()?;
    (state != "Z" && state != "X").then_some(start)
}
