//! What a generator says of its run: text or JSON on standard output, and in an experiment
//! `result.json` in the working directory.

use std::fmt::Display;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::program::print;

/// The agent sets it for every component.
const COMPONENT: &str = "LOOPSCOPE_COMPONENT";

/// The file's name.
const FILE: &str = "result.json";

/// Whether this process is an experiment's component.
pub(crate) fn in_experiment() -> bool {
    std::env::var_os(COMPONENT).is_some()
}

/// Says it: `result` if `json` is asked for, else `text`.
pub(crate) fn report(json: bool, result: &Value, text: impl Display) -> Result<()> {
    if in_experiment() {
        std::fs::write(FILE, format!("{result:#}\n"))
            .with_context(|| format!("cannot write {FILE} into the working directory"))?;
    }
    if json { print(format_args!("{result}")) } else { print(format_args!("{text}")) }
}
