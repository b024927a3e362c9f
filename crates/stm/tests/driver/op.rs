//! Operations, and how they are drawn.

use loopscope_stm::{Config, From, Full, Orphans, Time, Which};
use proptest::prelude::*;
use proptest::sample::select;

/// An operation. Times from −1000 to 1000 are relative to the front, the greatest time so far.
#[derive(Clone, Debug)]
pub enum Op {
    /// By an owner.
    JoinInput(u32, From, bool, u32),
    JoinOutput(u32),
    LeaveAll(u32),
    LeaveInput(Who),
    RetireInput(Who),
    LeaveOutput(Who),
    Loan(Who),
    GiveBack(Who, WhichSlot),
    Put(Who, WhichSlot, Time, u32),
    PutNew(Who, Time, u32),
    Bound(Who, Time),
    Get(Who, Which),
    Range(Who, Time, Time),
    Look(Who),
    Release(Who, Time),
    /// Releases one of the items that the connection got, the last ones first.
    ReleaseGot(Who, usize),
    Consume(Who, Time),
    ConsumeUntil(Who, Time),
}

/// A connection: one of those that have left, or of the others. The number is taken modulo theirs.
#[derive(Clone, Copy, Debug)]
pub struct Who {
    pub nth: usize,
    pub left: bool,
}

/// A slot: on loan to the connection, on loan to another one, or another number.
#[derive(Clone, Copy, Debug)]
pub enum WhichSlot {
    Own(usize),
    Others(usize),
    Stranger(usize),
}

pub const EXTREMES: &[Time] = &[Time::MIN, Time::MIN + 1, Time::MAX - 2, Time::MAX - 1, Time::MAX];

fn time(range: std::ops::Range<Time>) -> impl Strategy<Value = Time> {
    prop_oneof![150 => range, 1 => select(EXTREMES)]
}

fn who() -> impl Strategy<Value = Who> {
    (0..12usize, prop::bool::weighted(0.03)).prop_map(|(nth, left)| Who { nth, left })
}

fn slot() -> impl Strategy<Value = WhichSlot> {
    prop_oneof![
        30 => (0..3usize).prop_map(WhichSlot::Own),
        1 => (0..6usize).prop_map(WhichSlot::Others),
        1 => (0..12usize).prop_map(WhichSlot::Stranger),
    ]
}

fn from() -> impl Strategy<Value = From> {
    let at = time(-8..6).prop_map(From::At);
    prop_oneof![Just(From::Oldest), Just(From::Newest), Just(From::Next), at]
}

fn which() -> impl Strategy<Value = Which> {
    let width = prop_oneof![20 => 0..3u32, 1 => Just(u32::MAX)];
    let tolerance = prop_oneof![10 => 0..6u64, 1 => Just(u64::MAX)];
    prop_oneof![
        3 => time(-7..5).prop_map(Which::Exact),
        1 => Just(Which::Newest),
        1 => Just(Which::Oldest),
        2 => Just(Which::Unseen),
        3 => (time(-7..5), tolerance, width).prop_map(|(time, tolerance, half_width)| {
            Which::Nearest { time, tolerance, half_width }
        }),
    ]
}

pub fn op() -> impl Strategy<Value = Op> {
    let width = prop_oneof![20 => 0..3u32, 1 => Just(u32::MAX)];
    prop_oneof![
        6 => (0..3u32, from(), any::<bool>(), 0..5u32)
            .prop_map(|(owner, f, l, h)| Op::JoinInput(owner, f, l, h)),
        4 => (0..3u32).prop_map(Op::JoinOutput),
        1 => (0..4u32).prop_map(Op::LeaveAll),
        2 => who().prop_map(Op::LeaveInput),
        1 => who().prop_map(Op::RetireInput),
        1 => who().prop_map(Op::LeaveOutput),
        30 => who().prop_map(Op::Loan),
        3 => (who(), slot()).prop_map(|(w, s)| Op::GiveBack(w, s)),
        26 => (who(), slot(), time(-6..4), width.clone()).prop_map(|(w, s, t, h)| Op::Put(w, s, t, h)),
        20 => (who(), time(-6..4), width).prop_map(|(w, t, h)| Op::PutNew(w, t, h)),
        2 => (who(), time(-8..3)).prop_map(|(w, t)| Op::Bound(w, t)),
        24 => (who(), which()).prop_map(|(w, which)| Op::Get(w, which)),
        5 => (who(), time(-7..3), time(-5..5)).prop_map(|(w, a, b)| Op::Range(w, a, b)),
        3 => who().prop_map(Op::Look),
        2 => (who(), time(-7..2)).prop_map(|(w, t)| Op::Release(w, t)),
        8 => (who(), 0..4usize).prop_map(|(w, n)| Op::ReleaseGot(w, n)),
        7 => (who(), time(-7..6)).prop_map(|(w, t)| Op::Consume(w, t)),
        2 => (who(), time(-9..2)).prop_map(|(w, t)| Op::ConsumeUntil(w, t)),
    ]
}

pub fn config() -> impl Strategy<Value = Config> {
    let rooms = (1..=5u32, 0..=3u32, 1..=4u32, 1..=3u32, 1..=3u32, 0..=4u32, 0..=4u32);
    let orphans = select(&[Orphans::Keep, Orphans::Discard][..]);
    let full = select(&[Full::Refuse, Full::Drop][..]);
    (rooms, orphans, full).prop_map(|(rooms, orphans, full)| {
        let (capacity, more, inputs, outputs, loans, ahead, remembered) = rooms;
        let slots = capacity + more;
        Config { capacity, slots, inputs, outputs, loans, ahead, remembered, orphans, full }
    })
}
