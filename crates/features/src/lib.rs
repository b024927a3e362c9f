//! An empty crate that selects the features of shared dependencies; its Cargo.toml gives the
//! reason.
