//! Metadata text to tokens.

use super::{ParseError, Place};

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
}

/// All tokens with their places, [`Token::End`] among them.
pub(super) fn tokens(text: &[u8]) -> Result<Vec<(Place, Token)>, ParseError> {
    let mut lexer = Lexer { text, at: 0, place: Place { line: 1, column: 1 } };
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
                        return Err(begin.error("the comment has no end"));
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
        let mut bytes = Vec::new();
        loop {
            let place = self.place;
            match self.next().ok_or_else(cut)? {
                byte if byte == quote => break,
                b'\\' => bytes.push(self.escape(place)?),
                0 => return Err(place.error("a NUL character in a string")),
                byte => bytes.push(byte),
            }
        }
        Ok(Token::Text(String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// What stands after a backslash, as in C.
    fn escape(&mut self, place: Place) -> Result<u8, ParseError> {
        let byte = self.next().ok_or_else(|| place.error("the string has no end"))?;
        Ok(match byte {
            b'a' => 7,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 11,
            b'\\' | b'\'' | b'"' | b'?' => byte,
            b'0'..=b'7' => self.digits(u32::from(byte - b'0'), 2, 8, place)?,
            b'x' => {
                if !self.rest().first().is_some_and(u8::is_ascii_hexdigit) {
                    return Err(place.error("\\x without a hexadecimal digit"));
                }
                self.digits(0, 2, 16, place)?
            }
            other => {
                let shown = char::from(other).escape_default();
                return Err(place.error(format!("unknown escape sequence \\{shown}")));
            }
        })
    }

    fn digits(
        &mut self,
        mut value: u32,
        most: usize,
        radix: u32,
        place: Place,
    ) -> Result<u8, ParseError> {
        for _ in 0..most {
            let digit = self.rest().first().and_then(|byte| char::from(*byte).to_digit(radix));
            let Some(digit) = digit else { break };
            value = value * radix + digit;
            self.next();
        }
        u8::try_from(value).map_err(|_| place.error("an escape sequence above 255"))
    }
}

/// Decimal, octal or hexadecimal, with C's suffixes.
fn number(word: &str) -> Option<u64> {
    let lower = word.to_ascii_lowercase();
    let suffixes = ["ull", "llu", "ul", "lu", "ll", "u", "l"];
    let digits = suffixes.iter().find_map(|s| lower.strip_suffix(s)).unwrap_or(&lower);
    if let Some(hex) = digits.strip_prefix("0x") {
        u64::from_str_radix(hex, 16).ok()
    } else if digits.len() > 1 && digits.starts_with('0') {
        u64::from_str_radix(digits, 8).ok()
    } else {
        digits.parse().ok()
    }
}
