//! What is written is read, as the format's pages say.

mod any_layout;
mod golden;
mod large;
mod round_trip;
mod specification;
