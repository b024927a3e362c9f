//! Every form of the header and of the Rust macro is recorded with its values, once.

use std::path::Path;
use std::process::Output;

use crate::lab::Field;
use crate::lab::Field::{Float, Signed, Unsigned};
use crate::lab::{self, Event, Lab, Trace};
use loopscope_collect::{RUNTIME_DIR, StreamSpec, stream};

/// Runs a program with all but the group `off` enabled.
fn record(program: &Path, arguments: &[&Path]) -> (Trace, Output) {
    let enable = ["forms:*", "plugin:enter?d", "rust:[a-z]*"].map(String::from);
    let lab = Lab::new(&StreamSpec::of(enable));
    let output = lab.command(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let loss = lab.finish(lab.collector());
    assert_eq!(loss.dropped, 0);
    assert!(!lab.runtime().exists());
    (lab::check(&lab.out(), &loss), output)
}

fn one<'a>(trace: &'a Trace, entity: &str) -> &'a Event {
    let mut events = trace.events.iter().filter(|e| e.entity == entity);
    let event = events.next().unwrap_or_else(|| panic!("no {entity}"));
    assert!(events.next().is_none(), "{entity} more than once");
    event
}

fn assert_values(trace: &Trace, entity: &str, id: i64, fields: &[(&str, Field)]) {
    let event = one(trace, entity);
    let read: Vec<(&str, Field)> =
        event.fields.iter().map(|(n, v)| (n.as_str(), v.clone())).collect();
    assert_eq!((event.id, read.as_slice()), (id, fields), "{entity}");
}

/// What C and Rust programs emit alike.
fn assert_typed_values(trace: &Trace, group: &str) {
    let name = |name: &str| format!("{group}:{name}");
    assert_values(trace, &name("constant"), -1, &[]);
    let large = u64::MAX - 3;
    let unsigned = [
        ("a", Unsigned(0xff)),
        ("b", Unsigned(0xfffe)),
        ("c", Unsigned(0xffff_fffd)),
        ("d", Unsigned(large)),
    ];
    assert_values(trace, &name("unsigned"), 3, &unsigned);
    let signed = [("a", Signed(-1)), ("b", Signed(-2)), ("c", Signed(-3)), ("d", Signed(i64::MIN))];
    assert_values(trace, &name("signed"), 4, &signed);
    let eight = [
        ("f1", Unsigned(1)),
        ("f2", Float(2.0)),
        ("f3", Unsigned(3)),
        ("f4", Unsigned(4)),
        ("f5", Signed(5)),
        ("f6", Unsigned(6)),
        ("f7", Float(7.0)),
        ("f8", Signed(8)),
    ];
    assert_values(trace, &name("eight"), 6, &eight);
}

#[test]
fn c99() {
    for level in ["-O0", "-O2", "-O3"] {
        let name = format!("forms-c99{level}");
        let compiler = ["cc", "-std=c99", level];
        let program = lab::build(&name, &compiler, &["forms.c", "forms_other.c"]);
        let (trace, output) = record(&program, &[]);
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "0 12\n");
        assert_typed_values(&trace, "forms");
        assert_values(&trace, "forms:one", -2, &[("size", Unsigned(7))]);
        assert_values(&trace, "forms:float", 5, &[("x", Float(1.5)), ("event", Float(-0.1))]);
        assert_values(&trace, "forms:branch", 8, &[]);
        assert_eq!(trace.ids("forms:loop"), (0..10).collect::<Vec<_>>());
        // Two call sites of one name; copies of one are one.
        assert_eq!((trace.ids("forms:plain"), trace.classes("forms:plain")), (vec![1, 12], 2));
        assert_eq!((trace.ids("forms:inlined"), trace.classes("forms:inlined")), (vec![10, 11], 1));
        assert_eq!(trace.events.len(), 21);
        let site = &trace.metadata.streams[&0].events;
        let branch = site.iter().find(|e| e.name == "branch").unwrap();
        assert!(branch.file.ends_with("tests/c/forms.c"), "{branch:?}");
        let source = std::fs::read_to_string(&branch.file).unwrap();
        let line = source.lines().nth(branch.line as usize - 1).unwrap();
        assert!(line.contains("\"branch\""), "{line}");
    }
}

#[test]
fn cpp17_with_a_plugin() {
    let plugin =
        lab::build("plugin.so", &["c++", "-std=c++17", "-O2", "-fPIC", "-shared"], &["plugin.cpp"]);
    for level in ["-O0", "-O2"] {
        let name = format!("forms-cpp{level}");
        let compiler = ["c++", "-std=c++17", level];
        let program = lab::build(&name, &compiler, &["forms.cpp", "forms_other.cpp"]);
        let (trace, _) = record(&program, &[&plugin]);
        assert_values(&trace, "forms:constructor", 1, &[]);
        assert_values(&trace, "forms:plain", 1, &[]);
        assert_eq!(trace.ids("forms:inlined"), [1, 2, 100, 101, 102]);
        assert_eq!(trace.ids("forms:template"), [1, 2, 3, 4]);
        assert_eq!(trace.ids("forms:lambda"), [1, 2]);
        assert_eq!(trace.ids("forms:generic"), [3, 4]);
        // Loaded three times, its sites are the same ones each time.
        assert_eq!(trace.ids("plugin:entered"), [0, 1, 2]);
        assert!(
            trace.metadata.streams[&0]
                .events
                .iter()
                .all(|e| { trace.classes(&format!("{}:{}", e.group, e.name)) == 1 })
        );
        let template: Vec<_> =
            trace.events.iter().filter(|e| e.entity == "forms:template").collect();
        assert_eq!(template[1].fields[0].1, Float(-3.0));
        assert_eq!(template[3].fields[1].1, Unsigned(8));
    }
}

#[test]
fn rust() {
    let (trace, output) = record(&lab::example("rust_events"), &[]);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "0\n");
    assert_typed_values(&trace, "rust");
    assert_values(&trace, "rust:plain", 1, &[]);
    assert_values(&trace, "rust:literal", 2, &[("size", Signed(3)), ("load", Float(0.5))]);
    assert_values(&trace, "rust:float", -5, &[("x", Float(1.5)), ("event", Float(-0.1))]);
    assert_values(&trace, "rust:closure", 12, &[("twice", Unsigned(24))]);
    assert_eq!(trace.ids("rust:inlined"), [10, 11]);
    let generic = |id| trace.events.iter().find(|e| e.entity == "rust:generic" && e.id == id);
    assert_eq!(generic(7).unwrap().fields[0].1, Unsigned(1));
    assert_eq!(generic(8).unwrap().fields[0].1, Signed(-1));
    assert_eq!(generic(9).unwrap().fields[0].1, Float(2.5));
    // One class for each type that the generic function was used with.
    assert_eq!(trace.classes("rust:generic"), 3);
    assert_eq!(trace.count("rust:threads"), 2000);
    assert_eq!(trace.events.len(), 2000 + 13);
}

/// Without a usable directory a program runs as if it were not instrumented.
#[test]
fn dormant() {
    let lab = Lab::new(&StreamSpec::default());
    let file = lab.runtime().join("streams");
    let absent = lab.runtime().join("absent");
    let long = Path::new("/").join("x".repeat(5000));
    let unusable = [file.as_path(), &absent, &long, Path::new("relative"), Path::new("")];
    for dir in unusable.map(Some).into_iter().chain([None]) {
        let mut command = lab.tallied(lab::emit(), "thread-init 1000");
        command.env_remove(RUNTIME_DIR);
        if let Some(dir) = dir {
            command.env(RUNTIME_DIR, dir);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{dir:?}: {output:?}");
        assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"0\n"[..], &b""[..]));
    }
    let left: Vec<_> = std::fs::read_dir(lab.runtime()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

/// Nothing matches the patterns: the program is known, but emits nothing and has no ring.
#[test]
fn nothing_enabled() {
    let lab = Lab::new(&StreamSpec::of([]));
    assert!(lab.tallied(lab::emit(), "burst 1000").status().unwrap().success());
    let loss = lab.finish(lab.collector());
    assert_eq!((loss.emitted, loss.processes.len()), (0, 1));
    let trace = lab::check(&lab.out(), &loss);
    assert_eq!((trace.classes("tally:hit"), trace.packets), (1, 0));
}

#[test]
fn streams_that_programs_would_not_understand_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |stream: StreamSpec| {
        stream::write(&[stream], dir.path(), lab::identity().frequency).unwrap_err().to_string()
    };
    let pattern = |p: &str| StreamSpec::of([p.into()]);
    assert!(refused(pattern("")).contains("pattern"));
    assert!(refused(pattern("a:b\nenable *")).contains("pattern"));
    assert!(refused(pattern("a:b i:1")).contains("pattern"));
    let size = |subbuffer| StreamSpec { subbuffer, ..StreamSpec::default() };
    assert!(refused(size(255)).contains("255 B"));
    assert!(refused(size(257)).contains("257 B"));
    assert!(refused(StreamSpec { subbuffers: 1, ..StreamSpec::default() }).contains("not 1"));
    let kind = stream::Kind::FlightRecorder;
    assert!(refused(StreamSpec { subbuffers: 2, kind, ..StreamSpec::default() }).contains("not 2"));
    for name in ["", "a/b", ".x", "a b"] {
        let stream = StreamSpec { name: name.into(), ..StreamSpec::default() };
        assert!(refused(stream).contains("a name is"), "{name:?}");
    }
    let twice = [StreamSpec::default(), StreamSpec::default()];
    let error = stream::write(&twice, dir.path(), lab::identity().frequency).unwrap_err();
    assert_eq!(error.to_string(), "stream \"main\": there is another stream of this name");
    assert!(!dir.path().join("streams").exists());
}
