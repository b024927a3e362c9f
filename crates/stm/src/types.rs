//! What is handed to a channel and what it answers.

use thiserror::Error;

/// The time of an item, as the program has chosen it.
pub type Time = i64;

/// A place for the bytes of an item, from 0 to one less than the channel has.
pub type Slot = u32;

/// What a channel has room for, and what it does where that is too little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Items that it may have, 1 or more.
    pub capacity: u32,
    /// Places for bytes, for items and loans together; as many as `capacity`, or more.
    pub slots: u32,
    /// Connections for input at one time, 1 or more.
    pub inputs: u32,
    /// Connections for output at one time, 1 or more.
    pub outputs: u32,
    /// Slots that an output connection may have on loan, 1 or more.
    pub loans: u32,
    /// Times without an item that an input connection may have consumed above its floor.
    pub ahead: u32,
    /// Gone times above the channel's floor that it knows.
    pub remembered: u32,
    /// What becomes of items while there is no input connection.
    pub orphans: Orphans,
    /// What a put does where there are `capacity` items.
    pub full: Full,
}

/// What becomes of items while there is no input connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orphans {
    /// They stay.
    Keep,
    /// They are collected.
    Discard,
}

/// What a put into a full channel does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// It is refused.
    Refuse,
    /// It takes the place of the item with the lowest time.
    Drop,
}

/// An item whose slot is free again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collected {
    /// Its time.
    pub time: Time,
    /// Whether it had to make room.
    pub dropped: bool,
}

/// A connection for input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InputId(pub u64);

/// A connection for output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OutputId(pub u64);

/// What a new input connection may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// Everything that is there.
    Oldest,
    /// The newest item and what has a later time.
    Newest,
    /// What has a later time than everything that was ever put.
    Next,
    /// Everything from a time on.
    At(Time),
}

/// An item that is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewItem {
    /// Its time.
    pub time: Time,
    /// By how much that may be wrong at most, in its units.
    pub half_width: u32,
    /// Its bytes in the slot.
    pub length: u32,
    /// When it is put, ns, by the clock of all who use the channel.
    pub put_ns: i64,
    /// By how much that may be wrong at most, ns: 0 where the item was put, and more on other hosts.
    pub put_error_ns: i64,
}

/// An item that was got, and is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Got {
    /// Where its bytes are.
    pub slot: Slot,
    /// The item as it was put.
    pub item: NewItem,
}

/// A choice of an item to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// That of a time.
    Exact(Time),
    /// That with the greatest time.
    Newest,
    /// That with the lowest time.
    Oldest,
    /// That with the greatest time, above all that this connection was given.
    Unseen,
    /// That nearest to a time.
    Nearest {
        /// The time.
        time: Time,
        /// How far the item may be from it.
        tolerance: u64,
        /// By how much the time may be wrong at most.
        half_width: u32,
    },
}

/// What a channel has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Items that were put.
    pub put: u64,
    /// Those of them whose slot is free again.
    pub collected: u64,
    /// Those of these that were dropped to make room.
    pub dropped: u64,
    /// Items that it has, gone ones that are held among them.
    pub present: u32,
    /// Slots that nobody uses.
    pub free: u32,
}

/// What an input connection has counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputCounts {
    /// All times below this are consumed.
    pub floor: Time,
    /// Items that it holds.
    pub held: u32,
    /// Items that it wanted and that were dropped.
    pub lost: u64,
    /// Items that it passed over by getting a newer one.
    pub skipped: u64,
}

/// An input connection, as others see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputStatus {
    /// Its number.
    pub id: InputId,
    /// Its owner.
    pub owner: u32,
    /// Whether items may be dropped before it has consumed them.
    pub lossy: bool,
    /// What it has counted.
    pub counts: InputCounts,
}

/// An output connection, as others see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputStatus {
    /// Its number.
    pub id: OutputId,
    /// Its owner.
    pub owner: u32,
    /// It puts nothing below this time any more.
    pub bound: Time,
    /// Slots that it has on loan.
    pub loans: u32,
}

/// An item, and whom it is there for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemStatus {
    /// The item as it was put.
    pub item: NewItem,
    /// The connections that may get it.
    pub wanted_by: Vec<InputId>,
    /// Those that hold it.
    pub held_by: Vec<InputId>,
}

/// Why a connection cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum JoinError {
    /// There are as many as there may be.
    #[error("the channel has no room for another connection of this kind")]
    NoConnection,
}

/// Why a connection cannot be ended or asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LeaveError {
    /// It has left.
    #[error("the connection has ended")]
    NotConnected,
}

/// Why there is no slot, or why it cannot be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LoanError {
    /// The connection has left.
    #[error("the connection has ended")]
    NotConnected,
    /// The connection has as many as it may have.
    #[error("the connection has as many slots on loan as it may have")]
    TooManyLoans,
    /// All slots are in use.
    #[error("all slots of the channel are in use")]
    NoSlot,
    /// The slot that is given back is not on loan to this connection.
    #[error("the slot is not on loan to this connection")]
    NotLoaned,
}

/// Why an item was not put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PutError {
    /// The connection has left.
    #[error("the connection has ended")]
    NotConnected,
    /// The slot is not on loan to this connection.
    #[error("the slot is not on loan to this connection")]
    NotLoaned,
    /// No item may have this time.
    #[error("the time is greater than that of an item may be")]
    OutOfRange,
    /// Nobody may have an item of this time any more.
    #[error("the time is late: it is gone, consumed by all, or below what was promised")]
    Late,
    /// There is an item of this time.
    #[error("the channel has an item of this time")]
    Exists,
    /// There is no room.
    #[error("the channel is full")]
    Full,
}

/// Why there is no item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum GetError {
    /// The connection has left.
    #[error("the connection has ended")]
    NotConnected,
    /// The time is consumed or collected.
    #[error("the time is gone: it was consumed or collected")]
    Gone,
    /// No producer will put an item of this time.
    #[error("no item of this time will come: the producers have promised it")]
    Never,
    /// None so far.
    #[error("there is no such item yet")]
    NotYet,
    /// Several items may be the nearest.
    #[error("several items may be the nearest one")]
    Ambiguous,
    /// The connection would hold more items than it may.
    #[error("the connection holds as many items as it may")]
    TooManyHolds,
}

/// Why a time cannot be consumed, or a hold not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ConsumeError {
    /// The connection has left.
    #[error("the connection has ended")]
    NotConnected,
    /// Too many times without an item are consumed.
    #[error("the connection has consumed as many times without an item as it may")]
    TooManyAhead,
    /// The connection holds no item of this time.
    #[error("the connection holds no item of this time")]
    NotHeld,
}
