//! Where the service of channels is: a socket in a directory, or one with a name alone.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::geteuid;

/// The environment variable that says where the service's socket is.
const VARIABLE: &str = "LOOPSCOPE_STM";

/// Where the service's socket is: what `LOOPSCOPE_STM` says, else a file of the user's runtime
/// directory, else one of a directory in /tmp that belongs to the user alone.
///
/// `@` and a name is a socket of the network namespace, without a file (unix(7), abstract).
pub fn socket_path() -> PathBuf {
    if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return path.into();
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty());
    match runtime {
        Some(runtime) => Path::new(&runtime).join("loopscope-stm/socket"),
        None => format!("/tmp/loopscope-stm-{}/socket", geteuid()).into(),
    }
}

/// Whether there is a file of the socket.
pub(crate) fn is_file(path: &Path) -> bool {
    !path.as_os_str().as_bytes().starts_with(b"@")
}

fn address(path: &Path) -> io::Result<SocketAddr> {
    match path.as_os_str().as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(path),
    }
}

pub(crate) fn bind(path: &Path) -> io::Result<UnixListener> {
    UnixListener::bind_addr(&address(path)?)
}

/// Connects to the service of this user, or of root: anybody can listen at a name without a file.
pub(crate) fn connect(path: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect_addr(&address(path)?)?;
    let (service, own) = (getsockopt(&stream, PeerCredentials)?.uid(), geteuid().as_raw());
    if service != own && service != 0 {
        let what = format!("it is user {service}'s, and you are user {own}");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    Ok(stream)
}
