//! IPv4 networks of a testbed: CIDR notation and the addresses in it.

use std::net::Ipv4Addr;
use std::str::FromStr;

use thiserror::Error;

/// An IPv4 network such as `10.77.0.0/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    base: u32,
    prefix: u8,
}

/// Why a network or one of its addresses cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NetworkError {
    /// Not `A.B.C.D/N`.
    #[error("{0:?} is not an IPv4 network; write it as address/prefix, for example 10.77.0.0/24")]
    Malformed(String),
    /// Bits set beyond the prefix.
    #[error("{given} has host bits set; did you mean {meant}?")]
    HostBits {
        /// The address as given.
        given: String,
        /// The network that contains it.
        meant: String,
    },
    /// More hosts than addresses.
    #[error("{network} has addresses for {room} hosts, {wanted} are needed; use a shorter prefix")]
    Full {
        /// The network.
        network: String,
        /// Usable addresses.
        room: u32,
        /// The host number that was asked for.
        wanted: u32,
    },
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Network, NetworkError> {
        let malformed = || NetworkError::Malformed(text.to_owned());
        let (address, prefix) = text.split_once('/').ok_or_else(malformed)?;
        let base = u32::from(address.parse::<Ipv4Addr>().map_err(|_| malformed())?);
        let prefix = prefix.parse::<u8>().ok().filter(|p| (1..=30).contains(p));
        let prefix = prefix.ok_or_else(malformed)?;
        let network = Network { base: base & (u32::MAX << (32 - prefix)), prefix };
        if network.base != base {
            return Err(NetworkError::HostBits {
                given: text.to_owned(),
                meant: network.to_string(),
            });
        }
        Ok(network)
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.base), self.prefix)
    }
}

impl Network {
    /// Prefix length in bits.
    pub fn prefix(self) -> u8 {
        self.prefix
    }

    /// Address of host `i`, from 1.
    pub fn host(self, i: u32) -> Result<Ipv4Addr, NetworkError> {
        // Without the network's own and the broadcast address.
        let room = (u32::MAX >> self.prefix) - 1;
        if i == 0 || i > room {
            return Err(NetworkError::Full { network: self.to_string(), room, wanted: i });
        }
        Ok(Ipv4Addr::from(self.base + i))
    }

    /// Whether the two share an address.
    pub fn overlaps(self, other: Network) -> bool {
        let mask = u32::MAX << (32 - self.prefix.min(other.prefix));
        self.base & mask == other.base & mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_numbered_inside_the_network_only() {
        let network: Network = "10.77.0.0/22".parse().unwrap();
        assert_eq!(network.host(1).unwrap(), Ipv4Addr::new(10, 77, 0, 1));
        assert_eq!(network.host(258).unwrap(), Ipv4Addr::new(10, 77, 1, 2));
        assert_eq!(network.host(1022).unwrap(), Ipv4Addr::new(10, 77, 3, 254));
        assert!(matches!(network.host(1023), Err(NetworkError::Full { room: 1022, .. })));
        assert!(network.host(0).is_err());
    }

    #[test]
    fn what_is_no_network_is_refused_with_the_remedy() {
        for text in ["10.77.0.0", "10.77.0/24", "10.77.0.0/31", "10.77.0.0/0", "h/24", ""] {
            let refused = text.parse::<Network>();
            assert_eq!(refused, Err(NetworkError::Malformed(text.to_owned())), "{text}");
        }
        let error = "10.77.0.5/24".parse::<Network>().unwrap_err();
        assert!(error.to_string().contains("10.77.0.0/24?"), "{error}");
    }

    #[test]
    fn overlap_is_containment_either_way() {
        let (a, b, c): (Network, Network, Network) = (
            "10.0.0.0/8".parse().unwrap(),
            "10.3.0.0/16".parse().unwrap(),
            "11.0.0.0/8".parse().unwrap(),
        );
        assert!(a.overlaps(b) && b.overlaps(a) && !c.overlaps(b));
    }
}
