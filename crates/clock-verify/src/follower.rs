//! A follower, and what it published of the global clock, with the instants.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anyhow::Result;
use loopscope_clocksync::offline::DEFAULT_WANDER;
use loopscope_clocksync::online::{Change, Online};
use loopscope_clocksync::probe::{
    Counts, DEFAULT_BURST, DEFAULT_RATE_HZ, Observer, Prober, ProberConfig, Side,
};
use loopscope_clocksync::stamp::ordered_counter;
use loopscope_clocksync::state::State;
use loopscope_clocksync::synthetic::SyntheticClock;
use loopscope_time::Counter;

/// States and changes, each with the true counter at which it was published, in order. A state is
/// in force until the next one.
#[derive(Clone, Debug, Default)]
pub(super) struct Published {
    pub(super) states: Vec<(Counter, State)>,
    pub(super) changes: Vec<(Counter, Change)>,
}

pub(super) struct Follower {
    prober: Prober,
    clock: SyntheticClock,
    published: Arc<Mutex<Published>>,
}

/// A follower that has ended.
pub(super) struct Ended {
    pub(super) clock: SyntheticClock,
    pub(super) published: Published,
    pub(super) counts: Counts,
}

impl Follower {
    /// Begins to probe in the namespace of the calling thread.
    pub(super) fn start(
        side: Side,
        clock: SyntheticClock,
        reference: SocketAddr,
    ) -> Result<Follower> {
        let published = Arc::<Mutex<Published>>::default();
        let online = Arc::new(OnceLock::<Arc<Mutex<Online>>>::new());
        let observer: Observer = {
            let (published, online) = (published.clone(), online.clone());
            // What came before the first burst was complete is nobody's to use.
            Arc::new(move |_| {
                let Some(online) = online.get() else { return };
                let mut online = online.lock().unwrap_or_else(PoisonError::into_inner);
                let now = ordered_counter();
                let state = online.state(clock.apply(now));
                let changes = online.changes();
                drop(online);
                let mut published = published.lock().unwrap_or_else(PoisonError::into_inner);
                published.states.push((now, state));
                published.changes.extend(changes.into_iter().map(|change| (now, change)));
            })
        };
        let prober = Prober::start(ProberConfig {
            side,
            reference,
            rate_hz: DEFAULT_RATE_HZ,
            burst: DEFAULT_BURST,
            load_burst: DEFAULT_BURST,
            wander: DEFAULT_WANDER,
            observer: Some(observer),
        })?;
        // Set once, here.
        let _ = online.set(prober.online());
        Ok(Follower { prober, clock, published })
    }

    /// Its online estimate.
    pub(super) fn online(&self) -> Arc<Mutex<Online>> {
        self.prober.online()
    }

    /// Its hidden clock.
    pub(super) fn clock(&self) -> SyntheticClock {
        self.clock
    }

    pub(super) fn stop(self) -> Result<Ended> {
        let counts = self.prober.stop()?;
        let published =
            std::mem::take(&mut *self.published.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(Ended { clock: self.clock, published, counts })
    }
}
