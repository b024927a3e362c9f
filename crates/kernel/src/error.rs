//! Why a kernel cannot be recorded.

use crate::format::FormatError;
use crate::programs::ProgramsError;
use crate::recording::RecordingError;
use crate::tracefs::TracefsError;

/// Why a kernel cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecorderError {
    /// The kernel refuses.
    #[error(transparent)]
    Tracefs(#[from] TracefsError),
    /// A file of the recording.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// A tracepoint whose description is not understood.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The programs that record in the kernel.
    #[error(transparent)]
    Programs(ProgramsError),
    /// The kernel's pages.
    #[error("{0}")]
    Pages(String),
    /// The thread.
    #[error("the thread that records kernel events {0}")]
    Thread(String),
}
