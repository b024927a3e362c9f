//! The C helper's JSON reader against serde_json, on mutated and made-up texts.

mod compile;

use std::io::Write;
use std::process::{Command, Stdio};

use loopscope_phase::Value;

const SEEDS: [&str; 9] = [
    r#"{"type": "configure", "version": 1, "config": {"to": "node2", "k": 1}, "k": "2ms"}"#,
    r#"{"k":"\u00fc\ud83d\ude42\"\\\/\b\f\n\r\t","l":"ü🙂"}"#,
    r#"{"k" : -12.5e-3 , "x" : [ 1 , [ ] , { } , "}" , null ] }"#,
    r#"{"a":{"k":{"k":[true,false]}},"k":true}"#,
    r#"{"k":9223372036854775807,"\u006b":-9223372036854775808}"#,
    r#"{"k":1e308,"k":0.1,"k":-0}"#,
    r#"[{"k":"in a list"}]"#,
    r#"{"k":"\u0000"}"#,
    "  \"k\"  ",
];

/// Pieces that a JSON text is made of, and some that it is not.
const PIECES: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\"",
    b"\"k\":",
    b"\"k\"",
    b"\\",
    b"\\u",
    b"\\ud83d",
    b"\\ude42",
    b"\\u00e9",
    b"\\n",
    b"\\x",
    b"-",
    b"+",
    b".",
    b"e",
    b"E",
    b"0",
    b"00",
    b"1",
    b"9",
    b"123456789012345678901234567890",
    b"e308",
    b"e309",
    b"e-400",
    b"0x1",
    b"true",
    b"false",
    b"null",
    b"nul",
    b"NaN",
    b" ",
    b"\t",
    b"\n",
    b"\r",
    b"\0",
    b"\x1f",
    b"\x7f",
    b"\xc3\xbc",
    b"\xc0\x80",
    b"\xe0\x80\x80",
    b"\xe2\x82",
    b"\xf0\x80\x80\x80",
    b"\xf0\x9f\x99\x82",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
];

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % limit as u64) as usize
    }

    /// A seed with a few cuts, insertions and flipped bits, or a heap of pieces.
    fn text(&mut self) -> Vec<u8> {
        if self.below(4) == 0 {
            let pieces = self.below(12);
            return (0..pieces).flat_map(|_| PIECES[self.below(PIECES.len())].to_vec()).collect();
        }
        let mut text = SEEDS[self.below(SEEDS.len())].as_bytes().to_vec();
        for _ in 0..self.below(4) {
            let at = self.below(text.len() + 1);
            match self.below(3) {
                0 => drop(text.splice(at..at, PIECES[self.below(PIECES.len())].iter().copied())),
                1 if at < text.len() => text[at] ^= 1 << self.below(8),
                _ => drop(text.drain(at..(at + self.below(4)).min(text.len()))),
            }
        }
        text
    }
}

/// What `json_check.c` should answer.
fn expected(text: &[u8]) -> String {
    let Ok(root) = serde_json::from_slice::<Value>(text) else { return "invalid".into() };
    match root.get("k") {
        None => "none".into(),
        Some(Value::String(text)) if !text.contains('\0') => {
            let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
            format!("string 1 {hex}")
        }
        Some(Value::Number(number)) => match number.as_i64() {
            Some(number) => format!("int {number}"),
            None => format!("double {}", number.as_f64().unwrap()),
        },
        Some(Value::Bool(truth)) => format!("bool {}", i32::from(*truth)),
        Some(_) => "other".into(),
    }
}

/// serde_json rounds some decimals to the neighbouring double, and knows a negative zero.
fn agree(expected: &str, answer: &str) -> bool {
    let double = |text: &str| text.split_once(' ').and_then(|(_, n)| n.parse::<f64>().ok());
    if let (true, Some(a), Some(b)) =
        (expected.starts_with("double"), double(expected), double(answer))
    {
        return (a - b).abs() <= a.abs() * 4.0 * f64::EPSILON
            && (answer.starts_with("double") || b == 0.0);
    }
    expected == answer
}

#[test]
fn c_reads_what_serde_json_reads_and_refuses_the_rest() {
    let mut random = Random(20070601);
    let mut texts: Vec<Vec<u8>> = (0..60_000).map(|_| random.text()).collect();
    texts.extend(SEEDS.map(|seed| seed.as_bytes().to_vec()));
    for depth in [126, 127, 128, 30_000] {
        for (open, close) in [("[", "]"), (r#"{"k":"#, "}")] {
            let text = format!("{}0{}", open.repeat(depth), close.repeat(depth));
            texts.push(text.into_bytes());
        }
    }
    // Every text cut short.
    texts.extend(SEEDS.iter().flat_map(|s| (0..s.len()).map(|n| s.as_bytes()[..n].to_vec())));

    let mut child = Command::new(compile::program("json_check"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input: Vec<u8> = texts
        .iter()
        .flat_map(|text| [&(text.len() as u32).to_le_bytes()[..], text].concat())
        .collect();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    let _ = writer.join().unwrap();
    let answers = String::from_utf8(output.stdout).unwrap();
    let answers: Vec<&str> = answers.lines().collect();
    if let Some(text) = texts.get(answers.len()) {
        panic!("json_check stopped ({}) at {:?}", output.status, String::from_utf8_lossy(text));
    }
    let mut kinds = std::collections::BTreeMap::<&str, u32>::new();
    for (text, answer) in texts.iter().zip(&answers) {
        let expected = expected(text);
        let shown = String::from_utf8_lossy(text);
        assert!(agree(&expected, answer), "{shown:?}: C says {answer}, serde_json {expected}");
        *kinds.entry(answer.split(' ').next().unwrap()).or_default() += 1;
    }
    // The inputs reach every answer often enough to mean something.
    for kind in ["invalid", "none", "string", "int", "double", "bool", "other"] {
        assert!(kinds.get(kind).is_some_and(|&n| n > 100), "{kind}: {kinds:?}");
    }
    assert!(output.status.success());
}
