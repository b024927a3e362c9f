//! Two services, and a network between them that can be cut.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _, pipe};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use loopscope_stm::{Config, From, Full, Orphans};
use loopscope_stm_link::{Home, Homes, Key, Transport};
use loopscope_stm_shared::{
    Channels, Client, Elsewhere, Input, Options, Output, Service, Settings, Shared, Until,
};
use tempfile::TempDir;

pub(crate) const OPTIONS: Options = Options {
    config: Config {
        capacity: 4,
        slots: 6,
        inputs: 4,
        outputs: 2,
        loans: 2,
        ahead: 16,
        remembered: 16,
        orphans: Orphans::Keep,
        full: Full::Refuse,
    },
    item_bytes: 100_000,
    processes: 8,
};

pub(crate) fn key() -> Transport {
    with_key(7, None)
}

pub(crate) fn with_key(byte: u8, congestion: Option<&str>) -> Transport {
    let key = Key::new(vec![byte; 32]).unwrap();
    Transport::new(key, congestion.map(str::to_owned)).unwrap()
}

/// A host's service, which serves for as long as this is there.
pub(crate) struct Host {
    path: PathBuf,
    pub(crate) channels: Channels,
    end: Option<std::io::PipeWriter>,
    serves: Option<thread::JoinHandle<()>>,
    _folder: TempDir,
}

impl Host {
    pub(crate) fn new(
        openers: impl FnOnce(&Channels) -> BTreeMap<String, Box<dyn Elsewhere>>,
    ) -> Host {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("service");
        let mut service = Service::listen(&path).unwrap();
        let channels = service.channels();
        service.knows_elsewhere(openers(&channels));
        let (until, end) = pipe().unwrap();
        let serves = Some(thread::spawn(move || service.serve(until).unwrap()));
        Host { path, channels, end: Some(end), serves, _folder: folder }
    }

    /// One whose channels are elsewhere.
    pub(crate) fn away(
        home: SocketAddr,
        names: &'static [&str],
        key: Transport,
        told: mpsc::Sender<String>,
    ) -> Host {
        Host::new(|channels| {
            let away = |name: &&'static str| {
                let (name, channels, told) = ((*name).to_owned(), channels.clone(), told.clone());
                let report = move |what: &str| _ = told.send(what.into());
                let named = name.clone();
                let home = Home { channels, name, address: home, transport: key.clone(), report };
                (named, Box::new(home) as Box<dyn Elsewhere>)
            };
            names.iter().map(away).collect()
        })
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.path).unwrap()
    }

    pub(crate) fn open(&self, name: &str) -> Shared {
        self.client().open(name, false).unwrap()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.end.take();
        self.serves.take().unwrap().join().unwrap();
    }
}

/// A home of channels, and where mirrors connect.
pub(crate) fn home() -> (Host, SocketAddr) {
    home_at("127.0.0.1:0")
}

fn home_at(address: &str) -> (Host, SocketAddr) {
    let host = Host::new(|_| BTreeMap::new());
    let homes = Homes::listen(address.parse().unwrap()).unwrap();
    let address = homes.address().unwrap();
    homes.serve(host.channels.clone(), key(), |what| println!("home: {what}")).unwrap();
    (host, address)
}

/// A network that can be cut: connections go on to an address.
pub(crate) struct Network {
    pub(crate) address: SocketAddr,
    ways: Arc<Mutex<Vec<TcpStream>>>,
    /// Bytes that the address has sent.
    sent: Arc<Mutex<u64>>,
    /// Held while nothing goes through.
    gate: Arc<Mutex<()>>,
}

impl Network {
    pub(crate) fn to(address: SocketAddr) -> Network {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap();
        let ways: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let sent: Arc<Mutex<u64>> = Arc::default();
        let gate: Arc<Mutex<()>> = Arc::default();
        let (known, counted, open) = (Arc::clone(&ways), Arc::clone(&sent), Arc::clone(&gate));
        thread::spawn(move || {
            for near in listener.incoming() {
                let near = near.unwrap();
                let Ok(far) = TcpStream::connect(address) else { continue };
                known.lock().unwrap().extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
                for (mut from, mut to, counted) in [
                    (near.try_clone().unwrap(), far.try_clone().unwrap(), None),
                    (far, near, Some(Arc::clone(&counted))),
                ] {
                    let open = Arc::clone(&open);
                    thread::spawn(move || {
                        let mut bytes = [0; 1 << 16];
                        while let Ok(count) = from.read(&mut bytes)
                            && count > 0
                        {
                            drop(open.lock().unwrap());
                            if to.write_all(&bytes[..count]).is_err() {
                                break;
                            }
                            counted.iter().for_each(|sent| *sent.lock().unwrap() += count as u64);
                        }
                        _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        Network { address: here, ways, sent, gate }
    }

    pub(crate) fn sent(&self) -> u64 {
        *self.sent.lock().unwrap()
    }

    /// Lets nothing through until what is returned is dropped; no side is told.
    pub(crate) fn partition(&self) -> MutexGuard<'_, ()> {
        self.gate.lock().unwrap()
    }

    pub(crate) fn cut(&self) {
        for way in self.ways.lock().unwrap().drain(..) {
            _ = way.shutdown(Shutdown::Both);
        }
    }
}

pub(crate) fn seconds(count: u64) -> Until {
    Until::Deadline(Instant::now() + Duration::from_secs(count))
}

/// An item's bytes, by its time.
pub(crate) fn bytes_of(time: i64, length: usize) -> Vec<u8> {
    (0..length).map(|place| (time as usize * 7 + place) as u8).collect()
}

pub(crate) fn put(output: &mut Output, time: i64, length: usize) {
    output.put(time, 0, &bytes_of(time, length), seconds(10)).unwrap();
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(10), "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// A home with a channel, another host that knows where it is, and what that reports.
pub(crate) struct World {
    pub(crate) home: Host,
    pub(crate) away: Host,
    pub(crate) network: Network,
    pub(crate) told: mpsc::Receiver<String>,
}

impl World {
    pub(crate) fn new(options: &Options) -> World {
        World::of(options.into(), "127.0.0.1:0")
    }

    /// One whose home listens at an address.
    pub(crate) fn of(settings: Settings, address: &str) -> World {
        let (home, address) = home_at(address);
        home.client().create("frames", settings).unwrap();
        let network = Network::to(address);
        let (tell, told) = mpsc::channel();
        let away = Host::away(network.address, &["frames", "poses"], key(), tell);
        World { home, away, network, told }
    }

    pub(crate) fn output(&self) -> Output {
        self.home.client().open("frames", true).unwrap().output().unwrap()
    }

    pub(crate) fn input(&self, lossy: bool) -> Input {
        self.away.open("frames").input(From::Oldest, lossy, 8).unwrap()
    }
}

impl World {
    /// A connection by which the other host's programs put items.
    pub(crate) fn output_away(&self) -> Output {
        self.away.client().open("frames", true).unwrap().output().unwrap()
    }
}
