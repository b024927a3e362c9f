//! The host's clock: what its streams declare about it, and the exchange of probes.

use std::net::{AddrParseError, IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use loopscope_clocksync::online::Online;
use loopscope_clocksync::probe::{Counts, ProbeError, Prober, ProberConfig, Responder, Side};
use loopscope_clocksync::record::{Filter, Identity};
use loopscope_clocksync::synthetic::SyntheticClock;
use loopscope_time::{Counter, Frequency};
use thiserror::Error;

use crate::global::GlobalClock;
use crate::proto::start_clock_request::Role;

/// What all streams of one host have in common.
pub(crate) struct HostClock {
    host: String,
    uuid: [u8; 16],
    frequency: Frequency,
    synthetic: Option<SyntheticClock>,
    global: GlobalClock,
    exchange: Mutex<Option<Exchange>>,
}

enum Exchange {
    Reference(Responder),
    Follower(Prober),
}

/// Why there are no probes.
#[derive(Debug, Error)]
pub(crate) enum ClockError {
    #[error("the clock request has no role")]
    NoRole,
    #[error("{text:?} is no address: {source}")]
    Address { text: String, source: AddrParseError },
    #[error("the clock of host {0} has been started already")]
    Twice(String),
    #[error("the clock of host {0} is not running")]
    NotRunning(String),
    #[error("host {host}: {source}")]
    Probe { host: String, source: ProbeError },
}

/// What a started clock tells.
pub(crate) enum Started {
    /// Port of the reference.
    Port(u16),
    /// Exchanges that the first burst of a follower completed.
    Answered(u64),
}

impl HostClock {
    /// The clock of `host`; a hidden one if there is a seed.
    pub(crate) fn new(host: &str, frequency: Frequency, seed: Option<u64>) -> HostClock {
        let synthetic = seed.map(|seed| SyntheticClock::new(seed, host));
        HostClock {
            host: host.to_owned(),
            uuid: uuid::Uuid::new_v4().into_bytes(),
            frequency,
            synthetic,
            global: GlobalClock::new(synthetic),
            exchange: Mutex::default(),
        }
    }

    /// What one more trace directory declares.
    pub(crate) fn identity(&self) -> loopscope_collect::Identity {
        loopscope_collect::Identity {
            host: self.host.clone(),
            trace_uuid: uuid::Uuid::new_v4().into_bytes(),
            clock_uuid: self.uuid,
            frequency: self.frequency,
        }
    }

    /// Nominal frequency of the counter.
    pub(crate) fn frequency(&self) -> Frequency {
        self.frequency
    }

    /// What the host knows of the global clock while the run goes on.
    pub(crate) fn global(&self) -> GlobalClock {
        self.global.clone()
    }

    /// Takes true counters to those of the hidden clock.
    pub(crate) fn filter(&self) -> Option<impl Fn(Counter) -> Counter + Send + Sync + 'static> {
        self.synthetic.map(|clock| move |counter| clock.apply(counter))
    }

    /// Begins to answer or to send probes, logged in `folder`. Blocks until the first burst of a
    /// follower is complete.
    pub(crate) fn start(&self, role: Option<Role>, folder: &Path) -> Result<Started, ClockError> {
        let role = role.ok_or(ClockError::NoRole)?;
        let mut exchange = self.exchange.lock().unwrap_or_else(PoisonError::into_inner);
        if exchange.is_some() {
            return Err(ClockError::Twice(self.host.clone()));
        }
        let probe = |source| ClockError::Probe { host: self.host.clone(), source };
        let loopscope_collect::Identity { host, clock_uuid, trace_uuid, frequency } =
            self.identity();
        let identity = Identity { host, clock_uuid, trace_uuid, frequency };
        let side = |address: &str| {
            Ok::<_, ClockError>(Side {
                address: parse::<IpAddr>(address)?,
                directory: folder.to_owned(),
                identity: identity.clone(),
                filter: self.filter().map(|filter| Arc::new(filter) as Filter),
            })
        };
        match role {
            Role::Reference(reference) => {
                let responder = Responder::start(side(&reference.address)?).map_err(probe)?;
                let port = responder.address().port();
                self.global.begin(Arc::new(Mutex::new(Online::reference(frequency))));
                *exchange = Some(Exchange::Reference(responder));
                Ok(Started::Port(port))
            }
            Role::Follower(follower) => {
                let config = ProberConfig {
                    side: side(&follower.address)?,
                    reference: parse::<SocketAddr>(&follower.reference)?,
                    rate_hz: follower.rate_hz,
                    burst: follower.burst,
                };
                let prober = Prober::start(config).map_err(probe)?;
                let answered = prober.answered();
                self.global.begin(prober.online());
                *exchange = Some(Exchange::Follower(prober));
                Ok(Started::Answered(answered))
            }
        }
    }

    /// Ends the exchange, a follower's with a last burst.
    pub(crate) fn stop(&self) -> Result<Counts, ClockError> {
        let exchange = self.exchange.lock().unwrap_or_else(PoisonError::into_inner).take();
        let counts = match exchange {
            None => return Err(ClockError::NotRunning(self.host.clone())),
            Some(Exchange::Reference(responder)) => responder.stop(),
            Some(Exchange::Follower(prober)) => prober.stop(),
        };
        counts.map_err(|source| ClockError::Probe { host: self.host.clone(), source })
    }

    /// Ends the exchange at once, if there is one.
    pub(crate) fn abandon(&self) {
        drop(self.exchange.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

fn parse<T: std::str::FromStr<Err = AddrParseError>>(text: &str) -> Result<T, ClockError> {
    text.parse().map_err(|source| ClockError::Address { text: text.to_owned(), source })
}
