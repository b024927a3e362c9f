//! Where the service of channels is.

use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

/// The environment variable that says where the service's socket is.
const VARIABLE: &str = "LOOPSCOPE_STM";

/// Where the service's socket is: what `LOOPSCOPE_STM` says, else a file of the user's runtime
/// directory, else one of a directory in /tmp that belongs to the user alone.
///
/// `@` and a name is a socket of the network namespace, without a file (unix(7), abstract).
pub fn socket_path() -> PathBuf {
    if let Some(path) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return path.into();
    }
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty());
    match runtime {
        Some(runtime) => Path::new(&runtime).join("loopscope-stm/socket"),
        None => format!("/tmp/loopscope-stm-{}/socket", geteuid()).into(),
    }
}
