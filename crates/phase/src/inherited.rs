//! Taking over the socket that the agent left open for this program.

use std::ffi::c_int;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::PhaseError;

/// Whether this process has taken its socket.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The socket named by `LOOPSCOPE_PHASE_FD`; `None` where the variable is not set. Programs that
/// this one starts do not inherit it.
#[allow(unsafe_code)]
pub(crate) fn take() -> Result<Option<UnixStream>, PhaseError> {
    let Some(value) = std::env::var_os("LOOPSCOPE_PHASE_FD") else { return Ok(None) };
    let value = value.to_string_lossy().into_owned();
    let fd: c_int = match value.parse() {
        Ok(fd) if fd >= 0 => fd,
        _ => return Err(PhaseError::Descriptor { value, problem: "which is not a number" }),
    };
    let mut kind: c_int = 0;
    let mut length = size_of::<c_int>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `kind`; a descriptor that is not open or
    // no socket is reported as an error.
    let result = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_TYPE,
            std::ptr::from_mut(&mut kind).cast(),
            &raw mut length,
        )
    };
    if result != 0 || kind != libc::SOCK_STREAM {
        let problem = "which is not an open stream socket";
        return Err(PhaseError::Descriptor { value, problem });
    }
    // Relaxed: the flag guards nothing but itself.
    if TAKEN.swap(true, Ordering::Relaxed) {
        let problem = "whose socket this program has already taken";
        return Err(PhaseError::Descriptor { value, problem });
    }
    // SAFETY: fcntl with F_SETFD touches no memory; the descriptor was open just above.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } != 0 {
        return Err(PhaseError::Socket(std::io::Error::last_os_error()));
    }
    // SAFETY: the descriptor is open, and the variable says that it was inherited for this use; the
    // swap of TAKEN above makes this the only owner made of it.
    Ok(Some(UnixStream::from(unsafe { OwnedFd::from_raw_fd(fd) })))
}
