//! Lines of an agent on its standard output and standard error.

use std::io::{self, Write as _};

/// The line that an agent writes to standard output once its socket answers.
pub(crate) const READY: &[u8] = b"ready\n";

/// Writes a line to standard error and ignores failures: the reader may be gone, and that must not
/// stop a cleanup.
pub(crate) fn print_line(text: &str) {
    let _ = writeln!(io::stderr(), "loopscope-host agent: {text}");
}
