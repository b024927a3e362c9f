//! What a written value means. What CTF 1.8 forbids and babeltrace2 reads all the same is read with a
//! warning.

use super::layout::Order;
use super::syntax::{Value, ValueKind};
use super::{ParseError, Warnings};

/// The largest alignment: far beyond any packet, and no sum with it overflows.
const MOST_ALIGN: u64 = 1 << 40;

/// The words for the base that numbers are printed in.
const BASES: [&str; 15] = [
    "decimal",
    "dec",
    "d",
    "i",
    "u",
    "hexadecimal",
    "hex",
    "x",
    "X",
    "p",
    "octal",
    "oct",
    "o",
    "binary",
    "b",
];

impl Value {
    pub fn number(&self) -> Result<i128, ParseError> {
        match self.kind {
            ValueKind::Number { negative, magnitude } => {
                Ok(if negative { -i128::from(magnitude) } else { magnitude.into() })
            }
            _ => Err(self.place.error("expected a number")),
        }
    }

    pub fn unsigned(&self) -> Result<u64, ParseError> {
        let number = self.number()?;
        u64::try_from(number).map_err(|_| self.place.error(format!("{number} is below zero")))
    }

    pub fn signed(&self) -> Result<i64, ParseError> {
        let number = self.number()?;
        let too_large = |_| self.place.error(format!("{number} has more than 64 bits"));
        i64::try_from(number).map_err(too_large)
    }

    /// A string, or a name without quotes.
    pub fn text(&self) -> Result<String, ParseError> {
        match &self.kind {
            ValueKind::Text(text) => Ok(text.clone()),
            ValueKind::Path(path) => Ok(path.join(".")),
            ValueKind::Number { .. } => Err(self.place.error("expected a string")),
        }
    }

    /// A string, in quotes.
    pub fn quoted(&self) -> Result<String, ParseError> {
        match &self.kind {
            ValueKind::Text(text) => Ok(text.clone()),
            _ => Err(self.place.error("expected a string in quotes")),
        }
    }

    /// A word that the language defines.
    fn word(&self, warnings: &mut Warnings) -> Result<String, ParseError> {
        if let ValueKind::Text(text) = &self.kind {
            warnings
                .push(self.place.error(format!("{text:?} is a string: write it without quotes")));
        }
        self.text()
    }

    pub fn truth(&self, warnings: &mut Warnings) -> Result<bool, ParseError> {
        if let ValueKind::Number { negative, magnitude } = self.kind {
            if negative || magnitude > 1 {
                let number = self.number()?;
                warnings
                    .push(self.place.error(format!("{number} is neither 0 nor 1: read as true")));
            }
            return Ok(magnitude != 0);
        }
        match self.word(warnings)?.as_str() {
            "true" | "TRUE" => Ok(true),
            "false" | "FALSE" => Ok(false),
            other => Err(self.place.error(format!("expected true or false, found {other:?}"))),
        }
    }

    /// Whether an encoding makes bytes a text.
    pub fn encoding(&self, warnings: &mut Warnings) -> Result<bool, ParseError> {
        let name = self.word(warnings)?;
        match name.as_str() {
            "none" => Ok(false),
            "UTF8" | "ASCII" => Ok(true),
            "utf8" | "UTF-8" | "utf-8" | "ascii" => {
                warnings.push(self.place.error(format!("{name:?}: write UTF8 or ASCII")));
                Ok(true)
            }
            other => Err(self
                .place
                .error(format!("unknown encoding {other:?}: write none, UTF8 or ASCII"))),
        }
    }

    /// Checks the base that an integer is printed in: tables have numbers, not their digits.
    pub fn check_base(&self, warnings: &mut Warnings) -> Result<(), ParseError> {
        let known = match self.kind {
            ValueKind::Number { negative, magnitude } => {
                !negative && [2, 8, 10, 16].contains(&magnitude)
            }
            _ => BASES.contains(&self.word(warnings)?.as_str()),
        };
        if known {
            return Ok(());
        }
        Err(self
            .place
            .error("unknown base: write 2, 8, 10 or 16, or binary, octal, decimal or hex"))
    }

    /// A byte order; `native` is the trace's own, which its block cannot refer to.
    pub fn order(
        &self,
        native: Option<Order>,
        warnings: &mut Warnings,
    ) -> Result<Order, ParseError> {
        match (self.word(warnings)?.as_str(), native) {
            ("le", _) => Ok(Order::Little),
            ("be", _) => Ok(Order::Big),
            ("network", Some(_)) => Ok(Order::Big),
            ("network", None) => {
                warnings.push(self.place.error("a trace's byte order is le or be: read as be"));
                Ok(Order::Big)
            }
            ("native", Some(native)) => Ok(native),
            (other, Some(_)) => Err(self
                .place
                .error(format!("unknown byte order {other:?}: write le, be, native or network"))),
            (other, None) => {
                Err(self.place.error(format!("unknown byte order {other:?}: write le or be")))
            }
        }
    }

    pub fn alignment(&self) -> Result<u64, ParseError> {
        let align = self.unsigned()?;
        if align.is_power_of_two() && align <= MOST_ALIGN {
            return Ok(align);
        }
        Err(self.place.error(format!(
            "an alignment of {align} bits: it must be a power of two, and at most {MOST_ALIGN}"
        )))
    }

    pub fn uuid(&self) -> Result<[u8; 16], ParseError> {
        let text = self.quoted()?;
        let bad = || {
            let remedy = "write 32 hexadecimal digits in groups of 8, 4, 4, 4 and 12";
            self.place.error(format!("{text:?} is not a UUID: {remedy}"))
        };
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        if digits.len() != 32 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(bad());
        }
        let mut uuid = [0; 16];
        for (i, byte) in uuid.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).map_err(|_| bad())?;
        }
        Ok(uuid)
    }
}
