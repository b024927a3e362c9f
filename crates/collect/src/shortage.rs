//! What a lack of memory did to a program's recording, in words.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use loopscope_trace::layout::{FILTER_BLOCK, FILTER_BLOCKS, FLIGHT_RECORDER, Stream};

use crate::folder::Folder;
use crate::loss::SiteLoss;

/// The file system that a path is on: where it is mounted. The path's end may be gone: a directory
/// has another name when its recording ends.
fn file_system(path: &Path) -> PathBuf {
    let device = |path: &Path| path.metadata().map(|it| it.dev()).ok();
    let there = path.ancestors().find(|above| device(above).is_some()).unwrap_or(path);
    let mounted = there.ancestors().take_while(|above| device(above) == device(there)).last();
    mounted.unwrap_or(there).to_owned()
}

/// Why something could not be made in `dir`, and what helps.
pub(crate) fn reason(error: i32, dir: &Path) -> String {
    let place = file_system(dir);
    let place = place.display();
    match error {
        0 => "there was no memory for it".to_owned(),
        libc::ENOSPC | libc::EDQUOT => format!(
            "{place} had no room left; make room there (a container's /dev/shm has 64 MiB unless it \
             is started with another --shm-size), or ask for smaller buffers"
        ),
        libc::EFBIG => {
            "the program's limit on the size of files (ulimit -f) is below it; raise it".to_owned()
        }
        libc::EMFILE | libc::ENFILE => {
            "there were too many open files (ulimit -n); raise the limit".to_owned()
        }
        error => format!("{place}: {}", io::Error::from_raw_os_error(error)),
    }
}

/// Why threads had no buffer, and what helps. Where nothing was refused, or there was no directory
/// any more, nothing was short.
fn without_ring(refusal: i32, dir: &Path) -> String {
    match refusal {
        0 | libc::ENOENT => {
            "their threads had their first hit while the recording was about to end, when no buffer \
             is made any more; nothing was short. To have such hits, end the program before its \
             recording, or have its threads call loopscope_thread_init() when they begin"
                .to_owned()
        }
        _ => format!("there was no buffer for their threads: {}", reason(refusal, dir)),
    }
}

/// Hits dropped for a cause, and the call sites that they are of.
fn of_cause(sites: &[SiteLoss], cause: &str) -> (u64, usize) {
    let counts = || sites.iter().filter_map(|site| site.dropped.get(cause));
    (counts().sum(), counts().count())
}

/// What is to be said of a stream of the process `who`, whose directory is `dir`.
pub(crate) fn problems(
    who: &str,
    dir: &Path,
    stream: &Stream,
    uncounted: u64,
    sites: &[SiteLoss],
) -> Vec<String> {
    let refusal = stream.refusal.load(Ordering::Relaxed).cast_signed();
    let mut problems = Vec::new();
    if uncounted > 0 {
        problems.push(format!(
            "{who}: none of its {uncounted} hits was recorded, and which call sites they are of is \
             not known: there was no place for the stream's tables: {}",
            reason(refusal, dir)
        ));
    }
    let (hits, _) = of_cause(sites, "no-ring");
    if hits > 0 {
        problems.push(format!(
            "{who}: {hits} hits were dropped, cause no-ring, because {}",
            without_ring(refusal, dir)
        ));
    }
    let (hits, count) = of_cause(sites, "no-filter");
    if hits > 0 {
        let room = (FILTER_BLOCK * FILTER_BLOCKS) >> 10;
        problems.push(format!(
            "{who}: {hits} hits of {count} call sites were dropped, cause no-filter, because their \
             filters and triggers found no place: all of a stream have {room} KiB in each process, \
             those of one call site 1 KiB; use fewer or shorter conditions, or record fewer entities"
        ));
    }
    let (hits, _) = of_cause(sites, "ring-full");
    let small = stream.small.load(Ordering::Relaxed);
    let flight = stream.kind.load(Ordering::Relaxed) == FLIGHT_RECORDER;
    if small > 0 && (hits > 0 || flight) {
        let effect = if flight { "they hold less" } else { "hits were dropped, cause ring-full" };
        problems.push(format!(
            "{who}: {small} of its buffers were made smaller than asked for, and {effect}: {} had \
             little room; make more there (a container's /dev/shm has 64 MiB unless it is started \
             with another --shm-size)",
            file_system(dir).display()
        ));
    }
    problems
}

/// Why a program could not make what belongs into its process directory: it has left a file that
/// says so.
pub(crate) fn failed(process_dir: &Folder) -> Option<i32> {
    let names = process_dir.names().ok()?.into_iter();
    names.filter_map(|name| name.to_str()?.strip_prefix("failed-")?.parse().ok()).next()
}
