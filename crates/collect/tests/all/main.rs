//! The recorder, by instrumented programs that are built, run and read. One program has these files,
//! since they share what they build; what blocks signals is a program of its own.

#[path = "../lab/mod.rs"]
mod lab;

mod deadlines;
mod entities;
mod every;
mod filters;
mod forms;
mod full;
mod hostile;
mod hostile_fuzz;
mod live;
mod loss;
mod resume;
mod shortage;
mod state;
mod storm;
mod streams;
