//! Messages that are larger than a datagram: the series of datagrams that carries one, and what has
//! come of it. No I/O.
//!
//! Each datagram begins with the message's number (8 bytes) and its place in the series, from 0
//! (4 bytes), both little-endian. What follows is the message without its number. All but the last
//! datagram have as many bytes as the table allows.

use std::collections::BTreeMap;

use loopscope_messages::MessageType;

/// Bytes of a datagram before the content.
pub(crate) const HEAD: usize = 12;
/// Bytes of a message's number, which each datagram has.
const NUMBER: usize = 8;
/// About how many bytes the kernel adds to a datagram that waits in a socket.
const OVERHEAD: usize = 1024;
/// Most incomplete messages of a producer that are kept; beyond that the oldest is given up.
const MOST_BEGUN: usize = 1024;

/// How a message is cut into datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Series {
    /// Bytes of the message without its number.
    content: usize,
    /// Bytes of content in each datagram but the last.
    piece: usize,
}

impl Series {
    /// `None`: its messages are a datagram each.
    pub(crate) fn of(each: &MessageType) -> Option<Series> {
        if !each.transport.is_udp() || each.size <= each.largest_datagram() {
            return None;
        }
        let piece = each.largest_datagram() as usize - HEAD;
        Some(Series { content: each.size as usize - NUMBER, piece })
    }

    /// How many datagrams a message has.
    pub(crate) fn count(self) -> u32 {
        self.content.div_ceil(self.piece) as u32
    }

    /// Bytes of the datagram at a place, with what comes before its content.
    pub(crate) fn length(self, place: u32) -> usize {
        let before = place as usize * self.piece;
        HEAD + (self.content - before).min(self.piece)
    }

    /// About how many bytes the kernel needs to hold a message's datagrams.
    pub(crate) fn room(self) -> usize {
        self.count() as usize * (HEAD + self.piece + OVERHEAD)
    }

    /// What the datagram of a message at a place begins with.
    pub(crate) fn head(id: u64, place: u32) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[..NUMBER].copy_from_slice(&id.to_le_bytes());
        head[NUMBER..].copy_from_slice(&place.to_le_bytes());
        head
    }
}

/// What a datagram means for its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It completes its message.
    Last,
    /// Its message lacks others yet.
    Part,
    /// It had come before.
    Again,
    /// No message of the type has such a datagram.
    Foreign,
}

/// Incomplete messages of a producer, with the datagrams that have come.
#[derive(Debug)]
pub(crate) struct Pieces {
    series: Series,
    begun: BTreeMap<u32, Begun>,
}

#[derive(Debug)]
struct Begun {
    /// A bit for each place.
    seen: Vec<u64>,
    missing: u32,
}

impl Pieces {
    pub(crate) fn new(series: Series) -> Pieces {
        Pieces { series, begun: BTreeMap::new() }
    }

    /// About how many bytes the kernel needs to hold a message.
    pub(crate) fn room(&self) -> usize {
        self.series.room()
    }

    /// Takes a datagram of the message `number`, which is not complete yet.
    pub(crate) fn take(&mut self, number: u32, datagram: &[u8]) -> Taken {
        let count = self.series.count();
        let place = datagram.get(NUMBER..HEAD).and_then(|bytes| bytes.try_into().ok());
        let place = place.map(u32::from_le_bytes).filter(|&place| place < count);
        let Some(place) = place.filter(|&place| datagram.len() == self.series.length(place)) else {
            return Taken::Foreign;
        };
        let words = count.div_ceil(u64::BITS) as usize;
        let fresh = || Begun { seen: vec![0; words], missing: count };
        let begun = self.begun.entry(number).or_insert_with(fresh);
        let (word, bit) = ((place / u64::BITS) as usize, 1 << (place % u64::BITS));
        if begun.seen[word] & bit != 0 {
            return Taken::Again;
        }
        begun.seen[word] |= bit;
        begun.missing -= 1;
        if begun.missing == 0 {
            self.begun.remove(&number);
            return Taken::Last;
        }
        if self.begun.len() > MOST_BEGUN {
            self.begun.pop_first();
        }
        Taken::Part
    }
}

#[cfg(test)]
mod tests {
    use loopscope_messages::{MessageType, read};
    use proptest::prelude::*;

    use super::{HEAD, MOST_BEGUN, Pieces, Series, Taken};

    fn message_type(size: u32, datagram: u32) -> MessageType {
        let table = format!(
            "name,transport,size,datagram,period,producers,consumers\n\
             frame,udp,{size}B,{datagram}B,10ms,camera,tracker\n"
        );
        read(&table, "table.csv").unwrap().remove(0)
    }

    fn datagrams(series: Series, id: u64) -> Vec<Vec<u8>> {
        let datagram = |place| {
            let mut bytes = Series::head(id, place).to_vec();
            bytes.resize(series.length(place), 0);
            bytes
        };
        (0..series.count()).map(datagram).collect()
    }

    #[test]
    fn what_one_datagram_has_room_for_is_no_series() {
        assert_eq!(Series::of(&message_type(1000, 1000)), None);
        assert!(Series::of(&message_type(1001, 1000)).is_some());
    }

    proptest! {
        /// The datagrams have all bytes of the message, none more than they may, and are the message
        /// in whatever order they come, however often, among those of others.
        #[test]
        fn a_message_is_whole_with_its_last_datagram(
            size in 65u32..40_000,
            datagram in 64u32..2_000,
            swaps in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..40),
            again in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            prop_assume!(size > datagram);
            let series = Series::of(&message_type(size, datagram)).unwrap();
            let mut sent: Vec<(u32, Vec<u8>)> = [1, 2]
                .into_iter()
                .flat_map(|number| datagrams(series, number.into()).into_iter().map(move |each| (number, each)))
                .collect();
            let content: usize = sent.iter().map(|(_, bytes)| bytes.len() - HEAD).sum();
            prop_assert_eq!(content, 2 * (size as usize - 8));
            prop_assert!(sent.iter().all(|(_, bytes)| bytes.len() <= datagram as usize));
            for each in &again {
                let twice = sent[each.index(sent.len())].clone();
                sent.push(twice);
            }
            for (one, other) in &swaps {
                let (one, other) = (one.index(sent.len()), other.index(sent.len()));
                sent.swap(one, other);
            }
            let mut pieces = Pieces::new(series);
            let mut seen = std::collections::BTreeSet::new();
            let mut whole = vec![];
            for (number, bytes) in sent {
                if whole.contains(&number) {
                    continue;
                }
                let fresh = seen.insert((number, bytes.clone()));
                let all = seen.iter().filter(|(of, _)| *of == number).count() == series.count() as usize;
                let due = match (fresh, all) {
                    (false, _) => Taken::Again,
                    (true, false) => Taken::Part,
                    (true, true) => Taken::Last,
                };
                prop_assert_eq!(pieces.take(number, &bytes), due);
                if all && fresh {
                    whole.push(number);
                }
            }
            prop_assert_eq!(whole.len(), 2);
            prop_assert!(pieces.begun.is_empty());
        }
    }

    #[test]
    fn what_no_message_has_is_foreign() {
        let series = Series::of(&message_type(3000, 1000)).unwrap();
        let whole = datagrams(series, 1);
        let mut pieces = Pieces::new(series);
        let mut beyond = whole[0].clone();
        beyond[8..HEAD].copy_from_slice(&series.count().to_le_bytes());
        for bytes in
            [&whole[0][..999], &[whole[0].clone(), vec![0]].concat(), &whole[0][..10], &beyond]
        {
            assert_eq!(pieces.take(1, bytes), Taken::Foreign, "{} bytes", bytes.len());
        }
        assert!(pieces.begun.is_empty());
    }

    #[test]
    fn of_many_that_are_not_whole_the_oldest_is_given_up() {
        let series = Series::of(&message_type(3000, 1000)).unwrap();
        let whole = datagrams(series, 1);
        let mut pieces = Pieces::new(series);
        for number in 1..=MOST_BEGUN as u32 + 1 {
            assert_eq!(pieces.take(number, &whole[0]), Taken::Part);
        }
        assert_eq!(pieces.begun.len(), MOST_BEGUN);
        assert!(!pieces.begun.contains_key(&1));
    }
}
