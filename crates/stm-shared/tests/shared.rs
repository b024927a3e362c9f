//! A channel in shared memory, used by threads of one process.

mod small;

use std::fs::File;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use loopscope_stm::{Config, From, Full, GetError as NoItem, LoanError, PutError as NotPut};
use loopscope_stm::{Orphans, Time, Which};
use loopscope_stm_shared::{
    ConnectError, FileError, Files, GetError, Options, PutError, Shared, Until,
};
use small::OPTIONS;

fn shared(options: &Options) -> Shared {
    let files = Files::create(options).unwrap();
    Shared::open(&files.control, &files.payload).unwrap()
}

fn soon() -> Until {
    Until::Deadline(Instant::now() + Duration::from_millis(5))
}

#[test]
fn what_is_put_is_got_and_its_slot_is_free_again() {
    let channel = shared(&OPTIONS);
    let (mut input, mut output) =
        (channel.input(From::Oldest, false, 4).unwrap(), channel.output().unwrap());
    assert_eq!(input.floor, Time::MIN);
    for time in 0..100 {
        let bytes = vec![time as u8; 10 * time as usize];
        output.put(time, 0, &bytes, Until::Now).unwrap();
        let item = input.get(Which::Exact(time), Until::Now).unwrap();
        assert_eq!((&item[..], item.time(), item.half_width()), (&bytes[..], time, 0));
        input.consume_until(time).unwrap();
        assert_eq!(channel.counts().unwrap().free, OPTIONS.config.slots - 1);
        drop(item);
    }
    let counts = channel.counts().unwrap();
    assert_eq!((counts.put, counts.collected, counts.free), (100, 100, OPTIONS.config.slots));
}

#[test]
fn an_item_that_was_got_twice_is_held_until_both_are_dropped_even_after_the_connection() {
    let config = Config { orphans: Orphans::Discard, ..OPTIONS.config };
    let channel = shared(&Options { config, ..OPTIONS });
    let (mut input, mut output) =
        (channel.input(From::Oldest, false, 4).unwrap(), channel.output().unwrap());
    output.put(7, 0, b"seven", Until::Now).unwrap();
    let first = input.get(Which::Newest, Until::Now).unwrap();
    let second = input.range(0, 10).unwrap().pop().unwrap();
    drop((input, first));
    // Nobody wants it, and it is held.
    assert_eq!(channel.counts().unwrap().present, 1);
    assert_eq!(&second[..], b"seven");
    drop(second);
    assert_eq!(channel.counts().unwrap().present, 0);
    let all = (0..3).map(|_| channel.input(From::Oldest, false, 1).unwrap()).collect::<Vec<_>>();
    let error = channel.input(From::Oldest, false, 1).err().unwrap();
    assert!(matches!(error, ConnectError::Join(_)), "the connection has ended with its items");
    drop(all);
}

#[test]
fn a_connection_that_ends_while_its_item_is_in_use_is_in_nobodys_way() {
    let channel = shared(&OPTIONS);
    let (mut input, mut output) =
        (channel.input(From::Oldest, false, 4).unwrap(), channel.output().unwrap());
    output.put(7, 0, b"seven", Until::Now).unwrap();
    let item = input.get(Which::Newest, Until::Now).unwrap();
    drop(input);
    // It wants nothing of what comes, and what it had not consumed is another one's to get.
    output.put(8, 0, b"eight", Until::Now).unwrap();
    let mut other = channel.input(From::Oldest, false, 4).unwrap();
    assert_eq!(other.get(Which::Oldest, Until::Now).unwrap().time(), 7);
    other.consume_until(8).unwrap();
    assert_eq!(channel.counts().unwrap().present, 1);
    assert_eq!(&item[..], b"seven");
    drop(item);
    assert_eq!(channel.counts().unwrap().present, 0);
}

#[test]
fn a_loan_is_filled_in_place_and_is_given_back_unless_it_is_put() {
    let channel = shared(&OPTIONS);
    let (mut input, mut output) =
        (channel.input(From::Oldest, false, 4).unwrap(), channel.output().unwrap());
    let mut loan = output.loan(Until::Now).unwrap();
    assert_eq!((loan.len(), loan.as_ptr() as usize % 64), (1024, 0), "a slot of its own lines");
    loan[..3].copy_from_slice(b"abc");
    let other = output.loan(Until::Now).unwrap();
    let error = output.loan(soon()).err().unwrap();
    assert_eq!(error, PutError::Loan(LoanError::TooManyLoans));
    drop(other);
    let (loan, error) = loan.put(1, 0, 1025, Until::Now).err().unwrap();
    assert_eq!(error, PutError::TooLong { bytes: 1025, room: 1024 });
    loan.put(1, 5, 3, Until::Now).map_err(|(_, error)| error).unwrap();
    let item = input.get(Which::Oldest, Until::Now).unwrap();
    assert_eq!((&item[..], item.half_width()), (&b"abc"[..], 5));
    let error = output.put(1, 0, b"", Until::Now).err().unwrap();
    assert_eq!(error, PutError::Put(NotPut::Exists));
    assert_eq!(channel.counts().unwrap().free, OPTIONS.config.slots - 1);
}

#[test]
fn a_get_waits_for_the_put_and_no_longer_than_it_may() {
    let channel = shared(&OPTIONS);
    let mut input = channel.input(From::Oldest, false, 4).unwrap();
    let begin = Instant::now();
    let error = input.get(Which::Newest, soon()).err().unwrap();
    assert_eq!(error, GetError::Get(NoItem::NotYet));
    assert!(begin.elapsed() >= Duration::from_millis(5));
    let theirs = channel.clone();
    let putter = thread::spawn(move || {
        let mut output = theirs.output().unwrap();
        for time in 0..200 {
            output.put(time, 0, &time.to_le_bytes(), Until::Forever).unwrap();
        }
        output
    });
    for time in 0..200 {
        let item = input.get(Which::Exact(time), Until::Forever).unwrap();
        assert_eq!(item[..], time.to_le_bytes());
        drop(item);
        // The putter waits for this where the channel is full.
        input.consume(time).unwrap();
    }
    // Nothing of it is promised any more once the putter has gone.
    let mut output = putter.join().unwrap();
    output.bound(1000).unwrap();
    let error = input.get(Which::Exact(999), Until::Forever).err().unwrap();
    assert_eq!(error, GetError::Get(NoItem::Never));
}

#[test]
fn a_promise_ends_a_wait() {
    let channel = shared(&OPTIONS);
    let mut input = channel.input(From::Oldest, false, 4).unwrap();
    let mut output = channel.output().unwrap();
    let getter = thread::spawn(move || input.get(Which::Exact(3), Until::Forever).err());
    thread::sleep(Duration::from_millis(20));
    output.bound(4).unwrap();
    assert_eq!(getter.join().unwrap(), Some(GetError::Get(NoItem::Never)));
}

/// Each thread puts the successor of what the one before it has put.
#[test]
fn many_threads_put_and_get_and_the_account_balances() {
    const THREADS: i64 = 4;
    const PUTS: i64 = 2_000;
    let options = Options {
        config: Config { inputs: 4, outputs: 4, remembered: 64, ..OPTIONS.config },
        ..OPTIONS
    };
    let channel = shared(&options);
    let worker = |number: i64| {
        let channel = channel.clone();
        let mut input = channel.input(From::Oldest, false, 2).unwrap();
        let mut output = channel.output().unwrap();
        thread::spawn(move || {
            for count in 0..PUTS {
                // The threads take turns, so that none is late.
                let time = count * THREADS + number;
                if time > 0 {
                    let item = input.get(Which::Exact(time - 1), Until::Forever).unwrap();
                    assert_eq!(item[..], (time - 1).to_le_bytes());
                    input.consume_until(time - 1).unwrap();
                }
                output.put(time, 0, &time.to_le_bytes(), Until::Forever).unwrap();
            }
        })
    };
    let workers: Vec<_> = (0..THREADS).map(worker).collect();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    let counts = channel.counts().unwrap();
    assert_eq!(counts.put, (THREADS * PUTS) as u64);
    // The last ones stay where all consumers had left before they came.
    assert_eq!(counts.collected + u64::from(counts.present), counts.put);
    assert_eq!(counts.free + counts.present, options.config.slots);
    assert!(counts.present <= THREADS as u32);
}

#[test]
fn a_look_copies_the_newest_item_and_holds_nothing() {
    let channel = shared(&OPTIONS);
    let (mut input, mut output) =
        (channel.input(From::Oldest, false, 4).unwrap(), channel.output().unwrap());
    let not_yet = Err(GetError::Get(NoItem::NotYet));
    let mut bytes = [0; 100];
    assert_eq!(input.look(None, &mut bytes), not_yet);
    for (time, length) in [(3, 5), (7, 100), (5, 64)] {
        output.put(time, 2, &vec![time as u8; length], Until::Now).unwrap();
        let item = input.get(Which::Newest, Until::Now).unwrap();
        let look = input.look(None, &mut bytes).unwrap();
        assert_eq!((look.time, look.half_width, look.bytes), (item.time(), 2, item.len()));
        assert_eq!((look.put_ns, &bytes[..look.bytes]), (item.put_ns(), &item[..]));
    }
    assert_eq!(input.look(Some(7), &mut bytes), not_yet);
    assert_eq!(input.look(Some(6), &mut bytes).unwrap().time, 7);
    // It is cut where there is too little room.
    bytes.fill(0);
    assert_eq!(input.look(None, &mut bytes[..10]).unwrap().bytes, 100);
    assert_eq!((bytes[9], bytes[10]), (7, 0));
    let counts = channel.input(From::Oldest, true, 1).unwrap().counts().unwrap();
    assert_eq!((counts.held, input.counts().unwrap().held), (0, 0));

    // The lowest time is one, too.
    let lowest = shared(&OPTIONS);
    let (mut gets, mut puts) =
        (lowest.input(From::Oldest, false, 1).unwrap(), lowest.output().unwrap());
    puts.put(Time::MIN, 0, b"lowest", Until::Now).unwrap();
    assert_eq!(gets.look(None, &mut bytes).unwrap().time, Time::MIN);
    gets.consume(Time::MIN).unwrap();
    assert_eq!(gets.look(None, &mut bytes), not_yet);

    // It does not count as one that was got.
    let mut fresh = channel.input(From::Oldest, true, 1).unwrap();
    assert_eq!(fresh.look(None, &mut bytes).unwrap().time, 7);
    assert_eq!(fresh.get(Which::Unseen, Until::Now).unwrap().time(), 7);
    assert_eq!(fresh.counts().unwrap().skipped, 2);
    assert_eq!(fresh.get(Which::Unseen, Until::Now).err(), not_yet.err());
    fresh.consume_until(7).unwrap();
    assert_eq!(fresh.look(None, &mut bytes), not_yet);

    // What was consumed alone, and what was not.
    input.consume(7).unwrap();
    assert_eq!(input.look(None, &mut bytes).unwrap().time, 5);
    input.consume(5).unwrap();
    assert_eq!(input.look(None, &mut bytes).unwrap().time, 3);
    input.consume(3).unwrap();
    assert_eq!(input.look(None, &mut bytes), not_yet);
    // All of them are collected, and a connection that comes now does not see them.
    assert_eq!(channel.counts().unwrap().present, 0);
    let mut late = channel.input(From::Oldest, true, 1).unwrap();
    assert_eq!(late.look(None, &mut bytes), not_yet);
    output.put(9, 0, b"nine", Until::Now).unwrap();
    assert_eq!((late.look(None, &mut bytes).unwrap().time, &bytes[..4]), (9, &b"nine"[..]));
}

/// Threads that read, of which one ends with this, also by a panic.
struct Reads<'a>(&'a AtomicUsize);

impl Drop for Reads<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn looks_among_many_puts_see_whole_items_in_order() {
    const ENOUGH: usize = 20_000;
    let reads = AtomicUsize::new(2);
    let mut options = OPTIONS;
    (options.config.full, options.item_bytes) = (Full::Drop, 4096);
    let channel = shared(&options);
    let lengths = [8, 64, 200, 4096];
    thread::scope(|scope| {
        for reader in 0..2 {
            let mut input = channel.input(From::Oldest, true, 2).unwrap();
            let reads = Reads(&reads);
            scope.spawn(move || {
                let _reads = reads;
                let (mut bytes, mut last, mut seen) = ([0; 4096], -1, 0);
                while seen < ENOUGH {
                    let Ok(look) = input.look(Some(last), &mut bytes) else { continue };
                    assert!(look.time > last, "{} after {last}", look.time);
                    assert_eq!(look.bytes, lengths[look.time as usize % 4]);
                    let parts = bytes[..look.bytes].as_chunks().0;
                    assert!(parts.iter().all(|part| Time::from_le_bytes(*part) == look.time));
                    seen += 1;
                    last = look.time;
                    // One of them changes what the channel has, too.
                    if reader == 1 && seen.is_multiple_of(16) {
                        input.consume_until(last - 2).unwrap();
                    }
                }
            });
        }
        let mut output = channel.output().unwrap();
        for time in 0_i64.. {
            if reads.load(Ordering::Relaxed) == 0 {
                break;
            }
            let bytes = time.to_le_bytes().repeat(lengths[time as usize % 4] / 8);
            output.put(time, 0, &bytes, Until::Now).unwrap();
        }
    });
}

#[test]
fn who_only_gets_cannot_write_items() {
    let files = Files::create(&OPTIONS).unwrap();
    let putter = Shared::open(&files.control, &files.payload).unwrap();
    let getter = Shared::open(&files.control, &files.read_only().unwrap()).unwrap();
    assert!(matches!(getter.output(), Err(ConnectError::ReadOnly)));
    let mut input = getter.input(From::Oldest, false, 1).unwrap();
    let mut output = putter.output().unwrap();
    output.put(1, 0, b"one", Until::Now).unwrap();
    assert_eq!(&input.get(Which::Newest, Until::Now).unwrap()[..], b"one");
    assert_eq!(getter.processes(), [std::process::id(); 2]);
    drop((input, getter));
    assert_eq!(putter.processes().len(), 1);
}

#[test]
fn what_is_no_channel_is_refused() {
    let options = [
        Options { item_bytes: 0, ..OPTIONS },
        Options { item_bytes: u32::MAX - 62, ..OPTIONS },
        Options { processes: 0, ..OPTIONS },
        Options { processes: 4097, ..OPTIONS },
        Options { config: Config { capacity: 0, ..OPTIONS.config }, ..OPTIONS },
    ];
    for each in &options {
        assert!(matches!(Files::create(each), Err(FileError::Options)), "{each:?}");
    }
    let most = Options {
        item_bytes: u32::MAX - 63,
        config: Config { slots: 1 << 20, ..OPTIONS.config },
        ..OPTIONS
    };
    let error = Files::create(&most).err().unwrap();
    assert!(matches!(error, FileError::NoMemory { .. }), "{error}");

    let files = Files::create(&OPTIONS).unwrap();
    let open = |control: &File, payload: &File| Shared::open(control, payload).err().unwrap();
    // A file that can be cut short while it is mapped.
    let path = std::env::temp_dir().join(format!("loopscope-stm-test-{}", std::process::id()));
    std::fs::write(&path, vec![0; 1 << 16]).unwrap();
    let ordinary = File::options().read(true).write(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    assert!(matches!(open(&ordinary, &files.payload), FileError::System { .. }));
    assert!(matches!(open(&files.control, &ordinary), FileError::System { .. }));
    // One that is long enough, and has other bytes.
    let long = Files::create(&Options { item_bytes: 1 << 14, ..OPTIONS }).unwrap().payload;
    assert!(matches!(open(&long, &files.payload), FileError::NoChannel));
    // Those that were refused do not count as processes that use it.
    let all = [(); 4].map(|_| Shared::open(&files.control, &files.payload).unwrap());
    assert!(matches!(open(&files.control, &files.payload), FileError::TooManyProcesses));
    drop(all);
}
