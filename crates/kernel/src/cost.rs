//! What an event of the kernel costs the thread in which it happens: two threads on one processor
//! wake each other in turn, before events are recorded and while they are, by what makes such events.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Instant;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// Turns that are timed together, a block.
const TURNS: u32 = 50;
/// Blocks that tell well what an event costs.
pub(crate) const BLOCKS: usize = 48;

/// What the two threads wake each other by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// A pair of sockets of the Unix domain: events of the scheduler.
    Unix,
    /// A connection of TCP over loopback: its own events too.
    Tcp,
}

/// Two ends of a connection.
trait Stream: Read + Write + Send + Sized {
    fn pair() -> io::Result<(Self, Self)>;
}

impl Stream for UnixStream {
    fn pair() -> io::Result<(UnixStream, UnixStream)> {
        UnixStream::pair()
    }
}

impl Stream for TcpStream {
    fn pair() -> io::Result<(TcpStream, TcpStream)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let near = TcpStream::connect(listener.local_addr()?)?;
        let (far, _) = listener.accept()?;
        [&near, &far].into_iter().try_for_each(|end| end.set_nodelay(true))?;
        Ok((near, far))
    }
}

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

/// Lets two threads wake each other in turn, in so many blocks, on the first processor that this
/// program may use.
pub(crate) fn turns(link: Link, blocks: usize) -> io::Result<Turns> {
    match link {
        Link::Unix => turns_over::<UnixStream>(blocks),
        Link::Tcp => turns_over::<TcpStream>(blocks),
    }
}

fn turns_over<S: Stream>(blocks: usize) -> io::Result<Turns> {
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
            let (mut here, there) = S::pair()?;
            // A thread begins where the one that starts it may run.
            let second = thread::Builder::new().name("kernel-cost".to_owned());
            let answering = second.spawn_scoped(scope, move || answer(there))?;
            let times: io::Result<Vec<f64>> = (0..blocks).map(|_| block(&mut here)).collect();
            drop(here);
            answering.join().map_err(|_| io::Error::other("a thread panicked"))??;
            let mut times = times?;
            times.sort_by(f64::total_cmp);
            let count = times.len() as u32 * TURNS;
            Ok(Turns { processor: processor as u32, count, ns: times[times.len() / 4] })
        })?;
        measured.join().map_err(|_| io::Error::other("a thread panicked"))?
    })
}

fn block(stream: &mut impl Stream) -> io::Result<f64> {
    let begin = Instant::now();
    for _ in 0..TURNS {
        stream.write_all(&[0])?;
        stream.read_exact(&mut [0])?;
    }
    Ok(begin.elapsed().as_nanos() as f64 / f64::from(TURNS))
}

fn answer(mut stream: impl Stream) -> io::Result<()> {
    let mut byte = [0];
    while stream.read(&mut byte)? > 0 {
        stream.write_all(&byte)?;
    }
    Ok(())
}

/// What an event costs, ns, or why that is not known.
pub type Cost = Result<f64, String>;

/// What each of `events` costs that were made in the second turns of each round, and not in the
/// first: by the median of what rounds differ by.
pub(crate) fn event_ns(rounds: &[(Turns, Turns)], events: u64) -> Cost {
    let count: u32 = rounds.iter().map(|(_, with)| with.count).sum();
    let mut longer: Vec<f64> = rounds.iter().map(|(without, with)| with.ns - without.ns).collect();
    longer.sort_by(f64::total_cmp);
    let longer = longer.get(longer.len() / 2).copied().unwrap_or_default();
    // A turn has two switches.
    if events < u64::from(2 * count) {
        Err("it is measured by events of the scheduler, which are not recorded".to_owned())
    } else if longer <= 0.0 {
        Err("it cannot be told from the noise".to_owned())
    } else {
        Ok(longer * f64::from(count) / events as f64)
    }
}
