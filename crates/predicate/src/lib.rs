//! Predicates on the hits of call sites: a parser and a compiler to reverse Polish notation.
//!
//! The recording core (`config.c` and `filter.c` of crates/trace) evaluates the notation. The crate
//! has no I/O. The collector compiles predicates with it; the Python package checks those of an
//! experiment file.
//!
//! Operators and their precedence are those of C, without assignments and shifts. Integers are
//! decimal or hexadecimal. A number with `ns`, `us`, `ms` or `s` (`duration > 1ms`) is a duration;
//! it is converted to ticks of the counter.
//!
//! ```
//! use loopscope_predicate::Predicate;
//! use loopscope_time::Frequency;
//!
//! let frequency = Frequency::from_hz(1_000_000_000).unwrap();
//! let predicate = Predicate::parse("id % 100 == 0 && size > 1000", frequency).unwrap();
//! assert!(predicate.rpn().ends_with("&&"));
//! let error = Predicate::parse("id = 3", frequency).unwrap_err();
//! assert_eq!(error.column, 4);
//! ```

use loopscope_time::Frequency;
use serde::{Deserialize, Serialize};

/// Most tokens of a predicate in reverse Polish notation.
pub const MOST_TOKENS: usize = 32;
/// Most values that are on its stack at once.
pub const DEEPEST: usize = 16;

/// Why a text is no predicate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("predicate {text:?}, column {column}: {what}")]
pub struct PredicateError {
    /// All of it.
    pub text: String,
    /// Where it is wrong, from 1.
    pub column: usize,
    /// What is wrong there.
    pub what: String,
}

/// A predicate on a hit's id and fields. Serialised it is compiled, bound to its counter's
/// frequency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Predicate {
    rpn: String,
}

impl Predicate {
    /// Reads what a person wrote; durations become ticks of a counter of this frequency.
    pub fn parse(text: &str, frequency: Frequency) -> Result<Predicate, PredicateError> {
        let mut parser =
            Parser { text, at: 0, frequency, tokens: Vec::new(), depth: 0, deepest: 0 };
        let read = parser.binary(0).and_then(|()| {
            parser.space();
            if parser.at < text.len() {
                let what = if parser.rest().starts_with('=') {
                    "`==` compares; a single `=` means nothing here"
                } else {
                    "an operator or the end is expected"
                };
                return Err(parser.wrong(what));
            }
            if parser.tokens.len() > MOST_TOKENS {
                let count = parser.tokens.len();
                return Err(parser.wrong(&format!(
                    "it has {count} operands and operators, at most {MOST_TOKENS} are allowed"
                )));
            }
            if parser.deepest > DEEPEST {
                return Err(parser.wrong(&format!(
                    "{} values are open at once, at most {DEEPEST} are allowed",
                    parser.deepest
                )));
            }
            Ok(())
        });
        read.map_err(|(at, what)| PredicateError {
            text: text.to_owned(),
            column: text[..at].chars().count() + 1,
            what,
        })?;
        Ok(Predicate { rpn: parser.tokens.join(" ") })
    }

    /// The predicate in the form of the `streams` file: tokens in reverse Polish notation,
    /// separated by spaces.
    pub fn rpn(&self) -> &str {
        &self.rpn
    }
}

/// Binary operators, those that bind least first.
const LEVELS: [&[&str]; 8] = [
    &["||"],
    &["&&"],
    &["|"],
    &["&"],
    &["==", "!="],
    &["<=", ">=", "<", ">"],
    &["+", "-"],
    &["*", "/", "%"],
];

/// Nested parentheses and signs that are read: more than a predicate within the limits has.
const MOST_NESTED: usize = 200;

type Wrong = (usize, String);

struct Parser<'a> {
    text: &'a str,
    at: usize,
    frequency: Frequency,
    tokens: Vec<String>,
    /// Values on the stack.
    depth: usize,
    deepest: usize,
}

impl<'a> Parser<'a> {
    fn wrong(&self, what: &str) -> Wrong {
        (self.at, what.to_owned())
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn value(&mut self, token: String) {
        self.tokens.push(token);
        self.depth += 1;
        self.deepest = self.deepest.max(self.depth);
    }

    fn operator(&mut self, token: &str, operands: usize) {
        self.tokens.push(token.to_owned());
        self.depth -= operands - 1;
    }

    /// The operator of a level that comes next.
    fn next_operator(&mut self, level: usize) -> Option<&'static str> {
        self.space();
        let rest = self.rest();
        let found = LEVELS[level].iter().find(|operator| rest.starts_with(**operator))?;
        // `|` and `&` are also the beginnings of `||` and `&&`.
        let doubled = matches!(*found, "|" | "&") && rest[1..].starts_with(*found);
        (!doubled).then_some(found)
    }

    fn binary(&mut self, level: usize) -> Result<(), Wrong> {
        if level == LEVELS.len() {
            return self.unary(0);
        }
        self.binary(level + 1)?;
        while let Some(operator) = self.next_operator(level) {
            self.at += operator.len();
            self.binary(level + 1)?;
            self.operator(operator, 2);
        }
        Ok(())
    }

    fn unary(&mut self, nested: usize) -> Result<(), Wrong> {
        self.space();
        if nested > MOST_NESTED || self.tokens.len() > 4 * MOST_TOKENS {
            return Err(self.wrong("this nests too deeply"));
        }
        let rest = self.rest();
        if rest.starts_with('!') {
            self.at += 1;
            self.unary(nested + 1)?;
            self.operator("!", 1);
            return Ok(());
        }
        if let Some(behind) = rest.strip_prefix('-') {
            self.at += 1;
            if behind.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
                return self.number(true);
            }
            self.value("i:0".to_owned());
            self.unary(nested + 1)?;
            self.operator("-", 2);
            return Ok(());
        }
        if rest.starts_with('(') {
            let open = self.at;
            self.at += 1;
            if self.text[..self.at].matches('(').count() > MOST_NESTED {
                return Err(self.wrong("this nests too deeply"));
            }
            self.binary(0)?;
            self.space();
            if !self.rest().starts_with(')') {
                let column = self.text[..open].chars().count() + 1;
                let what = format!("an operator or the `)` for column {column} is expected");
                return Err(self.wrong(&what));
            }
            self.at += 1;
            return Ok(());
        }
        if rest.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return self.number(false);
        }
        self.name()
    }

    fn name(&mut self) -> Result<(), Wrong> {
        let rest = self.rest();
        let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = rest.find(|c| !part(c)).unwrap_or(rest.len());
        if length == 0 {
            return Err(self.wrong("`id`, a field's name, a number, `!`, `-` or `(` is expected"));
        }
        let name = &rest[..length];
        let token = if name == "id" { name.to_owned() } else { format!("f:{name}") };
        self.at += length;
        self.value(token);
        Ok(())
    }

    fn number(&mut self, negative: bool) -> Result<(), Wrong> {
        let rest = self.rest();
        let hexadecimal = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X"));
        if let Some(digits) = hexadecimal {
            let length = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
            let Ok(magnitude) = u64::from_str_radix(&digits[..length], 16) else {
                return Err(self.wrong("a hexadecimal number of 64 bits is expected"));
            };
            self.no_name_after(2 + length)?;
            return self.integer(i128::from(magnitude), negative, 2 + length);
        }
        let digits = |from: usize| {
            let tail = &rest[from..];
            from + tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len())
        };
        let mut length = digits(0);
        let whole = length;
        if rest[length..].starts_with('.') {
            length = digits(length + 1);
        }
        if rest[length..].starts_with(['e', 'E']) {
            let sign = usize::from(rest[length + 1..].starts_with(['+', '-']));
            let end = digits(length + 1 + sign);
            if end > length + 1 + sign {
                length = end;
            }
        }
        let number = &rest[..length];
        let tail = &rest[length..];
        let units = [("ns", 1_000_000_000), ("us", 1_000_000), ("ms", 1000), ("s", 1)];
        let word = tail.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let word = &tail[..word.unwrap_or(tail.len())];
        let unit = units.into_iter().find(|(name, _)| *name == word);
        let hz = self.frequency.hz();
        match unit {
            Some((name, per_second)) => {
                let ticks = ticks(number, hz, per_second);
                let Some(ticks) = ticks else { return Err(self.wrong("a duration is expected")) };
                self.integer(ticks, negative, length + name.len())
            }
            None => {
                self.no_name_after(length)?;
                if length == whole {
                    let Ok(magnitude) = number.parse::<i128>() else {
                        return Err(self.wrong("an integer of 64 bits is expected"));
                    };
                    return self.integer(magnitude, negative, length);
                }
                let value = number.parse::<f64>().ok().filter(|value| value.is_finite());
                let Some(value) = value else { return Err(self.wrong("a number is expected")) };
                self.at += length;
                // Its bits: a program may have another decimal point.
                let value = if negative { -value } else { value };
                self.value(format!("d:{:016x}", value.to_bits()));
                Ok(())
            }
        }
    }

    /// A number must not run into a name.
    fn no_name_after(&mut self, length: usize) -> Result<(), Wrong> {
        let after = &self.rest()[length..];
        if after.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.') {
            self.at += length;
            return Err(self.wrong("`ns`, `us`, `ms`, `s` or an operator is expected"));
        }
        Ok(())
    }

    fn integer(&mut self, magnitude: i128, negative: bool, length: usize) -> Result<(), Wrong> {
        let value = if negative { -magnitude } else { magnitude };
        let Ok(value) = i64::try_from(value) else {
            return Err(self.wrong("an integer from -2^63 to 2^63 - 1 is expected"));
        };
        self.at += length;
        self.value(format!("i:{value}"));
        Ok(())
    }
}

/// A decimal number of a unit that goes `per_second` times into a second, in ticks, rounded.
fn ticks(number: &str, hz: u64, per_second: i128) -> Option<i128> {
    let hz = i128::from(hz);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let exact = number.bytes().all(|b| b.is_ascii_digit() || b == b'.') && fraction.len() <= 9;
    if exact && whole.len() <= 15 {
        let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
        let divisor = per_second * 10_i128.pow(fraction.len() as u32);
        return Some((digits * hz + divisor / 2) / divisor);
    }
    let ticks = number.parse::<f64>().ok()? * hz as f64 / per_second as f64;
    ticks.is_finite().then(|| ticks.round() as i128)
}
