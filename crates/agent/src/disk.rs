//! Room on the disk of a host's folder: an event, once, when there is none while the run goes on.
//!
//! The hosts of a local testbed share a disk, at which the controller looks itself.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::statvfs::statvfs;
use nix::unistd::geteuid;

use crate::events::EventSender;
use crate::proto::{DiskFull, event::What};

const LOOK: Duration = Duration::from_secs(1);
/// A disk with less room is full: packets of streams and pages of kernels' buffers are as large.
const LEAST: u64 = 1 << 20;

/// Looks at the disk of `folder` every second, until it has reported that it is full.
pub(crate) async fn watch(folder: PathBuf, sender: EventSender) {
    loop {
        let folder = folder.clone();
        // A disk elsewhere may not answer for long.
        let left = tokio::task::spawn_blocking(move || room(&folder)).await.ok().flatten();
        if let Some(left_bytes) = left.filter(|&left| left < LEAST) {
            sender.send(What::DiskFull(DiskFull { left_bytes }));
            return;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Bytes that there is room for; `None`: that is unknown, or without a limit.
fn room(folder: &Path) -> Option<u64> {
    let status = statvfs(folder).ok()?;
    let root = geteuid().is_root();
    let blocks = if root { status.blocks_free() } else { status.blocks_available() };
    (status.blocks() != 0).then(|| blocks * status.fragment_size())
}
