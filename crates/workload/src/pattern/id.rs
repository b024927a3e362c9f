//! What a message says of itself: one number that is unique among all messages of a table.

/// Type (15 bits), producer (16) and number (32), from the top: 63 bits, never negative as i64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Id {
    /// The row of the table, from 0.
    pub(crate) message_type: u16,
    /// Among the type's producers, from 0.
    pub(crate) producer: u16,
    /// From 1; 0 stands for the producer itself.
    pub(crate) number: u32,
}

impl Id {
    pub(crate) fn to_bits(self) -> u64 {
        debug_assert!(usize::from(self.message_type) < loopscope_messages::MOST_TYPES);
        u64::from(self.message_type) << 48 | u64::from(self.producer) << 32 | u64::from(self.number)
    }

    /// `None`: no id.
    pub(crate) fn from_bits(bits: u64) -> Option<Id> {
        (bits >> 63 == 0).then_some(Id {
            message_type: (bits >> 48) as u16,
            producer: (bits >> 32) as u16,
            number: bits as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Id;

    #[test]
    fn ids_are_distinct_and_come_back() {
        let mut seen = std::collections::HashSet::new();
        for message_type in [0, 1, 0x7fff] {
            for producer in [0, 1, u16::MAX] {
                for number in [0, 1, u32::MAX] {
                    let id = Id { message_type, producer, number };
                    assert!(seen.insert(id.to_bits()));
                    assert!(i64::try_from(id.to_bits()).is_ok());
                    assert_eq!(Id::from_bits(id.to_bits()), Some(id));
                }
            }
        }
        assert_eq!(Id::from_bits(1 << 63), None);
    }
}
