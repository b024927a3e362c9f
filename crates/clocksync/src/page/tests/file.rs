//! What becomes of the file, and of its readers, when writers come and go.

use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use loopscope_clock::layout::LEASE_SHIFT;
use loopscope_clock::{Page, Status, Time, Utc};
use loopscope_time::source::{CounterKind, counter_kind};
use loopscope_time::{Counter, Frequency};

use super::{SERVICE, state, writer};
use crate::page::{PageError, PageWriter, Role, Service};
use crate::state::State;
use crate::utc::Standing;

fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("page");
    (directory, path)
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    let mut file = fs::File::options().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(bytes).unwrap();
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

#[test]
fn all_may_read_it_and_it_says_what_it_was_told() {
    let (_directory, path) = place();
    let mut writer = writer(&path);
    let page = Page::open(Some(&path)).unwrap();
    assert_eq!(page.map(state().anchor).status, Status::Unknown, "nothing is published yet");
    assert_eq!((page.writer(), writer.epoch()), (None, None));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);

    let utc = Utc { offset_ns: -37, error_ns: 2_000_000 };
    let standing = Standing::Known { offset_ns: -37, error_ns: 2_000_000, stratum: 3 };
    let service = Service { role: Role::Reference, utc: standing };
    writer.publish(&state(), service).unwrap();
    let time = page.map(state().anchor);
    assert_eq!(
        (time.best.0, time.earliest.0, time.latest.0),
        (5_000_000_000, 4_999_999_877, 5_000_000_082)
    );
    assert_eq!((time.calibrated_ns, time.epoch), (31, 3));
    assert_eq!(page.utc(), Some(utc));
    assert_eq!(page.words().and_then(|words| Service::of(&words)), Some(service));
    assert_eq!(page.frequency(), Frequency::from_hz(2_600_000_000));
    assert_eq!(page.writer().unwrap().pid, std::process::id());
    let start = fs::read_to_string("/proc/self/stat").unwrap();
    assert!(start.contains(&format!(" {} ", page.writer().unwrap().start)));

    writer.publish(&State { status: Status::Holdover, ..state() }, SERVICE).unwrap();
    assert_eq!((page.map(state().anchor).status, page.utc()), (Status::Holdover, None));
    assert_eq!(page.words().and_then(|words| Service::of(&words)), Some(SERVICE));
}

#[test]
fn it_expires_and_does_not_reach_for_ever() {
    let (_directory, path) = place();
    // The largest distance from zero that a line reaches.
    let later = |counter: Counter| Counter(counter.0 + (1 << 47));
    let State { anchor, stale, expires, .. } = state();
    let [anchor, stale, expires] = [anchor, stale, expires].map(later);
    writer(&path).publish(&State { anchor, stale, expires, ..state() }, SERVICE).unwrap();
    let page = Page::open(Some(&path)).unwrap();
    let status = |counter: u64| page.map(Counter(counter)).status;
    let unit = 1 << LEASE_SHIFT;
    assert_eq!(status(stale.0 - unit), Status::Synchronised);
    assert_eq!(status(stale.0), Status::Holdover);
    assert_eq!(status(expires.0 - 1), Status::Holdover);
    let unknown = page.map(expires);
    assert_eq!(unknown.status, Status::Unknown);
    assert_eq!((unknown.earliest.0, unknown.latest.0), (i64::MIN, i64::MAX));
    assert_eq!(status(anchor.0.wrapping_sub((1 << 47) - 1)), Status::Synchronised);
    assert_eq!(status(anchor.0.wrapping_sub(1 << 47)), Status::Unknown);
    // Half of all counters are after it, half before.
    assert_eq!(status(anchor.0 ^ 1 << 63), Status::Unknown);
}

/// A counter that was read before a clock was disturbed has no time, and no distance to a later
/// one.
#[test]
fn what_was_before_a_disturbance_is_unknown() {
    let (_directory, path) = place();
    let mut writer = writer(&path);
    let anchor = state().anchor.0;
    writer.publish(&state(), SERVICE).unwrap();
    let page = Page::open(Some(&path)).unwrap();
    let read = Counter(anchor - 1000);
    assert_eq!(page.map(read).status, Status::Synchronised);
    // The line is of the epoch that began 100 ticks ago.
    let since = Counter(anchor - 100);
    writer.publish(&State { epoch: state().epoch + 1, since, ..state() }, SERVICE).unwrap();
    let [before, first, now] = [read.0, since.0, anchor].map(|at| page.map(Counter(at)));
    assert_eq!((before.status, before.epoch), (Status::Unknown, 0));
    assert_eq!(page.map(Counter(since.0 - 1)).status, Status::Unknown);
    assert_eq!((first.status, now.status), (Status::Synchronised, Status::Synchronised));
    assert!(page.elapsed(&first, &now).is_some());
    // A made-up time that looks like one of the epoch has no duration either.
    assert_eq!(page.elapsed(&Time { counter: read, ..first }, &now), None);
}

#[test]
fn instants_of_another_epoch_have_no_distance() {
    let (_directory, path) = place();
    let mut writer = writer(&path);
    writer.publish(&state(), SERVICE).unwrap();
    let page = Page::open(Some(&path)).unwrap();
    let (from, to) = (page.map(state().anchor), page.map(Counter(state().anchor.0 + 2000)));
    let span = page.elapsed(&from, &to).unwrap();
    assert_eq!((span.shortest, span.best, span.longest), (998, 1000, 1002));
    writer.publish(&State { epoch: 4, ..state() }, SERVICE).unwrap();
    assert_eq!(page.elapsed(&from, &to), None);
    assert_eq!(page.elapsed(&from, &page.map(state().anchor)), None);
}

#[test]
fn there_is_one_writer() {
    let (_directory, path) = place();
    let first = writer(&path);
    let frequency = Frequency::from_hz(2_600_000_000).unwrap();
    let error = PageWriter::create(&path, frequency).unwrap_err();
    assert!(matches!(error, PageError::Taken { .. }), "{error}");
    drop(first);
    PageWriter::create(&path, frequency).unwrap();
}

/// Its counters are another clock's, although nothing else differs.
#[test]
fn a_page_of_the_other_counter_is_replaced() {
    let (_directory, path) = place();
    let mut first = writer(&path);
    first.publish(&state(), SERVICE).unwrap();
    drop(first);
    let other = CounterKind::ALL.into_iter().find(|kind| *kind != counter_kind()).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&(other as u64).to_le_bytes(), 48).unwrap();
    let page = Page::open(Some(&path)).unwrap();
    assert_eq!(page.counter_kind(), Some(other));
    let mut next = writer(&path);
    next.publish(&state(), SERVICE).unwrap();
    assert_eq!(page.map(state().anchor).status, Status::Unknown);
    let page = Page::open(Some(&path)).unwrap();
    assert_eq!(page.counter_kind(), Some(counter_kind()));
    assert_eq!(page.map(state().anchor).status, Status::Synchronised);
}

/// Readers that have it mapped go on with what the next writer says.
#[test]
fn a_writer_takes_over_what_another_left() {
    let (_directory, path) = place();
    let mut first = writer(&path);
    first.publish(&state(), SERVICE).unwrap();
    let page = Page::open(Some(&path)).unwrap();
    drop(first);
    assert_eq!(page.map(state().anchor).epoch, 3, "it holds until it expires");
    let before = inode(&path);
    let mut second = writer(&path);
    assert_eq!((second.epoch(), inode(&path)), (Some(3), before));
    assert_eq!(page.map(state().anchor).epoch, 3);
    second.publish(&State { epoch: 4, ..state() }, SERVICE).unwrap();
    assert_eq!(page.map(state().anchor).epoch, 4);
}

#[test]
fn a_retired_page_is_gone_at_once() {
    let (directory, path) = place();
    let mut first = writer(&path);
    first.publish(&state(), SERVICE).unwrap();
    let page = Page::open(Some(&path)).unwrap();
    first.retire().unwrap();
    assert_eq!(page.map(state().anchor).status, Status::Unknown);
    assert_eq!(names(directory.path()), Vec::<String>::new());
    let mut second = writer(&path);
    second.publish(&state(), SERVICE).unwrap();
    assert_eq!(second.epoch(), Some(3));
    assert_eq!(page.map(state().anchor).status, Status::Unknown, "it is another file");
}

/// A page of another boot, another version, or a counter with another rate.
#[test]
fn what_cannot_be_gone_on_with_is_replaced() {
    for (at, bytes) in [(16, [0xee; 8]), (8, [9, 0, 0, 0, 0, 16, 0, 0]), (32, [1; 8])] {
        let (directory, path) = place();
        let mut first = writer(&path);
        first.publish(&state(), SERVICE).unwrap();
        let page = Page::open(Some(&path)).unwrap();
        drop(first);
        overwrite(&path, at, &bytes);
        let before = inode(&path);
        let mut second = writer(&path);
        assert_ne!(inode(&path), before, "byte {at}");
        assert_eq!(names(directory.path()), ["page", "page.lock"]);
        assert_eq!(second.epoch(), None);
        second.publish(&State { epoch: 9, ..state() }, SERVICE).unwrap();
        assert_eq!(Page::open(Some(&path)).unwrap().map(state().anchor).epoch, 9);
        // Nothing may be written to a page of an unknown version.
        let now = page.map(state().anchor).status;
        assert_eq!(now, if at == 8 { Status::Synchronised } else { Status::Unknown });
    }
}

#[test]
fn readers_say_what_is_wrong_with_a_file() {
    let (_directory, path) = place();
    let refusal = |path: &Path| Page::open(Some(path)).unwrap_err().to_string();
    assert!(refusal(&path).ends_with("page: No such file or directory"), "{}", refusal(&path));
    drop(writer(&path));
    Page::open(Some(&path)).unwrap();
    overwrite(&path, 16, &[0xee]);
    assert!(refusal(&path).contains("earlier boot"), "{}", refusal(&path));
    overwrite(&path, 8, &[1]);
    assert!(refusal(&path).contains("another version"), "{}", refusal(&path));
    overwrite(&path, 0, b"x");
    assert!(refusal(&path).contains("no clock page"), "{}", refusal(&path));
    fs::write(&path, "LSCLOCK1").unwrap();
    assert!(refusal(&path).contains("no clock page"), "{}", refusal(&path));
    assert!(refusal(Path::new("/dev/null")).contains("no clock page"));
}

#[test]
fn a_file_that_is_no_page_is_left_alone() {
    let (_directory, path) = place();
    fs::write(&path, "a letter").unwrap();
    let error = PageWriter::create(&path, Frequency::from_hz(1).unwrap()).unwrap_err();
    assert!(matches!(error, PageError::Foreign { .. }), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "a letter");
    // A killed writer's unfinished page is no obstacle.
    let (_directory, path) = place();
    fs::write(path.with_extension("new"), "half").unwrap();
    writer(&path);
}

/// Whatever another user has made under the names next to the page, the service starts.
#[test]
fn nobody_else_can_keep_the_service_from_starting() {
    if !nix::unistd::geteuid().is_root() {
        crate::stamp::skip::skipped("needs root to make another user's files");
        return;
    }
    use std::os::unix::fs::{chown, lchown, symlink};

    let (directory, path) = place();
    let names = ["page", "page.lock", "page.new"].map(|name| directory.path().join(name));
    let mut held = Vec::new();
    for name in &names {
        fs::write(name, "").unwrap();
        chown(name, Some(65534), None).unwrap();
        let lock = nix::fcntl::FlockArg::LockExclusiveNonblock;
        held.push(nix::fcntl::Flock::lock(fs::File::open(name).unwrap(), lock).unwrap());
    }
    drop(writer(&path));
    for name in &names {
        fs::remove_file(name).ok();
        symlink("/etc/passwd", name).unwrap();
        lchown(name, Some(65534), None).unwrap();
    }
    drop(writer(&path));
    for name in &names {
        fs::remove_file(name).ok();
        fs::create_dir(name).unwrap();
        chown(name, Some(65534), None).unwrap();
    }
    drop(writer(&path));
    let full = |name: &Path| {
        fs::remove_file(name).ok();
        fs::create_dir_all(name.join("full")).unwrap();
        chown(name, Some(65534), None).unwrap();
    };
    // One that is not empty is put aside as it is.
    names.iter().for_each(|name| full(name));
    drop(writer(&path));
    let aside =
        |entry: &fs::DirEntry| entry.file_name().to_string_lossy().contains(".of-user-65534-");
    let kept: Vec<fs::DirEntry> =
        fs::read_dir(directory.path()).unwrap().map(Result::unwrap).filter(aside).collect();
    assert_eq!(kept.len(), names.len(), "{kept:?}");
    assert!(kept.iter().all(|entry| entry.path().join("full").is_dir()), "{kept:?}");
    // One that cannot be, here because its name would be too long, is named, with its owner.
    let long = directory.path().join("p".repeat(245));
    full(&long.with_extension("lock"));
    let frequency = Frequency::from_hz(2_600_000_000).unwrap();
    let error = PageWriter::create(&long, frequency).unwrap_err().to_string();
    assert!(error.contains("user 65534 has made") && error.contains("p.lock"), "{error}");
    drop(held);
}
