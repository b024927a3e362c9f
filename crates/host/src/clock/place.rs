//! Places that a person named, of a reference or a peer: where they are, also when a name gets
//! another address.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use loopscope_clocksync::probe::ProbeError;

/// Without an answer for so long, the name is looked up again, and again after as long.
const SILENT: Duration = Duration::from_secs(5);

/// A name with a port, and the address that it last had.
pub(super) struct Place {
    name: String,
    address: SocketAddr,
    /// When there was an answer last, or the name was looked up.
    since: Instant,
    /// A look-up that goes on. It may take as long as the name server likes.
    asked: Option<Receiver<Option<SocketAddr>>>,
}

impl Place {
    /// Looks `name` up.
    pub(super) fn of(name: &str) -> anyhow::Result<Place> {
        let address = resolved(name)?;
        Ok(Place { name: name.to_owned(), address, since: Instant::now(), asked: None })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Has probes follow it, as `who`, to another address: `redirect` is given the own address to
    /// probe from, and where to. `last`: when it answered last. Never waits.
    pub(super) fn follow(
        &mut self,
        who: &str,
        last: Option<Instant>,
        now: Instant,
        redirect: impl FnOnce(IpAddr, SocketAddr) -> Result<(), ProbeError>,
    ) {
        let Some(address) = self.moved(last, now) else { return };
        // There may be no way to it yet: the next look-up tries again.
        let own = own_address(address);
        match own.and_then(|own| Ok(redirect(own, address)?)) {
            Ok(()) => eprintln!("loopscope-host: {who} is at {address} now"),
            Err(error) => {
                self.address = SocketAddr::new(self.address.ip(), 0);
                eprintln!("loopscope-host: {who} is at {address} now, but {error:#}");
            }
        }
    }

    /// Its new address, if it has one.
    fn moved(&mut self, last: Option<Instant>, now: Instant) -> Option<SocketAddr> {
        let found = match self.asked.as_ref().map(Receiver::try_recv) {
            Some(Err(TryRecvError::Empty)) => return None,
            Some(found) => found.ok().flatten(),
            None => None,
        };
        if self.asked.take().is_some() {
            self.since = now;
        }
        self.since = self.since.max(last.unwrap_or(self.since));
        if let Some(new) = found.filter(|new| *new != self.address) {
            self.address = new;
            return Some(new);
        }
        // A number is never another one.
        if self.name.parse::<SocketAddr>().is_err() && now >= self.since + SILENT {
            let (answer, asked) = mpsc::channel();
            let name = self.name.clone();
            // The caller may have ended.
            let look = move || answer.send(resolved(&name).ok()).unwrap_or_default();
            // A thread that cannot be had is tried again.
            let begun = std::thread::Builder::new().name("clock-name".into()).spawn(look);
            self.asked = begun.is_ok().then_some(asked);
        }
        None
    }
}

/// An address that a person wrote.
fn resolved(text: &str) -> anyhow::Result<SocketAddr> {
    let place = || format!("{text:?} is no HOST:PORT that is known");
    text.to_socket_addrs().with_context(place)?.next().with_context(place)
}

/// The address of this machine from which packets go to `to`.
pub(super) fn own_address(to: SocketAddr) -> anyhow::Result<IpAddr> {
    let any: IpAddr = if to.is_ipv4() { [0, 0, 0, 0].into() } else { [0u16; 8].into() };
    // Connecting a UDP socket sends nothing.
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to).with_context(|| format!("there is no way to {to}"))?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(place: &mut Place, now: Instant) -> Option<SocketAddr> {
        let begun = Instant::now();
        while place.asked.is_some() {
            assert!(begun.elapsed() < Duration::from_secs(60), "the name is not looked up");
            let moved = place.moved(None, now);
            if moved.is_some() {
                return moved;
            }
            std::thread::yield_now();
        }
        None
    }

    /// Probes are sent to where a name is now, and again at the next look-up if they cannot be.
    #[test]
    fn probes_follow_a_name() {
        let mut place = Place::of("localhost:27182").unwrap();
        let (now, right) = (place.since, place.address);
        let after = |s| now + Duration::from_secs(s);
        place.address = "192.0.2.1:27182".parse().unwrap();
        let mut at = Vec::new();
        for (round, works) in [false, true, true].into_iter().enumerate() {
            let begun = Instant::now();
            let asked = after(10 * (round as u64 + 1));
            place.follow("the peer", None, asked, |_, _| unreachable!("nobody was asked"));
            while place.asked.is_some() {
                assert!(begun.elapsed() < Duration::from_secs(60), "the name is not looked up");
                place.follow("the peer", None, asked, |own, to| {
                    at.push((own, to));
                    if works { Ok(()) } else { Err(ProbeError::Panicked) }
                });
                std::thread::yield_now();
            }
        }
        assert_eq!(at, [(right.ip(), right); 2]);
    }

    /// Only a name is looked up, only in silence, and only another address is told of.
    #[test]
    fn a_silent_name_is_looked_up_again() {
        let mut place = Place::of("localhost:27182").unwrap();
        let (now, right) = (place.since, place.address);
        let after = |s| now + Duration::from_secs(s);
        assert_eq!(place.moved(None, after(4)), None);
        assert!(place.asked.is_none());
        assert_eq!(place.moved(Some(after(3)), after(7)), None);
        assert!(place.asked.is_none(), "it has answered");
        // The name has had another address so far.
        place.address = "192.0.2.1:27182".parse().unwrap();
        assert_eq!(place.moved(Some(after(3)), after(8)), None);
        assert!(place.asked.is_some());
        assert_eq!(settled(&mut place, after(9)), Some(right));
        // It is the right one now.
        assert_eq!(place.moved(None, after(20)), None);
        assert_eq!(settled(&mut place, after(21)), None);
        let mut number = Place::of("127.0.0.1:27182").unwrap();
        assert_eq!(number.moved(None, number.since + Duration::from_secs(60)), None);
        assert!(number.asked.is_none());
    }
}
