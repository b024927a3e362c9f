//! A follower and what it said of the global clock, as it said it.

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

/// Each with the true counter at which it was said, in order. A state is in force until the next
/// one.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    pub(super) states: Vec<(Counter, State)>,
    pub(super) changes: Vec<(Counter, Change)>,
}

pub(super) struct Follower {
    prober: Prober,
    clock: SyntheticClock,
    said: Arc<Mutex<Said>>,
}

/// A follower that has ended.
pub(super) struct Ended {
    pub(super) clock: SyntheticClock,
    pub(super) said: Said,
    pub(super) counts: Counts,
}

impl Follower {
    /// Begins to probe in the namespace of the calling thread.
    pub(super) fn start(
        side: Side,
        clock: SyntheticClock,
        reference: SocketAddr,
    ) -> Result<Follower> {
        let said = Arc::<Mutex<Said>>::default();
        let online = Arc::new(OnceLock::<Arc<Mutex<Online>>>::new());
        let observer: Observer = {
            let (said, online) = (said.clone(), online.clone());
            // What came before the first burst was complete is nobody's to use.
            Arc::new(move |_| {
                let Some(online) = online.get() else { return };
                let mut online = online.lock().unwrap_or_else(PoisonError::into_inner);
                let now = ordered_counter();
                let state = online.state(clock.apply(now));
                let changes = online.changes();
                drop(online);
                let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
                said.states.push((now, state));
                said.changes.extend(changes.into_iter().map(|change| (now, change)));
            })
        };
        let prober = Prober::start(ProberConfig {
            side,
            reference,
            rate_hz: DEFAULT_RATE_HZ,
            burst: DEFAULT_BURST,
            wander: DEFAULT_WANDER,
            observer: Some(observer),
        })?;
        // Set once, here.
        let _ = online.set(prober.online());
        Ok(Follower { prober, clock, said })
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
        let said = std::mem::take(&mut *self.said.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(Ended { clock: self.clock, said, counts })
    }
}
