//! Nothing but its dependencies' features; see Cargo.toml.
