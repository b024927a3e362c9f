//! Questions to a service from processes that do not have it transfer connections.

use std::io;
use std::path::Path;

use loopscope_engine::wire::{Answer, Request, Status};
use loopscope_unix_lines::{connect, receive, send};

/// The number of programs that have devices of the service at a path, and their connections.
///
/// # Errors
/// No service answers there, or it says something else.
pub fn status(path: &Path) -> io::Result<(usize, Vec<Status>)> {
    let stream = connect(path)?;
    send(&stream, &Request::Status, &[])?;
    match receive(&stream)? {
        Some((Answer::Status { programs, connections }, _)) => Ok((programs, connections)),
        _ => Err(io::Error::other("it answers what was not asked; is it of another version?")),
    }
}
