//! Ethernet addresses.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An Ethernet address, written `02:00:00:00:00:01`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Address(pub [u8; 6]);

impl Address {
    /// True for a group address: multicast or broadcast.
    pub fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// One of 01:80:c2:00:00:00 to :0f, which are for the devices at the two ends of a cable (pause
    /// frames, spanning tree, LLDP) and which a bridge does not forward: IEEE 802.1Q, table 8-1.
    pub fn is_reserved(self) -> bool {
        self.0[..5] == [0x01, 0x80, 0xc2, 0, 0] && self.0[5] < 0x10
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let wrong = || format!("{text:?} is no Ethernet address; write it as 02:00:00:00:00:01");
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            // A sign would be read as part of a number.
            let digits = |part: &&str| part.len() == 2 && !part.starts_with('+');
            let part = parts.next().filter(digits).ok_or_else(wrong)?;
            *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        if parts.next().is_some() { Err(wrong()) } else { Ok(Address(bytes)) }
    }
}

impl TryFrom<String> for Address {
    type Error = String;

    fn try_from(text: String) -> Result<Address, String> {
        text.parse()
    }
}

impl From<Address> for String {
    fn from(address: Address) -> String {
        address.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_written() {
        let address: Address = "02:00:00:00:0A:ff".parse().unwrap();
        assert_eq!(address, Address([2, 0, 0, 0, 10, 255]));
        assert_eq!(address.to_string(), "02:00:00:00:0a:ff");
        let signed = "02:00:00:00:00:+1";
        let parts = ["02:00:00:00:00", "02:00:00:00:00:00:00", "2:0:0:0:0:0", "02-00"];
        for wrong in ["", "xx", signed].into_iter().chain(parts) {
            let problem = wrong.parse::<Address>().unwrap_err();
            assert!(problem.contains("02:00:00:00:00:01"), "{problem}");
        }
    }
}
