//! One agent holds a Rust, a C and a Python program to the same bytes and the same behaviour.

mod compile;

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use loopscope_phase::{Config, Functions, Phase, PhaseError, RunError, Session, Value, Values};

const HELLO: &str = r#"{"type":"hello","version":1,"phases":["listen","connect","run"]}"#;

/// The program; what the C and the Python one do too.
mod program {
    use super::*;

    fn connect(phase: &Phase, config: &Config) -> Result<(), PhaseError> {
        let to = config.text("to")?.unwrap_or("nobody");
        let peer = phase.peers.get(to);
        let address = peer.map_or("nowhere", |p| p.address.as_str());
        let port = peer.and_then(|p| p.values.get("port")?.as_i64()).unwrap_or(-1);
        let label = peer.and_then(|p| p.values.get("label")?.as_str()).unwrap_or("none");
        println!("to {to} at {address}:{port} ({label})");
        for address in peer.map_or(&[][..], |p| &p.addresses) {
            println!("address {address}");
        }
        Ok(())
    }

    fn handle(phase: &Phase, config: &Config) -> Result<Values, String> {
        println!("phase {}", phase.name);
        match phase.name.as_str() {
            "listen" => {
                let strange = "\"\\/\u{8}\u{c}\n\r\t\u{1}\u{1f}\u{7f}🙂";
                return Ok(vec![
                    ("port".into(), 40123.into()),
                    ("grüß".into(), strange.into()),
                    ("rate".into(), 0.25.into()),
                    ("whole".into(), (-3.0).into()),
                    ("least".into(), i64::MIN.into()),
                ]);
            }
            "connect" => connect(phase, config).map_err(|e| e.to_string())?,
            _ => {
                println!(
                    "count {} period {} share {:.3} fast {} measured {}",
                    config.integer("count").map_err(|e| e.to_string())?.unwrap_or(-1),
                    config.text("period").map_err(|e| e.to_string())?.unwrap_or("never"),
                    config.number("share").map_err(|e| e.to_string())?.unwrap_or(-1.0),
                    i32::from(config.get("fast").is_some_and(|f| f == true)),
                    i32::from(phase.measured),
                );
                if let Some(fail) = config.text("fail").map_err(|e| e.to_string())? {
                    return Err(fail.to_owned());
                }
            }
        }
        Ok(vec![])
    }

    fn of_functions(arguments: Config) -> Result<(), RunError<String>> {
        let configure = |seen: &mut Vec<String>, config: &Config| {
            println!("component {}", std::env::var("COMPONENT").unwrap_or("none".into()));
            seen.push("configure".into());
            match config.text("refuse").map_err(|e| e.to_string())? {
                Some(refuse) => Err(refuse.to_owned()),
                None => Ok(()),
            }
        };
        let function = |seen: &mut Vec<String>, phase: &Phase, config: &Config| {
            assert_eq!(seen[0], "configure");
            handle(phase, config)
        };
        Functions::new()
            .configure(configure)
            .on("listen", function)
            .on("connect", function)
            .on("run", function)
            .run(&mut vec![], arguments)
    }

    pub fn main(arguments: &[&str]) -> Result<(), String> {
        let arguments = Config::from_arguments(arguments.iter().map(ToString::to_string))
            .map_err(|e| e.to_string())?;
        if std::env::var_os("DIALOGUE_FUNCTIONS").is_some() {
            return of_functions(arguments).map_err(|e| e.to_string());
        }
        let mut session = Session::connect(&["listen", "connect", "run"], arguments)
            .map_err(|e| e.to_string())?;
        println!("component {}", session.component().unwrap_or("none"));
        session.run(handle).map_err(|e| e.to_string())
    }
}

/// Where the test binary was started by [`Language::command`], the Rust program; else nothing.
#[test]
fn the_rust_program() {
    let Ok(arguments) = std::env::var("DIALOGUE_ARGUMENTS") else { return };
    let arguments: Vec<&str> = arguments.split('\u{1f}').filter(|a| !a.is_empty()).collect();
    // Ends the test harness's own line.
    println!();
    let result = program::main(&arguments);
    println!("behind the program");
    if let Err(error) = result {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Language {
    Rust,
    C,
    Python,
    /// The same programs as tables of functions.
    RustTable,
    CTable,
    PythonTable,
}

const TABLES: [Language; 3] = [Language::RustTable, Language::CTable, Language::PythonTable];
const LANGUAGES: [Language; 6] = [
    Language::Rust,
    Language::C,
    Language::Python,
    Language::RustTable,
    Language::CTable,
    Language::PythonTable,
];

impl Language {
    fn command(self, arguments: &[&str]) -> Command {
        let mut command = self.program(arguments);
        if TABLES.contains(&self) {
            command.env("DIALOGUE_FUNCTIONS", "1");
        }
        command
    }

    fn program(self, arguments: &[&str]) -> Command {
        static C: OnceLock<std::path::PathBuf> = OnceLock::new();
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let mut command = match self {
            Language::Rust | Language::RustTable => {
                let mut command = Command::new(std::env::current_exe().unwrap());
                command.args(["--exact", "the_rust_program", "--nocapture"]);
                command.env("DIALOGUE_ARGUMENTS", arguments.join("\u{1f}"));
                return command;
            }
            Language::C | Language::CTable => {
                Command::new(C.get_or_init(|| compile::program("dialogue")))
            }
            Language::Python | Language::PythonTable => {
                let mut command = Command::new("python3");
                command.arg(format!("{root}/crates/phase/tests/programs/dialogue.py"));
                command.arg(format!("{root}/python/loopscope/phase.py"));
                command
            }
        };
        command.args(arguments);
        command
    }

    /// The program's own lines on stdout.
    fn lines(self, output: &Output) -> Vec<String> {
        let lines = std::str::from_utf8(&output.stdout).unwrap().lines().map(str::to_owned);
        match self {
            Language::Rust | Language::RustTable => lines
                .skip_while(|line| !line.starts_with("component "))
                .take_while(|line| line != "behind the program")
                .collect(),
            _ => lines.collect(),
        }
    }
}

struct Agent {
    socket: UnixStream,
    program: std::process::Child,
}

impl Agent {
    /// Starts the program with one end of a socket pair as descriptor 0.
    fn start(language: Language, arguments: &[&str]) -> Agent {
        let (socket, theirs) = UnixStream::pair().unwrap();
        let program = language
            .command(arguments)
            .env("LOOPSCOPE_PHASE_FD", "0")
            .env("COMPONENT", "node1")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Agent { socket, program }
    }

    fn send(&mut self, line: &str) {
        self.socket.write_all(line.as_bytes()).unwrap();
        self.socket.write_all(b"\n").unwrap();
    }

    /// The next line, with nothing behind it: the program has the word only when asked.
    fn line(&mut self) -> String {
        let mut line = Vec::new();
        let mut byte = [0];
        while self.socket.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()
    }

    /// Everything until the program closes the socket, and how it ended.
    fn rest(mut self) -> (String, Output) {
        let mut rest = String::new();
        // A program that leaves bytes unread resets the connection.
        let _ = self.socket.read_to_string(&mut rest);
        (rest, self.program.wait_with_output().unwrap())
    }
}

fn configure(config: &str) -> String {
    format!(
        r#"{{"type": "configure", "version": 1, "component": "node1", "host": "h2", "new": [null], "config": {config}}}"#
    )
}

fn phase(name: &str, measured: bool) -> String {
    format!(
        r#"{{"type": "phase", "phase": "{name}", "measured": {measured}, "peers": {{
            "node1": {{"host": "h2", "address": "10.77.0.2", "values": {{}}}},
            "node2": {{"host": "h3", "address": "10.77.0.3", "addresses": [ "10.77.0.3" , "fd00::3"], "new": {{}}, "values": {{"x": [{{"port": 1}}], "port": 40123, "label": "\u00fc\ud83d\ude42\n"}}}}}}}}"#
    )
    .replace('\n', " ")
}

/// Runs all of them to their end, `drive` playing the agent; what they said must be the same.
fn same(config: &str, arguments: &[&str], drive: impl Fn(&mut Agent) -> Vec<String>) -> Said {
    same_of(&LANGUAGES, config, arguments, drive)
}

fn same_of(
    languages: &[Language],
    config: &str,
    arguments: &[&str],
    drive: impl Fn(&mut Agent) -> Vec<String>,
) -> Said {
    let mut all = languages.iter().map(|&language| {
        let mut agent = Agent::start(language, arguments);
        agent.send(&configure(config));
        assert_eq!(agent.line(), HELLO, "{language:?}");
        let mut said = drive(&mut agent);
        let (rest, output) = agent.rest();
        said.push(rest);
        Said {
            lines: said,
            stdout: language.lines(&output),
            success: output.status.success(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    });
    let rust = all.next().unwrap();
    for (language, other) in languages[1..].iter().zip(all) {
        assert_eq!(rust.lines, other.lines, "{language:?}: {}", other.stderr);
        assert_eq!(rust.stdout, other.stdout, "{language:?}");
        assert_eq!(rust.success, other.success, "{language:?}: {}", other.stderr);
        let silent = (rust.stderr.is_empty(), other.stderr.is_empty());
        assert_eq!(silent.0, silent.1, "{language:?}: {}", other.stderr);
    }
    rust
}

struct Said {
    lines: Vec<String>,
    stdout: Vec<String>,
    success: bool,
    stderr: String,
}

#[test]
fn a_whole_run() {
    let config = r#"{"to": "wrong", "to": "node\u0032", "count": 10000, "period": "2ms", "share": 1.25e-1, "nested": {"count": 1}}"#;
    // The command line is overruled where the experiment says something.
    let said = same(config, &["--count", "7", "--fast=true"], |agent| {
        let mut said = Vec::new();
        for (name, measured) in [("listen", false), ("connect", false), ("run", true)] {
            agent.send(&phase(name, measured));
            said.push(agent.line());
        }
        agent.send(r#" {"type" : "end"} "#);
        said
    });
    let strange = r#"\"\\/\b\f\n\r\t\u0001\u001f"#;
    assert_eq!(
        said.lines,
        [
            format!(
                r#"{{"type":"done","phase":"listen","values":{{"port":40123,"grüß":"{strange}{}🙂","rate":0.25,"whole":-3.0,"least":-9223372036854775808}}}}"#,
                '\u{7f}'
            )
            .as_str(),
            r#"{"type":"done","phase":"connect"}"#,
            r#"{"type":"done","phase":"run"}"#,
            ""
        ]
    );
    assert_eq!(
        said.stdout,
        [
            "component node1",
            "phase listen",
            "phase connect",
            "to node2 at 10.77.0.3:40123 (ü🙂",
            ")",
            "address 10.77.0.3",
            "address fd00::3",
            "phase run",
            "count 10000 period 2ms share 0.125 fast 1 measured 1",
        ]
    );
    assert!(said.success);
}

/// The published dialogue: what the agent says (`>`) and what a program must answer (`<`).
#[test]
fn the_golden_dialogue() {
    let golden = include_str!("../../../schema/golden/phase/dialogue.txt");
    for language in LANGUAGES {
        let mut agent = Agent::start(language, &[]);
        for line in golden.lines() {
            match line.split_at(2) {
                ("> ", ours) => agent.send(ours),
                // A DEL stands in the program's own value; text files are better without one.
                (_, theirs) => {
                    let line = agent.line().replace('\u{7f}', "");
                    assert_eq!(without_time(&line), without_time(theirs), "{language:?}");
                }
            }
        }
        let (rest, output) = agent.rest();
        assert_eq!(rest, "", "{language:?}");
        assert!(output.status.success(), "{language:?}");
    }
}

/// A line without the instant at which the program began, which is another one each time.
fn without_time(line: &str) -> &str {
    let Some((before, at)) = line.split_once(r#""at_ns":"#) else { return line };
    assert!(at.strip_suffix('}').is_some_and(|number| number.parse::<i64>().is_ok()), "{line}");
    before
}

#[test]
fn a_failure_is_told_and_ends_the_program() {
    let said = same(r#"{"fail": "cannot find \"ü\""}"#, &[], |agent| {
        agent.send(&phase("run", true));
        vec![agent.line()]
    });
    assert_eq!(said.lines, [r#"{"type":"failed","phase":"run","error":"cannot find \"ü\""}"#, ""]);
    assert!(!said.success);
}

#[test]
fn a_table_can_refuse_its_configuration() {
    for language in TABLES {
        let mut agent = Agent::start(language, &[]);
        agent.send(&configure(r#"{"refuse": "no \"gain\""}"#));
        let (said, output) = agent.rest();
        let told = r#"{"type":"failed","phase":"configure","error":"no \"gain\""}"#;
        assert_eq!(said, format!("{told}\n"), "{language:?}");
        let stderr = String::from_utf8(output.stderr.clone()).unwrap();
        assert!(stderr.contains("no \"gain\""), "{language:?}: {stderr}");
        assert!(!output.status.success(), "{language:?}");
        assert_eq!(language.lines(&output), ["component node1"], "{language:?}");
    }
}

#[test]
fn a_function_in_c_that_returns_another_value_fails_its_phase() {
    let mut agent = Agent::start(Language::CTable, &[]);
    agent.send(&configure(r#"{"return": "now"}"#));
    assert_eq!(agent.line(), HELLO);
    agent.send(&phase("run", true));
    let error = "the function of run returned 7";
    let told = format!(r#"{{"type":"failed","phase":"run","error":"{error}"}}"#);
    assert_eq!(agent.line(), told);
    let (_, output) = agent.rest();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), format!("{error}\n"));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_phase_with_a_common_start_begins_no_earlier() {
    let now = || {
        let print = "import time; print(time.monotonic_ns())";
        let output = Command::new("python3").args(["-c", print]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().parse::<i64>().unwrap()
    };
    for language in LANGUAGES {
        let mut agent = Agent::start(language, &[]);
        agent.send(&configure("{}"));
        assert_eq!(agent.line(), HELLO, "{language:?}");
        for start_ns in [now() + 100_000_000, 1] {
            let start = format!(r#"{{"start_ns": {start_ns}, "type""#);
            agent.send(&phase("listen", true).replacen(r#"{"type""#, &start, 1));
            let begun: Value = serde_json::from_str(&agent.line()).unwrap();
            assert_eq!(begun["type"], "begun", "{language:?}");
            assert_eq!(begun["phase"], "listen", "{language:?}");
            assert!(begun["at_ns"].as_i64().unwrap() >= start_ns, "{language:?}");
            assert!(agent.line().starts_with(r#"{"type":"done","phase":"listen""#));
        }
        agent.send(r#"{"type": "end"}"#);
        let (_, output) = agent.rest();
        assert!(output.status.success(), "{language:?}");
    }
}

#[test]
fn a_long_failure_is_cut_between_characters() {
    // 3 bytes each, so that 8192 falls inside a character.
    let said = same(&format!(r#"{{"fail": "{}"}}"#, "…".repeat(10_000)), &[], |agent| {
        agent.send(&phase("run", true));
        vec![agent.line()]
    });
    let cut = "…".repeat(8192 / 3);
    assert_eq!(said.lines[0], format!(r#"{{"type":"failed","phase":"run","error":"{cut}"}}"#));
}

#[test]
fn phases_come_in_the_agents_order_and_as_often_as_it_likes() {
    let said = same("{}", &[], |agent| {
        let mut said = Vec::new();
        for name in ["run", "connect", "run"] {
            agent.send(&phase(name, false));
            said.push(agent.line());
        }
        agent.send(r#"{"type": "end"}"#);
        said
    });
    assert_eq!(said.lines[2], r#"{"type":"done","phase":"run"}"#);
    assert_eq!(said.stdout[1], "phase run");
    assert!(said.success);
}

#[test]
fn lines_up_to_the_limit_and_no_further() {
    let end = r#"{"type":"end","pad":""}"#;
    let fits = |length: usize| end.replace(r#""""#, &format!(r#""{}""#, "x".repeat(length)));
    // With its newline the first has as many bytes as are allowed, the second one more.
    let limit = 16 << 20;
    let longest = fits(limit - 1 - end.len());
    let send = |line: String| {
        same_of(&LANGUAGES[..3], "{}", &[], move |agent| {
            let mut bytes = line.clone().into_bytes();
            bytes.push(b'\n');
            // The program may give up before it has read everything.
            let _ = agent.socket.write_all(&bytes);
            vec![]
        })
    };
    assert_eq!(longest.len(), limit - 1);
    assert!(send(longest).success);
    let said = send(fits(limit - end.len()));
    assert!(!said.success && said.stderr.contains("more than 16777216 bytes"), "{}", said.stderr);
}

#[test]
fn an_agent_that_breaks_the_protocol_is_refused() {
    let deep = |depth: usize| {
        format!(r#"{{"type":"end","x":{}{}}}"#, "[".repeat(depth), "]".repeat(depth))
    };
    for good in [r#"{"type":"end","version":"any"}"#, "{\"type\":\"e\\u006Ed\"}\r", &deep(126)] {
        assert!(
            same_of(&LANGUAGES[..3], "{}", &[], |a| {
                a.send(good);
                vec![]
            })
            .success,
            "{good}"
        );
    }
    for bad in [
        "",
        "end",
        "[]",
        "{}",
        r#"{"type":"end""#,
        r#"{"type":"end"},"#,
        r#"{"type":"end",}"#,
        r#"{'type':'end'}"#,
        r#"{"type":"end","x":01}"#,
        r#"{"type":"end","x":NaN}"#,
        r#"{"type":"end","x":1e999}"#,
        r#"{"type":"end","x":"\ud800"}"#,
        "{\"type\":\"end\",\"x\":\"\t\"}",
        "{\"type\":\"end\"}\0",
        &"[".repeat(60_000),
        r#"{"type":5}"#,
        r#"{"type":"start"}"#,
        &configure("{}"),
        &phase("sleep", false),
        r#"{"type":"phase","phase":"run","measured":false}"#,
        r#"{"type":"phase","phase":"run","measured":0,"peers":{}}"#,
        r#"{"type":"phase","phase":"run","measured":false,"peers":{},"start_ns":"x"}"#,
        r#"{"type":"phase","phase":5,"measured":false,"peers":{}}"#,
        r#"{"type":"phase","phase":"run","measured":false,"peers":[]}"#,
        r#"{"type":"phase","phase":"run","measured":false,"peers":{"a":{"host":"h","address":5,"values":{}}}}"#,
        r#"{"type":"phase","phase":"run","measured":false,"peers":{"a":{"host":"h","address":"1"}}}"#,
        r#"{"type":"phase","phase":"run","measured":false,"peers":{"a":{"host":"h","address":"1","addresses":"1","values":{}}}}"#,
        r#"{"type":"phase","phase":"run","measured":false,"peers":{"a":{"host":"h","address":"1","addresses":["1",2],"values":{}}}}"#,
    ] {
        let said = same_of(&LANGUAGES[..3], "{}", &[], |agent| {
            agent.send(bad);
            vec![]
        });
        assert!(!said.success, "{bad}");
        assert_eq!(said.lines, [""], "{bad}");
        assert!(said.stderr.starts_with("the loopscope agent sent "), "{bad}: {}", said.stderr);
    }
}

#[test]
fn an_agent_that_goes_away_is_an_error() {
    for (sent, message) in [("", "without ending the run"), (r#"{"type":"#, "without its end")] {
        let said = same("{}", &[], |agent| {
            agent.socket.write_all(sent.as_bytes()).unwrap();
            agent.socket.shutdown(std::net::Shutdown::Write).unwrap();
            vec![]
        });
        assert!(!said.success && said.stderr.contains(message), "{}", said.stderr);
    }
}

#[test]
fn only_configure_of_version_1_may_come_first() {
    for first in [
        r#"{"type":"end"}"#,
        &configure("[]"),
        &configure("{}").replace("1,", "2,"),
        &configure("{}").replace("1,", "true,"),
        &configure("{}").replace("\"h2\"", "2"),
        &configure("{}").replace("component", "name"),
    ] {
        for language in LANGUAGES {
            let mut agent = Agent::start(language, &[]);
            agent.send(first);
            let (said, output) = agent.rest();
            assert_eq!(said, "", "{language:?} {first}");
            assert!(!output.status.success(), "{language:?} {first}");
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert!(stderr.contains("agent sent"), "{language:?} {first}: {stderr}");
        }
    }
}

#[test]
fn without_an_agent_the_phases_run_in_order() {
    let arguments =
        ["--to=node2", "--count", "12", "--period", "2ms", "--share", "0.5", "--fast", "true"];
    for language in LANGUAGES {
        let output = language.command(&arguments).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{language:?}: {output:?}");
        assert_eq!(
            language.lines(&output),
            [
                "component none",
                "phase listen",
                "phase connect",
                "to node2 at nowhere:-1 (none)",
                "phase run",
                "count 12 period 2ms share 0.500 fast 1 measured 0",
            ],
            "{language:?}"
        );
    }
}

#[test]
fn what_cannot_be_used_is_named() {
    for (descriptor, arguments, message) in [
        (None, &["--count"][..], "`--count` on the command line"),
        (None, &["count=5"], "`count=5` on the command line"),
        (Some("x"), &[], "LOOPSCOPE_PHASE_FD is `x`, which is not a number; unset it"),
        (Some("0"), &[], "LOOPSCOPE_PHASE_FD is `0`, which is not an open stream socket; unset it"),
        (Some("999"), &[], "LOOPSCOPE_PHASE_FD is `999`, which is not an open stream socket"),
    ] {
        for language in LANGUAGES {
            let mut command = language.command(arguments);
            if let Some(descriptor) = descriptor {
                command.env("LOOPSCOPE_PHASE_FD", descriptor);
            }
            let output = command.stdin(Stdio::null()).output().unwrap();
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert!(!output.status.success(), "{language:?} {message}");
            assert!(stderr.contains(message), "{language:?}: {stderr}");
        }
    }
}

#[test]
fn whatever_leaves_a_python_program_fails_its_phase() {
    for (body, error) in [
        ("raise ValueError('no ü')", "ValueError: no ü"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("sys.exit('no ü')", "no ü"),
        ("sys.exit(0)", "the program ended inside the phase"),
        ("break", "the program ended inside the phase"),
        ("phase.publish(x=float('nan'))", "cannot publish `x`: nan is neither"),
        ("phase.publish(x=True)", "cannot publish `x`: True is neither"),
        ("phase.publish(x='y' * 65536)", "a message to the agent may have 65536 bytes"),
        ("phase.publish(x='\\ud800')", "a message to the agent is not valid text"),
    ] {
        let text = format!(
            "import sys\nfrom phase import Session\nwith Session(['run'], []) as session:\n    \
             for phase in session:\n        {body}\n"
        );
        let (mut socket, theirs) = UnixStream::pair().unwrap();
        let mut program = Command::new("python3")
            .args(["-c", &text])
            .env("PYTHONPATH", concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/loopscope"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("LOOPSCOPE_PHASE_FD", "0")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let peers = phase("run", true);
        socket.write_all(format!("{}\n{peers}\n", configure("{}")).as_bytes()).unwrap();
        let mut said = String::new();
        socket.read_to_string(&mut said).unwrap();
        let last: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        assert_eq!((&last["type"], &last["phase"]), (&"failed".into(), &"run".into()), "{body}");
        let told = last["error"].as_str().unwrap();
        assert!(told.starts_with(error), "{body}: {told}");
        program.wait().unwrap();
    }
}

#[test]
fn rust_refuses_what_it_cannot_send_and_says_so() {
    for (values, error) in [
        (vec![("x".to_owned(), Value::from(f64::NAN))], "cannot publish `x`: null is neither"),
        (vec![("x".to_owned(), 1.into()), ("x".to_owned(), 2.into())], "cannot publish `x` twice"),
        (vec![("x".to_owned(), "y".repeat(65536).into())], "a message to the agent may have"),
    ] {
        let (mut socket, theirs) = UnixStream::pair().unwrap();
        let start = format!("{}\n{}\n", configure("{}"), phase("run", true));
        socket.write_all(start.as_bytes()).unwrap();
        let mut session = Session::over(theirs, &["run"], Config::default()).unwrap();
        let result = session.run(|_, _| Ok::<_, String>(values.clone()));
        assert!(result.unwrap_err().to_string().starts_with(error));
        drop(session);
        let mut said = String::new();
        socket.read_to_string(&mut said).unwrap();
        let last: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
        assert!(last["error"].as_str().unwrap().starts_with(error), "{said}");
    }
}

#[test]
fn phases_are_used_in_order_and_named_once() {
    let mut session = Session::alone(&["a", "b"], Config::default()).unwrap();
    assert!(matches!(session.done(&vec![]), Err(PhaseError::Misuse(_))));
    assert_eq!(session.next_phase().unwrap().unwrap().name, "a");
    assert!(matches!(session.next_phase(), Err(PhaseError::Misuse(_))));
    session.done(&vec![]).unwrap();
    assert_eq!(session.next_phase().unwrap().unwrap().name, "b");
    session.failed("why").unwrap();
    assert_eq!(session.next_phase().unwrap(), None);
    assert!(Session::alone(&["a", "a"], Config::default()).is_err());
}

/// The Python module promises 3.8.
#[test]
fn python_keeps_to_its_oldest_version() {
    let module = concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/loopscope/phase.py");
    let parse = "import ast, sys; ast.parse(open(sys.argv[1]).read(), feature_version=(3, 8))";
    let output = Command::new("python3").args(["-c", parse, module]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
