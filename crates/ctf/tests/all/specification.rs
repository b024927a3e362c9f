//! Metadata that CTF 1.8.3 allows is read, and what it forbids is refused, or read with a warning
//! where babeltrace2 reads it: `specification.txt`. `tests/imports/test_specification.py` asks
//! babeltrace2.

use loopscope_ctf::tsdl::Trace;

const CASES: &str = include_str!("../specification.txt");

const TYPES: &str = "\
typealias integer { size = 8; align = 8; signed = false; } := u8;
typealias integer { size = 8; align = 8; signed = true; } := s8;
typealias integer { size = 32; align = 8; signed = false; } := u32;
typealias integer { size = 64; align = 8; signed = true; } := s64;
typealias integer { size = 64; align = 8; signed = false; } := u64;
typealias integer { size = 32; align = 8; signed = true; } := int;
";

/// The metadata of a case.
fn metadata(text: &str) -> String {
    let text = text.replace('⏎', "\n").replace('␀', "\0");
    let of_trace = |rest: &str| {
        format!("/* CTF 1.8 */\n{TYPES}trace {{ major = 1; minor = 8; byte_order = le; }};\n{rest}")
    };
    match text.split_once(' ') {
        Some((":", fields)) => {
            of_trace(&format!("event {{ name = e; fields := struct {{ {fields} }}; }};"))
        }
        Some(("%", rest)) => format!("/* CTF 1.8 */\n{TYPES}{rest}"),
        Some(("!", whole)) => whole.to_owned(),
        _ => of_trace(&text),
    }
}

#[test]
fn what_the_specification_says_holds() {
    let (mut count, mut wrong) = (0, Vec::new());
    for line in CASES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (verdict, rest) = line.split_at(8);
        let (text, expected) = rest.split_once("  => ").unwrap_or((rest, ""));
        let read = Trace::read(metadata(text).as_bytes())
            .and_then(|trace| trace.doubled.clone().map_or(Ok(trace), Err));
        let (found, messages) = match read {
            Err(error) => ("refuse", vec![error]),
            Ok(trace) if trace.warnings.is_empty() => ("read", vec![]),
            Ok(trace) => ("warn", trace.warnings),
        };
        let shown: Vec<String> = messages.iter().map(ToString::to_string).collect();
        // Some are of the text as a whole.
        let placed = messages.iter().all(|message| message.line > 0 || text.starts_with('!'));
        let said = expected.is_empty() || shown.iter().any(|message| message.contains(expected));
        if verdict.trim_end().trim_end_matches('!') != found || !placed || !said {
            wrong.push(format!("{line}\n    {found}: {shown:?}"));
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 300, "{count} cases");
}
