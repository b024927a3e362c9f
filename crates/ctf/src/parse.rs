//! Reader of the metadata dialect that [`Metadata::to_tsdl`] writes. Anything else is refused with
//! its line: a trace is never half understood.

use std::collections::BTreeMap;

use loopscope_time::Frequency;

use crate::class::{EventClass, StreamClass};
use crate::describe::{ClassText, GroupText};
use crate::field::FieldType;
use crate::metadata::Metadata;

/// Why a metadata text was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("metadata line {line}: {what}")]
pub struct ParseError {
    /// From 1.
    pub line: usize,
    /// What is wrong there.
    pub what: String,
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Text(String),
    Symbol(char),
}

/// `key = value;` and `key := …;` entries of a block, with the line of each.
type Entries = BTreeMap<String, (usize, Vec<Token>)>;

struct Parser {
    tokens: Vec<(usize, Token)>,
    at: usize,
}

pub(crate) fn parse(text: &str) -> Result<Metadata, ParseError> {
    if !text.starts_with("/* CTF 1.8 */") {
        return Err(error(1, "does not begin with /* CTF 1.8 */"));
    }
    let mut parser = Parser { tokens: tokens(text)?, at: 0 };
    let mut trace = None;
    let mut env = Env::default();
    let mut clock = None;
    let mut streams: BTreeMap<u32, StreamClass> = BTreeMap::new();
    while let Some((line, token)) = parser.next() {
        match token {
            Token::Word(word) if word == "typealias" => parser.skip_statement(),
            Token::Word(word) => {
                let entries = parser.block(&word, line)?;
                match word.as_str() {
                    "trace" => {
                        let order = get(&entries, "byte_order", line)?;
                        if order != [Token::Word("le".into())] {
                            return Err(error(line, "only little-endian traces are loopscope's"));
                        }
                        trace = Some(get_uuid(&entries, line)?);
                    }
                    "env" => env = Env::new(&entries)?,
                    "clock" => {
                        let hz: u64 = get_number(&entries, "freq", line)?;
                        let frequency = Frequency::from_hz(hz)
                            .ok_or_else(|| error(line, "the clock's frequency is zero"))?;
                        clock = Some((get_uuid(&entries, line)?, frequency));
                    }
                    "stream" => {
                        let id = get_number(&entries, "id", line)?;
                        let process = env.processes.get(&id).cloned().ok_or_else(|| {
                            error(line, format!("env has no process_{id} for this stream"))
                        })?;
                        let class = StreamClass { id, process, events: Vec::new() };
                        if streams.insert(id, class).is_some() {
                            return Err(error(line, format!("a second stream class {id}")));
                        }
                    }
                    "event" => {
                        let stream_id: u32 = get_number(&entries, "stream_id", line)?;
                        let stream = streams.get_mut(&stream_id).ok_or_else(|| {
                            error(line, format!("event of the undeclared stream class {stream_id}"))
                        })?;
                        let mut class = event(&entries, line)?;
                        if let Some((line, text)) = env.classes.remove(&(stream_id, class.id)) {
                            text.apply(&mut class).map_err(|what| error(line, what))?;
                        }
                        check_fields(&class, line)?;
                        if stream.events.iter().any(|e| e.id == class.id) {
                            return Err(error(line, format!("a second event class {}", class.id)));
                        }
                        stream.events.push(class);
                    }
                    other => return Err(error(line, format!("unknown block {other:?}"))),
                }
            }
            other => return Err(error(line, format!("unexpected {other:?}"))),
        }
    }
    let end = text.lines().count();
    let uuid = trace.ok_or_else(|| error(end, "no trace block"))?;
    let host = env.host.ok_or_else(|| error(end, "env has no host"))?;
    if let Some(((stream, class), (line, _))) = env.classes.first_key_value() {
        return Err(error(*line, format!("stream class {stream} has no event class {class}")));
    }
    let (clock_uuid, frequency) = clock.ok_or_else(|| error(end, "no clock block"))?;
    Ok(Metadata { uuid, host, clock_uuid, frequency, streams, groups: env.groups })
}

/// What the `env` block says.
#[derive(Default)]
struct Env {
    host: Option<String>,
    processes: BTreeMap<u32, String>,
    groups: BTreeMap<String, String>,
    /// By stream class and event class, with the line of each.
    classes: BTreeMap<(u32, u16), (usize, ClassText)>,
}

impl Env {
    fn new(entries: &Entries) -> Result<Env, ParseError> {
        let mut env = Env::default();
        for (key, (line, value)) in entries {
            let line = *line;
            let value = one_text(line, value)?;
            if key == "host" {
                env.host = Some(value);
            } else if let Some(id) = key.strip_prefix("process_") {
                env.processes.insert(number(line, id)?, value);
            } else if key.starts_with("group_") {
                let text: GroupText = json(line, &value)?;
                let group = text.group.clone();
                if env.groups.insert(text.group, text.description).is_some() {
                    return Err(error(line, format!("group {group:?} is described twice")));
                }
            } else if let Some(ids) = key.strip_prefix("event_") {
                let (stream, class) = ids.split_once('_').unwrap_or((ids, ""));
                let ids = (number(line, stream)?, number(line, class)?);
                env.classes.insert(ids, (line, json(line, &value)?));
            }
        }
        Ok(env)
    }
}

/// Kinds with fields of their own must have exactly these.
fn check_fields(class: &EventClass, line: usize) -> Result<(), ParseError> {
    let own = class.kind.fields();
    let right = match own {
        Some(own) => {
            class.fields.iter().map(|(name, t)| (name.as_str(), *t)).eq(own.iter().copied())
        }
        None => class.fields.iter().all(|(_, t)| *t != FieldType::Buckets),
    };
    if right {
        return Ok(());
    }
    let (group, name, kind) = (&class.group, &class.name, class.kind.name());
    Err(error(line, format!("{group}:{name} has other fields than a class of kind {kind}")))
}

fn event(entries: &Entries, line: usize) -> Result<EventClass, ParseError> {
    let full = one_text(line, get(entries, "name", line)?)?;
    let (group, name) = full
        .split_once(':')
        .ok_or_else(|| error(line, format!("event name {full:?} is not group:name")))?;
    let (file, place) = match entries.get("model.emf.uri") {
        None => (String::new(), 0),
        Some((line, value)) => {
            let uri = one_text(*line, value)?;
            let place = uri.strip_prefix("file:").and_then(|rest| rest.rsplit_once(':'));
            let (file, place) =
                place.ok_or_else(|| error(*line, format!("{uri:?} is not file:PATH:LINE")))?;
            (file.to_owned(), number(*line, place)?)
        }
    };
    let (line, body) = entries.get("fields").ok_or_else(|| error(line, "event without fields"))?;
    let mut fields = fields(*line, body)?;
    if fields.first() != Some(&("id".to_owned(), FieldType::I64)) {
        return Err(error(*line, "the first field is not `int64_t _id`"));
    }
    fields.remove(0);
    Ok(EventClass {
        id: get_number(entries, "id", *line)?,
        group: group.to_owned(),
        name: name.to_owned(),
        fields,
        file,
        line: place,
        ..EventClass::default()
    })
}

/// `type _name;` and, where `_length` is the field before, `uint8_t _name[_length];` for bytes or
/// `uint16_t _bucket[_length]; uint64_t _n[_length];` for a histogram's buckets.
fn fields(line: usize, body: &[Token]) -> Result<Vec<(String, FieldType)>, ParseError> {
    let mut fields: Vec<(String, FieldType)> = Vec::new();
    let mut declarations = body
        .split_inclusive(|token| *token == Token::Symbol(';'))
        .map(|tokens| declaration(line, tokens));
    while let Some(declared) = declarations.next() {
        let (type_name, field, length) = declared?;
        let name = plain_name(field);
        let Some(length) = length else {
            let field_type = FieldType::from_tsdl(type_name)
                .filter(|t| *t != FieldType::Bytes)
                .ok_or_else(|| error(line, format!("unknown field type {type_name}")))?;
            fields.push((name.to_owned(), field_type));
            continue;
        };
        if fields.pop() != Some((plain_name(length).to_owned(), FieldType::U32)) {
            return Err(error(line, format!("{length} is not the uint32_t before {field}")));
        }
        match (type_name, field) {
            ("uint8_t", _) => fields.push((name.to_owned(), FieldType::Bytes)),
            ("uint16_t", "_bucket") => {
                if declarations.next().transpose()? != Some(("uint64_t", "_n", Some(length))) {
                    return Err(error(line, format!("no uint64_t _n[{length}] after _bucket")));
                }
                fields.push((plain_name(length).to_owned(), FieldType::Buckets));
            }
            _ => {
                return Err(error(line, format!("unknown sequence {type_name} {field}[{length}]")));
            }
        }
    }
    Ok(fields)
}

/// Type, name and length.
type Declaration<'a> = (&'a str, &'a str, Option<&'a str>);

fn declaration(line: usize, tokens: &[Token]) -> Result<Declaration<'_>, ParseError> {
    use Token::{Symbol, Word};
    match tokens {
        [Word(kind), Word(name), Symbol(';')] => Ok((kind, name, None)),
        [Word(kind), Word(name), Symbol('['), Word(length), Symbol(']'), Symbol(';')] => {
            Ok((kind, name, Some(length)))
        }
        _ => Err(error(line, "a field is not `type name;` or `type name[length];`")),
    }
}

/// Without the underscore that keeps it apart from TSDL's keywords.
fn plain_name(field: &str) -> &str {
    field.strip_prefix('_').unwrap_or(field)
}

impl Parser {
    fn next(&mut self) -> Option<(usize, Token)> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    fn skip_statement(&mut self) {
        let mut depth = 0;
        while let Some((_, token)) = self.next() {
            match token {
                Token::Symbol('{') => depth += 1,
                Token::Symbol('}') => depth -= 1,
                Token::Symbol(';') if depth == 0 => return,
                _ => {}
            }
        }
    }

    /// `{ key = value; key := struct { … }; };`
    fn block(&mut self, name: &str, line: usize) -> Result<Entries, ParseError> {
        let cut = || error(line, format!("the {name} block is cut off"));
        let (at, open) = self.next().ok_or_else(cut)?;
        if open != Token::Symbol('{') {
            return Err(error(at, format!("expected {{ after {name}")));
        }
        let mut entries = Entries::new();
        loop {
            let (at, token) = self.next().ok_or_else(cut)?;
            let key = match token {
                Token::Symbol('}') => break,
                Token::Word(key) => key,
                other => return Err(error(at, format!("unexpected {other:?} in {name}"))),
            };
            // A struct body's braces only group, so it reads as the flat list of its members.
            let mut value = Vec::new();
            let mut depth = 0;
            loop {
                let (_, token) = self.next().ok_or_else(cut)?;
                match &token {
                    Token::Symbol('{') => depth += 1,
                    Token::Symbol('}') => depth -= 1,
                    Token::Symbol(';') if depth == 0 => break,
                    Token::Symbol(':' | '=') if depth == 0 => {}
                    Token::Word(word) if depth == 0 && word == "struct" => {}
                    _ => value.push(token),
                }
            }
            if entries.insert(key.clone(), (at, value)).is_some() {
                return Err(error(at, format!("{key} is set twice in {name}")));
            }
        }
        match self.next() {
            Some((_, Token::Symbol(';'))) => Ok(entries),
            _ => Err(error(line, format!("no ; after the {name} block"))),
        }
    }
}

fn tokens(text: &str) -> Result<Vec<(usize, Token)>, ParseError> {
    let mut tokens = Vec::new();
    let mut line = 1;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' => line += 1,
            c if c.is_whitespace() => {}
            '/' if chars.peek() == Some(&'*') => {
                let mut last = ' ';
                loop {
                    let c = chars.next().ok_or_else(|| error(line, "unclosed comment"))?;
                    line += usize::from(c == '\n');
                    if last == '*' && c == '/' {
                        break;
                    }
                    last = c;
                }
            }
            '"' => {
                let mut value = String::new();
                loop {
                    match chars.next() {
                        Some('"') => break,
                        Some('\\') => match chars.next() {
                            Some('n') => value.push('\n'),
                            Some(c) => value.push(c),
                            None => return Err(error(line, "unclosed string")),
                        },
                        Some('\n') | None => return Err(error(line, "unclosed string")),
                        Some(c) => value.push(c),
                    }
                }
                tokens.push((line, Token::Text(value)));
            }
            '{' | '}' | ';' | '=' | ':' | '[' | ']' => tokens.push((line, Token::Symbol(c))),
            c if c.is_alphanumeric() || c == '_' => {
                let mut word = String::from(c);
                while let Some(&c) =
                    chars.peek().filter(|c| c.is_alphanumeric() || **c == '_' || **c == '.')
                {
                    word.push(c);
                    chars.next();
                }
                tokens.push((line, Token::Word(word)));
            }
            other => return Err(error(line, format!("unexpected character {other:?}"))),
        }
    }
    Ok(tokens)
}

fn error(line: usize, what: impl Into<String>) -> ParseError {
    ParseError { line, what: what.into() }
}

fn json<'a, T: serde::Deserialize<'a>>(line: usize, text: &'a str) -> Result<T, ParseError> {
    serde_json::from_str(text).map_err(|e| error(line, e.to_string()))
}

fn get<'a>(entries: &'a Entries, key: &str, line: usize) -> Result<&'a [Token], ParseError> {
    entries
        .get(key)
        .map(|(_, value)| value.as_slice())
        .ok_or_else(|| error(line, format!("{key} is missing")))
}

fn one_text(line: usize, value: &[Token]) -> Result<String, ParseError> {
    match value {
        [Token::Text(text)] => Ok(text.clone()),
        _ => Err(error(line, "expected a string")),
    }
}

fn number<N: std::str::FromStr>(line: usize, word: &str) -> Result<N, ParseError> {
    word.parse().map_err(|_| error(line, format!("{word:?} is not a number in range")))
}

fn get_number<N: std::str::FromStr>(
    entries: &Entries,
    key: &str,
    line: usize,
) -> Result<N, ParseError> {
    match get(entries, key, line)? {
        [Token::Word(word)] => number(line, word),
        _ => Err(error(line, format!("{key} is not a number"))),
    }
}

fn get_uuid(entries: &Entries, line: usize) -> Result<[u8; 16], ParseError> {
    let text = one_text(line, get(entries, "uuid", line)?)?;
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    let bad = || error(line, format!("{text:?} is not a UUID"));
    if digits.len() != 32 || !digits.is_ascii() {
        return Err(bad());
    }
    let mut uuid = [0; 16];
    for (i, byte) in uuid.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).map_err(|_| bad())?;
    }
    Ok(uuid)
}
