//! The processes of a component, a host or a run, wherever they have moved to: those in its cgroup
//! where the agent may make one, else those whose environment has its marks. A host and a run also
//! own what is in their network namespaces.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;

use crate::cgroup;
use crate::processes::{Killed, Search};

/// What tells them.
#[derive(Debug)]
pub(crate) struct Ownership {
    cgroup: Option<PathBuf>,
    search: Search,
}

impl Ownership {
    /// Those in `cgroup`; without one, those with all of `marks`, entries `NAME=value` of an
    /// environment; and those in network namespaces of the inodes `namespaces`.
    pub(crate) fn new(
        cgroup: Option<PathBuf>,
        marks: Vec<String>,
        namespaces: Vec<u64>,
    ) -> Ownership {
        let marks = if cgroup.is_some() { vec![] } else { marks };
        Ownership { cgroup, search: Search { namespaces, marks } }
    }

    /// Whether there are any. Processes that are only in a namespace do not count where there is a
    /// cgroup: they are not the run's programs.
    pub(crate) fn any(&self) -> bool {
        match &self.cgroup {
            Some(cgroup) => cgroup::is_populated(cgroup),
            None => !self.search.find().is_empty(),
        }
    }

    /// Sends SIGTERM to those in the cgroup, except to those of process groups `without`.
    pub(crate) fn terminate(&self, without: &[u32]) {
        if let Some(cgroup) = &self.cgroup {
            cgroup::signal(cgroup, Signal::TERM, without);
        }
    }

    /// Kills them, and waits for at most twice `patience` until they are gone.
    pub(crate) fn kill(&self, patience: Duration) -> io::Result<Killed> {
        let mut all = match &self.cgroup {
            Some(cgroup) => cgroup::kill(cgroup, patience)?,
            None => Killed::default(),
        };
        if !self.search.is_empty() {
            let Killed { killed, survivors } = self.search.kill(patience);
            all.killed.extend(killed);
            all.survivors.extend(survivors);
        }
        Ok(all)
    }
}
