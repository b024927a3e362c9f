//! A packet socket and the system calls that nix has not.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use nix::errno::Errno;

use crate::EmulateError;
use crate::mover::BATCH;

/// Bytes of a frame, with a VLAN tag that is put back: the largest that a sender's kernel hands on
/// unsegmented.
const FRAME: usize = (1 << 16) + 64;
/// Room before it for the tag.
const TAG: usize = 4;
/// Where a tag stands: behind both addresses.
const TAG_AT: usize = 12;
/// For the stamp and the auxiliary data.
const CONTROL: usize = 128;
/// What a burst of the sender may fill before the mover looks: 64 MiB of the kernel's own buffers.
const RECEIVE_BUFFER: c_int = 64 << 20;
const SEND_BUFFER: c_int = 16 << 20;
const ALL_PROTOCOLS: u16 = (libc::ETH_P_ALL as u16).to_be();
const NOBODY: libc::sockaddr_ll = libc::sockaddr_ll {
    sll_family: 0,
    sll_protocol: 0,
    sll_ifindex: 0,
    sll_hatype: 0,
    sll_pkttype: 0,
    sll_halen: 0,
    sll_addr: [0; 8],
};

/// A frame that came in, or went out.
pub(super) struct Received<'a> {
    pub(super) bytes: &'a [u8],
    /// Index of the device.
    pub(super) index: c_int,
    pub(super) outgoing: bool,
    /// Left to the device to put a checksum in, of which there is none.
    pub(super) unfinished: bool,
    /// The kernel's CLOCK_REALTIME when it came.
    pub(super) real_ns: Option<i64>,
}

/// What a batch is received into.
#[derive(Debug)]
pub(super) struct Buffers {
    frames: Vec<u8>,
    control: Vec<Control>,
    taken: Vec<Taken>,
}

/// Where a frame begins and ends, and what else is known of it.
#[derive(Debug)]
struct Taken {
    start: usize,
    end: usize,
    index: c_int,
    outgoing: bool,
    unfinished: bool,
    real_ns: Option<i64>,
}

/// Control messages, aligned as their headers have to be.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
struct Control([u8; CONTROL]);

impl Buffers {
    pub(super) fn new() -> Buffers {
        Buffers {
            frames: vec![0; BATCH * (TAG + FRAME)],
            control: vec![Control([0; CONTROL]); BATCH],
            taken: Vec::with_capacity(BATCH),
        }
    }

    /// The `i`th that was received last.
    pub(super) fn frame(&self, i: usize) -> Received<'_> {
        let Taken { start, end, index, outgoing, unfinished, real_ns } = self.taken[i];
        Received { bytes: &self.frames[start..end], index, outgoing, unfinished, real_ns }
    }

    /// Notes slot `i`'s frame, and puts the tag back that the kernel has taken off.
    fn take(&mut self, i: usize, length: usize, from: &libc::sockaddr_ll, said: Said) {
        let mut start = i * (TAG + FRAME) + TAG;
        let end = start + length.min(FRAME);
        if let Some((tpid, tci)) = said.tag
            && length >= TAG_AT
        {
            self.frames.copy_within(start..start + TAG_AT, start - TAG);
            start -= TAG;
            let at = start + TAG_AT;
            self.frames[at..at + 2].copy_from_slice(&tpid.to_be_bytes());
            self.frames[at + 2..at + TAG].copy_from_slice(&tci.to_be_bytes());
        }
        self.taken.push(Taken {
            start,
            end,
            index: from.sll_ifindex,
            outgoing: from.sll_pkttype == libc::PACKET_OUTGOING,
            unfinished: said.unfinished,
            real_ns: said.real_ns,
        });
    }
}

/// What the kernel says of a frame.
#[derive(Default)]
struct Said {
    unfinished: bool,
    real_ns: Option<i64>,
    /// TPID and TCI.
    tag: Option<(u16, u16)>,
}

/// A raw socket on a device, which takes and sends whole frames, or on several, which takes them.
#[derive(Debug)]
pub(super) struct Socket {
    fd: OwnedFd,
    /// For messages.
    device: String,
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Socket {
    /// What comes in by this device, and nothing that is sent.
    pub(super) fn open(device: &str) -> Result<Socket, EmulateError> {
        let index = index(device)?;
        let socket = Socket::make(device)?;
        let level = libc::SOL_PACKET;
        socket.set(
            level,
            libc::PACKET_IGNORE_OUTGOING,
            &1,
            "cannot leave out what it sends itself",
        )?;
        socket.bind(index)?;
        let member = libc::packet_mreq {
            mr_ifindex: index,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        let what = "cannot take frames to other addresses";
        socket.set(level, libc::PACKET_ADD_MEMBERSHIP, &member, what)?;
        Ok(socket)
    }

    /// What comes in and goes out by these devices, in the order in which the kernel has it.
    pub(super) fn watch(devices: &[&str]) -> Result<(Socket, Vec<c_int>), EmulateError> {
        let socket = Socket::make(&devices.join(", "))?;
        let indexes = devices.iter().map(|device| index(device)).collect::<Result<Vec<_>, _>>()?;
        socket.set_filter(&indexes)?;
        socket.bind(0)?;
        Ok((socket, indexes))
    }

    fn make(device: &str) -> Result<Socket, EmulateError> {
        let error = |what| EmulateError::device(device, what);
        // Without a protocol until it is bound, so that no frame of another device comes in
        // between.
        let flags = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: touches no memory; the result is checked.
        let fd = unsafe { libc::socket(libc::AF_PACKET, flags, 0) };
        if fd < 0 {
            return Err(error("cannot make a packet socket")(io::Error::last_os_error()));
        }
        // SAFETY: just made, and nobody else knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let socket = Socket { fd, device: device.to_owned() };

        socket.set(libc::SOL_PACKET, libc::PACKET_AUXDATA, &1, "cannot ask for VLAN tags")?;
        socket.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1, "cannot ask for stamps")?;
        // Sizes up to the system's own limits without privilege.
        let own = libc::SOL_SOCKET;
        for (forced, plain, size) in [
            (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, RECEIVE_BUFFER),
            (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, SEND_BUFFER),
        ] {
            if socket.set(own, forced, &size, "").is_err() {
                socket.set(own, plain, &size, "cannot set the size of its buffers")?;
            }
        }
        Ok(socket)
    }

    /// 0: all devices.
    fn bind(&self, index: c_int) -> Result<(), EmulateError> {
        let address = libc::sockaddr_ll {
            sll_family: libc::AF_PACKET as u16,
            sll_protocol: ALL_PROTOCOLS,
            sll_ifindex: index,
            ..NOBODY
        };
        // SAFETY: the address is a sockaddr_ll of the length given.
        let bound = unsafe {
            let address = (&raw const address).cast();
            libc::bind(self.raw(), address, size_of::<libc::sockaddr_ll>() as u32)
        };
        if bound == 0 {
            return Ok(());
        }
        Err(EmulateError::device(&self.device, "cannot bind to it")(io::Error::last_os_error()))
    }

    /// Has the kernel keep to itself what is of other devices.
    fn set_filter(&self, indexes: &[c_int]) -> Result<(), EmulateError> {
        const INDEX: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_IFINDEX).cast_unsigned();
        let instruction =
            |code: u32, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf, k };
        let accept = instruction(libc::BPF_RET | libc::BPF_K, 0, u32::MAX);
        let is_it = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        let mut filter = vec![instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, INDEX)];
        for index in indexes {
            filter.extend([instruction(is_it, 1, index.cast_unsigned()), accept]);
        }
        filter.push(instruction(libc::BPF_RET | libc::BPF_K, 0, 0));
        let what = "cannot watch these devices alone";
        let Ok(len) = u16::try_from(filter.len()) else {
            let many = io::Error::other("there are too many of them");
            return Err(EmulateError::device(&self.device, what)(many));
        };
        let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
        self.set(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program, what)
    }

    fn raw(&self) -> c_int {
        self.fd.as_raw_fd()
    }

    fn set<T>(
        &self,
        level: c_int,
        option: c_int,
        value: &T,
        what: &'static str,
    ) -> Result<(), EmulateError> {
        let length = size_of::<T>() as libc::socklen_t;
        // SAFETY: the kernel reads `length` bytes of `value`.
        let set = unsafe {
            libc::setsockopt(self.raw(), level, option, std::ptr::from_ref(value).cast(), length)
        };
        if set == 0 {
            return Ok(());
        }
        Err(EmulateError::device(&self.device, what)(io::Error::last_os_error()))
    }

    /// The device's, in bytes.
    pub(super) fn mtu(&self) -> Result<usize, EmulateError> {
        super::super::mtu::of(self.fd.as_fd(), &self.device)
    }

    /// Frames that did not fit into the buffer since this was last asked; `None`: the kernel does not
    /// say.
    pub(super) fn dropped(&self) -> Option<u64> {
        let mut statistics = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let mut length = size_of::<libc::tpacket_stats>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes to the structure, which any bytes are
        // valid for.
        let got = unsafe {
            let (level, option) = (libc::SOL_PACKET, libc::PACKET_STATISTICS);
            let statistics = (&raw mut statistics).cast();
            libc::getsockopt(self.raw(), level, option, statistics, &raw mut length)
        };
        (got == 0).then(|| u64::from(statistics.tp_drops))
    }

    /// Receives what waits; how many.
    pub(super) fn receive(&self, buffers: &mut Buffers) -> io::Result<usize> {
        // SAFETY: all zeros is a value of these plain structures: null pointers, lengths of 0.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { zeroed() };
        // SAFETY: as above.
        let mut parts: [libc::iovec; BATCH] = unsafe { zeroed() };
        let mut names = [NOBODY; BATCH];
        let frames = buffers.frames.chunks_exact_mut(TAG + FRAME);
        let slots = frames.zip(&mut buffers.control).zip(&mut parts).zip(&mut names);
        for ((((frame, control), part), name), message) in slots.zip(&mut messages) {
            message.msg_hdr.msg_name = std::ptr::from_mut(name).cast();
            message.msg_hdr.msg_namelen = size_of::<libc::sockaddr_ll>() as u32;
            part.iov_base = frame[TAG..].as_mut_ptr().cast();
            part.iov_len = FRAME;
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            message.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
            message.msg_hdr.msg_controllen = CONTROL as _;
        }
        buffers.taken.clear();
        // SAFETY: each message points to a part, control bytes and a name that live until the end
        // of this function, with their lengths.
        let count = unsafe {
            let messages = messages.as_mut_ptr();
            libc::recvmmsg(self.raw(), messages, BATCH as u32, 0, std::ptr::null_mut())
        };
        let Ok(count) = usize::try_from(count) else {
            let error = io::Error::last_os_error();
            return match Errno::from_raw(error.raw_os_error().unwrap_or(0)) {
                // It was taken down: said once, by this.
                Errno::EAGAIN | Errno::EINTR | Errno::ENETDOWN => Ok(0),
                _ => Err(error),
            };
        };
        for (i, (message, name)) in messages[..count].iter().zip(&names).enumerate() {
            let said = said(&message.msg_hdr);
            buffers.take(i, message.msg_len as usize, name, said);
        }
        Ok(count)
    }

    /// Sends the first frames; how many, at least one.
    pub(super) fn send<'a>(&self, frames: impl Iterator<Item = &'a [u8]>) -> Result<usize, Errno> {
        // SAFETY: all zeros is a value of these plain structures: null pointers, lengths of 0.
        let mut messages: [libc::mmsghdr; BATCH] = unsafe { zeroed() };
        // SAFETY: as above.
        let mut parts: [libc::iovec; BATCH] = unsafe { zeroed() };
        let mut count = 0;
        for ((frame, part), message) in frames.zip(&mut parts).zip(&mut messages) {
            part.iov_base = frame.as_ptr().cast_mut().cast();
            part.iov_len = frame.len();
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            count += 1;
        }
        // SAFETY: each of the first `count` messages points to a part that lives until the end of
        // this function, and this to a frame that is borrowed as long; the kernel only reads them.
        let sent = unsafe { libc::sendmmsg(self.raw(), messages.as_mut_ptr(), count, 0) };
        usize::try_from(sent).map_err(|_| Errno::last())
    }
}

/// The device's number.
fn index(device: &str) -> Result<c_int, EmulateError> {
    let index = nix::net::if_::if_nametoindex(device);
    let missing = EmulateError::device(device, "there is no such device here");
    index.map(u32::cast_signed).map_err(|errno| missing(errno.into()))
}

/// Reads the control messages of a message that recvmmsg has filled in.
fn said(message: &libc::msghdr) -> Said {
    let mut said = Said::default();
    // SAFETY: the kernel has set the message's control length to what it has written; the macros
    // stay within it and give null at its end.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: not null, so the kernel has written a header here, aligned as CONTROL is, and
        // behind it as many bytes as its type has.
        unsafe {
            let data = libc::CMSG_DATA(header);
            match ((*header).cmsg_level, (*header).cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    let time = data.cast::<libc::timespec>().read_unaligned();
                    let seconds = time.tv_sec.checked_mul(1_000_000_000);
                    said.real_ns = seconds.and_then(|ns| ns.checked_add(time.tv_nsec));
                }
                (libc::SOL_PACKET, libc::PACKET_AUXDATA) => {
                    let auxiliary = data.cast::<libc::tpacket_auxdata>().read_unaligned();
                    said.unfinished = auxiliary.tp_status & libc::TP_STATUS_CSUMNOTREADY != 0;
                    if auxiliary.tp_status & libc::TP_STATUS_VLAN_VALID != 0 {
                        let known = auxiliary.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
                        let tpid = if known { auxiliary.tp_vlan_tpid } else { 0x8100 };
                        said.tag = Some((tpid, auxiliary.tp_vlan_tci));
                    }
                }
                _ => {}
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    said
}
