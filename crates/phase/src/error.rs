//! What can go wrong between a program and its agent.

use std::fmt;
use std::io;

/// An error of the phase protocol or of the configuration that came with it.
#[derive(Debug, thiserror::Error)]
pub enum PhaseError {
    /// `LOOPSCOPE_PHASE_FD` does not name a socket that this process can use.
    #[error(
        "LOOPSCOPE_PHASE_FD is `{value}`, {problem}; unset it to run the phases without an agent"
    )]
    Descriptor {
        /// The variable's value.
        value: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The socket failed.
    #[error("cannot talk to the loopscope agent: {0}")]
    Socket(#[from] io::Error),
    /// The agent went away without `end`.
    #[error("the loopscope agent closed the connection without ending the run")]
    Closed,
    /// The agent sent something that is not in the protocol.
    #[error("the loopscope agent sent {0}")]
    Protocol(String),
    /// The program used the session in the wrong order, or gave it values that cannot be sent.
    #[error("{0}")]
    Misuse(String),
    /// A key of the configuration has a value of the wrong type.
    #[error("`{key}` is {found}; it must be {wanted}")]
    Config {
        /// The key.
        key: String,
        /// The value as JSON.
        found: String,
        /// The type that the program asked for.
        wanted: &'static str,
    },
    /// A word of the command line is not `--key value` or `--key=value`.
    #[error("`{0}` on the command line is not --key value or --key=value")]
    Argument(String),
}

/// Why [`Session::run`](crate::Session::run) ended early.
#[derive(Debug)]
pub enum RunError<E> {
    /// The dialogue with the agent failed.
    Dialogue(PhaseError),
    /// The handler failed in a phase; the agent has been told.
    Phase {
        /// The phase.
        phase: String,
        /// The handler's error.
        error: E,
    },
}

impl<E: fmt::Display> fmt::Display for RunError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Dialogue(error) => error.fmt(f),
            // `#` where the caller asks for it: anyhow then prints the whole chain.
            RunError::Phase { phase, error } if f.alternate() => {
                write!(f, "phase {phase}: {error:#}")
            }
            RunError::Phase { phase, error } => write!(f, "phase {phase}: {error}"),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for RunError<E> {}
