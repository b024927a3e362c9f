//! The phase protocol, program's side (`schema/phase-protocol.md`).
//!
//! A program names its phases and asks for one after the other. The agent that started it answers
//! when each begins. Without an agent, the program runs them in the order named, with the
//! configuration from its command line.
//!
//! ```no_run
//! use loopscope_phase::{Config, PhaseError, RunError, Session};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let arguments = Config::from_arguments(std::env::args().skip(1))?;
//! let mut session = Session::connect(&["listen", "run"], arguments)?;
//! session.run(|phase, config| -> std::io::Result<_> {
//!     match phase.name.as_str() {
//!         "listen" => Ok(vec![("port".to_owned(), 40123.into())]),
//!         _ => Ok(vec![]),
//!     }
//! })?;
//! # Ok(())
//! # }
//! ```
//!
//! [`Functions`] are a program as a table, a function for each phase.
//!
//! The C header `loopscope/phase.h` and the Python module `loopscope.phase` speak the same bytes.

mod config;
mod error;
mod functions;
mod inherited;
mod message;
mod session;
mod wait;

pub use config::Config;
pub use error::{PhaseError, RunError};
pub use functions::Functions;
pub use message::{Peer, Phase, Values};
pub use serde_json::Value;
pub use session::Session;
