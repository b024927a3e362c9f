//! Where a service is: a socket in a directory, or one of a name alone.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;

use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

/// Whether there is a file of the socket. `@` and a name is a socket of the network namespace without
/// one (unix(7), abstract).
pub fn is_file(path: &Path) -> bool {
    !path.as_os_str().as_bytes().starts_with(b"@")
}

fn address(path: &Path) -> io::Result<SocketAddr> {
    match path.as_os_str().as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(path),
    }
}

/// Listens at a path.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    UnixListener::bind_addr(&address(path)?)
}

/// Connects to the service of this user, or of root: anybody can listen at a name without a file.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect_addr(&address(path)?)?;
    let (service, own) = (socket_peercred(&stream)?.uid, geteuid());
    if service != own && !service.is_root() {
        let what = format!("it is user {service}'s, and you are user {own}");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    Ok(stream)
}
