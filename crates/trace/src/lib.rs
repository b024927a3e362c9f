//! Instrumentation of programs, and the memory layout that the collector reads.
//!
//! Call sites record events ([`event!`]), intervals ([`interval!`], [`interval_start!`],
//! [`interval_end!`]), counters ([`counter_add!`], [`counter_log!`], [`counter_reset!`]),
//! histograms ([`histogram_add!`], [`histogram_log!`], [`histogram_reset!`], [`histogram_range!`])
//! and the paths of messages ([`flow_out!`], [`flow_in!`], [`flow_link!`]). [`describe!`] and
//! [`describe_group!`] give units and descriptions for people.
//!
//! The recording itself is C (`c/` in this crate), which C and C++ programs link as libloopscope;
//! this crate links the same code into Rust programs. It needs neither std nor an allocator.
//!
//! ```
//! fn send(id: u64, size: u32) {
//!     loopscope_trace::event!("pipe", "sent", id, size = size, load = 0.25f32);
//! }
//! # send(1, 2);
//! ```

#![no_std]

pub mod calibrate;
pub mod configure;
mod counter;
mod describe;
mod emit;
mod event;
mod field;
mod flow;
mod histogram;
mod interval;
mod later;
pub mod layout;
mod runtime;
mod site;

pub use field::{Field, Id, Payload};
pub use later::register_here;
pub use runtime::{FieldType, Kind, Refused, RuntimeSite, Value};
pub use site::{Site, thread_init};

#[doc(hidden)]
pub use histogram::range;
pub use interval::Interval;
#[doc(hidden)]
pub use interval::nanoseconds;
#[doc(hidden)]
pub use site::kind;
