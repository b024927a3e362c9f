//! The part of a publication that is for people: the state of the service.

use crate::utc::{Reason, Standing};

/// The service that publishes, and what it knows of UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its place among the hosts.
    pub role: Role,
    /// UTC less global time.
    pub utc: Standing,
}

/// A host's place among those that share a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Role {
    /// Its counter is the global clock.
    Reference = 1,
    /// It follows the reference.
    Follower = 2,
}

impl Service {
    /// The page's word of it.
    pub(super) fn word(self) -> u64 {
        let (reason, stratum) = match self.utc {
            Standing::Known { stratum, .. } => (0, stratum),
            Standing::Unsynchronised(reason) => (reason as u8, 0),
        };
        u64::from_le_bytes([self.role as u8, reason, stratum, 0, 0, 0, 0, 0])
    }

    /// From the words of a publication; `None` if its writer has not said it.
    pub fn of(words: &[u64; loopscope_clock::layout::WORDS]) -> Option<Service> {
        use loopscope_clock::layout::word;

        let [role, reason, stratum, ..] = words[word::SERVICE].to_le_bytes();
        let role =
            [Role::Reference, Role::Follower].into_iter().find(|each| *each as u8 == role)?;
        let utc = match reason {
            0 => Standing::Known {
                offset_ns: words[word::UTC_OFFSET].cast_signed(),
                error_ns: words[word::UTC_ERROR],
                stratum,
            },
            number => Standing::Unsynchronised(Reason::of(number)?),
        };
        Some(Service { role, utc })
    }
}
