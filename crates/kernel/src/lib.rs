//! Events of a machine's kernel.
//!
//! On the host, [`tracefs`] and [`recorder`] write the kernel's pages to files as they are, stamped
//! with the counter that the programs' events are stamped by. At the desk, [`transcode`] makes
//! streams of our dialect of CTF of them, which the time line reads like those of programs: this
//! takes time that the host has not.

mod buffer;
mod cost;
mod error;
pub mod format;
mod output;
pub mod page;
pub mod programs;
pub mod recorder;
pub mod recording;
pub mod samples;
pub mod stolen;
mod taker;
pub mod tracefs;
pub mod transcode;
