//! Programs to measure, each instrumented and able to take part in an experiment's phases: the
//! distributed pipeline ([`pipe`]) and the stimulus-response experiment ([`stimulus`]).
//!
//! Their settings come from the command line; under an agent the component's `with:` overrules
//! them, key by key.

mod deadline;
pub mod pipe;
mod program;
pub mod quantity;
mod settings;
pub mod stimulus;
mod tcp;

pub use pipe::{PipeArgs, main_pipe};
pub use stimulus::{StimulusArgs, main_stimulus};
pub use tcp::ListenArgs;
