//! A library for LD_PRELOAD: TCP connections of a program that knows nothing of it are taken over
//! from the kernel, and their data are transferred by the stack. So are the datagrams of its
//! connected sockets of UDP.
//!
//! A connection is taken over at its second call that transfers data. Each function of the C
//! library that such a descriptor can be given to is here. It is served by the stack, or the
//! connection first goes back to the kernel, which then has it for good. Other descriptors cost one
//! load from a table.
//!
//! `LOOPSCOPE_STACK` is the path of the service's socket. `LOOPSCOPE_STACK_RECEIVE` says how
//! threads wait: `spin` (they look until something is there), `block` (they sleep at once) or
//! `adaptive`, which is the default (they look for some 50 µs, where that has helped before).
//! `LOOPSCOPE_STACK_ONLY` limits it to connections with one of these ports at either end
//! (`80,8000-8010`). `LOOPSCOPE_STACK_RTO_MIN` is the least retransmission time-out (`1ms`), which
//! is the kernel's by default. `LOOPSCOPE_STACK_EXPLAIN` is a file that gets a line of JSON for each TCP
//! socket when the program ends. In a recording (`LOOPSCOPE_RUNTIME_DIR`) what the library does is
//! events of the group `stack`.

mod asked;
mod datagrams;
mod descriptor;
mod entry;
mod epolls;
mod explain;
mod first;
mod fork;
mod habit;
mod helper;
mod info;
mod inside;
mod lock;
mod memory;
mod options;
mod polling;
mod ports;
mod real;
mod receive;
mod record;
mod signals;
mod sleep;
mod sleepers;
mod state;
mod table;
mod timeout;
mod transfer;
mod watch;
