//! Errors of making tables.

use std::path::{Path, PathBuf};

/// Why tables could not be made at all. Damage inside a stream is a [`Problem`] instead.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A file or directory could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The path.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A trace's metadata is not loopscope's.
    #[error("{path}: {source}")]
    Metadata {
        /// The metadata file.
        path: PathBuf,
        /// What is wrong with it.
        source: loopscope_ctf::ParseError,
    },
    /// What another process left is not what was expected.
    #[error("{path} {what}")]
    Stored {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        what: String,
    },
    /// A stream file that nobody has decoded.
    #[error("{path}: its events are not in the tables; make the time line again")]
    NotDecoded {
        /// The file.
        path: PathBuf,
    },
    /// The caller has cancelled through the progress callback.
    #[error("stopped")]
    Stopped,
    /// A loss account is not what its schema says.
    #[error("{path}: {source}")]
    Loss {
        /// The loss.json.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The table library refused a table.
    #[error(transparent)]
    Arrow(#[from] arrow_schema::ArrowError),
    /// The table library could not write a table.
    #[error(transparent)]
    Parquet(#[from] parquet::errors::ParquetError),
}

/// The bytes of a file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, BuildError> {
    std::fs::read(path).map_err(|source| BuildError::Io { path: path.to_owned(), source })
}
