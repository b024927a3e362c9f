//! The queueing discipline of what an interface sends.
//!
//! Only the kernel's default can be restored exactly: it comes back by itself when another one is
//! removed. So nothing else is replaced.

use std::io;

use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};

use loopscope_netlink::{Connection, add_qdisc, index, remove_qdisc};

/// What [`read`] says where only the kernel has chosen.
const DEFAULT: &str = "default";
/// The handle of those that loopscope makes: the letters LS.
const OURS: TcHandle = TcHandle { major: 0x4c53, minor: 0 };
/// Those that work with their defaults.
const KINDS: [&str; 6] = ["pfifo_fast", "pfifo", "bfifo", "fq", "fq_codel", "sfq"];

/// `default` where nobody has given `interface` a queueing discipline, the kind of one that
/// loopscope has, else `KIND HANDLE` of each that others have.
pub(crate) fn read(interface: &str) -> io::Result<String> {
    let all = Connection::open()?.qdiscs(index(interface)?)?;
    let given: Vec<&TcMessage> = all
        .iter()
        // Those of what it receives stay when the root's is replaced.
        .filter(|qdisc| qdisc.header.parent != TcHandle::INGRESS)
        .filter(|qdisc| qdisc.header.handle != TcHandle::UNSPEC)
        .collect();
    Ok(match *given {
        [] => DEFAULT.to_owned(),
        [qdisc] if qdisc.header.handle == OURS => kind(qdisc).to_owned(),
        _ => {
            let named = |q: &&TcMessage| format!("{} {:x}:", kind(q), q.header.handle.major);
            given.iter().map(named).collect::<Vec<_>>().join(", ")
        }
    })
}

/// Gives `interface` the queueing discipline that [`read`] would call so.
pub(crate) fn write(interface: &str, value: &str) -> io::Result<()> {
    let change = match value {
        DEFAULT if read(interface)? == DEFAULT => return Ok(()),
        DEFAULT => remove_qdisc(index(interface)?, OURS),
        kind if KINDS.contains(&kind) => add_qdisc(index(interface)?, kind, OURS),
        given => {
            return Err(io::Error::other(format!(
                "somebody has given it {given}, which could not be restored exactly; remove it (tc \
                 qdisc del dev {interface} root), or leave this out"
            )));
        }
    };
    Connection::open()?.make(vec![change])
}

fn kind(qdisc: &TcMessage) -> &str {
    let found = qdisc.attributes.iter().find_map(|attribute| match attribute {
        TcAttribute::Kind(kind) => Some(kind.as_str()),
        _ => None,
    });
    found.unwrap_or("one without a name")
}
