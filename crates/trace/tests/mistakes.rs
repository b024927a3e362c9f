//! Wrong types do not compile: not in C++, and in C not even without -Werror.

#[path = "../../../tests/skip.rs"]
mod skip;

use std::path::Path;
use std::process::{Command, Stdio};

/// Statements in a function with `const char *text, int *numbers, int n, float real`.
const WRONG: &[&str] = &[
    r#"LOOPSCOPE_EVENT("g", "n", text)"#,
    r#"LOOPSCOPE_EVENT("g", "n")"#,
    r#"LOOPSCOPE_EVENT("g", text, 1)"#,
    r#"LOOPSCOPE_EVENT("g", "n", 1, LOOPSCOPE_U32(size, "text"))"#,
    r#"LOOPSCOPE_EVENT("g", "n", 1, LOOPSCOPE_F64(size, text))"#,
    r#"LOOPSCOPE_EVENT("g", "n", 1, LOOPSCOPE_STRING(field, n))"#,
    r#"LOOPSCOPE_EVENT("g", "n", 1, LOOPSCOPE_STRING(field, real))"#,
    r#"LOOPSCOPE_EVENT("g", "n", 1, LOOPSCOPE_STRING(field, numbers))"#,
    r#"LOOPSCOPE_EVENT("g", "n", 1, LOOPSCOPE_BYTES(field, n, 1))"#,
    r#"LOOPSCOPE_EVENT("g", "n", 1, LOOPSCOPE_BYTES(field, numbers, text))"#,
    r#"LOOPSCOPE_EVENT("g", "n", 1, LOOPSCOPE_U8(a, 1), LOOPSCOPE_U8(b, 1), LOOPSCOPE_U8(c, 1),
       LOOPSCOPE_U8(d, 1), LOOPSCOPE_U8(e, 1), LOOPSCOPE_U8(f, 1), LOOPSCOPE_U8(g, 1),
       LOOPSCOPE_U8(h, 1), LOOPSCOPE_U8(i, 1))"#,
    r#"LOOPSCOPE_FLOW_OUT("g", "n", text)"#,
    r#"LOOPSCOPE_FLOW_IN("g", "n", numbers, LOOPSCOPE_U8(a, 1))"#,
    r#"LOOPSCOPE_FLOW_LINK("g", "n", text, 1)"#,
    r#"LOOPSCOPE_FLOW_LINK("g", "n", 1, text)"#,
    r#"LOOPSCOPE_INTERVAL_START("g", "n", 1)"#,
    r#"LOOPSCOPE_INTERVAL_END("g", "n", text)"#,
    r#"LOOPSCOPE_INTERVAL_END_OVER("g", "n", 1, text)"#,
    r#"LOOPSCOPE_INTERVAL_START_KEY("g", "n", text)"#,
    r#"LOOPSCOPE_INTERVAL_END_KEY("g", "n", text)"#,
    r#"LOOPSCOPE_INTERVAL_END_KEY_OVER("g", "n", 1, text)"#,
    r#"LOOPSCOPE_COUNTER_ADD("g", "n", text)"#,
    r#"LOOPSCOPE_HISTOGRAM_ADD("g", "n", text)"#,
    r#"LOOPSCOPE_HISTOGRAM_RANGE("g", "n", 0, n, 1)"#,
    r#"LOOPSCOPE_HISTOGRAM_RANGE("g", "n", 0, 1.5, 1)"#,
    r#"LOOPSCOPE_HISTOGRAM_RANGE("g", "n", 0, "1", 1)"#,
    r#"LOOPSCOPE_HISTOGRAM_RANGE("g", "n", 5, 5, 1)"#,
    r#"LOOPSCOPE_HISTOGRAM_RANGE("g", "n", 0, 5, 0)"#,
    r#"LOOPSCOPE_HISTOGRAM_RANGE("g", "n", 0, 5, 6)"#,
    r#"LOOPSCOPE_HISTOGRAM_RANGE("g", "n", 0, 100000, 60001)"#,
    r#"LOOPSCOPE_HISTOGRAM_RANGE("g", "n", 0, 0x8000000000000000u, 1)"#,
    r#"LOOPSCOPE_HISTOGRAM_RANGE("g", "n", INT64_MIN, INT64_MAX, 1)"#,
    r#"LOOPSCOPE_DESCRIBE("g", "n", text, 5)"#,
];

/// Their like without the mistake: that the function around them compiles.
const RIGHT: &[&str] = &[
    r#"LOOPSCOPE_EVENT("g", "n", n, LOOPSCOPE_STRING(field, text), LOOPSCOPE_U32(size, real),
       LOOPSCOPE_BYTES(b, numbers, n))"#,
    r#"LOOPSCOPE_FLOW_LINK("g", "n", n, n)"#,
    r#"LOOPSCOPE_INTERVAL_END_KEY_OVER("g", "n", n, 1e6)"#,
    r#"LOOPSCOPE_HISTOGRAM_RANGE("g", "n", -5, sizeof(int), 9)"#,
    r#"LOOPSCOPE_DESCRIBE("g", "n", "text", "5")"#,
];

const COMPILERS: &[&str] = &[
    "gcc -std=c99 -x c",
    "clang -std=c99 -x c",
    "g++ -std=c++11 -x c++",
    "clang++ -std=c++11 -x c++",
];

/// `None` where the compiler is not installed.
fn compiles(compiler: &str, statement: &str) -> Option<bool> {
    let mut words = compiler.split_whitespace();
    let program = words.next().unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include");
    let mut command = Command::new(program);
    command.args(words).arg("-I").arg(include).args(["-c", "-o", "/dev/null", "-"]);
    let started = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let Ok(mut child) = started else {
        skip::skipped(&format!("needs {program}"));
        return None;
    };
    let source = format!(
        "#include <loopscope/trace.h>\n\
         void f(const char *text, int *numbers, int n, float real);\n\
         void f(const char *text, int *numbers, int n, float real)\n{{\n\
         (void)text, (void)numbers, (void)n, (void)real;\n{statement};\n}}\n"
    );
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), source.as_bytes()).unwrap();
    Some(child.wait().unwrap().success())
}

#[test]
fn in_c_and_cpp() {
    for compiler in COMPILERS {
        for (statements, expected) in [(RIGHT, true), (WRONG, false)] {
            for statement in statements {
                match compiles(compiler, statement) {
                    Some(does) => assert_eq!(does, expected, "{compiler}: {statement}"),
                    None => break,
                }
            }
        }
    }
}
