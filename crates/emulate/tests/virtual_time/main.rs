//! The link model in virtual time.

mod changes;
mod links;
mod properties;
mod queues;
mod rate;
