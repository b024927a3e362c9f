//! The mirror's side: receives the items of another host's channel that programs here want, and connects
//! those that put some.

use std::error::Error;
use std::io::{self, BufReader, BufWriter, Read, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use loopscope_stm::{NewItem, ToMirror};
use loopscope_stm_shared::{
    Channels, Elsewhere, MirrorEnd, Mirrored, PeerClock, PutError, Relay, Settings, Shared, Until,
    now_ns,
};

use crate::datagrams::{Door, Incoming, KeptAway};
use crate::frame::{Down, Up};
use crate::home::{self, Asked, GREETING, Greeting, HELLO, Offer};
use crate::output;
use crate::transport::{LOOK_EVERY, Transport, await_bytes};

/// Between two questions for the home's time.
const ASK_EVERY: Duration = Duration::from_millis(100);
/// Where the last one has no answer yet, as while there is no room here.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// A home that does not answer for so long is not there.
const SILENT: Duration = Duration::from_secs(5);
/// Between two tries to connect.
const AGAIN: Duration = Duration::from_secs(1);

/// A channel's home on another host: where it is, and what a service needs to reach it.
#[derive(Clone)]
pub struct Home<R> {
    /// The service's channels.
    pub channels: Channels,
    /// The channel's name.
    pub name: String,
    /// Where its home listens.
    pub address: SocketAddr,
    /// How it is reached.
    pub transport: Transport,
    /// What goes wrong later, for people.
    pub report: R,
}

impl<R: Fn(&str) + Clone + Send + Sync + 'static> Elsewhere for Home<R> {
    /// Makes the mirror, and has a thread keep it until the service forgets it. Returns when the home
    /// has answered, which makes the channel with `create` if it has none.
    fn mirror(&self, create: Option<Settings>) -> Result<(), String> {
        let Home { channels, name, address, .. } = self;
        let (mut way, offer) = self.greeted(Wanted::Items { create })?;
        let Offer { settings, incarnation, service } = offer;
        way.door = way.door.filter(|_| settings.lifespan().is_some());
        let mirror = channels.mirror(name, settings, &address.to_string(), incarnation)?;
        self.kept(mirror, Some((way, service)))
    }

    fn resume(&self, mirror: Mirrored) -> Result<(), String> {
        self.kept(mirror, None)
    }

    fn output(&self, incarnation: u64) -> Result<(OwnedFd, u32), String> {
        let (Way { stream, .. }, offer) = self.greeted(Wanted::Output)?;
        if offer.incarnation != incarnation {
            return Err(
                "it has another channel of this name now: try again, or open it anew".into()
            );
        }
        let ready = || -> io::Result<OwnedFd> {
            stream.set_read_timeout(None)?;
            stream.set_write_timeout(None)?;
            output::end_silent(&stream)?;
            Ok(stream.into())
        };
        Ok((ready().map_err(|error| error.to_string())?, offer.settings.loans()))
    }
}

impl<R: Fn(&str) + Clone + Send + Sync + 'static> Home<R> {
    /// Has a thread keep a mirror, with a connection to a service or without one yet.
    fn kept(&self, mirror: Mirrored, way: Option<(Way, u64)>) -> Result<(), String> {
        let (home, life) = (self.clone(), mirror.life.clone());
        let keeps = move || keep(&home, way, &mirror);
        let spawned = thread::Builder::new().name("home".into()).spawn(keeps);
        spawned.map(|_| ()).map_err(|error| {
            self.channels.forget(&self.name, &life);
            format!("cannot keep the mirror of {}: {error}", self.name)
        })
    }
}

/// What a connection to a home is for.
enum Wanted {
    /// The items; the home makes the channel with `create` if it has none.
    Items { create: Option<Settings> },
    /// The items, and none in datagrams.
    ItemsByTcp,
    /// Putting items.
    Output,
}

/// A connection to a home.
struct Way {
    stream: TcpStream,
    /// Where items come in datagrams, if some do.
    door: Option<Door>,
}

impl<R> Home<R> {
    /// A connection to the home, and which channel it has; or why there is none.
    fn greeted(&self, wanted: Wanted) -> Result<(Way, Offer), String> {
        let Home { name, address, .. } = self;
        match self.connect(wanted) {
            Ok((way, Greeting::Channel(offer))) => Ok((way, offer)),
            Ok((_, Greeting::Refused(why))) => Err(format!("the home at {address}: {why}")),
            Err(error) => Err(format!("the home of {name} at {address} does not answer: {error}")),
        }
    }

    /// Connects, and has the home say which channel it has, which it makes if there is none.
    fn connect(&self, wanted: Wanted) -> io::Result<(Way, Greeting)> {
        let stream = TcpStream::connect_timeout(&self.address, GREETING)?;
        self.transport.prepare(&stream)?;
        stream.set_read_timeout(Some(GREETING))?;
        stream.set_write_timeout(Some(SILENT))?;
        let length = u8::try_from(self.name.len()).map_err(io::Error::other)?;
        let hello = [&HELLO[..], &[length], self.name.as_bytes()].concat();
        (&mut &stream).write_all(&hello)?;
        self.transport.key.prove(&mut &stream, &self.name)?;
        let door = match wanted {
            Wanted::Items { .. } => Some(Door::of(&stream)?),
            Wanted::ItemsByTcp | Wanted::Output => None,
        };
        let datagrams = door.as_ref().map(Door::address).transpose()?;
        let puts = matches!(wanted, Wanted::Output);
        let create = if let Wanted::Items { create } = wanted { create } else { None };
        home::send(&stream, &Asked { create, puts, datagrams })?;
        let greeting = home::receive(&stream)?;
        Ok((Way { stream, door }, greeting))
    }
}

/// Keeps a mirror until the service forgets it, or the home's channel was replaced.
fn keep<R: Fn(&str)>(home: &Home<R>, way: Option<(Way, u64)>, mirror: &Mirrored) {
    let Home { channels, name, address, report, .. } = home;
    let Mirrored { shared, settings, life, .. } = mirror;
    let (lifespan, mut incarnation) = (settings.lifespan(), mirror.incarnation);
    let (mut connected, mut service) =
        way.map_or((None, None), |(way, service)| (Some(way), Some(service)));
    let (mut is_said, mut by_tcp) = (false, lifespan.is_none());
    while life.strong_count() > 0 {
        if let Some(way) = connected.take() {
            is_said = false;
            if let Err(error) = run(&way, shared, lifespan, life) {
                by_tcp |= error.get_ref().is_some_and(|why| why.is::<KeptAway>());
                report(&format!("{name}: the home at {address} is away: {error}"));
                is_said = true;
            }
            continue;
        }
        thread::sleep(AGAIN);
        let wanted = if by_tcp { Wanted::ItemsByTcp } else { Wanted::Items { create: None } };
        match home.connect(wanted) {
            Ok((way, Greeting::Channel(offer))) if offer.incarnation == incarnation => {
                report(&format!("{name}: the home at {address} is back"));
                (connected, service) = (Some(way), Some(offer.service));
            }
            // The one before is gone with its service, and was not removed by somebody.
            Ok((way, Greeting::Channel(offer)))
                if offer.settings == *settings && service != Some(offer.service) =>
            {
                report(&format!(
                    "{name}: the home at {address} has begun anew; what was put there and has not come \
                     is lost unless it is put again"
                ));
                incarnation = offer.incarnation;
                shared.goes_on_with(incarnation);
                (connected, service) = (Some(way), Some(offer.service));
            }
            Ok((_, Greeting::Refused(why))) => {
                if !is_said {
                    report(&format!("{name}: the home at {address} is away: {why}"));
                    is_said = true;
                }
            }
            Ok((_, Greeting::Channel(_))) => {
                // Those that are told must not get this mirror again.
                channels.forget(name, life);
                report(&format!(
                    "{name}: the home at {address} has another channel now; programs have to open it anew"
                ));
            }
            Err(error) if !is_said => {
                report(&format!("{name}: the home at {address} does not answer: {error}"));
                is_said = true;
            }
            Err(_) => (),
        }
    }
}

/// Has the items of a home until it goes away, or the service forgets the mirror.
fn run(way: &Way, shared: &Shared, lifespan: Option<Duration>, life: &Weak<()>) -> io::Result<()> {
    let stream = &way.stream;
    stream.set_read_timeout(Some(SILENT))?;
    let end = MirrorEnd::new(shared).map_err(io::Error::other)?;
    let clock = Mutex::default();
    let incoming =
        way.door.as_ref().zip(lifespan).map(|(door, lifespan)| {
            Incoming::new(&end, &clock, door, lifespan, shared.item_bytes())
        });
    let (over, answered) = (AtomicBool::new(false), AtomicBool::new(true));
    thread::scope(|scope| {
        let tells = scope.spawn(|| {
            let told = tell(&end, stream, &over, &answered);
            _ = stream.shutdown(Shutdown::Both);
            told
        });
        let takes = incoming.as_ref().map(|incoming| {
            scope.spawn(|| {
                let took = incoming.run(&over);
                _ = stream.shutdown(Shutdown::Both);
                took
            })
        });
        let receiving = Receiving { end: &end, clock: &clock, incoming: incoming.as_ref(), life };
        let received = receiving.all(stream, shared.item_bytes(), &answered);
        over.store(true, Ordering::Relaxed);
        _ = stream.shutdown(Shutdown::Both);
        let failed = |_| Err(io::Error::other("a thread has failed"));
        let told = tells.join().unwrap_or_else(failed);
        let took = takes.map_or(Ok(()), |takes| takes.join().unwrap_or_else(failed));
        // The first of them ended the connection, and so the others.
        if life.strong_count() == 0 { Ok(()) } else { took.and(received).and(told) }
    })
}

/// Sends the home what is wanted here, until `over`.
fn tell(
    end: &MirrorEnd,
    stream: &TcpStream,
    over: &AtomicBool,
    answered: &AtomicBool,
) -> io::Result<()> {
    let mut writer = BufWriter::new(stream);
    let mut asked: Option<Instant> = None;
    while !over.load(Ordering::Relaxed) {
        let seen = end.seen();
        // The answer comes before items do.
        let since = asked.map_or(ASK_AGAIN, |asked| asked.elapsed());
        if since >= ASK_AGAIN || since >= ASK_EVERY && answered.load(Ordering::Relaxed) {
            answered.store(false, Ordering::Relaxed);
            asked = Some(Instant::now());
            Up::Asks(now_ns()).send(&mut writer)?;
            flush(end, &mut writer)?;
        }
        while let Some(message) = end.next().map_err(io::Error::other)? {
            Up::Tells(message).send(&mut writer)?;
        }
        flush(end, &mut writer)?;
        end.wait(seen, ASK_EVERY);
    }
    Ok(())
}

/// Sends what is written, if there is anything.
fn flush(end: &MirrorEnd, writer: &mut BufWriter<&TcpStream>) -> io::Result<()> {
    if writer.buffer().is_empty() {
        return Ok(());
    }
    let _sends = end.relays(Relay::Sends);
    writer.flush()
}

/// What is done with what a home sends.
struct Receiving<'a> {
    end: &'a MirrorEnd,
    clock: &'a Mutex<PeerClock>,
    /// Where items come in datagrams: what is told goes through it.
    incoming: Option<&'a Incoming<'a>>,
    life: &'a Weak<()>,
}

impl Receiving<'_> {
    /// Carries out what the home sends, until it goes away or the service forgets the mirror.
    fn all(&self, stream: &TcpStream, most: usize, answered: &AtomicBool) -> io::Result<()> {
        let end = self.end;
        let mut reader = BufReader::with_capacity(1 << 16, stream);
        while self.life.strong_count() > 0 {
            await_bytes(&mut reader, || end.relays(Relay::Waits)).map_err(silent)?;
            let receives = end.relays(Relay::Receives);
            let received = Down::receive(&mut reader).map_err(silent)?;
            drop(receives);
            let message = match received {
                Down::Item(item) | Down::Datagrams { item, .. } if item.length as usize > most => {
                    let what = format!("an item of {} bytes, and it may have {most}", item.length);
                    return Err(invalid(what));
                }
                Down::Item(item) => {
                    self.put(&mut reader, item)?;
                    continue;
                }
                Down::Datagrams { item, serial } => {
                    let what = "it sends datagrams that nobody takes";
                    self.incoming.ok_or_else(|| invalid(what))?.announced(serial, item)?;
                    continue;
                }
                Down::GivenUp(serial) => {
                    let what = "it gives an item up that it has not told of";
                    self.incoming.ok_or_else(|| invalid(what))?.given_up(serial)?;
                    continue;
                }
                Down::Answers { asked, at } => {
                    lock(self.clock).exchanged(asked, at, now_ns());
                    answered.store(true, Ordering::Relaxed);
                    continue;
                }
                Down::Joined(count) => ToMirror::Joined(count),
                Down::Gone { time, lost } => ToMirror::Gone { time, lost },
                Down::Lost(count) => ToMirror::Lost(count),
                Down::Horizon(horizon) => ToMirror::Horizon(horizon),
                Down::Looked(count) => ToMirror::Looked(count),
            };
            match self.incoming {
                Some(incoming) => incoming.receive(message)?,
                None => end.receive(message).map_err(io::Error::other)?,
            }
        }
        Ok(())
    }

    /// Reads an item's bytes into shared memory, and puts it.
    fn put(&self, reader: &mut impl Read, item: NewItem) -> io::Result<()> {
        let end = self.end;
        let soon = || Until::Deadline(Instant::now() + LOOK_EVERY);
        let is_wanted = || self.life.strong_count() > 0;
        let mut room = loop {
            match end.room(soon()) {
                Ok(room) => break room,
                Err(error) if error.may_end() && is_wanted() => (),
                Err(error) => return Err(io::Error::other(error)),
            }
        };
        let receives = end.relays(Relay::Receives);
        reader.read_exact(&mut room[..item.length as usize]).map_err(silent)?;
        drop(receives);
        let instant = lock(self.clock).here(item.put_ns, now_ns());
        let what = "an item came before the home's time was known";
        let (put_ns, error) = instant.ok_or_else(|| invalid(what))?;
        let put_error_ns = item.put_error_ns.saturating_add(error);
        let item = NewItem { put_ns, put_error_ns, ..item };
        loop {
            match end.put(&room, item, soon()) {
                Ok(()) => return Ok(()),
                Err(error) if PutError::may_end(&error) && is_wanted() => (),
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn invalid(what: impl Into<Box<dyn Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// What a timeout of a socket means.
fn silent(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => {
            let what = format!("it was silent for {} s", SILENT.as_secs());
            io::Error::new(io::ErrorKind::TimedOut, what)
        }
        io::ErrorKind::UnexpectedEof => {
            io::Error::new(io::ErrorKind::UnexpectedEof, "it has ended the connection")
        }
        _ => error,
    }
}
