//! CoDel (RFC 8289, section 5), packet by packet: its `dequeue` looks at several in one call, here
//! each look is a call and what the loop knows between two of them is kept. So a look may be taken
//! ahead of its time, on a copy.

use loopscope_time::MonotonicNs;

/// 5.2, but for what is the same for all packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Codel {
    target_ns: u64,
    interval_ns: u64,
    /// A backlog of one largest frame is no standing queue.
    largest_frame: u64,
    first_above: Option<MonotonicNs>,
    drop_next: MonotonicNs,
    count: u64,
    last_count: u64,
    dropping: bool,
    call: Option<Call>,
}

/// A dequeue that has dropped and looks at the next packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Call {
    at: MonotonicNs,
    /// The drop began the dropping state.
    entering: bool,
}

impl Codel {
    pub(crate) fn new(target_ns: u64, interval_ns: u64, largest_frame: u64) -> Codel {
        Codel {
            target_ns,
            interval_ns,
            largest_frame,
            first_above: None,
            drop_next: MonotonicNs(0),
            count: 0,
            last_count: 0,
            dropping: false,
            call: None,
        }
    }

    /// When the dequeue was called that is still looking for a packet to let go.
    pub(crate) fn called(&self) -> Option<MonotonicNs> {
        self.call.map(|call| call.at)
    }

    /// Whether the packet at the head is dropped: there since `arrived`, with so many bytes behind it.
    pub(crate) fn drops(&mut self, now: MonotonicNs, arrived: MonotonicNs, behind: u64) -> bool {
        let above = self.stays_above(now, arrived, behind);
        match self.call.take() {
            None if self.dropping => {
                self.dropping = above;
                self.drops_again(now)
            }
            None => {
                if above {
                    self.call = Some(Call { at: now, entering: true });
                }
                above
            }
            Some(Call { entering: true, .. }) => {
                self.enter(now);
                false
            }
            Some(Call { entering: false, .. }) => {
                self.dropping = above;
                if above {
                    self.drop_next = self.control_law(self.drop_next);
                }
                self.drops_again(now)
            }
        }
    }

    /// 5.6: `dodequeue`.
    fn stays_above(&mut self, now: MonotonicNs, arrived: MonotonicNs, behind: u64) -> bool {
        if now < arrived.plus(self.target_ns) || behind <= self.largest_frame {
            self.first_above = None;
            return false;
        }
        match self.first_above {
            None => {
                self.first_above = Some(now.plus(self.interval_ns));
                false
            }
            Some(first_above) => now >= first_above,
        }
    }

    /// 5.5: the loop of the dropping state.
    fn drops_again(&mut self, now: MonotonicNs) -> bool {
        let drops = self.dropping && now >= self.drop_next;
        if drops {
            self.count += 1;
            self.call = Some(Call { at: now, entering: false });
        }
        drops
    }

    /// 5.5: begins with the rate that controlled the queue last time, if that is not long ago.
    fn enter(&mut self, now: MonotonicNs) {
        self.dropping = true;
        let delta = self.count - self.last_count;
        let soon =
            i128::from(now.0) - i128::from(self.drop_next.0) < 16 * i128::from(self.interval_ns);
        self.count = if delta > 1 && soon { delta } else { 1 };
        self.drop_next = self.control_law(now);
        self.last_count = self.count;
    }

    /// 5.4.
    fn control_law(&self, from: MonotonicNs) -> MonotonicNs {
        from.plus((self.interval_ns as f64 / (self.count as f64).sqrt()) as u64)
    }
}
