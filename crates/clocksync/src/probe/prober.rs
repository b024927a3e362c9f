//! A follower's side: a thread that probes the reference.

use std::fmt;
use std::io::PipeReader;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};

use loopscope_time::Frequency;

use super::outcome::{Observer, Outcome};
use super::pace::Pace;
use super::probing::Probing;
use super::reply_statistics::ReplyStatistics;
use super::socket::{self, StampedSocket};
use super::{Counts, Order, ProbeError, Side, Worker};
use crate::online::Online;
use crate::skew::{self, require_one};

/// Exchanges a second between the bursts.
pub const DEFAULT_RATE_HZ: f64 = 100.0;
/// Exchanges in a burst.
pub const DEFAULT_BURST: u32 = 100;

/// A follower's settings.
#[derive(Clone)]
pub struct ProberConfig {
    /// Own side.
    pub side: Side,
    /// Where the reference answers.
    pub reference: SocketAddr,
    /// Exchanges a second between the bursts, 0.01 to 1000, in pairs; the gaps between these vary
    /// by half of the mean either way.
    pub rate_hz: f64,
    /// Exchanges of a burst, 1 to 10000, 1000 a second: at the start and at the end. An odd number
    /// is rounded up.
    pub burst: u32,
    /// Exchanges of a burst when load is seen, at most every five seconds, rounded up too; 0: none.
    pub load_burst: u32,
    /// The assumption under which the follower knows the global clock meanwhile, as in
    /// [`offline::solve`](crate::offline::solve).
    pub wander: f64,
    /// Called with each exchange, after the follower's own clock has been updated with it.
    pub observer: Option<Observer>,
}

/// A running prober. Dropping it ends it at once, without the last burst.
pub struct Prober {
    answered: u64,
    side: Box<Side>,
    online: Arc<Mutex<Online>>,
    reply_statistics: Arc<Mutex<ReplyStatistics>>,
    elsewhere: Elsewhere,
    worker: Worker,
}

/// Where to probe from now on, for the thread to take.
type Elsewhere = Arc<Mutex<Option<(StampedSocket, SocketAddr)>>>;

impl fmt::Debug for Prober {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prober").field("answered", &self.answered).finish_non_exhaustive()
    }
}

impl Prober {
    /// Begins to probe; returns when the first burst is complete. Without any answer the burst is
    /// repeated for some seconds.
    pub fn start(config: ProberConfig) -> Result<Prober, ProbeError> {
        require_one(config.side.identity.frequency)?;
        Prober::on(StampedSocket::bind(&config.side)?, config)
    }

    /// Begins to probe and waits for nobody: the reference may come later.
    pub fn begin(config: ProberConfig) -> Result<Prober, ProbeError> {
        require_one(config.side.identity.frequency)?;
        Ok(Prober::spawn(StampedSocket::bind(&config.side)?, config)?.0)
    }

    pub(super) fn on(socket: StampedSocket, config: ProberConfig) -> Result<Prober, ProbeError> {
        let (address, reference) = (socket.address(), config.reference);
        let (mut prober, first_burst) = Prober::spawn(socket, config)?;
        match first_burst.recv() {
            Ok(0) => Err(ProbeError::NoAnswer { address, reference }),
            Ok(answered) => Ok(Prober { answered, ..prober }),
            // The thread has ended before its first report.
            Err(_) => Err(prober.worker.join().err().unwrap_or(ProbeError::Panicked)),
        }
    }

    /// Also returns the receiver of the number of exchanges that the first burst completed.
    fn spawn(
        socket: StampedSocket,
        config: ProberConfig,
    ) -> Result<(Prober, Receiver<u64>), ProbeError> {
        let ProberConfig { side, reference, rate_hz, burst, load_burst, wander, observer } = config;
        let pace = Pace::of(rate_hz, burst)?;
        let address = socket.address();
        let frequency = side.identity.frequency;
        let of = move |reference| Online::follower(frequency, reference, wander);
        // Nothing is known before the reference tells its frequency.
        let online = Arc::new(Mutex::new(of(frequency)));
        let own_apart_ns = skew::of_this_machine().within() as f64 * frequency.ns_per_tick();
        let observe = observer_of(online.clone(), own_apart_ns, of, observer);
        let (report, first_burst) = mpsc::channel();
        let probing = Probing::new(socket, side.clone(), reference, pace, observe)?.of_a_clock(
            report,
            online.clone(),
            load_burst,
        );
        let reply_statistics = probing.reply_statistics();
        let elsewhere = Elsewhere::default();
        let to = elsewhere.clone();
        let worker =
            Worker::spawn("clock-prober", move |control| run(probing, control, &to, address))
                .map_err(|source| ProbeError::System { address, source })?;
        Ok((
            Prober {
                answered: 0,
                side: Box::new(side),
                online,
                reply_statistics,
                elsewhere,
                worker,
            },
            first_burst,
        ))
    }

    /// Probes `reference` from now on, from the address `own`: the name that somebody gave has
    /// another address.
    pub fn redirect(&mut self, own: IpAddr, reference: SocketAddr) -> Result<(), ProbeError> {
        let side = Side { address: SocketAddr::new(own, 0), ..(*self.side).clone() };
        let to = (StampedSocket::bind(&side)?, reference);
        *self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner) = Some(to);
        self.worker.order(&Order::Redirect);
        Ok(())
    }

    /// Exchanges answered in the first burst, if it was waited for.
    pub fn answered(&self) -> u64 {
        self.answered
    }

    /// What the follower knows of the global clock while it probes.
    pub fn online(&self) -> Arc<Mutex<Online>> {
        self.online.clone()
    }

    /// Round trips and the standing of UTC, from the reference's replies.
    pub fn reply_statistics(&self) -> Arc<Mutex<ReplyStatistics>> {
        self.reply_statistics.clone()
    }

    /// Whether it has failed; [`Self::stop`] says why.
    pub fn has_ended(&self) -> bool {
        self.worker.has_ended()
    }

    /// Sends the last burst and completes the log.
    pub fn stop(self) -> Result<Counts, ProbeError> {
        self.worker.stop()
    }
}

fn run(
    mut probing: Probing,
    mut control: PipeReader,
    elsewhere: &Elsewhere,
    address: SocketAddr,
) -> Result<Counts, ProbeError> {
    while let Some(until) = probing.turn()? {
        let ordered = socket::wait(&[probing.socket()], &mut control, Some(until));
        match ordered.map_err(|source| ProbeError::System { address, source })? {
            Some(Order::Stop) => probing.last_burst(),
            Some(Order::Redirect) => {
                let to = elsewhere.lock().unwrap_or_else(PoisonError::into_inner).take();
                // If two orders come together, the first has taken the second's.
                if let Some((socket, reference)) = to {
                    probing.redirect(socket, reference)?;
                }
            }
            Some(Order::Abandon) => break,
            None => {}
        }
    }
    probing.end()
}

/// Gives each outcome to the follower's clock, and then to `asked`.
fn observer_of(
    online: Arc<Mutex<Online>>,
    own_apart_ns: f64,
    of: impl Fn(Frequency) -> Online + Send + 'static,
    asked: Option<Observer>,
) -> Box<dyn FnMut(&Outcome) + Send> {
    let mut session = None;
    Box::new(move |outcome| {
        let mut known = online.lock().unwrap_or_else(PoisonError::into_inner);
        match session.replace(outcome.session) {
            None => *known = of(outcome.reference),
            Some(before) if before != outcome.session => {
                *known = known.restarted(outcome.reference);
            }
            Some(_) => {}
        }
        // Its stamps are of any of its processors, and so are those of the reference.
        let far_apart_ns = outcome.apart as f64 * outcome.reference.ns_per_tick();
        known.set_apart(own_apart_ns + 0.5 * far_apart_ns, own_apart_ns);
        known.see(&outcome.exchange);
        drop(known);
        if let Some(observer) = &asked {
            observer(outcome);
        }
    })
}
