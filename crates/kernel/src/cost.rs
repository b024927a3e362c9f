//! What an event of the kernel costs the thread in which it happens: two threads on one processor
//! wake each other in turn, before events are recorded and while they are.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Instant;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// Turns that are timed together, and how often they are.
const TURNS: u32 = 50;
const BLOCKS: usize = 48;

/// Turns on one processor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turns {
    /// The processor.
    pub(crate) processor: u32,
    /// How many there were.
    pub(crate) count: u32,
    /// Duration of one, ns: what a quarter of the blocks did not reach, because whatever else the
    /// machine does makes them longer.
    pub(crate) ns: f64,
}

/// Lets two threads wake each other in turn on the first processor that this program may use.
pub(crate) fn turns() -> io::Result<Turns> {
    thread::scope(|scope| {
        // Threads of their own: this one may run where it does.
        let first = thread::Builder::new().name("kernel-cost".to_owned());
        let measured = first.spawn_scoped(scope, || {
            let own = Pid::from_raw(0);
            let allowed = sched_getaffinity(own)?;
            let processor = (0..CpuSet::count()).find(|&cpu| allowed.is_set(cpu) == Ok(true));
            let processor = processor.ok_or(io::ErrorKind::NotFound)?;
            let mut only = CpuSet::new();
            only.set(processor)?;
            sched_setaffinity(own, &only)?;
            let (mut here, there) = UnixStream::pair()?;
            // A thread begins where the one that starts it may run.
            let second = thread::Builder::new().name("kernel-cost".to_owned());
            let answering = second.spawn_scoped(scope, move || answer(there))?;
            let blocks: io::Result<Vec<f64>> = (0..BLOCKS).map(|_| block(&mut here)).collect();
            drop(here);
            answering.join().map_err(|_| io::Error::other("a thread panicked"))??;
            let mut blocks = blocks?;
            blocks.sort_by(f64::total_cmp);
            let count = BLOCKS as u32 * TURNS;
            Ok(Turns { processor: processor as u32, count, ns: blocks[BLOCKS / 4] })
        })?;
        measured.join().map_err(|_| io::Error::other("a thread panicked"))?
    })
}

fn block(stream: &mut UnixStream) -> io::Result<f64> {
    let begin = Instant::now();
    for _ in 0..TURNS {
        stream.write_all(&[0])?;
        stream.read_exact(&mut [0])?;
    }
    Ok(begin.elapsed().as_nanos() as f64 / f64::from(TURNS))
}

fn answer(mut stream: UnixStream) -> io::Result<()> {
    let mut byte = [0];
    while stream.read(&mut byte)? > 0 {
        stream.write_all(&byte)?;
    }
    Ok(())
}
