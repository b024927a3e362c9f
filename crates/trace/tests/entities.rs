//! Each entity of each language writes the records that its meaning says.

mod program;
#[path = "../../../tests/skip.rs"]
mod skip;

use std::path::PathBuf;
use std::process::Command;

use program::{Left, build, compiler, example, left_by, root, run};

/// Compilers of a language that are installed, `$0` standing for them; skips loudly those that are
/// not.
fn installed(compilers: &[&'static str]) -> Vec<&'static str> {
    let there = |compiler: &&&str| {
        let program = compiler.split_whitespace().next().unwrap();
        let found = Command::new(program).arg("--version").output().is_ok();
        if !found {
            skip::skipped(&format!("needs {program}"));
        }
        found
    };
    compilers.iter().filter(there).copied().collect()
}

const C99: &[&str] =
    &["gcc -std=c99 -O0", "gcc -std=c99 -O2", "clang -std=c99 -O0", "clang -std=c99 -O2"];
const CPP17: &[&str] = &[
    "g++ -x c++ -std=c++17 -O0",
    "g++ -x c++ -std=c++17 -O2",
    "clang++ -x c++ -std=c++17 -O0",
    "clang++ -x c++ -std=c++17 -O2",
];

/// What tests/c/every.c and examples/every.rs record alike, in this order.
fn assert_everything(left: &Left) {
    let records = left.of("every");
    let expected = [
        "event plain 1",
        "event fixed 2 a=7 b=-0.5",
        "event text 3 a=\"in a buffer\" b=9 c=\"\"",
        "event bytes 4 a=[00, 01, 0a, ff] b=-4 c=[]",
        "event order 1 a=2 b=\"three\" c=4 d=1 e=[00] f=6 g=-7 h=-8",
        "flow-in in 10",
        "flow-link link 10 out=-11",
        "flow-out out -11 size=12 to=\"x y\"",
        "interval-end nested 0",
        "interval-end nested 1",
        "interval-end nested 2",
        "counter-log sum 0 value=10",
        "counter-log sum 0 value=-9223372036854775808",
        "histogram-log range 0 count=202 sum=-101 below=1 above=1 0:20 1:20 2:20 3:20 4:20 5:20 \
         6:20 7:20 8:20 9:20",
        "histogram-log range 0 count=0 sum=0 below=0 above=0",
        "histogram-log inner 0 count=1 sum=3 below=0 above=0 1:1",
        "histogram-log log 0 count=2 sum=1005 below=0 above=0 5:1 190:1",
        // The other thread's.
        "interval-end across 21",
        "interval-end across 23",
    ];
    assert_eq!(records, expected);
    let nested: Vec<_> = (0..3).map(|n| left.spans_of(&format!("every:nested {n}"))[0]).collect();
    for pair in nested.windows(2) {
        let end = |n: usize| pair[n].start + pair[n].duration;
        assert!(pair[1].start < pair[0].start && end(0) <= end(1), "{nested:?}");
    }
    let across = ["every:across 21", "every:across 23"].map(|entity| left.spans_of(entity)[0]);
    assert!(across[0].start <= across[1].start, "{across:?}");

    let described =
        |name| left.site("describe", "every", name)[4].split('\x1f').collect::<Vec<_>>();
    let text = "50% of \"all\", {a|b}, back\\slash, µs?and more";
    assert_eq!(described("range"), ["%", text]);
    assert_eq!(described("sum"), ["B", "in a function"]);
    assert_eq!(described("*"), ["", "Everything."]);
    assert_eq!(left.site("histogram-range", "every", "range")[4], "-100,100,10");
    assert_eq!(left.site("histogram-range", "every", "inner")[4], "0,4,2");
    // Values of disabled sites are not evaluated, those of enabled ones once.
    assert_eq!(left.stdout, "0 4\n");
}

#[test]
fn c_and_cpp() {
    for compiler in installed(C99).into_iter().chain(installed(CPP17)) {
        eprintln!("{compiler}");
        let left = left_by(&build(compiler, &["every.c"]));
        assert_everything(&left);
        let short = [
            "event event 1 a=2",
            "flow-out out 1",
            "flow-in in 1",
            "flow-link link 1 out=2",
            "interval-end interval 1",
            "interval-end interval 2",
            "interval-end interval 3",
            "interval-end interval 4",
            "counter-log counter 0 value=1",
            "histogram-log histogram 0 count=1 sum=1 below=0 above=0 1:1",
        ];
        assert_eq!(left.of("short"), short);
        assert_eq!(left.site("describe", "short", "*")[4], "\x1f");
        let order = ["flow-link link 1 out=2", "interval-end interval 3", "interval-end keyed 5"];
        assert_eq!(left.of("order"), order);
        // A site knows where it stands.
        let site = left.site("event", "every", "plain");
        let source = std::fs::read_to_string(&site[5]).unwrap();
        let line = source.lines().nth(site[6].parse::<usize>().unwrap() - 1).unwrap();
        assert!(line.contains("\"plain\""), "{line}");
    }
}

#[test]
fn cpp_scopes_and_kinds_of_functions() {
    let compilers = [
        "g++ -std=c++14 -O0",
        "g++ -std=c++20 -O2",
        "clang++ -std=c++14 -O2",
        "clang++ -std=c++20 -O0",
    ];
    for compiler in installed(&compilers) {
        eprintln!("{compiler}");
        let left = left_by(&build(compiler, &["scopes.cpp", "scopes_other.cpp"]));
        let a = "a".repeat(100);
        let several = |id: i32, n: i32| {
            let ends = [("long", n + 4), ("inner", n + 2), ("outer", n + 1)];
            let ends = ends.map(|(name, id)| format!("interval-end {name} {id}"));
            std::iter::once(format!("event inside {id}")).chain(ends)
        };
        let rest = [
            "interval-end thrown 3".into(),
            "event caught 3".into(),
            "interval-end template 4".into(),
            "interval-end template 5".into(),
            "interval-end template 6".into(),
            "interval-end inlined 7".into(),
            "interval-end inlined 0".into(),
            "interval-end inlined 1".into(),
            format!("event temporary 8 a=\"{a}\" b=[62, 62, 62] c=9"),
            "counter-log calls 0 value=3".into(),
            "histogram-log sizes 0 count=3 sum=9 below=0 above=0 0:1 1:2".into(),
            "interval-end lambda 10".into(),
            "histogram-log namespaced 0 count=1 sum=-5 below=0 above=0 0:1".into(),
        ];
        let expected: Vec<String> = several(1, 0).chain(several(2, 4)).chain(rest).collect();
        assert_eq!(left.of("scopes"), expected);
        assert_eq!(left.stdout, "0\n");
        // Copies of a site in two translation units are one, and so are those of a template.
        assert_eq!(
            left.site("describe", "scopes", "inlined")[4],
            "ns\x1fIn a function that is inline."
        );
        assert_eq!(left.site("describe", "scopes", "other")[4], "\x1fOf the second unit.");
        assert_eq!(left.site("histogram-range", "scopes", "sizes")[4], "0,32,8");
        left.site("interval-end", "scopes", "template");
        let thrown = left.spans_of("scopes:thrown 3");
        assert!(thrown[0].duration > 0, "{thrown:?}");
    }
}

#[test]
fn rust() {
    let left = left_by(&example("every"));
    assert_everything(&left);
    let guards = ["interval-end inner 2", "interval-end outer 1", "interval-end whole 4"];
    assert_eq!(left.of("guard"), guards);
}

/// What a macro does, a call site made at run time does too.
#[test]
fn rust_at_run_time() {
    let left = left_by(&example("runtime_sites"));
    assert_everything(&left);
    assert!(
        left.sites.iter().all(|site| site[5] == "a file" && site[6] == "7"),
        "{:?}",
        left.sites
    );
}

/// A program that was compiled with the first header runs with today's library, and its source
/// compiles with today's header.
#[test]
fn first_cut() {
    let old = root().join("tests/c/first-cut");
    let old = format!("cc -std=c99 -O2 -I{}", old.display());
    let unmixed = compiler(&old).arg("-E").arg(tests_c("first-cut/program.c")).output().unwrap();
    let preprocessed = String::from_utf8(unmixed.stdout).unwrap();
    assert!(preprocessed.contains("first-cut/loopscope/trace.h"));
    assert!(!preprocessed.contains("loopscope_interval_start"));
    for compiler in [old.as_str(), "cc -std=c99 -O2", "c++ -x c++ -std=c++17 -O2"] {
        let left = left_by(&build(compiler, &["first-cut/program.c"]));
        let expected = [
            "event plain -1",
            "event unsigned 2 a=255 b=65534 c=4294967293 d=18446744073709551612",
            "event signed 3 a=-1 b=-2 c=-3 d=-9223372036854775808 e=1.5 f=-0.1 g=7 h=8",
            "event inlined 0",
            "event inlined 1",
            "event inlined 2",
        ];
        assert_eq!(left.of("first"), expected);
        assert_eq!(left.stdout, "0\n");
    }
}

/// Processors that no test runs on: the header compiles, and the sites are there.
#[test]
fn aarch64() {
    let dir = tempfile::tempdir().unwrap();
    for cross in installed(&["aarch64-linux-gnu-gcc -std=c99 -O2"]) {
        for source in ["every.c", "forms.c", "first-cut/program.c"] {
            let object = dir.path().join("object.o");
            run(compiler(cross).arg("-c").arg(tests_c(source)).arg("-o").arg(&object));
            let sections = run(Command::new("aarch64-linux-gnu-objdump").arg("-h").arg(&object));
            let sections = String::from_utf8(sections.stdout).unwrap();
            let sites = sections.lines().find(|line| line.contains(" loopscope_sites ")).unwrap();
            let size = sites.split_whitespace().nth(2).unwrap();
            let size = usize::from_str_radix(size, 16).unwrap();
            assert!(size > 0 && size.is_multiple_of(64), "{sites}");
        }
    }
}

fn tests_c(source: &str) -> PathBuf {
    root().join("tests/c").join(source)
}
