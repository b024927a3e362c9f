//! A thread that writes, syncs and reads a file on a disk.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use loopscope_trace::interval;
use nix::fcntl::{OFlag, PosixFadviseAdvice, posix_fadvise};
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use serde::Serialize;

use crate::stop::Stop;

/// Bytes of a read or write.
pub(super) const BLOCK: usize = 64 << 10;

/// Blocks written before each sync, and read after it.
const BATCH: u64 = 16;

/// What came of it.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Disk {
    pub(super) written_bytes: u64,
    pub(super) read_bytes: u64,
    pub(super) syncs: u64,
    pub(super) sync_s: f64,
    pub(super) longest_sync_s: f64,
    pub(super) wall_s: f64,
}

/// A file without a name in `directory`: it is gone with its last user.
pub(super) fn nameless(directory: &Path) -> Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlag::O_TMPFILE.bits())
        .mode(0o600)
        .open(directory);
    file.with_context(|| {
        format!(
            "cannot make a nameless file (O_TMPFILE) in {}; name a directory on ext4, xfs or btrfs \
             that can be written to",
            directory.display()
        )
    })
}

/// The same, on something that is a disk.
pub(super) fn on_disk(directory: &Path) -> Result<File> {
    let file = nameless(directory)?;
    if fstatfs(&file).context("cannot ask for the file system")?.filesystem_type() == TMPFS_MAGIC {
        bail!("{} is a tmpfs, which is memory; name a directory on a disk", directory.display());
    }
    Ok(file)
}

/// Writes and reads at random places of `file`'s first `size` bytes, at `rate` each.
pub(super) fn load(
    file: &File,
    size: u64,
    rate: Option<u64>,
    seed: u64,
    end: Option<Instant>,
    stop: &Stop,
) -> Result<Disk> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut block = vec![0; BLOCK];
    random.fill(&mut block);
    let blocks = size / BLOCK as u64;
    let begin = Instant::now();
    let mut disk = Disk::default();
    let over = || stop.is_set() || end.is_some_and(|end| Instant::now() >= end);
    while !over() {
        for _ in 0..BATCH.min(blocks) {
            let at = random.u64(..blocks) * BLOCK as u64;
            file.write_all_at(&block, at).map_err(|error| full(error, size))?;
            disk.written_bytes += BLOCK as u64;
        }
        sync(file, &mut disk)?;
        // Out of the page cache, so that the reads go to the disk.
        posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)
            .context("cannot empty the page cache of the file")?;
        let length = file.metadata().context("cannot look at the file")?.len();
        for _ in 0..BATCH.min(blocks) {
            let at = random.u64(..length.div_ceil(BLOCK as u64)) * BLOCK as u64;
            file.read_exact_at(&mut block, at).context("cannot read the file")?;
            disk.read_bytes += BLOCK as u64;
        }
        if let Some(rate) = rate {
            let due = begin + Duration::from_secs_f64(disk.written_bytes as f64 / rate as f64);
            stop.sleep_until(end.map_or(due, |end| due.min(end)))?;
        }
    }
    disk.wall_s = begin.elapsed().as_secs_f64();
    Ok(disk)
}

fn sync(file: &File, disk: &mut Disk) -> Result<()> {
    let begin = Instant::now();
    let whole = interval!("burn", "sync", disk.syncs + 1);
    file.sync_all().context("cannot sync the file")?;
    drop(whole);
    let took = begin.elapsed().as_secs_f64();
    disk.syncs += 1;
    disk.sync_s += took;
    disk.longest_sync_s = disk.longest_sync_s.max(took);
    Ok(())
}

fn full(error: io::Error, size: u64) -> anyhow::Error {
    let space = error.kind() == io::ErrorKind::StorageFull;
    let error = anyhow::Error::from(error);
    if space {
        return error.context(format!("no room for {size} B; take a smaller `disk-size`"));
    }
    error.context("cannot write the file")
}
