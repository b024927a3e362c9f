//! Channels of a host on another one: two services, and a network between them that can be cut.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _, pipe};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use loopscope_stm::{self as stm, Config, From, Full, GetError as NoItem, Orphans, Which};
use loopscope_stm_link::{Home, Homes, Key, Transport};
use loopscope_stm_shared::{
    Channels, Client, ConnectError, Elsewhere, GetError, Input, Options, Output, PutError, Service,
    Shared, Until,
};
use tempfile::TempDir;

const OPTIONS: Options = Options {
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

fn key() -> Transport {
    with_key(7, None)
}

fn with_key(byte: u8, congestion: Option<&str>) -> Transport {
    let key = Key::new(vec![byte; 32]).unwrap();
    Transport::new(key, congestion.map(str::to_owned)).unwrap()
}

/// A host's service, which serves for as long as this is there.
struct Host {
    path: PathBuf,
    channels: Channels,
    end: Option<std::io::PipeWriter>,
    serves: Option<thread::JoinHandle<()>>,
    _folder: TempDir,
}

impl Host {
    fn new(openers: impl FnOnce(&Channels) -> BTreeMap<String, Box<dyn Elsewhere>>) -> Host {
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
    fn away(
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

    fn client(&self) -> Client {
        Client::connect(&self.path).unwrap()
    }

    fn open(&self, name: &str) -> Shared {
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
fn home() -> (Host, SocketAddr) {
    let host = Host::new(|_| BTreeMap::new());
    let homes = Homes::listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = homes.address().unwrap();
    homes.serve(host.channels.clone(), key(), |what| println!("home: {what}")).unwrap();
    (host, address)
}

/// A network that can be cut: connections go on to an address.
struct Network {
    address: SocketAddr,
    ways: Arc<Mutex<Vec<TcpStream>>>,
}

impl Network {
    fn to(address: SocketAddr) -> Network {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = listener.local_addr().unwrap();
        let ways: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let known = Arc::clone(&ways);
        thread::spawn(move || {
            for near in listener.incoming() {
                let near = near.unwrap();
                let Ok(far) = TcpStream::connect(address) else { continue };
                known.lock().unwrap().extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
                for (mut from, mut to) in
                    [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)]
                {
                    thread::spawn(move || {
                        _ = std::io::copy(&mut from, &mut to);
                        _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        Network { address: here, ways }
    }

    fn cut(&self) {
        for way in self.ways.lock().unwrap().drain(..) {
            _ = way.shutdown(Shutdown::Both);
        }
    }
}

fn seconds(count: u64) -> Until {
    Until::Deadline(Instant::now() + Duration::from_secs(count))
}

/// An item's bytes, by its time.
fn bytes_of(time: i64, length: usize) -> Vec<u8> {
    (0..length).map(|place| (time as usize * 7 + place) as u8).collect()
}

fn put(output: &mut Output, time: i64, length: usize) {
    output.put(time, 0, &bytes_of(time, length), seconds(10)).unwrap();
}

/// Waits until something is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(10), "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// A home with a channel, another host that knows where it is, and what that reports.
struct World {
    home: Host,
    away: Host,
    network: Network,
    told: mpsc::Receiver<String>,
}

impl World {
    fn new(options: &Options) -> World {
        let (home, address) = home();
        home.client().create("frames", options).unwrap();
        let network = Network::to(address);
        let (tell, told) = mpsc::channel();
        let away = Host::away(network.address, &["frames", "poses"], key(), tell);
        World { home, away, network, told }
    }

    fn output(&self) -> Output {
        self.home.client().open("frames", true).unwrap().output().unwrap()
    }

    fn input(&self, lossy: bool) -> Input {
        self.away.open("frames").input(From::Oldest, lossy, 8).unwrap()
    }
}

#[test]
fn a_reader_elsewhere_gets_each_item_as_it_was_put() {
    let world = World::new(&OPTIONS);
    let frames = world.home.client().open("frames", true).unwrap();
    let mut output = frames.output().unwrap();
    put(&mut output, 0, 9);
    let puts = thread::spawn(move || {
        (1..300).for_each(|time| put(&mut output, time, [0, 1, 5000, 100_000][time as usize % 4]));
        output
    });
    let mut input = world.input(false);
    // What is there is what the first item had: it was put before anybody wanted it.
    for time in 0..300 {
        let item = input.get(Which::Oldest, seconds(10)).unwrap();
        let length = if time == 0 { 9 } else { [0, 1, 5000, 100_000][time as usize % 4] };
        assert_eq!((item.time(), &*item), (time, &bytes_of(time, length)[..]));
        let age = now_ns() - item.put_ns();
        // It is this machine's clock: the true age is known to be positive, and not to be long.
        assert!(item.put_error_ns() > 0 && age >= -item.put_error_ns(), "{age}");
        input.consume_until(time).unwrap();
    }
    until("the home frees what the other host has consumed", || {
        frames.counts().unwrap().present == 0
    });
    let counts = frames.counts().unwrap();
    assert_eq!((counts.put, counts.collected, counts.dropped), (300, 300, 0));
    drop(puts.join().unwrap());
}

fn now_ns() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

#[test]
fn a_reader_elsewhere_makes_the_producer_wait_and_a_lossy_one_does_not() {
    for lossy in [false, true] {
        let world = World::new(&OPTIONS);
        let mut output = world.output();
        let mut input = world.input(lossy);
        put(&mut output, 1, 10);
        let first = input.get(Which::Oldest, seconds(10)).unwrap();
        let done = (2..20).map(|time| output.put(time, 0, b"x", Until::Now).is_ok());
        let done: Vec<_> = done.collect();
        // Four are there until they are consumed, the one that is held among them.
        assert_eq!(done.iter().all(|done| *done), lossy, "{done:?}");
        drop(first);
        let (mut got, mut last) = (1, 1);
        while let Ok(item) =
            input.get(Which::Oldest, Until::Deadline(Instant::now() + Duration::from_millis(300)))
        {
            got += u64::from(item.time() > last);
            last = last.max(item.time());
            input.consume_until(item.time()).unwrap();
        }
        let lost = input.counts().unwrap().lost;
        if lossy {
            assert_eq!((got + lost, last), (19, 19), "{got} {lost}");
        } else {
            assert_eq!((got, lost, last), (4, 0, 4));
        }
    }
}

#[test]
fn exact_times_answer_as_at_home() {
    let world = World::new(&OPTIONS);
    let mut output = world.output();
    let mut near = world.home.open("frames").input(From::Oldest, false, 8).unwrap();
    let mut input = world.input(false);
    put(&mut output, 5, 10);
    assert_eq!(input.get(Which::Exact(5), seconds(10)).unwrap().time(), 5);
    // The producer's promise comes, too.
    let gets = thread::spawn(move || {
        let got = input.get(Which::Exact(7), seconds(10)).map(|item| item.time());
        (input, got)
    });
    thread::sleep(Duration::from_millis(50));
    output.bound(8).unwrap();
    let (mut input, got) = gets.join().unwrap();
    assert_eq!(got, Err(GetError::Get(NoItem::Never)));
    // A reader that joins later has nothing of what all have consumed.
    near.consume_until(5).unwrap();
    input.consume_until(5).unwrap();
    drop(input);
    let mut late = world.input(false);
    assert_eq!(late.get(Which::Exact(5), Until::Now).map(|_| ()), Err(GetError::Get(NoItem::Gone)));
}

#[test]
fn a_reader_goes_on_where_it_was_after_the_network_was_cut() {
    let world = World::new(&OPTIONS);
    let mut output = world.output();
    let mut input = world.input(false);
    put(&mut output, 1, 1000);
    assert_eq!(input.get(Which::Oldest, seconds(10)).unwrap().time(), 1);
    for round in 0..3 {
        world.network.cut();
        let told = world.told.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(told.contains("is away"), "{told}");
        // What it has, it has.
        assert!(input.get(Which::Oldest, Until::Now).is_ok());
        let told = world.told.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(told.contains("is back"), "{told}");
        input.consume_until(round + 1).unwrap();
        put(&mut output, round + 2, 1000);
        let item = input.get(Which::Oldest, seconds(10)).unwrap();
        assert_eq!((item.time(), &*item), (round + 2, &bytes_of(round + 2, 1000)[..]));
    }
}

#[test]
fn a_home_frees_what_a_host_wanted_that_is_gone() {
    let world = World::new(&OPTIONS);
    let frames = world.home.client().open("frames", true).unwrap();
    let mut output = frames.output().unwrap();
    let near = frames.input(From::Oldest, false, 8).unwrap();
    let mut near = near;
    let input = world.input(false);
    // The home knows of the reader when that has joined.
    assert_eq!(world.home.client().list().unwrap()[0].inputs.len(), 2);
    put(&mut output, 1, 10);
    near.consume_until(1).unwrap();
    assert_eq!(frames.counts().unwrap().present, 1);
    // The service forgets the mirror, and its link ends.
    world.away.client().remove("frames").unwrap();
    until("the home frees it", || frames.counts().unwrap().present == 0);
    drop(input);
}

#[test]
fn another_channel_of_the_name_is_another_channel() {
    let world = World::new(&OPTIONS);
    let mut output = world.output();
    let mut input = world.input(false);
    put(&mut output, 1, 10);
    assert_eq!(input.get(Which::Oldest, seconds(10)).unwrap().time(), 1);
    world.home.client().remove("frames").unwrap();
    world.home.client().create("frames", &OPTIONS).unwrap();
    let mut output = world.output();
    put(&mut output, 1, 20);
    world.network.cut();
    until("it is told", || {
        world.told.try_recv().is_ok_and(|told| told.contains("another channel now"))
    });
    // What was opened before has its items, and gets no others; what is opened now is the new one.
    assert_eq!(input.get(Which::Oldest, Until::Now).unwrap().len(), 10);
    let mut fresh = world.input(false);
    assert_eq!(fresh.get(Which::Oldest, seconds(10)).unwrap().len(), 20);
}

#[test]
fn what_cannot_be_opened_is_said() {
    let world = World::new(&OPTIONS);
    let error = |name: &str, away: &Host| match away.client().open(name, false) {
        Ok(_) => panic!("{name} was opened"),
        Err(error) => error.to_string(),
    };
    let none = error("poses", &world.away);
    assert!(none.contains("there is no channel poses; there are frames"), "{none}");
    // A program that makes it makes it at home, and the other one finds it.
    assert!(!world.away.client().create("poses", &OPTIONS).unwrap());
    assert!(!world.home.client().create("poses", &OPTIONS).unwrap());
    let (tell, _told) = mpsc::channel();
    let other = with_key(8, None);
    let stranger = Host::away(world.network.address, &["frames"], other, tell.clone());
    let refused = error("frames", &stranger);
    assert!(refused.contains("the other side has another key"), "{refused}");
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nowhere = Host::away(free, &["frames"], key(), tell);
    let refused = error("frames", &nowhere);
    assert!(refused.contains("does not answer: Connection refused"), "{refused}");
    // The options are the home's.
    assert!(!world.away.client().create("frames", &OPTIONS).unwrap());
    let smaller = Options { item_bytes: 64, ..OPTIONS };
    let refused = world.away.client().create("frames", &smaller).unwrap_err().to_string();
    assert!(refused.contains("other options"), "{refused}");
}

/// Nothing that a stranger sends ends the home, or makes it say something to it.
#[test]
fn a_home_bears_strangers() {
    let (host, address) = home();
    host.client().create("frames", &OPTIONS).unwrap();
    fastrand::seed(11);
    for round in 0..300 {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut bytes: Vec<u8> = (0..fastrand::usize(0..200)).map(|_| fastrand::u8(..)).collect();
        if round % 2 == 0 {
            // One that knows how to begin.
            bytes.splice(0..0, b"lsstm\0\0\x02\x06frames".iter().copied());
        }
        _ = stream.write_all(&bytes);
        _ = stream.shutdown(Shutdown::Write);
        let mut answer = vec![];
        _ = stream.read_to_end(&mut answer);
        // At most its own number for the proof.
        assert!(answer.len() <= 32, "{} bytes to a stranger", answer.len());
    }
    let (tell, _told) = mpsc::channel();
    let away = Host::away(address, &["frames"], key(), tell);
    assert!(away.client().open("frames", false).is_ok());
}

impl World {
    /// A connection by which the other host's programs put items.
    fn output_away(&self) -> Output {
        self.away.client().open("frames", true).unwrap().output().unwrap()
    }
}

fn soon(ms: u64) -> Until {
    Until::Deadline(Instant::now() + Duration::from_millis(ms))
}

fn refused(put: Result<(), PutError>) -> PutError {
    put.expect_err("it is put")
}

#[test]
fn items_that_are_put_elsewhere_are_at_home_as_they_were_put() {
    let world = World::new(&OPTIONS);
    let mut readers =
        [world.home.open("frames").input(From::Oldest, false, 8).unwrap(), world.input(false)];
    let mut output = world.output_away();
    let length = |time: i64| [0, 1, 5000, 100_000][time as usize % 4];
    let puts = thread::spawn(move || {
        let mut instants = vec![];
        for time in 0..300 {
            let before = now_ns();
            if time % 3 == 0 {
                let mut loan = output.loan(Until::Now).unwrap();
                loan[..length(time)].copy_from_slice(&bytes_of(time, length(time)));
                loan.put(time, 4, length(time), seconds(10)).map_err(|failed| failed.1).unwrap();
            } else {
                output.put(time, 4, &bytes_of(time, length(time)), seconds(10)).unwrap();
            }
            instants.push((before, now_ns()));
        }
        instants
    });
    let mut told = vec![];
    for time in 0..300 {
        for input in &mut readers {
            let item = input.get(Which::Oldest, seconds(10)).unwrap();
            assert_eq!((item.time(), item.half_width()), (time, 4));
            assert_eq!(&*item, &bytes_of(time, length(time))[..]);
            told.push((time, item.put_ns(), item.put_error_ns()));
            input.consume_until(time).unwrap();
        }
    }
    let instants = puts.join().unwrap();
    for (time, put_ns, error) in told {
        // Both hosts have this machine's clock.
        let (before, after) = instants[time as usize];
        assert!(error > 0 && before - error <= put_ns && put_ns <= after + error, "{time}");
    }
}

#[test]
fn a_put_elsewhere_is_refused_as_at_home() {
    let world = World::new(&OPTIONS);
    let mut near = world.home.open("frames").input(From::Oldest, false, 8).unwrap();
    let mut output = world.output_away();
    put(&mut output, 10, 100);
    let again = refused(output.put(10, 0, b"", seconds(10)));
    assert_eq!(again, PutError::Put(stm::PutError::Exists));
    assert_eq!(output.bound(5).unwrap(), 5);
    assert_eq!(output.bound(3).unwrap(), 5);
    let below = refused(output.put(4, 0, b"", seconds(10)));
    assert_eq!(below, PutError::Put(stm::PutError::Late));
    let range = refused(output.put(i64::MAX, 0, b"", seconds(10)));
    assert_eq!(range, PutError::Put(stm::PutError::OutOfRange));
    let long = refused(output.put(11, 0, &vec![0; 200_000], seconds(10)));
    assert!(matches!(long, PutError::TooLong { bytes: 200_000, .. }), "{long:?}");
    (11..14).for_each(|time| put(&mut output, time, 100));
    // It is full: at once, for a time, and until there is room.
    let full = PutError::Put(stm::PutError::Full);
    assert_eq!(refused(output.put(14, 0, b"x", Until::Now)), full);
    let begin = Instant::now();
    assert_eq!(refused(output.put(14, 0, b"x", soon(120))), full);
    assert!(begin.elapsed() >= Duration::from_millis(120));
    // A loan is there still, and may be written to again.
    let mut loan = output.loan(Until::Now).unwrap();
    loan[..3].copy_from_slice(b"old");
    let (mut loan, error) = loan.put(14, 0, 3, Until::Now).err().unwrap();
    assert_eq!(error, full);
    loan[..3].copy_from_slice(b"new");
    let (mut loan, error) = loan.put(14, 0, 3, soon(60)).err().unwrap();
    assert_eq!(error, full);
    loan.mark_unchanged();
    let waits = thread::spawn(move || loan.put(14, 0, 3, Until::Forever).map_err(|it| it.1));
    thread::sleep(Duration::from_millis(100));
    near.consume_until(10).unwrap();
    waits.join().unwrap().unwrap();
    assert_eq!(&*near.get(Which::Exact(14), Until::Now).unwrap(), b"new");
    // As many loans as at home.
    let _loans = [output.loan(Until::Now).unwrap(), output.loan(Until::Now).unwrap()];
    let many = output.loan(Until::Now).map(|_| ()).unwrap_err();
    assert_eq!(many, PutError::Loan(stm::LoanError::TooManyLoans));
}

#[test]
fn promises_of_a_program_elsewhere_come_while_its_put_waits() {
    let world = World::new(&OPTIONS);
    let mut near = world.home.open("frames").input(From::Oldest, false, 8).unwrap();
    let mut output = world.output_away();
    // What it puts follows from the items of a channel of its own host.
    world.away.client().create("scans", &OPTIONS).unwrap();
    let scans = world.away.client().open("scans", true).unwrap();
    let mut scanner = scans.output().unwrap();
    let mut scan = scans.input(From::Oldest, false, 8).unwrap();
    output.derives(&scan).unwrap();
    [100, 101, 102, 103].into_iter().for_each(|time| put(&mut output, time, 50_000));
    let waits =
        thread::spawn(move || output.put(104, 0, &[7; 100_000], Until::Forever).map(|()| output));
    thread::sleep(Duration::from_millis(100));
    let never = |near: &mut Input, time| {
        near.get(Which::Exact(time), Until::Now).err() == Some(GetError::Get(NoItem::Never))
    };
    assert!(!never(&mut near, 50));
    // Another thread gets, and carries the promise, which the home has while the put waits.
    scanner.bound(60).unwrap();
    scan.consume_until(59).unwrap();
    until("the promise comes", || never(&mut near, 50));
    assert!(!waits.is_finished());
    near.consume_until(100).unwrap();
    let output = waits.join().unwrap().unwrap();
    // Its promise ends with it.
    drop(output);
    until("the home knows that it has left", || !never(&mut near, 50));
    assert_eq!(world.home.client().list().unwrap()[0].outputs.len(), 0);
}

#[test]
fn a_program_elsewhere_is_told_which_of_its_items_were_collected() {
    let world = World::new(&OPTIONS);
    let mut near = world.home.open("frames").input(From::Oldest, false, 8).unwrap();
    let (mut here, mut away) = (world.output(), world.output_away());
    put(&mut away, 1, 10);
    for output in [&here, &away] {
        assert!(output.collected(0).unwrap().is_empty());
    }
    put(&mut here, 2, 10);
    put(&mut here, 3, 10_000);
    put(&mut away, 4, 10);
    let held = near.get(Which::Exact(2), Until::Now).unwrap();
    near.consume_until(4).unwrap();
    // What is held is there still, and what was put before the first question is not told.
    assert_eq!(here.collected(9).unwrap(), [3]);
    assert_eq!(away.collected(9).unwrap(), [4]);
    drop(held);
    assert_eq!(here.collected(9).unwrap(), [2]);
    (5..9).for_each(|time| put(&mut away, time, 10));
    near.consume_until(8).unwrap();
    assert_eq!(away.collected(3).unwrap(), [5, 6, 7]);
    assert_eq!([away.collected(3).unwrap(), away.collected(3).unwrap()], [vec![8], vec![]]);
}

/// All slots are in use, so that the home has no place for the item's bytes.
#[test]
fn a_put_elsewhere_waits_for_a_slot() {
    let few = Options { config: Config { slots: 4, ..OPTIONS.config }, ..OPTIONS };
    let world = World::new(&few);
    let mut near = world.home.open("frames").input(From::Oldest, false, 8).unwrap();
    let mut output = world.output_away();
    (0..4).for_each(|time| put(&mut output, time, 100_000));
    let none = refused(output.put(4, 0, &bytes_of(4, 100_000), soon(80)));
    assert_eq!(none, PutError::Loan(stm::LoanError::NoSlot));
    assert_eq!(refused(output.put(4, 0, b"", Until::Now)), none);
    let waits = thread::spawn(move || output.put(4, 0, &bytes_of(4, 100_000), Until::Forever));
    thread::sleep(Duration::from_millis(80));
    near.consume_until(0).unwrap();
    waits.join().unwrap().unwrap();
    assert_eq!(&*near.get(Which::Exact(4), Until::Now).unwrap(), &bytes_of(4, 100_000)[..]);
}

#[test]
fn a_put_whose_home_goes_away_says_so() {
    let world = World::new(&OPTIONS);
    let frames = world.home.open("frames");
    let mut near = frames.input(From::Oldest, false, 8).unwrap();
    let mut output = world.output_away();
    (0..4).for_each(|time| put(&mut output, time, 10));
    let waits = thread::spawn(move || {
        let done = output.put(4, 0, b"x", Until::Forever);
        (done, output.put(5, 0, b"x", Until::Now))
    });
    thread::sleep(Duration::from_millis(50));
    world.network.cut();
    let (first, second) = waits.join().unwrap();
    assert!(matches!(refused(first), PutError::Away(_)));
    assert!(matches!(refused(second), PutError::Away(_)));
    // The home ends its connection, and has all slots again but those of the items.
    until("it has left", || world.home.client().list().unwrap()[0].outputs.is_empty());
    assert_eq!(frames.counts().unwrap().free, 2);
    near.consume_until(3).unwrap();
    put(&mut world.output_away(), 6, 10);
    assert_eq!(near.get(Which::Newest, Until::Now).unwrap().time(), 6);
}

#[test]
fn a_way_home_that_cannot_be_is_said() {
    let world = World::new(&OPTIONS);
    let away = world.away.client().open("frames", true).unwrap();
    let error = |shared: &Shared| shared.output().map(|_| ()).unwrap_err();
    assert!(matches!(error(&world.away.open("frames")), ConnectError::ReadOnly));
    let both = [away.output().unwrap(), away.output().unwrap()];
    let many = error(&away).to_string();
    assert!(many.contains("no room for another connection"), "{many}");
    drop(both);
    until("there is room again", || away.output().is_ok());
    // Another channel has the name.
    world.home.client().remove("frames").unwrap();
    world.home.client().create("frames", &OPTIONS).unwrap();
    let other = error(&away).to_string();
    assert!(other.contains("another channel of this name"), "{other}");
}
