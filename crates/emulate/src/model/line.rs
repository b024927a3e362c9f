//! What is on its way, in the order in which it is due.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use loopscope_time::MonotonicNs;

use super::Outcome;
use super::choices::Onward;

/// A packet with its time.
#[derive(Debug)]
pub(crate) struct Entry<P> {
    pub outcome: Outcome<P>,
    pub onward: Onward,
    /// When it has left the queue, or been dropped there.
    pub leaves: MonotonicNs,
    /// Among those that are due at the same instant the first goes first.
    sequence: u64,
}

impl<P> Entry<P> {
    pub(crate) fn new(outcome: Outcome<P>, onward: Onward) -> Entry<P> {
        Entry { leaves: outcome.enqueued, outcome, onward, sequence: 0 }
    }

    fn key(&self) -> (MonotonicNs, u64) {
        (self.outcome.due, self.sequence)
    }
}

impl<P> PartialEq for Entry<P> {
    fn eq(&self, other: &Entry<P>) -> bool {
        self.key() == other.key()
    }
}

impl<P> Eq for Entry<P> {}

impl<P> PartialOrd for Entry<P> {
    fn partial_cmp(&self, other: &Entry<P>) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The first one is the greatest, as [`BinaryHeap`] wants it.
impl<P> Ord for Entry<P> {
    fn cmp(&self, other: &Entry<P>) -> Ordering {
        other.key().cmp(&self.key())
    }
}

/// Most links keep the order, and a ring is several times as fast as a heap.
#[derive(Debug)]
pub(crate) struct Line<P> {
    in_order: VecDeque<Entry<P>>,
    others: BinaryHeap<Entry<P>>,
    sequence: u64,
}

impl<P> Line<P> {
    pub(crate) fn new() -> Line<P> {
        Line { in_order: VecDeque::new(), others: BinaryHeap::new(), sequence: 0 }
    }

    pub(crate) fn push(&mut self, mut entry: Entry<P>) {
        self.sequence += 1;
        entry.sequence = self.sequence;
        if self.in_order.back().is_none_or(|last| last.outcome.due <= entry.outcome.due) {
            self.in_order.push_back(entry);
        } else {
            self.others.push(entry);
        }
    }

    /// When the first is due.
    pub(crate) fn due(&self) -> Option<MonotonicNs> {
        let dues = [self.in_order.front(), self.others.peek()];
        dues.into_iter().flatten().map(|entry| entry.outcome.due).min()
    }

    /// The first, if it is due.
    pub(crate) fn pop(&mut self, now: MonotonicNs) -> Option<Outcome<P>> {
        let other_first = match (self.in_order.front(), self.others.peek()) {
            (Some(ordered), Some(other)) => other.key() < ordered.key(),
            (ordered, _) => ordered.is_none(),
        };
        let first = if other_first { self.others.peek() } else { self.in_order.front() };
        if first?.outcome.due > now {
            return None;
        }
        let first = if other_first { self.others.pop() } else { self.in_order.pop_front() };
        first.map(|entry| entry.outcome)
    }

    pub(crate) fn len(&self) -> usize {
        self.in_order.len() + self.others.len()
    }

    /// Takes out those that leave the queue only after `now`, in the order in which they do.
    pub(crate) fn take_waiting(&mut self, now: MonotonicNs) -> Vec<Entry<P>> {
        let waits = |entry: &Entry<P>| entry.leaves > now;
        let (mut taken, stay): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.others).into_iter().partition(waits);
        self.others = stay.into();
        let (waiting, stay): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.in_order).into_iter().partition(waits);
        self.in_order = stay;
        taken.extend(waiting);
        taken.sort_by_key(|entry| entry.sequence);
        taken
    }
}
