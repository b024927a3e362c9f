//! Skipping a test: what a Rust test calls before it returns without having tested. In CI that fails
//! unless `tests/allowed-skips.txt` allows it. Included by test programs with `#[path]`.

use std::io::Write as _;

const ALLOWED: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/allowed-skips.txt"));

/// Says that the running test, or a part of it, is skipped, and why.
///
/// # Panics
/// In CI, where the list does not allow it.
pub fn skipped(reason: &str) {
    let thread = std::thread::current();
    let test = format!(
        "{}/{}::{}",
        env!("CARGO_PKG_NAME"),
        env!("CARGO_CRATE_NAME"),
        thread.name().unwrap_or("?")
    );
    let ci = std::env::var("CI").is_ok_and(|ci| !ci.is_empty() && ci != "false");
    if ci && !is_allowed(ALLOWED, &test, reason) {
        panic!("{test} skips ({reason}), and tests/allowed-skips.txt does not allow it");
    }
    // Unlike eprintln!, this is shown for tests that pass, too. Nobody may be there to read it.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {reason}");
}

/// Whether a list allows a test to skip for this reason.
pub fn is_allowed(list: &str, test: &str, reason: &str) -> bool {
    list.lines().filter(|line| !line.starts_with('#')).any(|line| {
        let mut fields = line.split('|').map(str::trim);
        let mut matches = |text: &str| fields.next().is_some_and(|glob| is_match(glob, text));
        matches(test) && matches(reason)
    })
}

/// Whether a text is what a glob says, in which `*` stands for anything.
fn is_match(glob: &str, text: &str) -> bool {
    match glob.split_once('*') {
        None => glob == text,
        Some((begin, rest)) => text.strip_prefix(begin).is_some_and(|left| {
            let places = left.char_indices().map(|(at, _)| at).chain([left.len()]);
            places.into_iter().any(|at| is_match(rest, &left[at..]))
        }),
    }
}
