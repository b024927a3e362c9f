//! A connection as another process goes on with it.

use std::time::Duration;

use crate::connection::Connection;
use crate::outline::Outline;
use crate::state::{Clocks, State};

impl Connection {
    /// The connection as the kernel is to go on with it. What came beyond a gap is left out: the
    /// other end sends it again.
    pub fn into_state(self, now: Duration) -> State {
        let outline = self.outline(now);
        let mut queued = vec![0; self.unacknowledged()];
        self.queue.copy_out(self.acknowledged, &mut queued);
        outline.into_state(queued, self.incoming.into_unread())
    }

    /// The same without the bytes.
    pub fn outline(&self, now: Duration) -> Outline {
        Outline {
            unacknowledged: self.acknowledged,
            next: self.next,
            written: self.written,
            send_origin: self.queue.origin(),
            read: self.incoming.begin(),
            expected: self.incoming.next(),
            edge: self.incoming.edge(),
            receive_origin: self.incoming.origin(),
            peer_window: self.peer_edge.since(self.acknowledged),
            segment: self.segment,
            scale: self.scale,
            peer_scale: self.peer_scale,
            selective: self.selective,
            ecn: self.notification.is_agreed(),
            round_trip: self.trips.known(),
            timestamps: self.stamps.as_ref().map(|stamps| Clocks {
                now: stamps.value(now),
                recent: stamps.recent,
                newest: stamps.newest,
            }),
        }
    }
}
