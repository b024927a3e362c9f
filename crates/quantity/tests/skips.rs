//! The list of allowed skips, as Rust tests read it.

#[path = "../../../tests/skip.rs"]
mod skip;

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
