//! What the environment asks for (`LOOPSCOPE_STACK…`), and the kernel's settings.

use std::path::PathBuf;
use std::time::Duration;

use crate::ports::Ports;
use crate::receive::{self, Receive};
use crate::timeout;

/// Where the service listens.
const SERVICE: &str = "/run/loopscope/stack.sock";
/// The kernel's settings (ip-sysctl.rst). The time-out is there from Linux 6.11 on.
const LEAST_TIMEOUT: &str = "/proc/sys/net/ipv4/tcp_rto_min_us";
const CONGESTION: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// What the environment asks for, and the kernel's settings.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The socket of the service.
    pub(crate) service: PathBuf,
    /// The ports of the connections that are taken over.
    pub(crate) ports: Ports,
    /// The least retransmission time-out.
    pub(crate) least_timeout: Option<Duration>,
    /// The congestion control of sockets whose program has asked for none.
    pub(crate) default_congestion: Option<String>,
    /// Why nothing is taken over, where a variable says what it must not.
    pub(crate) unreadable: Option<String>,
}

impl Asked {
    /// Reads the environment, and has threads wait as it says.
    pub(crate) fn read() -> Asked {
        let service = std::env::var_os("LOOPSCOPE_STACK").map(PathBuf::from);
        let mut asked = Asked {
            service: service.unwrap_or_else(|| SERVICE.into()),
            ports: Ports::All,
            least_timeout: None,
            default_congestion: setting(CONGESTION),
            unreadable: None,
        };
        asked.unreadable = asked.read_rest().err();
        asked
    }

    fn read_rest(&mut self) -> Result<(), String> {
        let said = |name| std::env::var_os(name).unwrap_or_default();
        receive::set(Receive::parse(&said("LOOPSCOPE_STACK_RECEIVE").to_string_lossy())?);
        self.ports = Ports::parse(&said("LOOPSCOPE_STACK_ONLY").to_string_lossy())?;
        let least = timeout::parse(&said("LOOPSCOPE_STACK_RTO_MIN").to_string_lossy())?;
        let of_kernel = || setting(LEAST_TIMEOUT)?.parse().ok().map(Duration::from_micros);
        self.least_timeout = least.or_else(of_kernel);
        Ok(())
    }
}

/// A setting of the network namespace, if it is there.
fn setting(path: &str) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}
