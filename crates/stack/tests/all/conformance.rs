//! Single connections against the RFCs, section by section: segments that come at instants, and what
//! has to be sent. Numbers of bytes are relative to the first of each stream.

use std::time::Duration;

use loopscope_stack::{
    Blocks, Clocks, Config, Connection, Ecn, End, Flags, KeepAlive, Segment, Seq, State, Timer,
    Timestamps,
};

const SEGMENT: usize = 1000;
/// First sequence numbers here and there: both wrap around soon.
const HERE: u32 = u32::MAX - 1500;
const THERE: u32 = u32::MAX - 700;
/// Time stamps of the two ends at time zero.
const CLOCK_HERE: u32 = 77;
const CLOCK_THERE: u32 = u32::MAX - 5;
static DATA: [u8; 60_000] = [b'x'; 60_000];

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A segment that was sent: `at` is its first byte, `ack` what it acknowledges.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sent {
    at: i64,
    length: usize,
    ack: i64,
    window: usize,
    blocks: Vec<(i64, i64)>,
    ecn: Ecn,
    /// ECE and CWR.
    marked: bool,
    shrunk: bool,
}

/// What comes.
#[derive(Clone, Copy)]
struct Gives<'a> {
    at: i64,
    length: usize,
    ack: i64,
    window: usize,
    flags: Flags,
    ecn: Ecn,
    blocks: &'a [(i64, i64)],
    stamp: Option<u32>,
}

/// Data from `at` on, with an acknowledgement.
fn data(at: i64, length: usize, ack: i64) -> Gives<'static> {
    let flags = Flags::default();
    let ecn = Ecn::NotCapable;
    Gives { at, length, ack, window: 60_000, flags, ecn, blocks: &[], stamp: None }
}

/// An acknowledgement alone, of a peer of which nothing came.
fn ack(ack: i64) -> Gives<'static> {
    data(0, 0, ack)
}

struct Script {
    connection: Connection,
    now: Duration,
    stamped: bool,
    /// The timers that have expired.
    expired: Vec<Timer>,
}

fn config() -> Config {
    Config { least_timeout: ms(200), receive_buffer: 20_000, ..Config::default() }
}

fn number(first: u32, at: i64) -> Seq {
    Seq(first.wrapping_add(at as u32))
}

fn relative(first: u32, seq: Seq) -> i64 {
    i64::from(seq.0.wrapping_sub(first).cast_signed())
}

impl Script {
    fn with(config: Config, change: impl FnOnce(&mut State)) -> Script {
        let mut state = State {
            unacknowledged: Seq(HERE),
            queued: vec![],
            sent: 0,
            peer_window: 60_000,
            expected: Seq(THERE),
            unread: vec![],
            window: 20_000,
            segment: SEGMENT,
            scale: 0,
            peer_scale: 0,
            selective: true,
            ecn: false,
            round_trip: Some((ms(100), ms(10))),
            timestamps: None,
        };
        change(&mut state);
        let stamped = state.timestamps.is_some();
        let connection = Connection::new(state, config, ms(0));
        let mut script = Script { connection, now: ms(0), stamped, expired: vec![] };
        // A connection that was taken over acknowledges at once.
        assert!(!script.sends().is_empty());
        script
    }

    fn new() -> Script {
        Script::with(config(), |_| {})
    }

    /// What is sent now.
    fn sends(&mut self) -> Vec<Sent> {
        let mut buffer = [0; 2 * SEGMENT];
        let mut sent = vec![];
        while let Some(segment) = self.connection.poll(self.now, &mut buffer) {
            assert!(sent.len() < 1000, "it sends for ever");
            assert_eq!(segment.timestamps.is_some(), self.stamped);
            sent.push(Sent {
                at: relative(HERE, segment.seq),
                length: segment.payload.len(),
                ack: relative(THERE, segment.ack.expect("each has one")),
                window: segment.window.into(),
                blocks: segment
                    .blocks
                    .iter()
                    .map(|(begin, end)| (relative(THERE, begin), relative(THERE, end)))
                    .collect(),
                ecn: segment.ecn,
                marked: segment.flags.marked,
                shrunk: segment.flags.shrunk,
            });
        }
        sent
    }

    /// First bytes and lengths of what is sent now.
    fn sends_data(&mut self) -> Vec<(i64, usize)> {
        self.sends().iter().map(|sent| (sent.at, sent.length)).collect()
    }

    /// Gives a segment; what is sent at once.
    fn gives(&mut self, gives: Gives<'_>) -> Vec<Sent> {
        self.takes(gives);
        self.sends()
    }

    fn takes(&mut self, gives: Gives<'_>) {
        let mut blocks = Blocks::default();
        for &(begin, end) in gives.blocks {
            assert!(blocks.push(number(HERE, begin), number(HERE, end)));
        }
        let here = CLOCK_HERE.wrapping_add(self.now.as_millis() as u32);
        let there = CLOCK_THERE.wrapping_add(self.now.as_millis() as u32);
        let timestamps =
            self.stamped.then(|| Timestamps { value: gives.stamp.unwrap_or(there), echo: here });
        let segment = Segment {
            seq: number(THERE, gives.at),
            ack: Some(number(HERE, gives.ack)),
            window: gives.window as u16,
            flags: gives.flags,
            ecn: gives.ecn,
            timestamps,
            blocks,
            payload: &DATA[..gives.length],
        };
        self.connection.receive(self.now, &segment);
    }

    /// Lets time pass; what is sent meanwhile, and when.
    fn passes(&mut self, time: Duration) -> Vec<(Duration, Sent)> {
        let end = self.now + time;
        let mut sent = vec![];
        while let Some(deadline) = self.connection.deadline().filter(|at| *at <= end) {
            self.now = self.now.max(deadline);
            self.expired.extend(self.connection.wake(self.now).iter());
            sent.extend(self.sends().into_iter().map(|each| (self.now, each)));
        }
        self.now = end;
        sent
    }

    fn writes(&mut self, length: usize) -> Vec<(i64, usize)> {
        assert_eq!(self.connection.write(&DATA[..length]), length);
        self.sends_data()
    }
}

fn flag(set: impl FnOnce(&mut Flags)) -> Flags {
    let mut flags = Flags::default();
    set(&mut flags);
    flags
}

// RFC 9293.

#[test]
fn rfc_9293_3_8_6_3_every_second_full_segment_is_acknowledged_at_once_and_others_after_a_while() {
    let mut script = Script::new();
    assert_eq!(script.gives(data(0, SEGMENT, 0)), []);
    assert_eq!(script.gives(data(1000, SEGMENT, 0))[0].ack, 2000);
    assert_eq!(script.gives(data(2000, 10, 0)), []);
    let late = script.passes(ms(100));
    assert_eq!(late.len(), 1);
    assert_eq!((late[0].0, late[0].1.ack), (ms(40), 2010));
}

#[test]
fn rfc_9293_3_7_4_a_small_segment_waits_until_no_small_one_is_on_its_way() {
    let mut script = Script::new();
    assert_eq!(script.writes(10), [(0, 10)]);
    assert_eq!(script.writes(10), []);
    assert_eq!(script.writes(SEGMENT), [(10, SEGMENT)]);
    assert_eq!(script.gives(ack(10)).len(), 1, "nothing small is on its way: the rest goes");
    assert_eq!(script.writes(10), []);
    assert_eq!(script.gives(ack(1020)).len(), 1);
    script.gives(ack(1030));
    // The end of a message of several segments waits for none of them (draft-minshall-nagle-01).
    let message = [(1030, SEGMENT), (1030 + SEGMENT as i64, 10)];
    assert_eq!(script.writes(SEGMENT + 10), message);
    assert_eq!(script.writes(10), []);
    let mut script = Script::with(Config { no_delay: true, ..config() }, |_| {});
    assert_eq!([script.writes(10), script.writes(10)], [[(0, 10)], [(10, 10)]]);
}

// tcp(7).

#[test]
fn tcp_cork_keeps_small_segments_back_for_200_ms() {
    let with =
        Config { no_delay: true, is_corked: true, least_timeout: ms(1), ..Config::default() };
    let mut script = Script::with(with, |state| state.round_trip = Some((ms(1), ms(0))));
    assert_eq!(script.writes(10), []);
    assert_eq!(script.writes(SEGMENT), [(0, SEGMENT)], "a full segment goes");
    assert_eq!(script.writes(10), []);
    assert_eq!(script.gives(ack(1000)), [], "nothing is on its way, and the rest still waits");
    let late = script.passes(ms(200));
    assert_eq!((late[0].0, late[0].1.at, late[0].1.length), (ms(200), 1000, 20));
    script.gives(ack(1020));
    assert_eq!(script.writes(10), []);
    script.connection.set_delays(false, false);
    assert_eq!(script.sends_data(), [(1020, 10)]);
}

#[test]
fn tcp_quickack_acknowledges_at_once_until_data_are_sent() {
    let mut script = Script::new();
    assert_eq!(script.gives(data(0, 10, 0)), []);
    script.connection.set_quick(true);
    assert_eq!(script.sends()[0].ack, 10, "what came before");
    for at in [10, 20, 30] {
        assert_eq!(script.gives(data(at, 10, 0))[0].ack, at + 10);
    }
    assert_eq!(script.writes(10), [(0, 10)]);
    assert_eq!(script.gives(data(40, 10, 10)), [], "it answers, so an acknowledgement can wait");
    script.connection.set_quick(true);
    assert_eq!(script.sends()[0].ack, 50);
    script.connection.set_quick(false);
    assert_eq!(script.gives(data(50, 10, 10)), []);
}

#[test]
fn rfc_9293_3_8_6_1_a_closed_window_is_probed_ever_more_seldom_until_it_opens() {
    let mut script = Script::with(config(), |state| state.peer_window = 0);
    assert_eq!(script.writes(500), []);
    let probes = script.passes(ms(3000));
    let times: Vec<_> = probes.iter().map(|(at, _)| at.as_millis()).collect();
    assert_eq!(times, [200, 600, 1400, 3000]);
    // They carry nothing, at a number that the other end has: it answers.
    assert!(probes.iter().all(|(_, sent)| (sent.at, sent.length) == (-1, 0)));
    // The answer, still closed, and then an opening, of which one byte less than a segment is told.
    assert_eq!(script.gives(Gives { window: 0, ..ack(0) }), []);
    assert_eq!(script.gives(Gives { window: 999, ..ack(0) })[0].length, 500);
}

#[test]
fn rfc_9293_3_8_6_2_1_a_window_that_stays_small_is_used_after_a_while() {
    let mut script = Script::with(config(), |state| state.peer_window = 60_000);
    assert_eq!(script.gives(Gives { window: 300, ..ack(0) }), []);
    assert_eq!(script.writes(5000), []);
    let sent = script.passes(ms(500));
    assert_eq!((sent[0].0, sent[0].1.at, sent[0].1.length), (ms(200), 0, 300));
}

#[test]
fn rfc_9293_3_8_6_2_2_the_window_opens_by_segments() {
    let mut script = Script::new();
    for at in (0..20_000).step_by(1000) {
        script.gives(data(at, SEGMENT, 0));
    }
    let mut target = [0; 999];
    assert_eq!(script.connection.read(&mut target), 999);
    assert_eq!(script.sends(), []);
    script.connection.read(&mut target[..1]);
    let told = script.sends();
    assert_eq!((told[0].ack, told[0].window), (20_000, 1000));
}

#[test]
fn rfc_9293_3_10_7_4_what_is_outside_of_the_window_is_acknowledged_and_left() {
    let mut script = Script::new();
    for at in [20_000, 30_000, -5000] {
        let told = script.gives(data(at, SEGMENT, 0));
        assert_eq!((told.len(), told[0].ack), (1, 0), "data at {at}");
    }
    assert_eq!(script.connection.readable(), 0);
    // A part within the window is taken.
    script.gives(data(-500, SEGMENT, 0));
    assert_eq!(script.connection.readable(), 500);
    // An acknowledgement of nothing is none to be answered: two ends would do so for ever.
    assert_eq!(script.gives(data(30_000, 0, 0)), []);
}

#[test]
fn rfc_9293_3_8_4_a_silent_connection_is_asked_and_given_up() {
    let keep_alive = Some(KeepAlive { idle: ms(10_000), interval: ms(1000), probes: 3 });
    let mut script = Script::with(Config { keep_alive, ..config() }, |_| {});
    let asked = script.passes(ms(10_500));
    assert_eq!((asked.len(), asked[0].0, asked[0].1.at), (1, ms(10_000), -1));
    script.gives(ack(0));
    assert_eq!(script.passes(ms(9999)), []);
    assert_eq!(script.passes(ms(3000)).len(), 3);
    assert_eq!(script.connection.end(), None);
    script.passes(ms(1000));
    assert_eq!(script.connection.end(), Some(End::TimedOut));
}

#[test]
fn rfc_9293_3_8_4_a_question_is_answered() {
    let mut script = Script::new();
    assert_eq!(script.gives(data(-1, 0, 0))[0].ack, 0);
    assert_eq!(script.gives(data(-1, 1, 0))[0].ack, 0);
}

#[test]
fn rfc_9293_3_8_3_data_that_nobody_acknowledges_are_given_up_in_the_end() {
    let mut script = Script::with(Config { patience: ms(30_000), ..config() }, |_| {});
    script.writes(10);
    script.passes(ms(29_000));
    assert_eq!(script.connection.end(), None);
    script.passes(ms(60_000));
    assert_eq!(script.connection.end(), Some(End::TimedOut));
}

#[test]
fn what_closes_a_stream_is_left_to_the_kernel_with_the_data_before_it_taken() {
    let mut script = Script::new();
    let fin = flag(|flags| flags.fin = true);
    // Beyond a gap it says nothing yet.
    script.gives(Gives { flags: fin, ..data(1000, SEGMENT, 0) });
    assert_eq!(script.connection.end(), None);
    script.gives(data(0, SEGMENT, 0));
    assert_eq!((script.connection.end(), script.connection.readable()), (None, 2000));
    script.gives(Gives { flags: fin, ..data(2000, 0, 0) });
    assert_eq!(script.connection.end(), Some(End::Closing));
    let state = script.connection.into_state(script.now);
    assert_eq!((state.expected, state.unread.len()), (number(THERE, 2000), 2000));
    let mut script = Script::new();
    script.gives(Gives { flags: flag(|flags| flags.urgent = true), ..data(0, 10, 0) });
    assert_eq!((script.connection.end(), script.connection.readable()), (Some(End::Urgent), 0));
}

// RFC 5961.

#[test]
fn rfc_5961_3_2_only_a_reset_with_the_very_number_ends_the_connection() {
    let reset = flag(|flags| flags.rst = true);
    let mut script = Script::new();
    assert_eq!(script.gives(Gives { flags: reset, ..data(1, 0, 0) })[0].ack, 0);
    assert_eq!(script.gives(Gives { flags: reset, ..data(20_000, 0, 0) }), []);
    assert_eq!(script.gives(Gives { flags: reset, ..data(-1, 0, 0) }), []);
    assert_eq!(script.connection.end(), None);
    script.gives(Gives { flags: reset, ..data(0, 0, 0) });
    assert_eq!(script.connection.end(), Some(End::Reset));
}

#[test]
fn rfc_5961_4_2_and_7_a_syn_is_answered_by_an_acknowledgement_ten_times_a_second() {
    let syn = flag(|flags| flags.syn = true);
    let mut script = Script::new();
    for at in 0..10 {
        assert_eq!(script.gives(Gives { flags: syn, ..data(at * 999, 0, 0) })[0].ack, 0);
    }
    assert_eq!(script.gives(Gives { flags: syn, ..data(0, 0, 0) }), []);
    script.passes(ms(1000));
    assert_eq!(script.gives(Gives { flags: syn, ..data(0, 0, 0) }).len(), 1);
    assert_eq!(script.connection.end(), None);
}

#[test]
fn rfc_5961_5_2_acknowledgements_of_what_was_not_sent_are_challenged() {
    let mut script = Script::new();
    script.writes(SEGMENT);
    assert_eq!(script.gives(data(0, 100, 1001))[0].ack, 0);
    assert_eq!(script.gives(data(0, 100, -60_001))[0].ack, 0);
    assert_eq!(script.connection.readable(), 0);
    script.gives(data(0, 100, -60_000));
    assert_eq!(script.connection.readable(), 100);
}

// RFC 7323.

#[test]
fn rfc_7323_5_3_segments_with_older_stamps_are_refused_and_answered() {
    let clocks = Some(Clocks { now: CLOCK_HERE, recent: Some(CLOCK_THERE), newest: None });
    let mut script = Script::with(config(), |state| state.timestamps = clocks);
    script.passes(ms(20));
    script.gives(data(0, 10, 0));
    let older = CLOCK_THERE.wrapping_add(19);
    assert_eq!(script.gives(Gives { stamp: Some(older), ..data(10, 10, 0) })[0].ack, 10);
    assert_eq!(script.connection.readable(), 10);
    script.gives(Gives { stamp: Some(older + 1), ..data(10, 10, 0) });
    assert_eq!(script.connection.readable(), 20);
    // A reset needs no stamp that is right.
    let reset = flag(|flags| flags.rst = true);
    script.gives(Gives { stamp: Some(older), flags: reset, ..data(20, 0, 0) });
    assert_eq!(script.connection.end(), Some(End::Reset));
}

#[test]
fn rfc_7323_4_3_the_stamp_that_is_answered_is_of_the_first_unacknowledged_segment() {
    let clocks = Some(Clocks { now: CLOCK_HERE, recent: Some(CLOCK_THERE), newest: None });
    let mut script = Script::with(config(), |state| state.timestamps = clocks);
    // Beyond a gap: its stamp is not taken.
    script.passes(ms(5));
    script.gives(data(1000, SEGMENT, 0));
    let clocks = script.connection.into_state(script.now).timestamps.expect("they are on");
    assert_eq!(clocks.recent, Some(CLOCK_THERE));
    assert_eq!(clocks.newest, Some(CLOCK_THERE.wrapping_add(5)));
}

// RFC 2018, RFC 2883.

#[test]
fn rfc_2018_4_data_beyond_a_gap_are_reported_at_once() {
    let mut script = Script::new();
    let told = script.gives(data(1000, SEGMENT, 0));
    assert_eq!((told[0].ack, told[0].blocks.clone()), (0, vec![(1000, 2000)]));
    let told = script.gives(data(3000, SEGMENT, 0));
    assert_eq!(told[0].blocks, [(3000, 4000), (1000, 2000)]);
    // Data leave room for the blocks: full segments have no more than with other options.
    let sent = script.writes(5000);
    assert!(sent.iter().all(|(_, length)| *length <= SEGMENT - 28), "{sent:?}");
    let told = script.gives(data(0, SEGMENT, 0));
    assert_eq!((told[0].ack, told[0].blocks.clone()), (2000, vec![(3000, 4000)]));
}

#[test]
fn rfc_2883_4_1_what_came_twice_is_reported_first() {
    let mut script = Script::new();
    script.gives(data(0, SEGMENT, 0));
    script.gives(data(2000, SEGMENT, 0));
    let told = script.gives(data(0, SEGMENT, 0));
    assert_eq!((told[0].ack, told[0].blocks.clone()), (1000, vec![(0, 1000), (2000, 3000)]));
}

#[test]
fn rfc_2883_4_a_full_segment_has_room_for_what_came_twice() {
    let mut script = Script::new();
    script.gives(data(0, SEGMENT, 0));
    script.writes(50_000);
    // It comes again, and its acknowledgement lets more be sent.
    let told = script.gives(data(0, SEGMENT, 2000));
    let first = &told[0];
    assert_eq!(first.blocks, [(0, 1000)]);
    assert!((1..=SEGMENT - 28).contains(&first.length), "{told:?}");
}

// RFC 1191 and RFC 8201.

#[test]
fn rfc_8201_4_what_was_too_large_is_sent_again_in_smaller_segments() {
    let mut script = Script::new();
    script.writes(20_000);
    let before = script.connection.in_flight();
    script.connection.too_big(number(HERE, 2000), 700 + 20);
    // All of the ten, which had 1000 bytes each, and no more: the window is as it was.
    let sent = script.sends_data();
    assert_eq!(sent[..3], [(0, 700), (700, 300), (1000, 700)]);
    assert_eq!(sent.iter().map(|each| each.1).sum::<usize>(), 10_000);
    assert_eq!(script.connection.in_flight(), before);
    assert_eq!(script.connection.counts().recoveries, 0);
    // New data, too. The window grows as before.
    assert_eq!(script.gives(ack(10_000))[0].length, 700);
}

#[test]
fn rfc_7323_appendix_a_options_count_in_what_fits() {
    let mut script = Script::with(config(), |state| {
        state.timestamps = Some(Clocks { now: CLOCK_HERE, recent: None, newest: None });
    });
    script.writes(3000);
    script.connection.too_big(number(HERE, 0), 700 + 20);
    assert_eq!(script.sends_data()[0], (0, 688));
}

#[test]
fn rfc_5927_4_1_messages_about_what_is_not_on_its_way_are_passed_over() {
    let mut script = Script::new();
    script.writes(3000);
    for at in [-1, 3000, 100_000] {
        script.connection.too_big(number(HERE, at), 700);
    }
    // One that allows more, too.
    script.connection.too_big(number(HERE, 0), 1500);
    assert_eq!(script.sends_data(), []);
    assert_eq!(script.connection.counts().too_big, 0);
    // No segment is smaller than that of the least path.
    script.connection.too_big(number(HERE, 0), 100);
    assert_eq!(script.sends_data()[0], (0, 500));
}

// RFC 3168.

fn with_marks() -> Script {
    Script::with(Config { no_delay: true, ..config() }, |state| state.ecn = true)
}

#[test]
fn rfc_3168_6_1_3_a_mark_is_told_until_the_window_has_shrunk() {
    let mut script = with_marks();
    let marked = Gives { ecn: Ecn::Marked, ..data(0, SEGMENT, 0) };
    // At once, and with all that follows.
    assert!(script.gives(marked)[0].marked);
    assert!(script.gives(data(1000, SEGMENT, 0)).is_empty());
    assert!(script.gives(data(2000, SEGMENT, 0))[0].marked);
    script.writes(10);
    assert_eq!(script.gives(ack(10)), []);
    let shrunk = flag(|flags| flags.shrunk = true);
    script.gives(Gives { flags: shrunk, ..data(3000, SEGMENT, 10) });
    assert!(!script.gives(data(4000, SEGMENT, 10))[0].marked);
    // A segment that says so and is marked itself is another mark.
    script.gives(Gives { ecn: Ecn::Marked, ..data(5000, SEGMENT, 10) });
    let both = Gives { ecn: Ecn::Marked, flags: shrunk, ..data(6000, SEGMENT, 10) };
    assert!(script.gives(both)[0].marked);
}

#[test]
fn rfc_3168_6_1_2_the_window_shrinks_once_for_what_is_on_its_way() {
    let mut script = with_marks();
    assert_eq!(script.writes(20_000).len(), 10);
    let marked = flag(|flags| flags.marked = true);
    // 10 segments become 7 (RFC 9438 §4.6), of which 9 are still on their way.
    assert_eq!(script.gives(Gives { flags: marked, ..ack(1000) }), []);
    assert_eq!(script.gives(Gives { flags: marked, ..ack(3000) }), []);
    let sent = script.gives(Gives { flags: marked, ..ack(5000) });
    assert_eq!(sent.iter().map(|each| each.at).collect::<Vec<_>>(), [10_000, 11_000]);
    assert_eq!(sent.iter().map(|each| each.shrunk).collect::<Vec<_>>(), [true, false]);
    assert_eq!(script.connection.counts().marks, 1);
    assert_eq!(script.connection.counts().sent_again, 0);
    // What was sent since then is another window.
    script.gives(Gives { flags: marked, ..ack(11_000) });
    assert_eq!(script.connection.counts().marks, 2);
}

#[test]
fn rfc_3168_6_1_2_a_loss_is_told_too_and_alone() {
    let mut script = with_marks();
    script.writes(20_000);
    for block in [(1000, 2000), (1000, 3000), (1000, 4000)] {
        let sent = script.gives(Gives { blocks: &[block], ..ack(0) });
        // §6.1.5: what is sent again is not to be marked.
        assert!(sent.iter().all(|each| each.at != 0 || each.ecn == Ecn::NotCapable));
        assert!(sent.iter().all(|each| each.at != 0 || !each.shrunk));
    }
    // The mark is of the window that has shrunk for the loss.
    let marked = flag(|flags| flags.marked = true);
    let sent = script.gives(Gives { flags: marked, ..ack(10_000) });
    assert_eq!(sent.iter().filter(|each| each.shrunk).count(), 1);
    assert_eq!((script.connection.counts().recoveries, script.connection.counts().marks), (1, 0));
}

#[test]
fn rfc_3168_6_1_2_only_the_first_of_a_train_says_that_the_window_has_shrunk() {
    let mut script = with_marks();
    script.writes(20_000);
    script.takes(Gives { flags: flag(|flags| flags.marked = true), ..ack(10_000) });
    let mut buffer = [0; 60_000];
    let mut next = || {
        let (segment, _) = script.connection.poll_train(ms(0), &mut buffer)?;
        Some((segment.payload.len(), segment.flags.shrunk))
    };
    assert_eq!([next(), next(), next()], [Some((1000, true)), Some((6000, false)), None]);
}

#[test]
fn rfc_3168_6_1_4_only_new_data_may_be_marked() {
    let mut script = with_marks();
    script.writes(3 * SEGMENT);
    assert!(script.gives(data(0, 2 * SEGMENT, 0)).iter().all(|each| each.ecn == Ecn::NotCapable));
    let mut buffer = [0; SEGMENT];
    script.connection.write(&DATA[..10]);
    let new = script.connection.poll(script.now, &mut buffer).unwrap();
    assert_eq!((new.ecn, new.payload.len()), (Ecn::Capable, 10));
    for (_, sent) in script.passes(ms(500)) {
        assert_eq!(sent.ecn, Ecn::NotCapable, "{sent:?}");
    }
}

#[test]
fn rfc_3168_6_1_1_marks_mean_nothing_where_there_is_no_agreement() {
    let mut script = Script::new();
    assert!(!script.gives(Gives { ecn: Ecn::Marked, ..data(0, 2 * SEGMENT, 0) })[0].marked);
    script.connection.write(&DATA[..20_000]);
    assert!(script.sends().iter().all(|each| each.ecn == Ecn::NotCapable && !each.shrunk));
    let marked = flag(|flags| flags.marked = true);
    script.gives(Gives { flags: marked, ..ack(1000) });
    assert_eq!(script.connection.counts().marks, 0);
}

// RFC 6298, RFC 5681, RFC 6582, RFC 8985.

#[test]
fn rfc_6298_5_the_time_out_doubles_until_data_are_acknowledged() {
    let mut script = Script::with(config(), |state| state.selective = false);
    script.writes(SEGMENT);
    // SRTT + 4 RTTVAR = 140 ms is below the least.
    let times: Vec<_> = script.passes(ms(1500)).iter().map(|(at, _)| at.as_millis()).collect();
    assert_eq!(times, [200, 600, 1400]);
    script.gives(ack(1000));
    assert_eq!(script.passes(ms(10_000)), []);
    script.writes(SEGMENT);
    assert_eq!(script.passes(ms(200)).len(), 1);
}

#[test]
fn rfc_5681_3_2_and_6582_3_2_three_repetitions_and_partial_acknowledgements_are_losses() {
    let mut script = Script::with(config(), |state| state.selective = false);
    assert_eq!(script.writes(8 * SEGMENT).len(), 8);
    script.passes(ms(100));
    assert_eq!(script.gives(ack(0)), []);
    assert_eq!(script.gives(ack(0)), []);
    assert_eq!(script.gives(ack(0))[0].at, 0);
    script.gives(ack(0));
    script.passes(ms(100));
    // All but the fifth were there besides.
    assert_eq!(script.gives(ack(4000))[0].at, 4000);
    script.passes(ms(100));
    assert_eq!(script.gives(ack(8000)), []);
    assert_eq!(script.connection.counts().time_outs, 0);
    assert_eq!(script.connection.counts().sent_again, 2);
}

#[test]
fn rfc_8985_6_2_what_was_sent_before_three_segments_that_came_is_lost() {
    let mut script = Script::new();
    assert_eq!(script.writes(8 * SEGMENT).len(), 8);
    script.passes(ms(100));
    let blocks = [(1000, 3000)];
    assert_eq!(script.gives(Gives { blocks: &blocks, ..ack(0) }), []);
    let blocks = [(1000, 4000)];
    let again = script.gives(Gives { blocks: &blocks, ..ack(0) });
    assert_eq!((again[0].at, again[0].length), (0, SEGMENT));
    // Later ones are on their way still.
    assert!(again.iter().all(|sent| sent.at == 0 || sent.at >= 8000), "{again:?}");
}

#[test]
fn rfc_8985_7_the_last_segment_is_sent_again_after_two_round_trips() {
    let mut script = Script::new();
    script.writes(3 * SEGMENT);
    script.passes(ms(100));
    script.gives(ack(2000));
    // The round trip, twice, and the delay of an acknowledgement of one segment alone.
    let probe = script.passes(ms(300));
    assert_eq!((probe[0].1.at, probe[0].1.length), (2000, SEGMENT));
    assert_eq!(script.connection.counts().time_outs, 0);
    assert_eq!(probe[0].0, script.now - ms(300) + ms(200).min(ms(240)));
}

#[test]
fn rfc_8985_7_2_a_lone_segment_is_sent_again_at_the_least_time_out() {
    let least = ms(1);
    let with = Config { least_timeout: least, peer_delayed_ack: least, ..config() };
    let mut script = Script::with(with, |state| {
        state.round_trip = Some((Duration::from_micros(50), Duration::from_micros(5)));
    });
    assert_eq!(script.writes(10), [(0, 10)]);
    let again = script.passes(ms(5));
    let (at, first) = &again[0];
    assert_eq!((first.at, first.length), (0, 10));
    assert_eq!(*at, ms(1));
    assert_eq!(script.expired[0], Timer::TailLossProbe, "the window does not shrink");
}

#[test]
fn rfc_8985_7_2_a_peer_that_answers_soon_is_not_waited_for_long() {
    let mut script = Script::with(config(), |state| state.round_trip = Some((ms(1), ms(0))));
    let mut at = 0;
    // Sends ten bytes that are answered after a millisecond.
    let trip = |script: &mut Script, at: &mut i64| {
        assert_eq!(script.writes(10), [(*at, 10)]);
        assert_eq!(script.passes(ms(1)), []);
        *at += 10;
        script.gives(ack(*at));
    };
    // Sends ten bytes that are not; when they are sent again.
    let probed = |script: &mut Script, at: i64| {
        assert_eq!(script.writes(10), [(at, 10)]);
        let begin = script.now;
        let again = script.passes(ms(60));
        assert_eq!((again.len(), again[0].1.at), (1, at));
        again[0].0 - begin
    };
    for _ in 0..3 {
        trip(&mut script, &mut at);
    }
    assert_eq!(probed(&mut script, at), ms(42), "two round trips, and what one may be delayed");
    at += 10;
    script.gives(ack(at));
    for _ in 0..3 {
        trip(&mut script, &mut at);
    }
    let soon = probed(&mut script, at);
    assert!((ms(4)..ms(5)).contains(&soon), "{soon:?}");
    at += 10;
    script.gives(ack(at));
    trip(&mut script, &mut at);
    // A probe of several segments that was needless says nothing of lone ones.
    let length = SEGMENT as i64;
    assert_eq!(script.writes(2 * SEGMENT).len(), 2);
    assert_eq!(script.passes(ms(20))[0].1.at, at + length);
    at += 2 * length;
    script.gives(Gives { blocks: &[(at - length, at)], ..ack(at) });
    let soon = probed(&mut script, at);
    assert!((ms(4)..ms(30)).contains(&soon), "{soon:?}");
    // It had them, and was about to say so.
    at += 10;
    let blocks = [(at - 10, at)];
    script.gives(Gives { blocks: &blocks, ..ack(at) });
    trip(&mut script, &mut at);
    assert!(probed(&mut script, at) >= ms(42));
    at += 10;
    script.gives(ack(at));
    script.passes(ms(10_000));
    for _ in 0..4 {
        trip(&mut script, &mut at);
    }
    let soon = probed(&mut script, at);
    assert!((ms(4)..ms(5)).contains(&soon), "{soon:?}");
}

#[test]
fn rfc_8985_7_3_new_data_go_as_a_probe_where_there_are_any() {
    let mut script = Script::new();
    script.writes(2 * SEGMENT + 10);
    assert_eq!(script.writes(10), [], "Nagle keeps it");
    let probe = script.passes(ms(200));
    assert_eq!((probe[0].1.at, probe[0].1.length), (2010, 10));
}

#[test]
fn a_peer_that_takes_its_window_back_gets_nothing_new() {
    let mut script = Script::new();
    script.writes(4 * SEGMENT);
    script.gives(Gives { window: 1000, ..ack(0) });
    assert_eq!(script.writes(SEGMENT), []);
    // What it has taken back is sent again all the same when it is not acknowledged.
    assert!(!script.passes(ms(1000)).is_empty());
    assert_eq!(script.connection.end(), None);
}

#[test]
fn what_the_kernel_sent_after_it_was_asked_may_be_acknowledged() {
    let mut script = Script::with(config(), |state| {
        state.queued = vec![b'x'; 3000];
        state.sent = 1000;
        state.peer_window = 1000;
    });
    assert_eq!(script.gives(Gives { window: 1000, ..ack(2500) })[0].length, 500);
    assert_eq!(script.connection.unacknowledged(), 500);
    assert_eq!(script.gives(ack(3001))[0].length, 0, "nothing was written there");
    assert_eq!(script.connection.unacknowledged(), 500);
}

#[test]
fn timers_that_expire_are_named() {
    let named = |script: &mut Script, time: u64, expected: &[Timer]| {
        script.expired.clear();
        script.passes(ms(time));
        assert_eq!(script.expired, expected);
    };
    let mut script = Script::new();
    script.gives(data(0, 10, 0));
    named(&mut script, 40, &[Timer::DelayedAck]);
    script.writes(SEGMENT);
    named(&mut script, 199, &[]);
    named(&mut script, 1, &[Timer::TailLossProbe]);
    named(&mut script, 200, &[Timer::Retransmission]);
    let mut script = Script::new();
    script.writes(8 * SEGMENT);
    script.passes(ms(100));
    script.gives(Gives { blocks: &[(1000, 3000)], ..ack(0) });
    named(&mut script, 50, &[Timer::Reordering]);
    let mut script = Script::with(config(), |state| state.peer_window = 0);
    script.writes(500);
    named(&mut script, 600, &[Timer::Persist; 2]);
    let keep_alive = Some(KeepAlive { idle: ms(10_000), interval: ms(1000), probes: 3 });
    let mut script = Script::with(Config { keep_alive, ..config() }, |_| {});
    named(&mut script, 11_000, &[Timer::KeepAlive; 2]);
}
