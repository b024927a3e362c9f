//! A channel that is soon full.

use loopscope_stm::{Config, Full, Orphans};
use loopscope_stm_shared::Options;

pub const OPTIONS: Options = Options {
    config: Config {
        capacity: 4,
        slots: 6,
        inputs: 3,
        outputs: 3,
        loans: 2,
        ahead: 3,
        remembered: 16,
        orphans: Orphans::Keep,
        full: Full::Refuse,
    },
    item_bytes: 1000,
    processes: 4,
};
