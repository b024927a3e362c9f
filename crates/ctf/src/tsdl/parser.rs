//! Tokens to syntax.

use super::lexer::Token;
use super::syntax::{
    Declarator, Entry, Enumerator, Item, Length, Spec, SpecKind, Value, ValueKind,
};
use super::{DEPTH, ParseError, Place, Warnings};

pub(super) struct Parser<'a> {
    tokens: Vec<(Place, Token)>,
    at: usize,
    depth: usize,
    warnings: &'a mut Warnings,
}

/// Words that no field and no type can have as its name (CTF 1.8.3, C.1.2).
const RESERVED: [&str; 28] = [
    "align",
    "callsite",
    "const",
    "char",
    "clock",
    "double",
    "enum",
    "env",
    "event",
    "floating_point",
    "float",
    "integer",
    "int",
    "long",
    "short",
    "signed",
    "stream",
    "string",
    "struct",
    "trace",
    "typealias",
    "typedef",
    "unsigned",
    "variant",
    "void",
    "_Bool",
    "_Complex",
    "_Imaginary",
];

/// Keywords that begin a named type.
const TAGGED: [&str; 3] = ["struct", "variant", "enum"];

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
pub(super) fn parse(
    tokens: Vec<(Place, Token)>,
    warnings: &mut Warnings,
) -> Result<Vec<Item>, ParseError> {
    let mut parser = Parser { tokens, at: 0, depth: 0, warnings };
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
            _ => items.push(parser.item()?),
        }
    }
    Ok(items)
}

impl Parser<'_> {
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

    /// A name that the text gives to `what`.
    fn name(&mut self, what: &str) -> Result<String, ParseError> {
        let place = self.place();
        let name = self.word()?;
        check_name(place, &name, what)?;
        Ok(name)
    }

    /// `{ … }`
    fn body(&mut self) -> Result<Vec<Item>, ParseError> {
        self.deeper()?;
        self.expect("{")?;
        let mut items = Vec::new();
        while !self.accept("}") {
            items.push(self.item()?);
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
            let name = self.alias_name()?;
            let pointers = self.pointers();
            self.expect(";")?;
            return Ok(Item::Alias { place, spec, pointers, name });
        }
        if self.is_word("typedef") {
            self.next();
            let spec = self.spec()?;
            return self.typedef(spec);
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
        if self.is_word("typedef") {
            self.next();
            return self.typedef(spec);
        }
        if spec.kind.has_body() && TAGGED.iter().any(|word| self.is_word(word)) {
            let place = self.place();
            self.warnings.push(place.error("expected `;` before this: the type ends here"));
            return Ok(Item::Field { spec, declarators: Vec::new() });
        }
        let declarators = if self.is(";") { Vec::new() } else { self.declarators("a field")? };
        self.expect(";")?;
        Ok(Item::Field { spec, declarators })
    }

    /// After the type and the keyword.
    fn typedef(&mut self, spec: Spec) -> Result<Item, ParseError> {
        let declarators = self.declarators("a type")?;
        self.expect(";")?;
        Ok(Item::Typedef { spec, declarators })
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
        if self.accept("(") {
            self.deeper()?;
            let value = self.value()?;
            self.depth -= 1;
            self.expect(")")?;
            return Ok(value);
        }
        let negative = self.accept("-");
        let signed = negative || self.accept("+");
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

    /// Names of `what`, each with what is written around it.
    fn declarators(&mut self, what: &str) -> Result<Vec<Declarator>, ParseError> {
        let mut declarators = Vec::new();
        loop {
            let pointers = self.pointers();
            let place = self.place();
            let name = self.name(what)?;
            if self.is(":") {
                return Err(self.place().error(
                    "a bit field of C is not supported: write integer { size = BITS; align = 1; }",
                ));
            }
            let mut lengths = Vec::new();
            while self.accept("[") {
                let place = self.place();
                let value = self.value()?;
                let length = match value.kind {
                    ValueKind::Number { .. } => Length::Fixed(value.unsigned()?),
                    ValueKind::Path(path) => Length::Path(path),
                    ValueKind::Text(name) => {
                        let what = format!("{name:?} is a string: write it without quotes");
                        self.warnings.push(value.place.error(what));
                        Length::Path(vec![name])
                    }
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

    /// The name after `:=`: `u32`, `unsigned long`, `struct page`.
    fn alias_name(&mut self) -> Result<String, ParseError> {
        if TAGGED.iter().any(|word| self.is_word(word)) {
            return Ok(format!("{} {}", self.word()?, self.name("a type")?));
        }
        self.named()
    }

    /// The name of an alias, of one word or several.
    fn named(&mut self) -> Result<String, ParseError> {
        while self.is_word("const") {
            self.next();
        }
        let place = self.place();
        let mut name = self.word()?;
        if !TYPE_WORDS.contains(&name.as_str()) {
            check_name(place, &name, "a type")?;
            return Ok(name);
        }
        while matches!(self.peek(), Token::Word(word) if TYPE_WORDS.contains(&word.as_str())) {
            let word = self.word()?;
            if word != "const" {
                name = format!("{name} {word}");
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
                let name = self.optional_name()?;
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
                let name = self.optional_name()?;
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
                let name = self.optional_name()?;
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
        // The container goes with the body.
        let whole = match &kind {
            SpecKind::Struct { name: None, .. }
            | SpecKind::Variant { name: None, .. }
            | SpecKind::Enum { name: None, .. } => kind.has_body(),
            SpecKind::Enum { container: Some(_), .. } => kind.has_body(),
            _ => true,
        };
        if whole { Ok(Spec { place, kind }) } else { Err(self.unexpected("a name or `{`")) }
    }

    fn optional_name(&mut self) -> Result<Option<String>, ParseError> {
        if matches!(self.peek(), Token::Word(_)) { self.name("a type").map(Some) } else { Ok(None) }
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
        if self.is("}") {
            return Err(self.place().error("an enumeration without labels"));
        }
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

fn check_name(place: Place, name: &str, what: &str) -> Result<(), ParseError> {
    if !RESERVED.contains(&name) {
        return Ok(());
    }
    let remedy = match what {
        "a field" => format!("write _{name}, which readers show as {name}"),
        _ => "choose another one".to_owned(),
    };
    Err(place.error(format!("`{name}` is a reserved word, and no name of {what}: {remedy}")))
}
