//! Traces of many kinds, and the tables that are made of them.

#[path = "../lab/any_layout.rs"]
mod any_layout;
#[path = "../lab/mod.rs"]
mod lab;

mod build;
mod earlier;
mod foreign;
mod import;
mod parts;
mod streams;
mod triggers;
