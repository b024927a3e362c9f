//! Channels of space-time memory on other hosts, over TCP, and of items that may be lost over UDP.
//!
//! A home listens, and sends the items of its channels to the mirrors of other hosts; `schema/stm.md`
//! says what they tell each other. There is one connection for each mirror, so that one that is slow holds
//! up no other.

mod datagrams;
mod frame;
mod home;
mod key;
mod mirror;
mod output;
mod transport;

pub use home::Homes;
pub use key::Key;
pub use mirror::Home;
pub use transport::Transport;
