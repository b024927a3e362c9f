//! Metadata text to tokens.

use super::{ParseError, Place, Warnings};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// An identifier or a keyword.
    Word(String),
    /// A string or character literal, unescaped.
    Text(String),
    /// An integer literal.
    Number(u64),
    /// Punctuation.
    Symbol(&'static str),
    /// After the last one.
    End,
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Token::Word(word) => write!(f, "`{word}`"),
            Token::Text(text) => write!(f, "{text:?}"),
            Token::Number(number) => write!(f, "{number}"),
            Token::Symbol(symbol) => write!(f, "`{symbol}`"),
            Token::End => f.write_str("the end of the metadata"),
        }
    }
}

/// Longer ones before those that they begin with.
const SYMBOLS: [&str; 20] = [
    "...", ":=", "->", "{", "}", "[", "]", "(", ")", "<", ">", ";", ":", "=", ",", ".", "*", "+",
    "-", "?",
];

struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    place: Place,
    warnings: &'a mut Warnings,
}

/// All tokens with their places, [`Token::End`] among them.
pub(super) fn tokens(
    text: &[u8],
    warnings: &mut Warnings,
) -> Result<Vec<(Place, Token)>, ParseError> {
    let mut lexer = Lexer { text, at: 0, place: Place { line: 1, column: 1 }, warnings };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blank()?;
        let place = lexer.place;
        let token = lexer.token()?;
        let last = token == Token::End;
        tokens.push((place, token));
        if last {
            return Ok(tokens);
        }
    }
}

impl Lexer<'_> {
    fn rest(&self) -> &[u8] {
        &self.text[self.at..]
    }

    fn next(&mut self) -> Option<u8> {
        let byte = *self.text.get(self.at)?;
        self.at += 1;
        if byte == b'\n' {
            self.place = Place { line: self.place.line + 1, column: 1 };
        } else if byte & 0xC0 != 0x80 {
            // Columns count characters: a byte that continues one is none.
            self.place.column += 1;
        }
        Some(byte)
    }

    fn skip(&mut self, bytes: usize) {
        for _ in 0..bytes {
            self.next();
        }
    }

    fn skip_blank(&mut self) -> Result<(), ParseError> {
        loop {
            let rest = self.rest();
            if rest.first().is_some_and(u8::is_ascii_whitespace) {
                self.next();
            } else if rest.starts_with(b"//") {
                while self.next().is_some_and(|byte| byte != b'\n') {}
            } else if rest.starts_with(b"/*") {
                let begin = self.place;
                self.skip(2);
                while !self.rest().starts_with(b"*/") {
                    if self.next().is_none() {
                        let what = "the comment has no end: the metadata may have been cut off";
                        self.warnings.push(begin.error(what));
                        break;
                    }
                }
                self.skip(2);
            } else {
                return Ok(());
            }
        }
    }

    fn token(&mut self) -> Result<Token, ParseError> {
        let rest = self.rest();
        let Some(&first) = rest.first() else { return Ok(Token::End) };
        let quoted = |byte: u8| byte == b'"' || byte == b'\'';
        if quoted(first) || (first == b'L' && rest.get(1).is_some_and(|next| quoted(*next))) {
            self.skip(usize::from(first == b'L'));
            return self.literal();
        }
        if first.is_ascii_alphanumeric() || first == b'_' {
            let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
            let size = rest.iter().take_while(is_part).count();
            let word = String::from_utf8_lossy(&rest[..size]).into_owned();
            let place = self.place;
            self.skip(size);
            if first.is_ascii_digit() {
                return number(&word).map(Token::Number).ok_or_else(|| {
                    place.error(format!("{word} is not an integer of at most 64 bits"))
                });
            }
            return Ok(Token::Word(word));
        }
        if let Some(symbol) = SYMBOLS.into_iter().find(|s| rest.starts_with(s.as_bytes())) {
            self.skip(symbol.len());
            return Ok(Token::Symbol(symbol));
        }
        let what = match first {
            b' '..=b'~' => format!("unexpected character {:?}", char::from(first)),
            _ => format!("unexpected byte 0x{first:02x}"),
        };
        Err(self.place.error(what))
    }

    fn literal(&mut self) -> Result<Token, ParseError> {
        let begin = self.place;
        let cut = || begin.error("the string has no end");
        let quote = self.next().ok_or_else(cut)?;
        let (mut bytes, mut broken) = (Vec::new(), false);
        loop {
            let place = self.place;
            match self.next().ok_or_else(cut)? {
                byte if byte == quote => break,
                b'\\' => self.escape(place, &mut bytes)?,
                0 => return Err(place.error("a NUL character in a string")),
                byte => {
                    if byte == b'\n' && !std::mem::replace(&mut broken, true) {
                        self.warnings.push(begin.error("a string over several lines: write \\n"));
                    }
                    bytes.push(byte);
                }
            }
        }
        Ok(Token::Text(String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// What stands after a backslash, as in C.
    fn escape(&mut self, place: Place, out: &mut Vec<u8>) -> Result<(), ParseError> {
        let byte = self.next().ok_or_else(|| place.error("the string has no end"))?;
        out.push(match byte {
            b'a' => 7,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            b'\\' | b'\'' | b'"' | b'?' => byte,
            b'0'..=b'7' => {
                let (value, _) = self.digits(u32::from(byte - b'0'), 2, 8);
                if value > 255 {
                    let what = format!("the escape sequence {value:#o} is above 255");
                    self.warnings.push(place.error(what));
                }
                value as u8
            }
            b'x' => match self.digits(0, 2, 16) {
                (_, 0) => return Err(place.error("\\x without a hexadecimal digit")),
                (value, _) => value as u8,
            },
            b'u' | b'U' => {
                let most = if byte == b'u' { 4 } else { 8 };
                let (value, count) = self.digits(0, most, 16);
                let character = char::from_u32(value).filter(|_| count == most);
                let character = character.ok_or_else(|| {
                    let name = char::from(byte);
                    place.error(format!("\\{name} without {most} digits of a character"))
                })?;
                out.extend(character.encode_utf8(&mut [0; 4]).bytes());
                return Ok(());
            }
            other => {
                let shown = char::from(other).escape_default();
                return Err(place.error(format!("unknown escape sequence \\{shown}")));
            }
        });
        Ok(())
    }

    /// Goes on with `value` by up to `most` digits; also how many there were.
    fn digits(&mut self, mut value: u32, most: usize, radix: u32) -> (u32, usize) {
        for count in 0..most {
            let digit = self.rest().first().and_then(|byte| char::from(*byte).to_digit(radix));
            let Some(digit) = digit else { return (value, count) };
            value = value * radix + digit;
            self.next();
        }
        (value, most)
    }
}

/// Decimal, octal or hexadecimal, with C's suffixes.
fn number(word: &str) -> Option<u64> {
    let digits = word.trim_end_matches(['u', 'U', 'l', 'L']);
    let suffix = &word[digits.len()..];
    let long = suffix.trim_matches(['u', 'U']);
    if suffix.len() - long.len() > 1 || !["", "l", "L", "ll", "LL"].contains(&long) {
        return None;
    }
    if let Some(hex) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        u64::from_str_radix(hex, 16).ok()
    } else if digits.len() > 1 && digits.starts_with('0') {
        u64::from_str_radix(digits, 8).ok()
    } else {
        digits.parse().ok()
    }
}
