//! The newest item of a channel, for connections that look at it without the channel's lock.
//!
//! The owner of the lock writes it, and readers see whether it was written while they read: a sequence
//! lock, as in Boehm, *Can Seqlocks Get Along with Programming Language Memory Models?*, MSPC 2012.

use loopscope_stm::{NewItem, Slot, Time};

#[cfg(not(test))]
use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(test)]
use loom::sync::atomic::{AtomicU64, Ordering, fence};

/// Bytes of an item that are kept here, so that readers need no other memory.
const INLINE: usize = if cfg!(test) { 8 } else { 64 };
/// How often a reader tries while others write.
const LOOKS: u32 = if cfg!(test) { 1 } else { 40 };
/// The slot where there is no item.
const NONE: u64 = u64::MAX;

/// Where it is, in two cache lines.
#[repr(C)]
#[cfg_attr(not(test), repr(align(128)))]
pub(crate) struct Newest {
    /// Odd while the rest is written.
    sequence: AtomicU64,
    time: AtomicU64,
    /// Half-width and length.
    sizes: AtomicU64,
    put_ns: AtomicU64,
    put_error_ns: AtomicU64,
    slot: AtomicU64,
    bytes: [AtomicU64; INLINE / 8],
}

/// What a reader has seen. It was the newest item at a moment.
pub(crate) struct Seen {
    sequence: u64,
    /// Where its bytes are.
    pub(crate) slot: Slot,
    pub(crate) item: NewItem,
    bytes: [u8; INLINE],
}

impl Newest {
    /// The time of the item, which only the owner of the lock may ask for. None also where a writer was
    /// killed.
    pub(crate) fn time(&self) -> Option<Time> {
        let is_whole = self.sequence.load(Ordering::Relaxed).is_multiple_of(2);
        let is_there = self.slot.load(Ordering::Relaxed) != NONE;
        (is_whole && is_there).then(|| self.time.load(Ordering::Relaxed).cast_signed())
    }

    /// Makes an item the newest, None: there is none. To be called by the owner of the lock.
    ///
    /// `bytes` are the item's, of which as many are kept as there is room for.
    pub(crate) fn write(&self, item: Option<(Slot, NewItem)>, bytes: &[u8]) {
        // It is odd already where a writer was killed.
        let begun = self.sequence.load(Ordering::Relaxed) | 1;
        self.sequence.store(begun, Ordering::Relaxed);
        // Pairs with the Acquire fence of a reader: one that sees what follows sees that it has begun.
        fence(Ordering::Release);
        if let Some((_, item)) = item {
            self.time.store(item.time.cast_unsigned(), Ordering::Relaxed);
            let sizes = u64::from(item.half_width) << 32 | u64::from(item.length);
            self.sizes.store(sizes, Ordering::Relaxed);
            self.put_ns.store(item.put_ns.cast_unsigned(), Ordering::Relaxed);
            self.put_error_ns.store(item.put_error_ns.cast_unsigned(), Ordering::Relaxed);
            for (place, part) in self.bytes.iter().zip(bytes.chunks(8)) {
                let mut word = [0; 8];
                word[..part.len()].copy_from_slice(part);
                place.store(u64::from_le_bytes(word), Ordering::Relaxed);
            }
        }
        self.slot.store(item.map_or(NONE, |(slot, _)| slot.into()), Ordering::Relaxed);
        // Pairs with the Acquire of `read`: who sees it sees all of the above.
        self.sequence.store(begun.wrapping_add(1), Ordering::Release);
    }

    /// The item; None if there is none, or others wrote all the time.
    pub(crate) fn read(&self) -> Option<Seen> {
        for _ in 0..LOOKS {
            // Pairs with the Release of `write`.
            let sequence = self.sequence.load(Ordering::Acquire);
            if sequence.is_multiple_of(2) {
                let sizes = self.sizes.load(Ordering::Relaxed);
                let item = NewItem {
                    time: self.time.load(Ordering::Relaxed).cast_signed(),
                    half_width: (sizes >> 32) as u32,
                    length: sizes as u32,
                    put_ns: self.put_ns.load(Ordering::Relaxed).cast_signed(),
                    put_error_ns: self.put_error_ns.load(Ordering::Relaxed).cast_signed(),
                };
                let slot = self.slot.load(Ordering::Relaxed);
                let mut bytes = [0; INLINE];
                for (part, word) in bytes.chunks_exact_mut(8).zip(&self.bytes) {
                    part.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
                }
                if self.is(sequence) {
                    let slot = Slot::try_from(slot).ok()?;
                    return Some(Seen { sequence, slot, item, bytes });
                }
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Whether what was read before is of this sequence.
    fn is(&self, sequence: u64) -> bool {
        // Pairs with the Release fence of `write`: where something of a later item was read, this sees
        // another number.
        fence(Ordering::Acquire);
        self.sequence.load(Ordering::Relaxed) == sequence
    }

    /// Whether an item that was seen is the newest still, so that what was read of its slot is its own.
    pub(crate) fn is_still(&self, seen: &Seen) -> bool {
        self.is(seen.sequence)
    }
}

impl Seen {
    /// Its bytes, if all of them are kept here.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        self.bytes.get(..self.item.length as usize)
    }
}

#[cfg(test)]
mod tests {
    //! Every order of a writer and a reader, and every value that the memory model lets them see, by loom.

    use std::panic::catch_unwind;

    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    fn item(number: u8) -> (Slot, NewItem) {
        let time = number.into();
        let half_width = number.into();
        let item = NewItem { time, half_width, length: 8, put_ns: time, put_error_ns: time };
        (number.into(), item)
    }

    fn first() -> Newest {
        let word = || AtomicU64::new(0);
        let newest = Newest {
            sequence: word(),
            time: word(),
            sizes: word(),
            put_ns: word(),
            put_error_ns: word(),
            slot: word(),
            bytes: std::array::from_fn(|_| word()),
        };
        newest.write(Some(item(1)), &[1; 8]);
        newest
    }

    fn is_whole(seen: &Seen) -> bool {
        let number = seen.slot as u8;
        let item = NewItem { length: 8, ..seen.item };
        item == self::item(number).1 && seen.bytes() == Some(&[number; 8])
    }

    #[test]
    fn a_reader_sees_one_item_or_none() {
        loom::model(|| {
            let newest = Arc::new(first());
            let writer = {
                let newest = Arc::clone(&newest);
                thread::spawn(move || newest.write(Some(item(2)), &[2; 8]))
            };
            if let Some(seen) = newest.read() {
                assert!(is_whole(&seen), "parts of several items");
            }
            writer.join().unwrap();
            let seen = newest.read().unwrap();
            assert!(is_whole(&seen) && seen.slot == 2 && newest.is_still(&seen));
        });
    }

    #[test]
    fn the_item_that_a_killed_writer_began_is_not_seen() {
        loom::model(|| {
            let newest = first();
            let seen = newest.read().unwrap();
            newest.sequence.store(newest.sequence.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
            newest.time.store(9, Ordering::Relaxed);
            assert!(newest.read().is_none() && !newest.is_still(&seen));
            assert_eq!(newest.time(), None);
            newest.write(Some(item(1)), &[1; 8]);
            assert!(is_whole(&newest.read().unwrap()) && !newest.is_still(&seen));
            newest.write(None, &[]);
            assert!(newest.read().is_none());
        });
    }

    #[test]
    fn without_the_writers_fence_it_sees_parts_of_several() {
        let found = catch_unwind(|| {
            loom::model(|| {
                let newest = Arc::new(first());
                let begin = newest.sequence.load(Ordering::Relaxed);
                let writer = {
                    let newest = Arc::clone(&newest);
                    thread::spawn(move || {
                        // As `write`, without the fence.
                        let begun = newest.sequence.load(Ordering::Relaxed) | 1;
                        newest.sequence.store(begun, Ordering::Relaxed);
                        newest.time.store(2, Ordering::Relaxed);
                        newest.sequence.store(begun.wrapping_add(1), Ordering::Release);
                    })
                };
                if let Some(seen) = newest.read() {
                    assert!(is_whole(&seen) || seen.sequence != begin);
                }
                writer.join().unwrap();
            });
        });
        assert!(found.is_err());
    }
}
