//! The ports to which acceleration is limited (`LOOPSCOPE_STACK_ONLY`): pure decisions.

use std::net::SocketAddr;
use std::ops::RangeInclusive;

/// The ports that a connection must have to be taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ports {
    /// Every connection may be.
    All,
    /// One of these has to be at either end.
    Only(Vec<RangeInclusive<u16>>),
}

impl Ports {
    /// The ports that a text names: numbers from 1 to 65535 and ranges, between commas
    /// (`80,8000-8010`). An empty text is that of all ports.
    ///
    /// # Errors
    /// It is none of these; what it is, for a person.
    pub(crate) fn parse(text: &str) -> Result<Ports, String> {
        if text.trim().is_empty() {
            return Ok(Ports::All);
        }
        let ranges: Option<_> = text.split(',').map(|part| range(part.trim())).collect();
        let error = || format!("LOOPSCOPE_STACK_ONLY is {text:?}, and not ports (80,8000-8010)");
        ranges.map(Ports::Only).ok_or_else(error)
    }

    /// Why a connection with these ends is not taken over; None if it may be.
    pub(crate) fn refuses(&self, here: SocketAddr, there: SocketAddr) -> Option<&'static str> {
        let Ports::Only(ranges) = self else { return None };
        let is_among = |at: SocketAddr| ranges.iter().any(|each| each.contains(&at.port()));
        let is_one = is_among(here) || is_among(there);
        (!is_one).then_some("neither of its ports is in LOOPSCOPE_STACK_ONLY")
    }
}

fn range(text: &str) -> Option<RangeInclusive<u16>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (port(first.trim())?, port(last.trim())?);
    (first <= last).then_some(first..=last)
}

fn port(text: &str) -> Option<u16> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| is_number && *port > 0)
}
