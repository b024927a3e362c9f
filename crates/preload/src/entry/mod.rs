//! The functions that programs call in place of the C library's.

mod calls;
mod epolls;
mod files;
mod polls;
mod several;
mod signals;
mod sockets;
mod transfers;

pub(crate) use sockets::before_close_range;
