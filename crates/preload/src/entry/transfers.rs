//! Functions that transfer data.
#![allow(unsafe_code)]
#![allow(clippy::missing_safety_doc)] // Each has the safety of the function that it stands for.

use libc::{c_int, c_void, cmsghdr, iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use super::calls::{Next, by_kernel, receive_parts, send_parts, size_of_all, until_done};
use crate::datagrams::{self, Told};
use crate::options::{How, receiving, sending};
use crate::{first, inside, real, table};

const FLAGS: &str = "flags that are the kernel's";
const ADDRESS: &str = "a call that sends to an address";

fn piece(start: *const c_void, size: size_t) -> iovec {
    iovec { iov_base: start.cast_mut(), iov_len: size }
}

/// Receives as recv(2) does.
#[inline(never)]
unsafe fn receive_one(fd: c_int, to: *mut c_void, size: size_t, flags: c_int) -> Next {
    // SAFETY: the caller's.
    unsafe { receive_told(fd, to, size, flags, &mut Told::default()) }
}

/// The same, with what is told of a datagram.
unsafe fn receive_told(
    fd: c_int,
    to: *mut c_void,
    size: size_t,
    flags: c_int,
    told: &mut Told,
) -> Next {
    let part = piece(to, size);
    match receiving(flags, table::is_datagrams(fd)) {
        // SAFETY: the program's: `to` has room for so many bytes.
        Some(how) => unsafe { receive_parts(fd, (&raw const part, 1), how, told) },
        None => by_kernel(fd, FLAGS),
    }
}

/// Reads as read(2) does. On a socket of UDP a read of no bytes takes no datagram.
unsafe fn read_one(fd: c_int, to: *mut c_void, size: size_t) -> Next {
    if size == 0 && table::is_datagrams(fd) {
        return Next::Kernel(false);
    }
    // SAFETY: the caller's.
    unsafe { receive_one(fd, to, size, 0) }
}

/// Reads as readv(2) does.
unsafe fn read_parts(fd: c_int, parts: *const iovec, count: c_int) -> Next {
    let Ok(count) = usize::try_from(count) else { return by_kernel(fd, FLAGS) };
    // SAFETY: the caller's.
    unsafe {
        if table::is_datagrams(fd) && size_of_all((parts, count)) == 0 {
            return Next::Kernel(false);
        }
        receive_parts(fd, (parts, count), How::default(), &mut Told::default())
    }
}

/// Writes as writev(2) does. On a socket of UDP no bytes are no datagram.
unsafe fn write_parts(fd: c_int, parts: *const iovec, count: c_int) -> Next {
    let Ok(count) = usize::try_from(count) else { return by_kernel(fd, FLAGS) };
    // SAFETY: the caller's.
    unsafe {
        if table::is_datagrams(fd) && size_of_all((parts, count)) == 0 {
            return Next::Kernel(false);
        }
        send_parts(fd, (parts, count), How::default())
    }
}

/// Sends as send(2) does.
#[inline(never)]
unsafe fn send_one(fd: c_int, from: *const c_void, size: size_t, flags: c_int) -> Next {
    let part = piece(from, size);
    match sending(flags, table::is_datagrams(fd)) {
        // SAFETY: the program's: `from` has so many bytes.
        Some(how) => unsafe { send_parts(fd, (&raw const part, 1), how) },
        None => by_kernel(fd, FLAGS),
    }
}

/// Defines functions that begin with a descriptor: those of the kernel's cost one load. The
/// expression says what is next of those that may be the stack's.
macro_rules! functions {
    ($($name:ident = $real:ident ($fd:ident $(, $arg:ident: $type:ty)*) $next:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($fd: c_int $(, $arg: $type)*) -> ssize_t {
            // SAFETY: the caller's.
            let call = || unsafe { real::$real($fd $(, $arg)*) };
            if table::is_plain($fd) {
                return call();
            }
            // SAFETY: the caller's.
            until_done($fd, || unsafe { $next }, call)
        }
    )*};
}

/// A call that the C library refuses, because there is less room than bytes.
const REFUSED: Next = Next::Kernel(false);

functions! {
    read = read (fd, to: *mut c_void, size: size_t) read_one(fd, to, size);
    __read = read (fd, to: *mut c_void, size: size_t) read_one(fd, to, size);
    write = write (fd, from: *const c_void, size: size_t) send_one(fd, from, size, 0);
    __write = write (fd, from: *const c_void, size: size_t) send_one(fd, from, size, 0);
    __read_chk = __read_chk (fd, to: *mut c_void, size: size_t, room: size_t)
        if size > room { REFUSED } else { read_one(fd, to, size) };
    recv = recv (fd, to: *mut c_void, size: size_t, flags: c_int)
        receive_one(fd, to, size, flags);
    __recv_chk = __recv_chk (fd, to: *mut c_void, size: size_t, room: size_t, flags: c_int)
        if size > room { REFUSED } else { receive_one(fd, to, size, flags) };
    send = send (fd, from: *const c_void, size: size_t, flags: c_int)
        send_one(fd, from, size, flags);
    __send = send (fd, from: *const c_void, size: size_t, flags: c_int)
        send_one(fd, from, size, flags);
    recvfrom = recvfrom (fd, to: *mut c_void, size: size_t, flags: c_int, address: *mut sockaddr,
        length: *mut socklen_t)
        receive_from(fd, (to, size), flags, (address, length));
    __recvfrom_chk = __recvfrom_chk (fd, to: *mut c_void, size: size_t, room: size_t, flags: c_int,
        address: *mut sockaddr, length: *mut socklen_t)
        if size > room {
            REFUSED
        } else {
            receive_from(fd, (to, size), flags, (address, length))
        };
    sendto = sendto (fd, from: *const c_void, size: size_t, flags: c_int,
        address: *const sockaddr, length: socklen_t)
        if is_elsewhere(fd, address.cast(), length) {
            by_kernel(fd, ADDRESS)
        } else {
            send_one(fd, from, size, flags)
        };
    readv = readv (fd, parts: *const iovec, count: c_int) read_parts(fd, parts, count);
    writev = writev (fd, parts: *const iovec, count: c_int) write_parts(fd, parts, count);
    recvmsg = recvmsg (fd, message: *mut msghdr, flags: c_int)
        receive_message(fd, message, flags);
}

/// Receives as recvfrom(2) does: a connection of TCP tells no address.
unsafe fn receive_from(
    fd: c_int,
    (to, size): (*mut c_void, size_t),
    flags: c_int,
    (address, length): (*mut sockaddr, *mut socklen_t),
) -> Next {
    let mut told = Told::default();
    // SAFETY: the caller's.
    unsafe {
        let next = receive_told(fd, to, size, flags, &mut told);
        if matches!(next, Next::Done(0..)) && !address.is_null() && !length.is_null() {
            *length = put_address(&told, address.cast(), *length);
        }
        next
    }
}

/// Writes where a datagram is from, as far as there is room; the bytes of the whole address.
unsafe fn put_address(told: &Told, address: *mut u8, room: socklen_t) -> socklen_t {
    let from = told.peer.as_ref().map_or(&[][..], |peer| peer.bytes());
    let copied = from.len().min(room as usize);
    // SAFETY: the caller has so much room there.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), address, copied) };
    from.len() as socklen_t
}

/// Receives as recvmsg(2) does: a connection of TCP has nothing to tell besides its data.
unsafe fn receive_message(fd: c_int, message: *mut msghdr, flags: c_int) -> Next {
    let how = receiving(flags, table::is_datagrams(fd)).filter(|_| !message.is_null());
    let Some(how) = how else {
        return by_kernel(fd, FLAGS);
    };
    // SAFETY: the caller's: the message lives, with its pieces.
    unsafe {
        let parts = ((*message).msg_iov.cast_const(), (*message).msg_iovlen);
        let mut told = Told::default();
        let next = receive_parts(fd, parts, how, &mut told);
        if matches!(next, Next::Done(0..)) {
            let told_of = &mut *message;
            told_of.msg_namelen = match told_of.msg_name.is_null() {
                true => 0,
                false => put_address(&told, told_of.msg_name.cast(), told_of.msg_namelen),
            };
            told_of.msg_controllen = 0;
            told_of.msg_flags = if told.is_cut { libc::MSG_TRUNC } else { 0 };
        }
        next
    }
}

/// Whether a call on a socket of UDP sends to another address than that of its other end, or to one
/// at all before the stack has its datagrams.
unsafe fn is_elsewhere(fd: c_int, address: *const u8, length: socklen_t) -> bool {
    if address.is_null() || length == 0 || !table::is_datagrams(fd) {
        return false;
    }
    // SAFETY: the caller's: there are so many bytes.
    let given = unsafe { std::slice::from_raw_parts(address, length as usize) };
    !datagrams::is_peer(fd, given)
}

/// Sends as sendmsg(2) does. Descriptors that are passed are another process's as well from then
/// on.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sendmsg(
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's: the message lives, with its pieces.
    unsafe {
        let call = || real::sendmsg(fd, message, flags);
        let Some(told) = message.as_ref() else { return call() };
        if told.msg_controllen > 0 && !inside::is_inside() {
            give_back_passed(message);
        }
        if table::is_plain(fd) {
            return call();
        }
        let how = || {
            let how = sending(flags, table::is_datagrams(fd))?;
            match told.msg_controllen {
                0 => Some(how),
                _ => Some(How { segment: Some(segment(fd, message)?), ..how }),
            }
        };
        let next = || match how() {
            Some(_) if is_elsewhere(fd, told.msg_name.cast(), told.msg_namelen) => {
                by_kernel(fd, ADDRESS)
            }
            Some(how) => send_parts(fd, (told.msg_iov.cast_const(), told.msg_iovlen), how),
            None => by_kernel(fd, FLAGS),
        };
        until_done(fd, next, call)
    }
}

/// How large the datagrams of a message are, where that is all its control data say (UDP_SEGMENT).
unsafe fn segment(fd: c_int, message: *const msghdr) -> Option<u16> {
    // SAFETY: as in `give_back_passed`.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(message);
        let cmsghdr { cmsg_len, cmsg_level, cmsg_type, .. } = header.as_ref().copied()?;
        let is_it = (cmsg_level, cmsg_type) == (libc::IPPROTO_UDP, libc::UDP_SEGMENT)
            && cmsg_len == libc::CMSG_LEN(size_of::<u16>() as u32) as usize
            && libc::CMSG_NXTHDR(message, header).is_null();
        (is_it && table::is_datagrams(fd))
            .then(|| libc::CMSG_DATA(header).cast::<u16>().read_unaligned())
    }
}

/// Gives back the connections of all descriptors in a message (unix(7), SCM_RIGHTS).
#[inline(never)]
unsafe fn give_back_passed(message: *const msghdr) {
    // SAFETY: the caller has a message that sendmsg(2) could read, and the macros stay inside of
    // its control data.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(cmsghdr { cmsg_len, cmsg_level, cmsg_type, .. }) = header.as_ref().copied() {
            if (cmsg_level, cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let data = libc::CMSG_DATA(header).cast::<c_int>();
                let bytes = cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
                for place in 0..bytes / size_of::<c_int>() {
                    let passed = data.add(place).read_unaligned();
                    first::give_back(passed, c"SCM_RIGHTS");
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
}
