//! Ending a host's components and their descendants.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::{Host, HostError};
use crate::component::{Component, Order};
use crate::ownership::Ownership;
use crate::processes::namespace_of;

impl Host {
    /// Ends the components `names`, or all and with them whatever else runs on their host. Returns
    /// what does not end, for people.
    pub(crate) async fn stop(
        &self,
        names: &[String],
        grace: Duration,
    ) -> Result<Vec<String>, HostError> {
        let all = names.is_empty();
        let targets: Vec<(String, Arc<Component>)> = if all {
            self.components().iter().map(|(name, c)| (name.clone(), c.clone())).collect()
        } else {
            let find = |name: &String| Ok((name.clone(), self.component(name)?));
            names.iter().map(find).collect::<Result<_, HostError>>()?
        };
        if targets.is_empty() {
            // To look for processes takes some milliseconds for each thousand of the machine, and
            // there may be a thousand hosts on it.
            return Ok(vec![]);
        }
        let speaking: Vec<_> = targets.iter().filter(|(_, c)| c.speaks_phases()).collect();
        for (_, component) in &speaking {
            component.order(Order::End);
        }
        let asked = Instant::now();
        for (_, component) in &speaking {
            component.wait(grace.saturating_sub(asked.elapsed())).await;
        }
        let owned: Vec<Ownership> = if all {
            vec![self.owned(None)]
        } else {
            targets.iter().map(|(name, _)| self.owned(Some(name))).collect()
        };
        let living: Vec<_> = targets.iter().filter(|(_, c)| !c.is_over()).collect();
        for (_, component) in &living {
            component.order(Order::Signal(Signal::SIGTERM));
        }
        // Descendants that have left their component's process group, or outlived it.
        let groups: Vec<u32> = living.iter().map(|(_, component)| component.pid).collect();
        tokio::task::block_in_place(|| owned.iter().for_each(|owned| owned.terminate(&groups)));
        let asked = Instant::now();
        for (_, component) in &targets {
            component.wait(grace.saturating_sub(asked.elapsed())).await;
        }
        // Descendants have the rest of the grace.
        while any_left(&owned).await && asked.elapsed() < grace {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        for (_, component) in targets.iter().filter(|(_, c)| !c.is_over()) {
            component.order(Order::Signal(Signal::SIGKILL));
        }
        let host = self.name.clone();
        let survivors = tokio::task::spawn_blocking(move || {
            let kill = |owned: &Ownership| match owned.kill(Duration::from_secs(5)) {
                Ok(killed) => {
                    let describe = |pid| format!("process {pid} of host {host} does not end");
                    killed.survivors.into_iter().map(describe).collect()
                }
                Err(error) => vec![format!("cannot end processes of host {host}: {error}")],
            };
            owned.iter().flat_map(kill).collect::<Vec<String>>()
        });
        let survivors = survivors.await.unwrap_or_default();
        for (_, component) in &targets {
            component.wait(Duration::from_secs(5)).await;
        }
        Ok(survivors)
    }

    /// Processes of this host, or of one component.
    fn owned(&self, component: Option<&str>) -> Ownership {
        let marks = self.marks(component).iter().map(|(n, v)| format!("{n}={v}")).collect();
        // Only the host as a whole owns its namespace.
        let namespace = self.namespace.as_ref().filter(|_| component.is_none());
        let inode = namespace.and_then(|name| namespace_of(&crate::namespace::path(name)));
        Ownership::new(self.cgroup(component), marks, inode.into_iter().collect())
    }
}

async fn any_left(owned: &[Ownership]) -> bool {
    // By marks, a few milliseconds with some hundred processes.
    tokio::task::block_in_place(|| owned.iter().any(Ownership::any))
}
