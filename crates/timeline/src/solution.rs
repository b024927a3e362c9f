//! The clocks of a run, solved: what its streams are placed by, and what else is told of them.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::build::Timeline;
use crate::clocks::HostClock;
use crate::clocks::LoopResiduals;
use crate::error::BuildError;
use crate::source::Problem;
use crate::stored::{self, Stored};

/// All that a time line needs in addition to its streams.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Solution {
    /// In the order of names.
    pub hosts: Vec<SolvedHost>,
    /// What the edges between followers tell of the clocks.
    pub loops: Vec<LoopResiduals>,
    /// What is wrong with those edges.
    pub problems: Vec<Problem>,
}

/// A host of a [`Solution`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SolvedHost {
    /// Its name, which is its directory's.
    pub host: String,
    /// Its clock.
    pub clock: HostClock,
    /// What is wrong with its probes.
    pub problems: Vec<Problem>,
}

impl Stored for Solution {
    const WHAT: &str = "solution of clocks";
    const VERSION: u32 = 1;
}

impl Solution {
    /// Loads what [`Self::store`] stored: the same to the bit.
    pub fn load(path: &Path) -> Result<Solution, BuildError> {
        stored::load(path)
    }

    /// Stores it as JSON.
    pub fn store(&self, path: &Path) -> Result<(), BuildError> {
        stored::store(self, path)
    }

    /// The time line of the hosts in a directory. What their kernels did is in `kernels`, in
    /// `<host>/kernel/`.
    pub fn timeline(self, hosts: &Path, kernels: &Path) -> Result<Timeline, BuildError> {
        let mut timeline = Timeline::new();
        for SolvedHost { host, clock, problems } in self.hosts {
            problems.into_iter().for_each(|problem| timeline.report(problem));
            timeline.add_host(&hosts.join(&host), &host, clock)?;
            timeline.add_kernel(&kernels.join(&host).join("kernel"))?;
        }
        self.problems.into_iter().for_each(|problem| timeline.report(problem));
        self.loops.into_iter().for_each(|found| timeline.add_loop(found));
        Ok(timeline)
    }
}
