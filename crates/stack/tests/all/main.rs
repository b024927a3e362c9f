//! The core in virtual time: what RFCs ask, hostile networks and peers.

mod allocations;
mod conformance;
mod connections;
mod hostile;
mod network;
mod rings;
