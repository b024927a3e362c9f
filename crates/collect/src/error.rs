//! What can go wrong while collecting.

use std::io;
use std::path::{Path, PathBuf};

use loopscope_predicate::PredicateError;

/// Why collecting or recording could not go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The output directory is taken.
    #[error("{} already holds a trace; choose another directory or remove it", .0.display())]
    TraceExists(PathBuf),
    /// There is nothing to go on with.
    #[error(
        "{} holds no recording whose recorder was killed: none that `record` or `attach` began and \
         did not finish", .0.display()
    )]
    NotKilled(PathBuf),
    /// A recording goes on.
    #[error(
        "{} is still being recorded{}; end that first", out.display(),
        recorder.map_or(String::new(), |pid| format!(" by process {pid}"))
    )]
    StillRecording {
        /// Its output directory.
        out: PathBuf,
        /// Process number of the recorder, if it is known.
        recorder: Option<u32>,
    },
    /// What a killed recorder had not taken is lost.
    #[error(
        "the programs' memory is gone ({}): the machine was restarted, or `loopscope reset` removed \
         it. What had been taken until then is in {}, which babeltrace2 reads; there can be no \
         account of the rest", place.display(), out.display()
    )]
    Gone {
        /// The output directory.
        out: PathBuf,
        /// Where the memory was.
        place: PathBuf,
    },
    /// A file or directory could not be used.
    #[error("cannot {what} {}", path.display())]
    File {
        /// What was tried: a verb.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The command to record could not be started.
    #[error("cannot start {program:?}")]
    Start {
        /// Its first word.
        program: String,
        /// Why not.
        source: io::Error,
    },
    /// A process has no call sites, or none that a collector could reach.
    #[error(transparent)]
    Entities(#[from] crate::entities::Error),
    /// There is no command to record.
    #[error("there is no command to record")]
    NoCommand,
    /// A stream that programs would not understand.
    #[error("stream {name:?}: {what}")]
    Stream {
        /// Its name.
        name: String,
        /// What is wrong with it.
        what: String,
    },
    /// A predicate is not one.
    #[error(transparent)]
    Predicate(#[from] PredicateError),
    /// What to record was not told as `schema/streams.md` has it.
    #[error("what to record is not understood: {0}")]
    Recording(#[from] serde_json::Error),
    /// What to record was given in a version of the format that is not known here.
    #[error("what to record is told in version {0}, this collector reads version 1")]
    RecordingVersion(u32),
    /// The host does not say what is needed.
    #[error("cannot {what}")]
    Host {
        /// What was tried: a verb.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
}

impl Error {
    /// With what caused it.
    pub(crate) fn in_a_line(&self) -> String {
        let source = std::error::Error::source(self);
        let causes = std::iter::successors(source, |error| error.source());
        causes.fold(self.to_string(), |text, cause| format!("{text}: {cause}"))
    }

    pub(crate) fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::File { what, path, source }
    }

    pub(crate) fn host<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Error {
        move |source| Error::Host { what, source: source.into() }
    }
}
