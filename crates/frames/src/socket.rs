//! An AF_XDP socket on a device: its memory, its four rings, and the system calls.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::mem::size_of;
use std::num::NonZero;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use crate::SocketError;
use crate::redirect::STAMP;
use crate::ring::{Consumer, Producer};

/// Frames that are sent at once, at most.
pub const SEND: u32 = 256;
/// Bytes of the largest frame that a socket can take.
pub const LARGEST: usize = 4096 - HEADROOM;
/// An address outside of the memory: the kernel skips entries that have it.
const VOID: u64 = u64::MAX;
/// Before a frame the kernel leaves so much room, in which the stamp stands.
const HEADROOM: usize = 256;

/// Chunks of memory, each for one frame. The last [`SEND`] are sent from, the others received into.
#[derive(Debug)]
struct Memory {
    area: NonNull<u8>,
    length: usize,
    chunk: usize,
}

impl Memory {
    /// A file without a name, whose size cannot change.
    fn file(layout: Layout) -> io::Result<OwnedFd> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = memfd_create("loopscope frames", flags)?;
        nix::unistd::ftruncate(&file, layout.length() as libc::off_t)?;
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
        Ok(file)
    }

    fn map(file: &OwnedFd, layout: Layout) -> io::Result<Memory> {
        let length = layout.length();
        let whole =
            NonZero::new(length).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE;
        // SAFETY: a new mapping; nothing else of this process is there.
        let area = unsafe { mmap(None, whole, access, flags, file, 0)? };
        Ok(Memory { area: area.cast(), length, chunk: layout.chunk as usize })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length. The kernel holds on to the pages themselves for
        // as long as the socket needs them. That it fails would leave it mapped, which harms
        // nobody.
        let _ = unsafe { munmap(self.area.cast(), self.length) };
    }
}

/// How the memory of a socket is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    /// Bytes of a chunk.
    chunk: u32,
    /// Chunks that frames are received into.
    receive: u32,
}

impl Layout {
    fn length(self) -> usize {
        (self.receive as usize + SEND as usize) * self.chunk as usize
    }
}

/// A socket that is bound to a device, and its memory.
#[derive(Debug)]
struct Bound {
    /// The socket.
    socket: OwnedFd,
    /// A file with the memory.
    memory: OwnedFd,
    /// How that is divided.
    layout: Layout,
}

impl Bound {
    /// Opens one on a device, see [`Socket::open`].
    fn open(index: u32, largest: usize, receive: u32) -> Result<Bound, SocketError> {
        let error = |what| move |source| SocketError { what, source };
        let Some(chunk) = [2048, 4096].into_iter().find(|chunk| largest + HEADROOM <= *chunk)
        else {
            let what = "its MTU is too large for AF_XDP, which takes frames of up to 3840 bytes";
            return Err(error(what)(io::ErrorKind::InvalidInput.into()));
        };
        let layout = Layout { chunk: chunk as u32, receive };
        let flags = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: touches no memory; the result is checked.
        let fd = unsafe { libc::socket(libc::AF_XDP, flags, 0) };
        if fd < 0 {
            return Err(error("cannot make an AF_XDP socket")(io::Error::last_os_error()));
        }
        // SAFETY: just made, and nobody else knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let file = Memory::file(layout).map_err(error("cannot make memory for its frames"))?;
        // The kernel finds the pages by this mapping, and keeps them.
        let memory =
            Memory::map(&file, layout).map_err(error("cannot map memory for its frames"))?;
        let registration = libc::xdp_umem_reg {
            addr: memory.area.as_ptr() as u64,
            len: memory.length as u64,
            chunk_size: layout.chunk,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set(&fd, libc::XDP_UMEM_REG, &registration)
            .map_err(error("cannot register memory for its frames (see ulimit -l)"))?;
        for (ring, size) in [
            (libc::XDP_UMEM_FILL_RING, receive),
            (libc::XDP_UMEM_COMPLETION_RING, SEND),
            (libc::XDP_RX_RING, receive),
            (libc::XDP_TX_RING, SEND),
        ] {
            set(&fd, ring, &size).map_err(error("cannot make the rings"))?;
        }
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_COPY | libc::XDP_USE_NEED_WAKEUP,
            sxdp_ifindex: index,
            sxdp_queue_id: 0,
            sxdp_shared_umem_fd: 0,
        };
        bind(&fd, &address).map_err(error("cannot bind an AF_XDP socket to it"))?;
        Ok(Bound { socket: fd, memory: file, layout })
    }

    /// Maps its memory and its rings, to use it.
    fn map(self) -> Result<Socket, SocketError> {
        let error = |what| move |source| SocketError { what, source };
        let Bound { socket: fd, memory: file, layout: Layout { chunk, receive } } = &self;
        let memory =
            Memory::map(file, self.layout).map_err(error("cannot map memory for its frames"))?;
        let zero = || libc::xdp_ring_offset { producer: 0, consumer: 0, desc: 0, flags: 0 };
        let mut at = libc::xdp_mmap_offsets { rx: zero(), tx: zero(), fr: zero(), cr: zero() };
        get(fd, libc::XDP_MMAP_OFFSETS, &mut at).map_err(error("cannot ask for the rings"))?;
        let map = "cannot map the rings";
        let own = fd.as_fd();
        let fill = Producer::map(own, libc::XDP_UMEM_PGOFF_FILL_RING, at.fr, *receive);
        let sent = Consumer::map(own, libc::XDP_UMEM_PGOFF_COMPLETION_RING, at.cr, SEND);
        let received = Consumer::map(own, libc::XDP_PGOFF_RX_RING as u64, at.rx, *receive);
        let send = Producer::map(own, libc::XDP_PGOFF_TX_RING as u64, at.tx, SEND);
        let start = |number: u32| u64::from(number) * u64::from(*chunk);
        let mut fill = fill.map_err(error(map))?;
        (0..*receive).for_each(|number| {
            fill.push(start(number));
        });
        fill.publish();
        Ok(Socket {
            fill,
            received: received.map_err(error(map))?,
            send: send.map_err(error(map))?,
            sent: sent.map_err(error(map))?,
            free: (*receive..receive + SEND).map(start).collect(),
            void: 0,
            memory,
            fd: self.socket,
        })
    }
}

/// A socket bound to a device's only queue, in copy mode.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    fill: Producer<u64>,
    received: Consumer<libc::xdp_desc>,
    send: Producer<libc::xdp_desc>,
    sent: Consumer<u64>,
    memory: Memory,
    /// Chunks to send from that are not being sent.
    free: Vec<u64>,
    /// Void entries at the beginning of the send ring, which the kernel has yet to skip.
    void: u32,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Socket {
    /// Opens one on device `index`, for frames of at most `largest` bytes, with room for `receive` of
    /// them, a power of two. Refused where `largest` is more than [`LARGEST`].
    pub fn open(index: u32, largest: usize, receive: u32) -> Result<Socket, SocketError> {
        Bound::open(index, largest, receive)?.map()
    }

    /// Hands up to `limit` frames to `sink` with their stamps; how many there were.
    pub fn receive(&mut self, limit: usize, mut sink: impl FnMut(u64, &[u8])) -> usize {
        let mut count = 0;
        while count < limit
            && let Some(entry) = self.received.pop()
        {
            count += 1;
            let (start, length) = (entry.addr as usize, entry.len as usize);
            let chunk = start / self.memory.chunk * self.memory.chunk;
            let fits = start >= chunk + STAMP && start + length <= chunk + self.memory.chunk;
            assert!(fits && chunk + self.memory.chunk <= self.memory.length, "{entry:?}");
            // SAFETY: the frame and the stamp before it lie within a chunk of the memory, as just
            // asserted. The kernel has given the chunk to us and does not touch it before it is in
            // the fill ring again; nothing else refers to it.
            let bytes = unsafe {
                let first = self.memory.area.as_ptr().add(start - STAMP);
                std::slice::from_raw_parts_mut(first, STAMP + length)
            };
            let (stamp, frame) = bytes.split_at_mut(STAMP);
            let time = u64::from_ne_bytes(stamp.try_into().unwrap_or_default());
            // A later frame that comes without one must not be given this.
            stamp.fill(0);
            sink(time, frame);
            // There is room for all chunks.
            self.fill.push(chunk as u64);
        }
        if count > 0 {
            self.received.release();
            self.fill.publish();
        }
        count
    }

    /// Writes a frame for [`Socket::flush`]; whether there was room.
    pub fn push(&mut self, frame: &[u8]) -> bool {
        if self.free.is_empty() {
            self.recycle();
        }
        let Some(chunk) = self.free.last().copied() else { return false };
        let length = frame.len();
        if length > self.memory.chunk {
            return false;
        }
        // SAFETY: a chunk of the memory, and the frame is no longer than it. It is ours: the kernel
        // has sent what was in it, and nothing refers to it.
        let bytes = unsafe {
            let first = self.memory.area.as_ptr().add(chunk as usize);
            std::slice::from_raw_parts_mut(first, length)
        };
        bytes.copy_from_slice(frame);
        let entry = libc::xdp_desc { addr: chunk, len: length as u32, options: 0 };
        let pushed = self.send.push(entry);
        if pushed {
            self.free.pop();
        }
        pushed
    }

    /// Has the kernel send what was written, 32 frames at a time. Calls `lost` with the place, from
    /// 0 among those written since the last call, of each frame that the kernel did not send; such
    /// a frame is never sent later.
    pub fn flush(&mut self, mut lost: impl FnMut(usize)) -> io::Result<()> {
        self.send.publish();
        let all = self.send.waiting();
        // What was written since the last time stands behind the void entries.
        let void = std::mem::take(&mut self.void);
        let mut attempts = 0;
        let mut waiting = all;
        while waiting > 0 {
            // SAFETY: a message without any bytes and address; touches no memory.
            let result = unsafe {
                let (none, flags) = (std::ptr::null(), libc::MSG_DONTWAIT);
                libc::sendto(self.fd.as_raw_fd(), none, 0, flags, std::ptr::null(), 0)
            };
            let error = Errno::last();
            let before = waiting;
            waiting = self.send.waiting();
            if result >= 0 || waiting < before {
                attempts = 0;
            }
            if result >= 0 {
                continue;
            }
            match error {
                // The device dropped the last one that was taken.
                Errno::EBUSY if waiting < before => {
                    let place = (all - waiting).checked_sub(void + 1);
                    place.into_iter().for_each(|place| lost(place as usize));
                }
                // The rings that tell of what was sent, or the kernel's memory, are full.
                Errno::EAGAIN | Errno::EBUSY | Errno::ENOBUFS | Errno::EINTR
                    if attempts < ATTEMPTS =>
                {
                    attempts += 1;
                    self.recycle();
                }
                Errno::ENETDOWN | Errno::EAGAIN | Errno::EBUSY | Errno::ENOBUFS | Errno::EINTR => {
                    self.give_up(waiting, waiting.min(all - void));
                    (all.saturating_sub(waiting).max(void)..all)
                        .for_each(|place| lost((place - void) as usize));
                    break;
                }
                error => return Err(error.into()),
            }
        }
        self.recycle();
        Ok(())
    }

    /// Whether entries that were given up still take room in the ring; [`Socket::flush`] has the
    /// kernel skip them.
    pub fn has_void(&self) -> bool {
        self.void > 0
    }

    /// Makes the last `count` of `waiting` entries void, so that the kernel skips them when it next
    /// looks, and takes their chunks back. The entries before them are void already.
    fn give_up(&mut self, waiting: u32, count: u32) {
        let free = &mut self.free;
        let void = libc::xdp_desc { addr: VOID, len: 0, options: 0 };
        self.send.take_back(count, void, |entry| free.push(entry.addr));
        self.void = waiting;
    }

    /// Takes back the chunks that were sent.
    fn recycle(&mut self) {
        while let Some(address) = self.sent.pop() {
            // Some kernels complete void entries too; the chunks of these are free already.
            if address != VOID {
                self.free.push(address);
            }
        }
        self.sent.release();
    }

    /// Frames that the kernel had no room for.
    pub fn dropped(&self) -> Option<u64> {
        let mut statistics = libc::xdp_statistics {
            rx_dropped: 0,
            rx_invalid_descs: 0,
            tx_invalid_descs: 0,
            rx_ring_full: 0,
            rx_fill_ring_empty_descs: 0,
            tx_ring_empty_descs: 0,
        };
        let got = get(&self.fd, libc::XDP_STATISTICS, &mut statistics);
        got.ok().map(|()| statistics.rx_dropped.saturating_add(statistics.rx_ring_full))
    }
}

/// A send that makes no headway is tried again so often.
const ATTEMPTS: u32 = 100;

/// A router that has just ended, by whatever means, leaves the device's queue only when the kernel
/// has got round to it.
const RELEASE: Duration = Duration::from_secs(2);

fn bind(fd: &OwnedFd, address: &libc::sockaddr_xdp) -> io::Result<()> {
    let until = Instant::now() + RELEASE;
    loop {
        // SAFETY: the address is a sockaddr_xdp of the length given.
        let bound = unsafe {
            let length = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
            libc::bind(fd.as_raw_fd(), std::ptr::from_ref(address).cast(), length)
        };
        if bound == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EBUSY) || Instant::now() > until {
            return Err(error);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn set<T>(fd: &OwnedFd, option: c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of `value`.
    let set = unsafe {
        let value = std::ptr::from_ref(value).cast();
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_XDP, option, value, length)
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// `T` is a structure of integers.
fn get<T>(fd: &OwnedFd, option: c_int, value: &mut T) -> io::Result<()> {
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `value`, which any bytes are valid for.
    let got = unsafe {
        let value = std::ptr::from_mut(value).cast();
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, option, value, &raw mut length)
    };
    if got == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
