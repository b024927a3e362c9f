//! The list of allowed skips, as Rust tests read it.

#[path = "../../../tests/skip.rs"]
mod skip;

use std::process::Command;

const LIST: &str = "# a comment | * | x\n\n\
    loopscope-a/b::* | needs root* | because\n\
    tests/a.py::test_b* | there is no *: install it | because";

#[test]
fn what_is_in_the_list_is_allowed_and_nothing_else() {
    for (test, reason, allowed) in [
        ("loopscope-a/b::c", "needs root to mount", true),
        ("loopscope-a/b::c", "needs roots", true),
        ("loopscope-a/b::c", "it needs root", false),
        ("loopscope-a/bb::c", "needs root", false),
        ("tests/a.py::test_b[x]", "there is no tc: install it", true),
        ("tests/a.py::test_b[x]", "there is no tc", false),
        ("# a comment", "", false),
        ("", "", false),
    ] {
        assert_eq!(skip::is_allowed(LIST, test, reason), allowed, "{test}: {reason}");
    }
}

#[test]
fn an_allowed_skip_is_none_in_ci_either() {
    skip::skipped("an example of a skip that is allowed");
}

/// Set where `in_ci_a_skip_that_is_not_listed_fails` runs the test that skips.
const SKIPS: &str = "LOOPSCOPE_TEST_SKIPS";

#[test]
fn skips_without_being_listed() {
    if std::env::var_os(SKIPS).is_some() {
        skip::skipped("for no reason");
    }
}

#[test]
fn in_ci_a_skip_that_is_not_listed_fails() {
    for (ci, passes) in [("true", false), ("1", false), ("", true), ("false", true)] {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "skips_without_being_listed"])
            .env("CI", ci)
            .env(SKIPS, "")
            .output()
            .unwrap();
        assert_eq!(output.status.success(), passes, "CI={ci}: {output:?}");
    }
}
