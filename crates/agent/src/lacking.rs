//! What this machine does not let the agent and its components do: found by trying it, with
//! nothing left behind.

use std::fs::OpenOptions;
use std::io;

use loopscope_emulate::mover::xdp;
use serde::Serialize;

use crate::machine_proto;
use crate::rootless;
use crate::setting::reason;

/// One thing that cannot be done here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lack {
    /// What it is.
    pub what: &'static str,
    /// Why not.
    pub why: String,
    /// What is done instead, or what does not work.
    pub cost: &'static str,
}

/// Everything of this kind that an experiment can need. `why_no_cgroup`: see
/// [`Ledger::why_no_cgroup`](crate::ledger::Ledger).
pub(crate) fn find(why_no_cgroup: Option<&str>) -> Vec<Lack> {
    let tried = [
        (
            "cgroups",
            why_no_cgroup.map_or(Ok(()), |why| Err(io::Error::other(why))),
            "what a component starts with an empty environment ends with the run only, and there \
             is no account of CPU time",
        ),
        (
            "AF_XDP",
            xdp::try_out(),
            "links are emulated by AF_PACKET: fewer packets a second, and mover: xdp is refused",
        ),
        (
            "real-time priorities",
            real_time(),
            "components cannot have SCHED_FIFO, so other programs can delay them",
        ),
        (
            "affinity of interrupts",
            interrupts(),
            "components cannot move interrupts to other processors",
        ),
        ("other users", other_users(), "all components run as one user, who sees itself as root"),
    ];
    tried
        .into_iter()
        .filter_map(|(what, tried, cost)| Some(Lack { what, why: reason(&tried.err()?), cost }))
        .collect()
}

/// A thread that ends at once.
fn real_time() -> io::Result<()> {
    let tried = std::thread::spawn(|| loopscope_timer::real_time(1)).join();
    Ok(tried.map_err(|_| io::Error::other("the thread for it failed: please report this"))??)
}

fn interrupts() -> io::Result<()> {
    // Opening writes nothing.
    OpenOptions::new().write(true).open("/proc/irq/default_smp_affinity").map(drop)
}

fn other_users() -> io::Result<()> {
    match rootless::only_user() {
        None => Ok(()),
        Some(user) => Err(io::Error::other(format!("the user namespace has only user {user}"))),
    }
}

impl From<Lack> for machine_proto::Lack {
    fn from(Lack { what, why, cost }: Lack) -> machine_proto::Lack {
        machine_proto::Lack { what: what.to_owned(), why, cost: cost.to_owned() }
    }
}
