//! Names of the reasons why packets are dropped (`enum skb_drop_reason`), which differ from kernel to
//! kernel.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// The tracepoint whose description has the names.
pub(crate) const TRACEPOINT: &str = "skb/kfree_skb";

/// Names of reasons, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Reasons(BTreeMap<u32, String>);

impl Reasons {
    /// Those in a tracepoint's description, where they are as `{ 6, "SOCKET_RCVBUFF" }`.
    pub(crate) fn of(format: &str) -> Reasons {
        let pair = |part: &str| {
            let (pair, _) = part.split_once('}')?;
            let (number, name) = pair.split_once(',')?;
            Some((number.trim().parse().ok()?, name.trim().trim_matches('"').to_owned()))
        };
        Reasons(format.split('{').skip(1).filter_map(pair).collect())
    }

    /// Writes the name of a reason; its number where it has none.
    pub(crate) fn write(&self, reason: u32, out: &mut String) -> fmt::Result {
        match self.0.get(&reason) {
            Some(name) => out.write_str(name),
            None => write!(out, "reason {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_description() {
        let format = "name: kfree_skb\nprint fmt: \"reason: %s\", __print_symbolic(REC->reason, \
                      { 2, \"NOT_SPECIFIED\" }, {6,\"SOCKET_RCVBUFF\" }, { 0x7, \"HEX\" })";
        let named = |format, reason| {
            let mut text = String::new();
            Reasons::of(format).write(reason, &mut text).unwrap();
            text
        };
        assert_eq!(
            [2, 6, 7].map(|reason| named(format, reason)),
            ["NOT_SPECIFIED", "SOCKET_RCVBUFF", "reason 7"]
        );
        assert_eq!(named("", 2), "reason 2");
    }
}
