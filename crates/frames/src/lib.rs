//! Frames of network devices, to and from a program: AF_XDP sockets, rings of programs in the kernel,
//! and TAP devices.
//!
//! An AF_XDP socket (Documentation/networking/af_xdp.rst) has the frames that come to a device, in
//! rings that are shared with the kernel, in copy mode; a program on the device hands them to it, and
//! writes before each when it came. In the rings that programs of traffic control write to
//! ([`packets`]) they are as the kernel has them, also several segments as one. What is written to a TAP device
//! (Documentation/networking/tuntap.rst) comes to the kernel as if it came to that device.

pub mod packets;
mod redirect;
mod ring;
mod socket;
mod tap;

use std::io;

use thiserror::Error;

pub use redirect::{Redirect, STAMP, try_out};
pub use socket::{LARGEST, SEND, Socket};
pub use tap::{HEADER, Inlet, Offload, Outlet, Train};

/// Why a device has no socket.
#[derive(Debug, Error)]
#[error("{what}: {source}")]
pub struct SocketError {
    /// What was tried.
    pub what: &'static str,
    /// What the kernel said.
    pub source: io::Error,
}
