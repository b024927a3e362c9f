//! Tokens to syntax.

use super::lexer::Token;
use super::syntax::{
    Declarator, Entry, Enumerator, Item, Length, Spec, SpecKind, Value, ValueKind,
};
use super::{DEPTH, ParseError, Place};

pub(super) struct Parser {
    tokens: Vec<(Place, Token)>,
    at: usize,
    depth: usize,
}

/// Words that types are made of when they stand together.
const TYPE_WORDS: [&str; 13] = [
    "const",
    "char",
    "double",
    "float",
    "int",
    "long",
    "short",
    "signed",
    "unsigned",
    "void",
    "_Bool",
    "_Complex",
    "_Imaginary",
];

/// Blocks of the top level.
const BLOCKS: [&str; 6] = ["trace", "env", "clock", "stream", "event", "callsite"];

/// The statements of the whole text.
pub(super) fn parse(tokens: Vec<(Place, Token)>) -> Result<Vec<Item>, ParseError> {
    let mut parser = Parser { tokens, at: 0, depth: 0 };
    let mut items = Vec::new();
    while parser.peek() != &Token::End {
        let place = parser.place();
        match parser.peek() {
            Token::Word(word) if BLOCKS.contains(&word.as_str()) => {
                let keyword = parser.word()?;
                let items_of = parser.body()?;
                parser.expect(";")?;
                items.push(Item::Block { place, keyword, items: items_of });
            }
            Token::Symbol(";") => parser.at += 1,
            _ => items.push(parser.item()?),
        }
    }
    Ok(items)
}

impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.at].1
    }

    fn peek_after(&self, count: usize) -> &Token {
        self.tokens.get(self.at + count).map_or(&Token::End, |(_, token)| token)
    }

    fn place(&self) -> Place {
        self.tokens[self.at].0
    }

    fn next(&mut self) -> Token {
        let token = self.tokens[self.at].1.clone();
        // The last token is the end, which stays.
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    fn is(&self, symbol: &str) -> bool {
        matches!(self.peek(), Token::Symbol(found) if *found == symbol)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Word(found) if found == word)
    }

    fn accept(&mut self, symbol: &str) -> bool {
        let found = self.is(symbol);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, symbol: &str) -> Result<(), ParseError> {
        if self.accept(symbol) { Ok(()) } else { Err(self.unexpected(&format!("`{symbol}`"))) }
    }

    fn unexpected(&self, wanted: &str) -> ParseError {
        self.place().error(format!("expected {wanted}, found {}", self.peek()))
    }

    fn word(&mut self) -> Result<String, ParseError> {
        match self.peek() {
            Token::Word(_) => match self.next() {
                Token::Word(word) => Ok(word),
                _ => unreachable!("it was a word"),
            },
            _ => Err(self.unexpected("a name")),
        }
    }

    /// `{ … }`
    fn body(&mut self) -> Result<Vec<Item>, ParseError> {
        self.deeper()?;
        self.expect("{")?;
        let mut items = Vec::new();
        while !self.accept("}") {
            if !self.accept(";") {
                items.push(self.item()?);
            }
        }
        self.depth -= 1;
        Ok(items)
    }

    fn deeper(&mut self) -> Result<(), ParseError> {
        self.depth += 1;
        if self.depth <= DEPTH {
            return Ok(());
        }
        Err(self.place().error(format!("more than {DEPTH} levels of blocks and types")))
    }

    fn item(&mut self) -> Result<Item, ParseError> {
        let place = self.place();
        if self.is_word("typealias") {
            self.next();
            let spec = self.spec()?;
            let pointers = self.pointers();
            if pointers > 0 {
                return Err(place.error("an alias of a pointer: alias the pointer's own type"));
            }
            self.expect(":=")?;
            let name = self.named()?;
            let pointers = self.pointers();
            self.expect(";")?;
            return Ok(Item::Alias { place, spec, pointers, name });
        }
        if self.is_word("typedef") {
            self.next();
            let spec = self.spec()?;
            let declarators = self.declarators()?;
            self.expect(";")?;
            return Ok(Item::Typedef { spec, declarators });
        }
        if let Some(length) = self.key_length() {
            let key = self.key(length);
            if self.accept(":=") {
                let spec = self.spec()?;
                self.expect(";")?;
                return Ok(Item::Assign { place, key, spec });
            }
            self.expect("=")?;
            let value = self.value()?;
            self.expect(";")?;
            return Ok(Item::Entry(Entry { place, key, value }));
        }
        let spec = self.spec()?;
        let declarators = if self.is(";") { Vec::new() } else { self.declarators()? };
        self.expect(";")?;
        Ok(Item::Field { spec, declarators })
    }

    /// Tokens of the key before `=` or `:=`, if such a statement is next.
    fn key_length(&self) -> Option<usize> {
        let mut length = 0;
        loop {
            if !matches!(self.peek_after(length), Token::Word(_) | Token::Text(_)) {
                return None;
            }
            match self.peek_after(length + 1) {
                Token::Symbol("=" | ":=") => return Some(length + 1),
                Token::Symbol("." | "->") => length += 2,
                _ => return None,
            }
        }
    }

    fn key(&mut self, length: usize) -> String {
        let mut key = String::new();
        for _ in 0..length {
            match self.next() {
                Token::Word(word) | Token::Text(word) => key.push_str(&word),
                _ => key.push('.'),
            }
        }
        key
    }

    fn value(&mut self) -> Result<Value, ParseError> {
        let place = self.place();
        let mut negative = false;
        while self.is("-") || self.is("+") {
            negative ^= self.next() == Token::Symbol("-");
        }
        let signed = self.place() != place;
        let kind = match self.peek() {
            Token::Number(magnitude) => {
                let magnitude = *magnitude;
                self.next();
                ValueKind::Number { negative, magnitude }
            }
            Token::Text(text) if !signed => {
                let text = text.clone();
                self.next();
                ValueKind::Text(text)
            }
            Token::Word(_) if !signed => ValueKind::Path(self.path()?),
            _ => return Err(self.unexpected("a value")),
        };
        Ok(Value { place, kind })
    }

    fn path(&mut self) -> Result<Vec<String>, ParseError> {
        let mut path = vec![self.word()?];
        while self.accept(".") || self.accept("->") {
            path.push(self.word()?);
        }
        Ok(path)
    }

    fn pointers(&mut self) -> usize {
        let mut count = 0;
        loop {
            if self.accept("*") {
                count += 1;
            } else if self.is_word("const") {
                self.next();
            } else {
                return count;
            }
        }
    }

    fn declarators(&mut self) -> Result<Vec<Declarator>, ParseError> {
        let mut declarators = Vec::new();
        loop {
            let pointers = self.pointers();
            let place = self.place();
            let name = self.word()?;
            let mut lengths = Vec::new();
            while self.accept("[") {
                let place = self.place();
                let length = match self.peek() {
                    Token::Number(count) => {
                        let count = *count;
                        self.next();
                        Length::Fixed(count)
                    }
                    _ => Length::Path(self.path()?),
                };
                self.expect("]")?;
                lengths.push((place, length));
            }
            declarators.push(Declarator { place, pointers, name, lengths });
            if !self.accept(",") {
                return Ok(declarators);
            }
        }
    }

    /// The name of an alias, of one word or several.
    fn named(&mut self) -> Result<String, ParseError> {
        let mut name = self.word()?;
        if name == "const" {
            name = self.word()?;
        }
        if TYPE_WORDS.contains(&name.as_str()) {
            while matches!(self.peek(), Token::Word(word) if TYPE_WORDS.contains(&word.as_str())) {
                let word = self.word()?;
                if word != "const" {
                    name = format!("{name} {word}");
                }
            }
        }
        Ok(name)
    }

    fn spec(&mut self) -> Result<Spec, ParseError> {
        let place = self.place();
        while self.is_word("const") {
            self.next();
        }
        let Token::Word(word) = self.peek() else { return Err(self.unexpected("a type")) };
        let kind = match word.as_str() {
            "integer" | "floating_point" | "string" => {
                let word = self.word()?;
                let entries = if self.is("{") { self.entries()? } else { Vec::new() };
                match word.as_str() {
                    "integer" => SpecKind::Integer(entries),
                    "string" => SpecKind::String(entries),
                    _ => SpecKind::Float(entries),
                }
            }
            "struct" => {
                self.next();
                let name = self.optional_word()?;
                let body = if self.is("{") { Some(self.body()?) } else { None };
                let mut align = None;
                if self.is_word("align") && self.peek_after(1) == &Token::Symbol("(") {
                    self.at += 2;
                    align = Some(self.value()?);
                    self.expect(")")?;
                }
                SpecKind::Struct { name, body, align }
            }
            "variant" => {
                self.next();
                let name = self.optional_word()?;
                let mut tag = None;
                if self.accept("<") {
                    tag = Some(self.path()?);
                    self.expect(">")?;
                }
                let body = if self.is("{") { Some(self.body()?) } else { None };
                SpecKind::Variant { name, tag, body }
            }
            "enum" => {
                self.next();
                let name = self.optional_word()?;
                let mut container = None;
                if self.accept(":") {
                    self.deeper()?;
                    container = Some(Box::new(self.spec()?));
                    self.depth -= 1;
                }
                let body = if self.accept("{") { Some(self.enumerators()?) } else { None };
                SpecKind::Enum { name, container, body }
            }
            _ => SpecKind::Named(self.named()?),
        };
        let empty = match &kind {
            SpecKind::Struct { name, body, .. } => name.is_none() && body.is_none(),
            SpecKind::Variant { name, body, .. } => name.is_none() && body.is_none(),
            SpecKind::Enum { name, body, .. } => name.is_none() && body.is_none(),
            _ => false,
        };
        if empty { Err(self.unexpected("a name or `{`")) } else { Ok(Spec { place, kind }) }
    }

    fn optional_word(&mut self) -> Result<Option<String>, ParseError> {
        if matches!(self.peek(), Token::Word(_)) { self.word().map(Some) } else { Ok(None) }
    }

    /// `{ key = value; … }` of a type.
    fn entries(&mut self) -> Result<Vec<Entry>, ParseError> {
        let items = self.body()?;
        items
            .into_iter()
            .map(|item| match item {
                Item::Entry(entry) => Ok(entry),
                other => Err(other.place().error("expected `key = value;`")),
            })
            .collect()
    }

    /// After the opening brace.
    fn enumerators(&mut self) -> Result<Vec<Enumerator>, ParseError> {
        let mut found = Vec::new();
        while !self.accept("}") {
            let place = self.place();
            let label = match self.next() {
                Token::Word(label) | Token::Text(label) => label,
                _ => {
                    self.at -= 1;
                    return Err(self.unexpected("a label"));
                }
            };
            let mut range = None;
            if self.accept("=") {
                let low = self.value()?;
                let high = if self.accept("...") { self.value()? } else { low.clone() };
                range = Some((low, high));
            }
            found.push(Enumerator { place, label, range });
            if !self.accept(",") {
                self.expect("}")?;
                break;
            }
        }
        Ok(found)
    }
}

impl Item {
    pub(super) fn place(&self) -> Place {
        match self {
            Item::Alias { place, .. } | Item::Assign { place, .. } | Item::Block { place, .. } => {
                *place
            }
            Item::Typedef { spec, .. } | Item::Field { spec, .. } => spec.place,
            Item::Entry(entry) => entry.place,
        }
    }
}
