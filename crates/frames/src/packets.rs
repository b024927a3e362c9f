//! What comes to a device, in rings of packet sockets that are mapped
//! (Documentation/networking/packet_mmap.rst): it is found without a system call.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::mem::size_of;
use std::num::NonZero;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

use crate::SocketError;

/// Frames that may wait in all.
pub const ROOM: usize = (SMALL_RING.frames() + LARGE_RING.frames()) as usize;
/// Frames of more bytes are in the ring of the large ones.
const SMALL: u32 = 1900;
const SMALL_RING: Layout = Layout { frame: 2048, blocks: 4 };
/// Frames that were not cut have up to 64 kB, and the kernel's header before them.
const LARGE_RING: Layout = Layout { frame: 17 << 12, blocks: 4 };
/// Bytes of a block, of which the kernel makes a ring: whole pages on every machine.
const BLOCK: u32 = 1 << 20;
/// linux/if_packet.h.
const TPACKET_V2: c_int = 1;
const STATUS_KERNEL: u32 = 0;
const STATUS_USER: u32 = 1;
const STATUS_CHECKSUM_NOT_READY: u32 = 1 << 3;
const STATUS_CHECKSUM_VALID: u32 = 1 << 7;
/// linux/filter.h: loads the length of the frame; jumps where it is greater; returns.
const LOAD_LENGTH: u16 = 0x80;
const JUMP_IF_GREATER: u16 = 0x25;
const RETURN: u16 = 0x06;

/// What is known of the checksum of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Summed {
    /// Nothing is known.
    Unknown,
    /// The kernel, or the device, has found it right.
    Right,
    /// Its sender is on this machine, and has left it to a device that it has not passed.
    Unfinished,
}

/// A frame that came.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'r> {
    /// It begins with the header of Ethernet.
    pub bytes: &'r [u8],
    /// What is known of its checksum.
    pub summed: Summed,
}

/// How a ring is divided.
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// Bytes for a frame and the kernel's header before it.
    frame: u32,
    blocks: u32,
}

impl Layout {
    /// Frames of a block. What is left of it stays unused.
    const fn of_block(self) -> u32 {
        BLOCK / self.frame
    }

    const fn frames(self) -> u32 {
        self.of_block() * self.blocks
    }

    const fn length(self) -> usize {
        BLOCK as usize * self.blocks as usize
    }

    /// Where a frame begins.
    const fn start(self, frame: u32) -> usize {
        let (block, within) = (frame / self.of_block(), frame % self.of_block());
        block as usize * BLOCK as usize + within as usize * self.frame as usize
    }
}

/// Packet sockets for what comes to a device, whose rings are not mapped yet. The process that maps
/// them may be another one than that which made them, and needs no rights for it.
#[derive(Debug)]
pub struct Bound {
    /// The socket for small frames.
    pub small: OwnedFd,
    /// The socket for large ones.
    pub large: OwnedFd,
}

impl Bound {
    /// On device `index` of the network namespace of this thread.
    pub fn open(index: u32) -> Result<Bound, SocketError> {
        Ok(Bound { small: open(index, SMALL_RING, false)?, large: open(index, LARGE_RING, true)? })
    }

    /// The same sockets.
    pub fn try_clone(&self) -> io::Result<Bound> {
        Ok(Bound { small: self.small.try_clone()?, large: self.large.try_clone()? })
    }

    /// Maps their rings, to use them. Only one process may use them.
    pub fn map(self) -> Result<Packets, SocketError> {
        let error = |source| SocketError { what: "cannot map a ring of packets", source };
        let Bound { small, large } = self;
        let small = Ring::map(small, SMALL_RING).map_err(error)?;
        Ok(Packets { small, large: Ring::map(large, LARGE_RING).map_err(error)? })
    }
}

/// A packet socket with a ring, whose filter nobody can change.
fn open(index: u32, layout: Layout, is_large: bool) -> Result<OwnedFd, SocketError> {
    let error = |what| move |source| SocketError { what, source };
    let flags = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: touches no memory; the result is checked. It has protocol 0: nothing
    // comes before it is bound.
    let fd = unsafe { libc::socket(libc::AF_PACKET, flags, 0) };
    if fd < 0 {
        return Err(error("cannot make a packet socket")(io::Error::last_os_error()));
    }
    // SAFETY: just made, and nobody else knows it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let (of_small, of_large) = if is_large { (0, u32::MAX) } else { (u32::MAX, 0) };
    let instruction = |code, jt, k| libc::sock_filter { code, jt, jf: 0, k };
    let mut filter = [
        instruction(LOAD_LENGTH, 0, 0),
        instruction(JUMP_IF_GREATER, 1, SMALL),
        instruction(RETURN, 0, of_small),
        instruction(RETURN, 0, of_large),
    ];
    let filter = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    let socket = libc::SOL_SOCKET;
    set(&fd, socket, libc::SO_ATTACH_FILTER, &filter)
        .and_then(|()| set(&fd, socket, libc::SO_LOCK_FILTER, &1))
        .map_err(error("cannot put a filter on a packet socket"))?;
    set(&fd, libc::SOL_PACKET, libc::PACKET_VERSION, &TPACKET_V2)
        .and_then(|()| make_ring(&fd, layout))
        .map_err(error("cannot make a ring of packets"))?;
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: index.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: the address is a sockaddr_ll of the length given.
    let bound = unsafe {
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        libc::bind(fd.as_raw_fd(), (&raw const address).cast(), length)
    };
    match bound {
        0 => Ok(fd),
        _ => Err(error("cannot bind a packet socket")(io::Error::last_os_error())),
    }
}

fn make_ring(fd: &OwnedFd, layout: Layout) -> io::Result<()> {
    let request = libc::tpacket_req {
        tp_block_size: BLOCK,
        tp_block_nr: layout.blocks,
        tp_frame_size: layout.frame,
        tp_frame_nr: layout.frames(),
    };
    set(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)
}

fn set<T>(fd: &OwnedFd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of `value`, and what a filter points to, which lives
    // in the caller.
    let set = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const *value).cast(), length)
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A mapped ring.
#[derive(Debug)]
struct Ring {
    fd: OwnedFd,
    area: NonNull<u8>,
    layout: Layout,
    next: u32,
}

// SAFETY: the mapping belongs to no thread, and `Ring` gives out what is in it by `&mut self` alone.
unsafe impl Send for Ring {}

impl Ring {
    fn map(fd: OwnedFd, layout: Layout) -> io::Result<Ring> {
        let length =
            NonZero::new(layout.length()).ok_or(io::Error::from(io::ErrorKind::InvalidInput))?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let flags = MapFlags::MAP_SHARED | MapFlags::MAP_POPULATE;
        // SAFETY: a new mapping, of the socket's ring; nothing else of this process is there.
        let area = unsafe { mmap(None, length, access, flags, &fd, 0)? };
        Ok(Ring { fd, area: area.cast(), layout, next: 0 })
    }

    /// The header of the next frame (`struct tpacket2_hdr`).
    fn header(&self) -> NonNull<libc::tpacket2_hdr> {
        // SAFETY: within the mapping, since `next` is less than the number of frames, and aligned:
        // frames begin at multiples of 2048 bytes.
        unsafe { self.area.add(self.layout.start(self.next)).cast() }
    }

    fn status(&self) -> &AtomicU32 {
        // SAFETY: the first word of the header, mapped for as long as self lives. The kernel
        // accesses it atomically as well.
        unsafe { self.header().cast().as_ref() }
    }

    /// When the next frame came, if there is one: seconds and nanoseconds.
    fn stamp(&self) -> Option<(u32, u32)> {
        // Pairs with the kernel's store of the status after it has written the frame.
        if self.status().load(Ordering::Acquire) & STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the kernel has written the header, and does not touch it before the status says so.
        let header = unsafe { self.header().read() };
        Some((header.tp_sec, header.tp_nsec))
    }

    /// Hands the next frame, which is there, to `sink`, and gives its place back to the kernel.
    fn take(&mut self, sink: impl FnOnce(Frame<'_>)) {
        // SAFETY: as in `stamp`.
        let header = unsafe { self.header().read() };
        let (at, length) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
        assert!(at + length <= self.layout.frame as usize, "the kernel keeps within a frame");
        // SAFETY: within the frame, as just asserted, which is within the mapping. Nobody writes to
        // it before its status changes, below.
        let bytes = unsafe {
            std::slice::from_raw_parts(self.header().cast::<u8>().add(at).as_ptr(), length)
        };
        let summed = match header.tp_status {
            status if status & STATUS_CHECKSUM_NOT_READY != 0 => Summed::Unfinished,
            status if status & STATUS_CHECKSUM_VALID != 0 => Summed::Right,
            _ => Summed::Unknown,
        };
        sink(Frame { bytes, summed });
        // Pairs with the kernel's load of the status before it writes the next one.
        self.status().store(STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.layout.frames();
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; what was given out of it has ended with self.
        // That it fails would leave it mapped, which harms nobody.
        let _ = unsafe { munmap(self.area.cast(), self.layout.length()) };
    }
}

/// What comes to a device.
#[derive(Debug)]
pub struct Packets {
    small: Ring,
    large: Ring,
}

impl Packets {
    /// Hands up to `limit` frames to `sink`, in the order in which they came; how many there were.
    pub fn receive(&mut self, limit: usize, mut sink: impl FnMut(Frame<'_>)) -> usize {
        for count in 0..limit {
            match (self.small.stamp(), self.large.stamp()) {
                (None, None) => return count,
                (Some(_), None) => self.small.take(&mut sink),
                (Some(small), Some(large)) if small <= large => self.small.take(&mut sink),
                (_, Some(_)) => self.large.take(&mut sink),
            }
        }
        limit
    }

    /// Their sockets: one can be read when a frame is there.
    pub fn sockets(&self) -> [BorrowedFd<'_>; 2] {
        [self.small.fd.as_fd(), self.large.fd.as_fd()]
    }
}

#[cfg(test)]
mod tests {
    use nix::sched::{CloneFlags, unshare};
    use nix::unistd::geteuid;
    use socket2::{SockFilter, SockRef};

    use super::*;

    #[test]
    fn who_has_the_sockets_changes_neither_filters_nor_rings() {
        if !geteuid().is_root() {
            return crate::skip::skipped("a network namespace needs root");
        }
        let test = || {
            unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace can be made");
            let bound = Bound::open(1).unwrap();
            let mapped = bound.try_clone().unwrap().map().unwrap();
            for (socket, layout) in [(&bound.small, SMALL_RING), (&bound.large, LARGE_RING)] {
                let all = [SockFilter::new(RETURN, 0, 0, u32::MAX)];
                let of = SockRef::from(socket);
                let refused = [of.attach_filter(&all), of.detach_filter()];
                for refused in refused {
                    assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EPERM));
                }
                // Only where there is none, another one can be made.
                let none = Layout { blocks: 0, ..layout };
                let refused = make_ring(socket, none).unwrap_err();
                assert_eq!(refused.raw_os_error(), Some(libc::EBUSY));
            }
            // It is the mapping that keeps them.
            drop(mapped);
            make_ring(&bound.small, Layout { blocks: 0, ..SMALL_RING }).unwrap();
            make_ring(&bound.small, Layout { blocks: 8, ..SMALL_RING }).unwrap();
        };
        std::thread::spawn(test).join().expect("the test did not fail");
    }

    #[test]
    fn frames_lie_within_their_blocks() {
        for layout in [SMALL_RING, LARGE_RING] {
            for frame in 0..layout.frames() {
                let (start, end) =
                    (layout.start(frame), layout.start(frame) + layout.frame as usize);
                assert_eq!(start / BLOCK as usize, (end - 1) / BLOCK as usize, "{frame}");
                assert!(frame == 0 || start >= layout.start(frame - 1) + layout.frame as usize);
                assert!(end <= layout.length() && start % 16 == 0, "{frame}");
            }
        }
    }
}
