//! tracefs: instances of the kernel's tracing, each with buffers of its own
//! (Documentation/trace/ftrace.rst, "Instances").

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use loopscope_time::source::CounterKind;
use nix::libc::O_NONBLOCK;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::statfs::{TRACEFS_MAGIC, statfs};

/// Where tracefs is mounted; `None`: nowhere that this process sees, except on a folder that
/// another run has made, which goes with it (its name begins with `ls-`).
pub fn find() -> io::Result<Option<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    Ok(mounted(&mounts).find(|point| has_instances(point)))
}

/// The mounts of tracefs in the text of `/proc/self/mountinfo` (proc(5)).
fn mounted(mounts: &str) -> impl Iterator<Item = PathBuf> {
    mounts.lines().filter_map(|line| {
        let (mount, source) = line.split_once(" - ")?;
        let point = mount.split(' ').nth(4)?;
        // A blank in a path is written `\040`.
        let lasts = !point.contains('\\') && !point.contains("/ls-");
        (source.split(' ').next() == Some("tracefs") && lasts).then(|| PathBuf::from(point))
    })
}

fn has_instances(point: &Path) -> bool {
    point.join("instances").is_dir()
}

/// Mounts tracefs on `point`, a folder.
pub fn mount_on(point: &Path) -> io::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    Ok(mount(Some("tracefs"), point, Some("tracefs"), flags, None::<&str>)?)
}

/// Takes it off again; `false` if tracefs is not mounted there.
pub fn unmount(point: &Path) -> io::Result<bool> {
    if !is_tracefs(point) || !has_instances(point) {
        return Ok(false);
    }
    umount2(point, MntFlags::MNT_DETACH)?;
    Ok(true)
}

/// Whether a folder is in a tracefs.
pub fn is_tracefs(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| found.filesystem_type() == TRACEFS_MAGIC)
}

/// Whether no tracepoint is enabled, but for those of instances whose names begin with `own`.
pub fn nobody_traces(tracefs: &Path, own: &str) -> Result<bool, TracefsError> {
    let folder = tracefs.join("instances");
    let entries = fs::read_dir(&folder).map_err(failed("read", &folder))?;
    let others = entries.filter_map(|entry| {
        let entry = entry.ok()?;
        (!entry.file_name().to_string_lossy().starts_with(own)).then(|| entry.path())
    });
    for place in others.chain([tracefs.to_owned()]) {
        match fs::read(place.join("set_event")) {
            Ok(enabled) if enabled.is_empty() => {}
            Ok(_) => return Ok(false),
            // It was removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("read", &place.join("set_event"))(error)),
        }
    }
    Ok(true)
}

/// Why kernel events cannot be recorded as asked.
#[derive(Debug, thiserror::Error)]
pub enum TracefsError {
    /// A file of tracefs.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// `read`, `write` …
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The clock.
    #[error(
        "this kernel's tracing has no clock {clock}, which the host's events are stamped by \
         (it has: {found}); with `counter: monotonic-raw` for the host they are stamped by mono_raw"
    )]
    NoClock {
        /// The clock that is needed.
        clock: &'static str,
        /// Those that the kernel has.
        found: String,
    },
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> TracefsError {
    let path = path.to_owned();
    move |source| TracefsError::File { what, path, source }
}

fn read(path: &Path) -> Result<String, TracefsError> {
    fs::read_to_string(path).map_err(failed("read", path))
}

fn write(path: &Path, text: &str) -> Result<(), TracefsError> {
    let mut file = OpenOptions::new().write(true).open(path).map_err(failed("write", path))?;
    file.write_all(text.as_bytes()).map_err(failed("write", path))
}

/// The kernel's name of the clock that is a counter of loopscope's, tick for tick.
pub fn clock_of(counter: CounterKind) -> &'static str {
    match counter {
        CounterKind::MonotonicRaw => "mono_raw",
        CounterKind::Cycles => "x86-tsc",
    }
}

/// What the pages of this kernel look like: the text of `events/header_page`.
pub fn header_page(tracefs: &Path) -> Result<String, TracefsError> {
    read(&tracefs.join("events/header_page"))
}

/// The description of a tracepoint; `None`: this kernel has none of that name. `event`:
/// `GROUP/NAME`.
pub fn format(tracefs: &Path, event: &str) -> Result<Option<String>, TracefsError> {
    let path = tracefs.join("events").join(event).join("format");
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", &path)(error)),
    }
}

/// An instance: events that are chosen for it go to its own buffers, one for each processor.
#[derive(Debug)]
pub struct Instance {
    folder: PathBuf,
}

/// Counts of a buffer, as the kernel has them in `per_cpu/cpuN/stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events in it now.
    pub held: u64,
    /// Events that newer ones have replaced.
    pub overwritten: u64,
    /// Events that found no room in it, in whatever way.
    pub dropped: u64,
    /// Events that were read.
    pub read: u64,
}

impl Instance {
    /// Makes the folder `folder`, which is in `instances/` of a tracefs.
    pub fn make(folder: &Path) -> io::Result<()> {
        fs::create_dir(folder)
    }

    /// Removes it; `false` if it is not there. Nobody may have a file of it open.
    pub fn remove(folder: &Path) -> io::Result<bool> {
        match fs::remove_dir(folder) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The one in `folder`, set up and recording nothing: events are stamped by `counter`, each
    /// processor has `buffer` bytes at least, and what finds no room in it is dropped.
    pub fn set_up(
        folder: &Path,
        counter: CounterKind,
        buffer: u64,
    ) -> Result<Instance, TracefsError> {
        let instance = Instance { folder: folder.to_owned() };
        instance.write("tracing_on", "0")?;
        let clock = clock_of(counter);
        let clocks = read(&folder.join("trace_clock"))?;
        let mut known = clocks.split_whitespace().map(|name| name.trim_matches(['[', ']']));
        if !known.any(|name| name == clock) {
            let found = clocks.trim().replace(['[', ']'], "");
            return Err(TracefsError::NoClock { clock, found });
        }
        instance.write("trace_clock", clock)?;
        instance.write("options/overwrite", "0")?;
        instance.write("buffer_size_kb", &buffer.div_ceil(1024).to_string())?;
        Ok(instance)
    }

    /// Has the kernel not keep threads' names for it, which the events have themselves: it does so
    /// under a lock, in probes of its own on each switch and wake-up. The kernel then stops it for
    /// all that is being traced, so only where [`nobody_traces`].
    pub fn keep_no_names(&self) -> Result<(), TracefsError> {
        // The instance's `options` do not have this one.
        self.write("trace_options", "norecord-cmd")
    }

    /// The processors that have a buffer, by number.
    pub fn processors(&self) -> Result<Vec<u32>, TracefsError> {
        let folder = self.folder.join("per_cpu");
        let entries = fs::read_dir(&folder).map_err(failed("read", &folder))?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut numbers: Vec<u32> =
            names.filter_map(|name| name.strip_prefix("cpu")?.parse().ok()).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// Has it record a tracepoint, `GROUP/NAME`, or not any more.
    pub fn enable(&self, event: &str, on: bool) -> Result<(), TracefsError> {
        self.write(&format!("events/{event}/enable"), if on { "1" } else { "0" })
    }

    /// Begins to record, or stops.
    pub fn switch(&self, on: bool) -> Result<(), TracefsError> {
        self.write("tracing_on", if on { "1" } else { "0" })
    }

    /// Empties its buffers and sets their counts to zero.
    pub fn clear(&self) -> Result<(), TracefsError> {
        let path = self.folder.join("trace");
        File::create(&path).map(drop).map_err(failed("empty", &path))
    }

    /// Writes a text into its buffers.
    pub fn mark(&self, text: &str) -> Result<(), TracefsError> {
        self.write("trace_marker", text)
    }

    /// The pages of a processor's buffer. Reading does not wait.
    pub fn pages(&self, processor: u32) -> Result<Pages, TracefsError> {
        let path = self.folder.join(format!("per_cpu/cpu{processor}/trace_pipe_raw"));
        let file = OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(&path);
        Ok(Pages { file: file.map_err(failed("read", &path))?, path })
    }

    /// Counts of a processor's buffer since it was cleared.
    pub fn counts(&self, processor: u32) -> Result<Counts, TracefsError> {
        let path = self.folder.join(format!("per_cpu/cpu{processor}/stats"));
        // One read: the kernel writes the text anew for each, with other numbers.
        let mut text = [0; 4096];
        let read = File::open(&path).and_then(|mut file| file.read(&mut text));
        let text = String::from_utf8_lossy(&text[..read.map_err(failed("read", &path))?]);
        counts(&text)
            .ok_or_else(|| failed("understand", &path)(io::Error::other(text.replace('\n', "; "))))
    }

    fn write(&self, name: &str, text: &str) -> Result<(), TracefsError> {
        write(&self.folder.join(name), text)
    }
}

fn counts(text: &str) -> Option<Counts> {
    let known: BTreeMap<&str, u64> = text
        .lines()
        .filter_map(|line| {
            let (name, value) = line.split_once(": ")?;
            Some((name, value.trim().parse().ok()?))
        })
        .collect();
    let of = |name| known.get(name).copied();
    Some(Counts {
        held: of("entries")?,
        overwritten: of("overrun")?,
        dropped: of("dropped events")? + of("commit overrun")?,
        read: of("read events")?,
    })
}

/// The pages of one processor's buffer.
#[derive(Debug)]
pub struct Pages {
    file: File,
    path: PathBuf,
}

impl Pages {
    /// Takes a page, as much of it as there is, and puts it at the beginning of `page`; the size of
    /// a whole page, or `None` if there is none.
    pub fn take(&mut self, page: &mut [u8]) -> Result<Option<usize>, TracefsError> {
        loop {
            match self.file.read(page) {
                Ok(count) => return Ok((count > 0).then_some(count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed("read", &self.path)(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_tracefs_are_found() {
        let text = "25 30 0:24 / /sys/kernel/debug rw - debugfs debugfs rw\n\
                    26 25 0:12 / /sys/kernel/debug/tracing rw - tracefs tracefs rw\n\
                    27 30 0:12 / /with\\040blank rw - tracefs none rw\n\
                    27 30 0:12 / /run/loopscope/ls-r1-tracefs rw - tracefs none rw\n\
                    28 30 0:12 / /sys/kernel/tracing rw shared:3 - tracefs none rw\n";
        let found: Vec<_> = mounted(text).collect();
        assert_eq!(
            found,
            [Path::new("/sys/kernel/debug/tracing"), Path::new("/sys/kernel/tracing")]
        );
    }

    #[test]
    fn the_kernels_counts_are_read() {
        let text = "entries: 3\noverrun: 1\ncommit overrun: 2\nbytes: 180\n\
                    oldest event ts: 1234\nnow ts: 5678\ndropped events: 5\nread events: 42\n";
        let wanted = Counts { held: 3, overwritten: 1, dropped: 7, read: 42 };
        assert_eq!(counts(text), Some(wanted));
        assert_eq!(counts(&text.replace("read events: 42", "")), None);
    }
}
