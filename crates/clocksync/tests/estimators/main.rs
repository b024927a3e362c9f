//! Estimators in virtual time, against the truth.

#[path = "../scenario/mod.rs"]
mod scenario;
#[path = "../scenario/score.rs"]
mod score;

mod bounds;
mod disturbed;
mod loops;
mod steps;
mod virtual_time;
