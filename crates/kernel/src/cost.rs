//! What an event of the kernel costs the thread in which it happens: two threads on one processor
//! wake each other in turn, before events are recorded and while they are, by what makes such events.
//! For dropped packets one thread is enough: it sends to a socket that has no room.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::socket::{setsockopt, sockopt};
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
    /// Two sockets of UDP over loopback.
    Udp,
    /// No other thread: datagrams over loopback to a socket without room.
    Dropped,
}

impl Link {
    /// How many events a turn makes at least.
    fn events(self) -> u32 {
        // A turn of two threads has two switches.
        if self == Link::Dropped { 1 } else { 2 }
    }
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

/// A socket of UDP; where it ends, the other one reads nothing.
struct Datagrams(UdpSocket);

impl Stream for Datagrams {
    fn pair() -> io::Result<(Datagrams, Datagrams)> {
        const LONGEST: Duration = Duration::from_secs(1);
        let made = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
        let (near, far) = (made()?, made()?);
        for (end, other) in [(&near, &far), (&far, &near)] {
            end.connect(other.local_addr()?)?;
            // A datagram may be lost.
            end.set_read_timeout(Some(LONGEST))?;
        }
        Ok((Datagrams(near), Datagrams(far)))
    }
}

impl Read for Datagrams {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.recv(bytes)
    }
}

impl Write for Datagrams {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        // Where the other one has ended before there is nobody to be told.
        let _ = self.0.send(&[]);
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

/// Times turns, in so many blocks, on the first processor that this program may use.
pub(crate) fn turns(link: Link, blocks: usize) -> io::Result<Turns> {
    // A thread of its own: this one may run where it does.
    let measured = thread::Builder::new().name("kernel-cost".to_owned()).spawn(move || {
        let own = Pid::from_raw(0);
        let allowed = sched_getaffinity(own)?;
        let processor = (0..CpuSet::count()).find(|&cpu| allowed.is_set(cpu) == Ok(true));
        let processor = processor.ok_or(io::ErrorKind::NotFound)?;
        let mut only = CpuSet::new();
        only.set(processor)?;
        sched_setaffinity(own, &only)?;
        let mut times = match link {
            Link::Unix => over::<UnixStream>(blocks),
            Link::Tcp => over::<TcpStream>(blocks),
            Link::Udp => over::<Datagrams>(blocks),
            Link::Dropped => dropped(blocks),
        }?;
        times.sort_by(f64::total_cmp);
        let count = times.len() as u32 * TURNS;
        Ok(Turns { processor: processor as u32, count, ns: times[times.len() / 4] })
    })?;
    joined(measured)?
}

/// The time of a turn in each of some blocks: there, and back from a thread that answers.
fn over<S: Stream + 'static>(blocks: usize) -> io::Result<Vec<f64>> {
    let (mut here, there) = S::pair()?;
    // A thread begins where the one that starts it may run.
    let second = thread::Builder::new().name("kernel-cost".to_owned());
    let answering = second.spawn(move || answer(there))?;
    let turn = || {
        here.write_all(&[0])?;
        here.read_exact(&mut [0])
    };
    let times = timed(blocks, turn);
    drop(here);
    joined(answering)??;
    times
}

/// The time of a datagram that is dropped, in each of some blocks.
fn dropped(blocks: usize) -> io::Result<Vec<f64>> {
    /// More than the least buffer has room for.
    const FILLING: usize = 100;
    let (near, far) = <Datagrams as Stream>::pair()?;
    setsockopt(&far.0, sockopt::RcvBuf, &0)?;
    let send = || near.0.send(&[0]).map(drop);
    (0..FILLING).try_for_each(|_| send())?;
    timed(blocks, send)
}

fn timed(blocks: usize, mut turn: impl FnMut() -> io::Result<()>) -> io::Result<Vec<f64>> {
    let block = |_| {
        let begin = Instant::now();
        (0..TURNS).try_for_each(|_| turn())?;
        Ok(begin.elapsed().as_nanos() as f64 / f64::from(TURNS))
    };
    (0..blocks).map(block).collect()
}

fn joined<T>(thread: thread::JoinHandle<T>) -> io::Result<T> {
    thread.join().map_err(|_| io::Error::other("a thread panicked"))
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
pub(crate) fn event_ns(link: Link, rounds: &[(Turns, Turns)], events: u64) -> Cost {
    let count: u32 = rounds.iter().map(|(_, with)| with.count).sum();
    let mut longer: Vec<f64> = rounds.iter().map(|(without, with)| with.ns - without.ns).collect();
    longer.sort_by(f64::total_cmp);
    let longer = longer.get(longer.len() / 2).copied().unwrap_or_default();
    if events < u64::from(link.events() * count) {
        Err("the events that it is measured by are not recorded".to_owned())
    } else if longer <= 0.0 {
        Err("it cannot be told from the noise".to_owned())
    } else {
        Ok(longer * f64::from(count) / events as f64)
    }
}
