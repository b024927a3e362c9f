//! Programs to measure. Each is instrumented and can take part in an experiment's phases.
//!
//! They are: the distributed pipeline ([`pipe`]), the stimulus-response experiment ([`stimulus`]),
//! packets at exact times ([`pace`]), message patterns ([`pattern`]), bulk data ([`ettcp`]),
//! competing load ([`burn`]) and planted stalls ([`stall`]). [`commands`] lets programs take part
//! in phases that know nothing of them.
//!
//! Their settings come from the command line. Under an agent the component's `with:` overrides
//! them, key by key.

pub mod burn;
pub mod commands;
mod cpu_time;
mod deadline;
mod departures;
pub mod ettcp;
pub mod pace;
pub mod pattern;
pub mod pipe;
mod program;
mod result;
mod settings;
pub mod stall;
mod stamped;
pub mod stimulus;
mod stop;
mod tcp;

pub use burn::{BurnArgs, CompileOneArgs, main_burn, main_compile_one};
pub use commands::{CommandsArgs, main_commands};
pub use ettcp::{EttcpArgs, main_ettcp};
pub use loopscope_quantity as quantity;
pub use pace::{PaceArgs, main_pace};
pub use pattern::{PatternArgs, main_pattern};
pub use pipe::{PipeArgs, main_pipe};
pub use stall::{StallArgs, main_stall};
pub use stimulus::{StimulusArgs, main_stimulus};
pub use tcp::ListenArgs;
