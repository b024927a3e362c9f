//! What can go wrong with a router.

use std::io;

use crate::iproute::BatchError;

/// Why links cannot be emulated.
#[derive(Debug, thiserror::Error)]
pub enum EmulateError {
    /// What is asked for cannot be.
    #[error("{0}")]
    Document(String),
    /// The program that controlled the router is gone.
    #[error("{0}")]
    Abandoned(String),
    /// The mover that was asked for.
    #[error(
        "mover: netem cannot be used here: {0}; load the module sch_netem into the kernel, or use \
         mover: auto"
    )]
    NoNetem(BatchError),
    /// What the kernel is to do.
    #[error("{what}: {cause}")]
    Kernel {
        /// What was tried.
        what: String,
        /// What `ip`, `bridge` or `tc` says.
        cause: BatchError,
    },
    /// A port's device.
    #[error("device {device}: {what}: {cause}")]
    Device {
        /// Its name.
        device: String,
        /// What was tried.
        what: &'static str,
        /// The system's answer.
        cause: io::Error,
    },
    /// Anything of the whole router's.
    #[error("{what}: {cause}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's answer.
        cause: io::Error,
    },
}

impl EmulateError {
    /// For `map_err` on what is done to a device.
    pub(crate) fn device(
        device: &str,
        what: &'static str,
    ) -> impl FnOnce(io::Error) -> EmulateError {
        let device = device.to_owned();
        move |cause| EmulateError::Device { device, what, cause }
    }

    /// For `map_err` on anything else.
    pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> EmulateError {
        move |cause| EmulateError::System { what, cause: cause.into() }
    }
}
