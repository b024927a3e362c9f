//! The home of channels: sends their items to the mirrors of other hosts.

use std::io::{self, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use loopscope_stm::ToMirror;
use loopscope_stm_shared::message::write_both;
use loopscope_stm_shared::{Channels, HomeEnd, Offered, Relay, Settings, now_ns};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::datagrams::{Address, Outgoing};
use crate::frame::{Down, Up};
use crate::output;
use crate::transport::{LEASE, LOOK_EVERY, Transport, await_bytes};

/// What a mirror sends first: the version of what they say.
pub(crate) const HELLO: [u8; 8] = *b"lsstm\0\0\x03";
/// A side that is silent for so long while they get to know each other is left.
pub(crate) const GREETING: Duration = Duration::from_secs(5);
/// Messages are sent together as long as there are more, up to so many bytes.
const GATHERED: usize = 1 << 16;
/// Bytes of a document at most.
const LONGEST: usize = 1 << 16;
/// Mirrors, and others that connect, at one time.
const MOST: usize = 1024;

/// What a mirror asks for, when they know each other.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    /// With what the channel is made, if the home has none.
    pub(crate) create: Option<Settings>,
    /// The connection is for putting items. Else it is for having them.
    pub(crate) puts: bool,
    /// Where it takes datagrams, if the home sends some.
    pub(crate) datagrams: Option<Address>,
}

/// What a home answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Greeting {
    /// There is such a channel.
    Channel(Offer),
    Refused(String),
}

/// A channel of a home.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Offer {
    pub(crate) settings: Settings,
    /// Tells it from others of its name.
    pub(crate) incarnation: u64,
    /// Tells the home's service from those that were there before.
    pub(crate) service: u64,
}

/// A place at which mirrors connect.
pub struct Homes {
    listener: TcpListener,
}

impl Homes {
    /// Listens at an address.
    ///
    /// # Errors
    /// The system refuses.
    pub fn listen(address: SocketAddr) -> io::Result<Homes> {
        Ok(Homes { listener: TcpListener::bind(address)? })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system refuses.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves mirrors that have the key until the process ends. `report`: what went wrong, for people.
    ///
    /// # Errors
    /// There can be no thread.
    pub fn serve(
        self,
        channels: Channels,
        transport: Transport,
        report: impl Fn(&str) + Send + Sync + 'static,
    ) -> io::Result<()> {
        let report = Arc::new(report);
        let there = Arc::new(AtomicUsize::new(0));
        let accepts = move || {
            loop {
                let (stream, from) = match self.listener.accept() {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        report(&format!("cannot accept a mirror: {error}"));
                        // As where there are too many open files.
                        thread::sleep(Duration::from_millis(100));
                        continue;
                    }
                };
                if there.fetch_add(1, Ordering::Relaxed) >= MOST {
                    there.fetch_sub(1, Ordering::Relaxed);
                    report(&format!("{from} is refused: {MOST} mirrors are connected"));
                    continue;
                }
                let (channels, transport) = (channels.clone(), transport.clone());
                let (tell, counted) = (Arc::clone(&report), Arc::clone(&there));
                let serves = move || {
                    if let Err(error) = serve(&stream, &channels, &transport) {
                        tell(&format!("the mirror at {from}: {error}"));
                    }
                    counted.fetch_sub(1, Ordering::Relaxed);
                };
                let spawned = thread::Builder::new().name("mirror".into()).spawn(serves);
                if let Err(error) = spawned {
                    // The connection is closed.
                    there.fetch_sub(1, Ordering::Relaxed);
                    report(&format!("cannot serve the mirror at {from}: {error}"));
                }
            }
        };
        thread::Builder::new().name("homes".into()).spawn(accepts).map(|_| ())
    }
}

/// Sends a document, after its length.
pub(crate) fn send(mut stream: &TcpStream, document: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(document)?;
    stream.write_all(&(text.len() as u32).to_le_bytes())?;
    stream.write_all(&text)
}

/// Receives a document.
pub(crate) fn receive<T: DeserializeOwned>(mut stream: &TcpStream) -> io::Result<T> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > LONGEST {
        let what = format!("a document of {length} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    let mut text = vec![0; length];
    stream.read_exact(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Serves one mirror, until it leaves.
fn serve(stream: &TcpStream, channels: &Channels, transport: &Transport) -> io::Result<()> {
    transport.prepare(stream)?;
    stream.set_read_timeout(Some(GREETING))?;
    stream.set_write_timeout(Some(GREETING))?;
    let mut hello = [0; HELLO.len() + 1];
    (&mut &*stream).read_exact(&mut hello)?;
    if hello[..HELLO.len()] != HELLO {
        let what = "it is no mirror of this version of loopscope";
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    let mut name = vec![0; usize::from(hello[HELLO.len()])];
    (&mut &*stream).read_exact(&mut name)?;
    let name = String::from_utf8(name).map_err(io::Error::other)?;
    transport.key.check(&mut &*stream, &name)?;
    let asked: Asked = receive(stream)?;
    let offered = channels.offer(&name, asked.create);
    let greeting = match &offered {
        Ok(offered) => {
            let Offered { settings, incarnation, service, .. } = *offered;
            Greeting::Channel(Offer { settings, incarnation, service })
        }
        Err(why) => Greeting::Refused(why.clone()),
    };
    if asked.puts {
        return serve_output(stream, offered, greeting);
    }
    send(stream, &greeting)?;
    let Ok(offered) = offered else { return Ok(()) };
    stream.set_read_timeout(Some(LEASE))?;
    // A mirror without room reads nothing for as long as its readers take.
    stream.set_write_timeout(None)?;
    let end = HomeEnd::new(&offered.channel);
    let outgoing = match (asked.datagrams, offered.settings.lifespan()) {
        (Some(to), Some(lifespan)) => {
            Some(Outgoing::new(&end, stream, to, lifespan, offered.settings.capacity())?)
        }
        _ => None,
    };
    let (way, over) = (Way::new(&end, stream, outgoing.as_ref()), AtomicBool::new(false));
    thread::scope(|scope| {
        let tells = scope.spawn(|| {
            let told = tell(&end, &way, &over);
            _ = stream.shutdown(Shutdown::Both);
            told
        });
        let sends = outgoing.as_ref().map(|outgoing| {
            scope.spawn(|| {
                let sent = outgoing.run(&over);
                _ = stream.shutdown(Shutdown::Both);
                sent
            })
        });
        let received = receive_all(&end, stream, &way);
        // Producers may wait for what it had wanted.
        end.end();
        over.store(true, Ordering::Relaxed);
        _ = stream.shutdown(Shutdown::Both);
        let failed = |_| Err(io::Error::other("a thread has failed"));
        let told = tells.join().unwrap_or_else(failed);
        let sent = sends.map_or(Ok(()), |sends| sends.join().unwrap_or_else(failed));
        match (received, told.and(sent)) {
            // The mirror has left.
            (Err(error), _) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            (Err(error), Ok(())) | (_, Err(error)) => Err(error),
            (Ok(()), Ok(())) => Ok(()),
        }
    })
}

/// Serves an output connection of a program on another host, until it leaves.
fn serve_output(
    stream: &TcpStream,
    offered: Result<Offered, String>,
    greeting: Greeting,
) -> io::Result<()> {
    let Ok(Offered { channel, .. }) = offered else { return send(stream, &greeting) };
    let output = match channel.local_output() {
        Ok(output) => output,
        Err(why) => return send(stream, &Greeting::Refused(why.to_string())),
    };
    send(stream, &greeting)?;
    // The kernel ends one whose host is gone.
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    output::end_silent(stream)?;
    output::serve(stream, &channel, output)
}

/// The way to a mirror, which takes messages of one thread and answers of another.
struct Way<'a> {
    end: &'a HomeEnd,
    /// Takes the items, if they go in datagrams.
    outgoing: Option<&'a Outgoing<'a>>,
    stream: Mutex<&'a TcpStream>,
    /// A question that has no answer yet.
    asked: Mutex<Option<i64>>,
}

impl<'a> Way<'a> {
    fn new(end: &'a HomeEnd, stream: &'a TcpStream, outgoing: Option<&'a Outgoing<'a>>) -> Way<'a> {
        Way { end, outgoing, stream: Mutex::new(stream), asked: Mutex::default() }
    }

    /// Sends the gathered messages and then an item's bytes, and empties `gathered`.
    fn send(&self, gathered: &mut Vec<u8>, bytes: &[u8]) -> io::Result<()> {
        if gathered.is_empty() && lock(&self.asked).is_none() {
            return Ok(());
        }
        let _sends = self.end.relays(Relay::Sends);
        let mut stream = self.locked(&self.stream);
        if !gathered.is_empty() {
            write_both(&mut *stream, gathered, bytes)?;
            gathered.clear();
        }
        self.answer(*stream)
    }

    /// Answers a question at once, or after the message that another thread is sending.
    fn asks(&self, asked: i64) -> io::Result<()> {
        let _sends = self.end.relays(Relay::Sends);
        *self.locked(&self.asked) = Some(asked);
        match self.stream.try_lock() {
            Ok(stream) => self.answer(*stream),
            // The mirror may have no room for long, and its messages are read all the same.
            Err(_) => Ok(()),
        }
    }

    fn answer(&self, mut stream: &TcpStream) -> io::Result<()> {
        let asked = self.locked(&self.asked).take();
        let answer = asked.map(|asked| Down::Answers { asked, at: now_ns() });
        answer.map_or(Ok(()), |answer| stream.write_all(&answer.head()))
    }

    /// Takes a lock, and records for how long it does.
    fn locked<'b, T>(&self, of: &'b Mutex<T>) -> MutexGuard<'b, T> {
        let _locks = self.end.relays(Relay::Locks);
        lock(of)
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Carries out what the mirror sends, until it leaves.
fn receive_all(end: &HomeEnd, stream: &TcpStream, way: &Way<'_>) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        match receive_next(end, &mut reader) {
            Ok(Up::Tells(message)) => end.receive(message).map_err(io::Error::other)?,
            Ok(Up::Asks(asked)) => way.asks(asked)?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let what = format!("it was silent for {} s", LEASE.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
            Err(error) => return Err(error),
        }
    }
}

/// The mirror's next message.
fn receive_next(end: &HomeEnd, reader: &mut BufReader<&TcpStream>) -> io::Result<Up> {
    await_bytes(reader, || end.relays(Relay::Waits))?;
    let _receives = end.relays(Relay::Receives);
    Up::receive(reader)
}

/// Sends the mirror what there is for it, until `over`.
fn tell(end: &HomeEnd, way: &Way<'_>, over: &AtomicBool) -> io::Result<()> {
    let mut gathered = vec![];
    while !over.load(Ordering::Relaxed) {
        let seen = end.seen();
        while let Some(message) = end.next().map_err(io::Error::other)? {
            let (down, item) = match message {
                ToMirror::Item(got) => (Down::Item(got.item), Some(got)),
                ToMirror::Joined(count) => (Down::Joined(count), None),
                ToMirror::Gone { time, lost } => (Down::Gone { time, lost }, None),
                ToMirror::Lost(count) => (Down::Lost(count), None),
                ToMirror::Horizon(horizon) => (Down::Horizon(horizon), None),
                ToMirror::Looked(count) => (Down::Looked(count), None),
            };
            let bytes = item.map(|got| end.bytes(&got)).transpose().map_err(io::Error::other)?;
            let (mut down, mut bytes) = (down, bytes.unwrap_or_default());
            let mut given_up = None;
            if let (Down::Item(item), Some(outgoing)) = (down, way.outgoing) {
                let _sends = end.relays(Relay::Sends);
                let serial;
                (serial, given_up) = outgoing.send(item, bytes)?;
                (down, bytes) = (Down::Datagrams { item, serial }, &[]);
            }
            down.write(&mut gathered);
            if let Some(serial) = given_up {
                Down::GivenUp(serial).write(&mut gathered);
            }
            if gathered.len() + bytes.len() <= GATHERED {
                gathered.extend_from_slice(bytes);
            } else {
                way.send(&mut gathered, bytes)?;
            }
            if let Some(got) = item {
                end.sent(&got).map_err(io::Error::other)?;
            }
        }
        way.send(&mut gathered, &[])?;
        end.wait(seen, LOOK_EVERY);
    }
    Ok(())
}
