//! A trigger of a flight recorder, as `triggers.json` has it.

use serde::{Deserialize, Serialize};

/// Why a flight recorder was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// A hit that the stream's triggers wait for.
    Entity,
    /// A message that took longer than its path's deadline.
    Path,
    /// A trigger on another host of the experiment.
    Host,
    /// Somebody asked for it.
    Command,
    /// The recorder got SIGUSR1.
    Signal,
    /// The recording ended.
    End,
    /// The process ended.
    Death,
}

/// A trigger of a flight recorder (`triggers.json`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trigger {
    /// Its instant on the trace's clock.
    pub counter: u64,
    /// Why.
    pub cause: Cause,
    /// The entity that was hit, for [`Cause::Entity`]; the path's last one, for [`Cause::Path`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entity: Option<String>,
    /// The id of that hit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
    /// Where it began.
    pub host: String,
    /// The process that triggered or ended; `None` where all of the host's were triggered from
    /// outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
    /// Its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Records that were written because of it; known in the end, unless an earlier collector saw
    /// the trigger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<u64>,
}
