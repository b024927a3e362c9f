//! The agent: the program that acts on one host for the controller.
//!
//! The controller calls it over a Unix socket (`proto/agent.proto`). The agent starts and ends
//! programs, runs the phase protocol with them, drains their trace streams and exchanges clock
//! probes. The machine's agent makes the hosts of local testbeds, as namespaces with links
//! (`proto/machine.proto`).
//!
//! **Every change to a machine is written to the [`ledger`] before it is made**, so that [`reset`]
//! can undo it after any crash.
//!
//! [`server::run`] is the whole agent. Parts without I/O: [`dialogue`] (the agent's side of the
//! phase protocol), [`lines`] (bytes to lines), [`network`] (addresses), [`testbed::Plan`] (the
//! links of a testbed).

mod account;
pub mod agent;
pub mod cgroup;
mod clock;
mod component;
mod console;
pub mod control;
mod core_dump;
pub mod dialogue;
mod disk;
mod environment;
mod events;
mod global;
pub mod guardian;
mod host;
pub mod installation;
mod kernel;
pub mod lacking;
mod launcher;
pub mod ledger;
pub mod lines;
mod link;
mod machine;
pub mod namespace;
pub mod network;
mod offload;
mod output;
mod ownership;
mod phase_link;
mod pidfd;
mod ports;
mod processes;
mod program;
mod provisioning;
mod qdisc;
pub mod reset;
pub mod rights;
pub mod rootless;
pub mod scope;
pub mod server;
mod service;
pub mod setting;
mod settings;
#[cfg(test)]
#[path = "../../../tests/skip.rs"]
mod skip;
mod spawn;
pub mod spool;
mod stdio;
pub mod testbed;
mod trace;
mod variables;
mod view;
mod watched;

pub use processes::Identity;

/// The agent protocol, as generated from `proto/agent.proto`.
#[allow(missing_docs, clippy::all)]
pub mod proto {
    tonic::include_proto!("loopscope.agent.v1");
}

/// The provisioning of local testbeds, as generated from `proto/machine.proto`.
#[allow(missing_docs, clippy::all)]
pub mod machine_proto {
    tonic::include_proto!("loopscope.machine.v1");
}
