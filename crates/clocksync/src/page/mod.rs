//! The clock page's writer (`schema/clock-page.md`): what the host knows of the global clock, for any
//! program of the machine to read. The reader is the crate `loopscope_clock`.

mod file;
mod hidden;
mod line;
mod mapping;
mod publisher;
mod ring;
mod service;
#[cfg(test)]
mod tests;
mod writer;

pub use file::PageError;
pub use hidden::on_true_counter;
pub use line::OutOfRange;
pub use publisher::{GAP, LEASE, Published, Publisher};
pub use service::{Role, Service};
pub use writer::PageWriter;
