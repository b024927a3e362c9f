//! A host whose streams are read, and what a reader of them reports.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::clocks::HostClock;
use crate::cursor::Decoder;

/// Follows the progress: bytes done, and all; says whether to go on.
pub type Progress<'a> = dyn FnMut(u64, u64) -> bool + 'a;

/// Something that a reader of the run has to know: damage, disagreement, a changed name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Host.
    pub host: String,
    /// File under the host's directory.
    pub file: String,
    /// What, with the offset in the file where there is one.
    pub what: String,
}

/// A host and what its streams are read with.
pub(crate) struct Host {
    pub name: String,
    pub dir: PathBuf,
    pub clock: HostClock,
    /// Those that it has.
    pub traces: Vec<Trace>,
}

/// A trace directory of a host.
pub(crate) struct Trace {
    /// The folder that has `trace/` and `loss.json`.
    pub dir: PathBuf,
    /// That folder under the host's, for people: empty, or ending in `/`.
    pub under: &'static str,
    /// By stream class.
    pub decoders: BTreeMap<u32, Decoder>,
}
