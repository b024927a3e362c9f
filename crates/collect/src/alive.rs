//! Whether a process runs.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt as _;

use loopscope_trace::configure::heir;
use loopscope_trace::layout::Control;

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

/// Whether forked children of a process that has ended use its directory still: see [`heir`].
pub(crate) fn has_heirs(control: &Control, process_dir: &OsStr) -> bool {
    let name = CString::new(process_dir.as_bytes()).ok();
    name.is_some_and(|name| heir(control, &name).is_some())
}
