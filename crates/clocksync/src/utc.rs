//! How well a host's own clock (CLOCK_REALTIME) knows UTC, as chrony says. loopscope speaks no NTP.

use std::io;
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use loopscope_time::Frequency;
use nix::time::ClockId;
use serde::Serialize;

use crate::stamp::bracketed;

/// What a host knows of UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// UTC less global time.
    Known {
        /// In nanoseconds.
        offset_ns: i64,
        /// Maximum error, ns: apart from what is not known of global time.
        error_ns: u64,
        /// The stratum of the reference's chrony.
        stratum: u8,
    },
    /// Nothing.
    Unsynchronised(Reason),
}

impl Default for Standing {
    fn default() -> Standing {
        Standing::Unsynchronised(Reason::NotTold)
    }
}

/// Why UTC is not known. The numbers are those of the clock page and of replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// The reference has said nothing of it.
    NotTold = 1,
    /// There is no chronyc on the reference.
    NotInstalled = 2,
    /// No chronyd answers there.
    NoDaemon = 3,
    /// It has no source that it believes.
    NoSource = 4,
    /// What it says is not understood.
    Words = 5,
}

impl Reason {
    const ALL: [Reason; 5] =
        [Reason::NotTold, Reason::NotInstalled, Reason::NoDaemon, Reason::NoSource, Reason::Words];

    /// By its number.
    pub fn of(number: u8) -> Option<Reason> {
        Reason::ALL.into_iter().find(|reason| *reason as u8 == number)
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Reason::NotTold => "the reference has not said what it knows of UTC",
            Reason::NotInstalled => "chrony is not installed on the reference",
            Reason::NoDaemon => "no chronyd answers on the reference",
            Reason::NoSource => "the reference's chrony has no source that it believes",
            Reason::Words => "what chronyc says on the reference is not understood",
        })
    }
}

/// What chrony has said, and when.
#[derive(Clone, Copy, Debug)]
struct Said {
    at: Instant,
    uncertainty_ns: u64,
    /// By how much that grows, ns a second.
    growth: f64,
    stratum: u8,
}

impl Said {
    /// How far the clock may be from UTC at `now`.
    fn uncertainty(&self, now: Instant) -> u64 {
        let age = now.saturating_duration_since(self.at).as_secs_f64();
        self.uncertainty_ns.saturating_add((age * self.growth).ceil() as u64)
    }
}

/// Between two questions to chrony.
const EVERY: Duration = Duration::from_secs(2);

/// Asks chrony every two seconds, on a thread of its own, until it is dropped.
#[derive(Debug)]
pub struct Watch {
    said: Arc<Mutex<Result<Said, Reason>>>,
    /// Dropped, it ends the thread.
    _end: Sender<()>,
}

impl Watch {
    /// Begins to ask; waits for the first answer.
    pub fn start() -> io::Result<Watch> {
        let said = Arc::new(Mutex::new(said()));
        let (end, ended) = mpsc::channel();
        let into = said.clone();
        let watch = move || {
            while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                let answer = self::said();
                *into.lock().unwrap_or_else(PoisonError::into_inner) = answer;
            }
        };
        std::thread::Builder::new().name("utc".into()).spawn(watch)?;
        Ok(Watch { said, _end: end })
    }

    /// UTC now against the own counter at its nominal `frequency`: the reference's global time.
    pub fn standing(&self, frequency: Frequency) -> Standing {
        match *self.said.lock().unwrap_or_else(PoisonError::into_inner) {
            Err(reason) => Standing::Unsynchronised(reason),
            Ok(said) => {
                let uncertainty = said.uncertainty(Instant::now());
                let (utc, at) = bracketed(ClockId::CLOCK_REALTIME);
                let (lo, hi) = (frequency.scale(at.lo), frequency.scale(at.hi));
                let half = (hi - lo) / 2;
                Standing::Known {
                    offset_ns: utc - (lo.0 + half),
                    // And the roundings of all three.
                    error_ns: uncertainty.saturating_add(half.unsigned_abs() + 2),
                    stratum: said.stratum,
                }
            }
        }
    }
}

/// Asks now.
fn said() -> Result<Said, Reason> {
    // Chrony has looked after that.
    let at = Instant::now();
    match ask() {
        Ok(Utc { uncertainty_ns: Some(uncertainty_ns), growth_ppm, stratum, .. }) => {
            let stratum = u8::try_from(stratum).unwrap_or(u8::MAX);
            Ok(Said { at, uncertainty_ns, growth: 1e3 * growth_ppm, stratum })
        }
        Ok(_) => Err(Reason::NoSource),
        Err(UtcError::NotInstalled) => Err(Reason::NotInstalled),
        Err(UtcError::Run(_) | UtcError::Silent | UtcError::NoDaemon(_)) => Err(Reason::NoDaemon),
        Err(UtcError::Words(_)) => Err(Reason::Words),
    }
}

/// What chrony says of the host's clock.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Utc {
    /// Whether chrony has a source that it believes.
    pub synchronised: bool,
    /// How far the clock may be from UTC, ns: |system time| + root dispersion + root delay / 2
    /// (chronyc(1), `tracking`). `None` where it is not synchronised.
    pub uncertainty_ns: Option<u64>,
    /// By how much that grows from then on, parts per million: |residual frequency| + skew, and
    /// [`CLOCK_PPM`].
    pub growth_ppm: f64,
    /// The source's address or reference id.
    pub source: String,
    /// Hops to the primary source.
    pub stratum: u32,
}

/// Why chrony says nothing.
#[derive(Debug, thiserror::Error)]
pub enum UtcError {
    /// It is not installed.
    #[error("chronyc is not installed")]
    NotInstalled,
    /// It cannot be run.
    #[error("chronyc cannot be run: {0}")]
    Run(io::Error),
    /// It takes too long.
    #[error("chronyc has not answered within {} s", PATIENCE.as_secs())]
    Silent,
    /// There is no daemon.
    #[error("chronyd does not answer: {0}")]
    NoDaemon(String),
    /// Another version's words.
    #[error("chronyc's answer is not understood: {0:?}")]
    Words(String),
}

/// How far an oscillator's frequency may be off besides, by chrony's default (chrony.conf(5),
/// `maxclockerror`).
const CLOCK_PPM: f64 = 1.0;

const PATIENCE: Duration = Duration::from_secs(2);
const FIELDS: usize = 14;

/// Asks the chronyd of this machine.
pub fn ask() -> Result<Utc, UtcError> {
    let mut child = Command::new("chronyc")
        .args(["-n", "-c", "tracking"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => UtcError::NotInstalled,
            _ => UtcError::Run(error),
        })?;
    let end = Instant::now() + PATIENCE;
    // It says a line: no pipe fills up meanwhile.
    while child.try_wait().map_err(UtcError::Run)?.is_none() {
        if Instant::now() >= end {
            // It may have ended just now; either way nothing of it is left.
            let _ = child.kill();
            let _ = child.wait();
            return Err(UtcError::Silent);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().map_err(UtcError::Run)?;
    let said = String::from_utf8_lossy(&output.stdout);
    match output.status.success() {
        true => parse(said.trim()),
        false => Err(UtcError::NoDaemon(said.trim().to_owned())),
    }
}

/// A line of `chronyc -c tracking`.
pub fn parse(line: &str) -> Result<Utc, UtcError> {
    let words = || UtcError::Words(line.to_owned());
    let fields: Vec<&str> = line.split(',').collect();
    if fields.len() < FIELDS {
        return Err(words());
    }
    let seconds = |at: usize| {
        let value: f64 = fields[at].parse().map_err(|_| words())?;
        if value.is_finite() { Ok(value) } else { Err(words()) }
    };
    let (offset, delay, dispersion) = (seconds(4)?, seconds(10)?, seconds(11)?);
    let growth_ppm = seconds(8)?.abs() + seconds(9)?.abs() + CLOCK_PPM;
    let synchronised = fields[13] != "Not synchronised";
    let uncertainty = (offset.abs() + dispersion + delay / 2.0) * 1e9;
    Ok(Utc {
        synchronised,
        uncertainty_ns: synchronised.then_some(uncertainty.ceil() as u64),
        growth_ppm,
        source: if fields[1].is_empty() { fields[0] } else { fields[1] }.to_owned(),
        stratum: fields[2].parse().map_err(|_| words())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uncertainty_is_as_chronyc_defines_it() {
        let line = "C0A80001,192.168.0.1,3,1795316470.756780985,-0.000012345,0.000001,0.000020,\
                    -12.345,0.001,0.050,0.004000000,0.000300000,64.2,Normal";
        let utc = parse(line).unwrap();
        assert_eq!((utc.synchronised, utc.stratum, utc.source.as_str()), (true, 3, "192.168.0.1"));
        assert_eq!(utc.uncertainty_ns, Some(2_312_345));
    }

    #[test]
    fn the_uncertainty_grows_with_its_age() {
        let line = "C0A80001,192.168.0.1,3,1795316470.756780985,-0.000012345,0.000001,0.000020,\
                    -12.345,-0.001,0.050,0.004000000,0.000300000,64.2,Normal";
        let Utc { uncertainty_ns, growth_ppm, .. } = parse(line).unwrap();
        assert!((growth_ppm - 1.051).abs() < 1e-9, "{growth_ppm}");
        let (at, growth) = (Instant::now(), 1e3 * growth_ppm);
        let said = Said { at, uncertainty_ns: uncertainty_ns.unwrap(), growth, stratum: 3 };
        assert_eq!(said.uncertainty(at), 2_312_345);
        assert_eq!(said.uncertainty(at + Duration::from_secs(100)), 2_312_345 + 105_100);
    }

    #[test]
    fn without_a_source_there_is_no_uncertainty() {
        let line = "00000000,,0,0.000000000,0.000000000,0.000000000,0.000000000,-0.5,0.000,0.000,\
                    1.000000000,1.000000000,0.0,Not synchronised";
        let utc = parse(line).unwrap();
        assert_eq!((utc.synchronised, utc.uncertainty_ns), (false, None));
        assert_eq!(utc.source, "00000000");
    }

    #[test]
    fn other_words_are_no_answer() {
        for line in ["", "506 Cannot talk to daemon", "a,b,c,d,e,f,g,h,i,j,k,l,m,n"] {
            assert!(matches!(parse(line), Err(UtcError::Words(_))), "{line}");
        }
        let endless = "7F7F0101,,8,1.0,inf,0,0,0,0,0,0,0,0,Normal";
        assert!(matches!(parse(endless), Err(UtcError::Words(_))));
    }
}
