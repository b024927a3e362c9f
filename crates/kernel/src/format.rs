//! What a tracepoint's record holds, as tracefs describes it in `events/GROUP/NAME/format`
//! (Documentation/trace/events.rst).

use loopscope_ctf::FieldType;

/// A tracepoint's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFormat {
    /// Its name.
    pub name: String,
    /// The number by which records name it.
    pub id: u16,
    /// Its own fields, in the order of the text.
    pub fields: Vec<FormatField>,
    /// Where a record has the number of the thread that it was made in.
    pub thread: Position,
    /// Where a record has [`Self::id`].
    pub kind: Position,
    /// Where a record has the bits that tell what was interrupted when it was made.
    pub flags: Position,
}

/// A field of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormatField {
    /// Its name.
    pub name: String,
    /// Its type in C, without what makes it an array.
    pub c_type: String,
    /// What it holds.
    pub content: Content,
    /// Where.
    pub position: Position,
}

/// A range of a record's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// First byte.
    pub offset: usize,
    /// Number of bytes.
    pub size: usize,
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A number.
    Number(FieldType),
    /// Characters, with a NUL after the last where there is room.
    Characters,
    /// Characters elsewhere in the record: in the low half their offset, in the high half their
    /// number.
    CharactersAt,
    /// The same, but the offset is from the field's end.
    CharactersAfter,
    /// Anything else: its bytes as they are.
    Bytes,
}

/// A description that is not understood.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the format of {event} is not understood: {what}")]
pub struct FormatError {
    /// The tracepoint, as far as its name is known.
    pub event: String,
    /// What is wrong.
    pub what: String,
}

impl EventFormat {
    /// Reads the text of a `format` file.
    pub fn parse(text: &str) -> Result<EventFormat, FormatError> {
        let name = text.lines().find_map(|line| line.strip_prefix("name: ")).unwrap_or_default();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let wrong = |what: &str| FormatError { event: name.to_owned(), what: what.to_owned() };
        if name.is_empty() || !name.bytes().all(plain) {
            return Err(wrong("its name"));
        }
        let id = text.lines().find_map(|line| line.strip_prefix("ID: "));
        let id = id.and_then(|id| id.trim().parse().ok()).ok_or_else(|| wrong("it has no ID"))?;
        let (mut fields, mut thread, mut kind, mut flags) = (Vec::new(), None, None, None);
        for line in text.lines().filter_map(|line| line.trim_start().strip_prefix("field:")) {
            let field = field(line).ok_or_else(|| wrong(&format!("field {line:?}")))?;
            match field.name.as_str() {
                "common_pid" => thread = Some(field.position),
                "common_type" => kind = Some(field.position),
                "common_flags" => flags = Some(field.position),
                name if name.starts_with("common_") => {}
                _ => fields.push(field),
            }
        }
        let of_size = |position: Option<Position>, size, what: &str| {
            let right = position.filter(|position| position.size == size);
            right.ok_or_else(|| wrong(&format!("no {what} of {size} bytes")))
        };
        let thread = of_size(thread, 4, "common_pid")?;
        let kind = of_size(kind, 2, "common_type")?;
        let flags = of_size(flags, 1, "common_flags")?;
        Ok(EventFormat { name: name.to_owned(), id, fields, thread, kind, flags })
    }
}

/// A line such as `__data_loc char[] name; offset:12; size:4; signed:0;`.
fn field(line: &str) -> Option<FormatField> {
    let mut parts = line.split(';').map(str::trim);
    let declaration = parts.next()?;
    let mut numbers = [None; 3];
    for part in parts {
        let (key, value) = part.split_once(':').unwrap_or_default();
        match key {
            "offset" => numbers[0] = value.parse().ok(),
            "size" => numbers[1] = value.parse().ok(),
            "signed" => numbers[2] = value.parse().ok(),
            _ => {}
        }
    }
    let [Some(offset), Some(size), Some(signed)] = numbers else { return None };
    let (c_type, name) = declaration.rsplit_once([' ', '*'])?;
    let (name, is_array) = match name.split_once('[') {
        Some((name, _)) => (name, true),
        None => (name, false),
    };
    let c_type = c_type.trim();
    let content = match (c_type, is_array) {
        ("__data_loc char[]", false) if size == 4 => Content::CharactersAt,
        ("__rel_loc char[]", false) if size == 4 => Content::CharactersAfter,
        ("char", true) => Content::Characters,
        (_, true) => Content::Bytes,
        (c_type, false) if c_type.contains("_loc ") => Content::Bytes,
        _ => number(size, signed != 0).map_or(Content::Bytes, Content::Number),
    };
    let position = Position { offset, size };
    // A record is smaller than a page.
    let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let sane = offset < 1 << 16 && size < 1 << 16 && !name.is_empty() && plain;
    sane.then(|| FormatField {
        name: name.to_owned(),
        c_type: c_type.to_owned(),
        content,
        position,
    })
}

fn number(size: usize, signed: bool) -> Option<FieldType> {
    Some(match (size, signed) {
        (1, false) => FieldType::U8,
        (2, false) => FieldType::U16,
        (4, false) => FieldType::U32,
        (8, false) => FieldType::U64,
        (1, true) => FieldType::I8,
        (2, true) => FieldType::I16,
        (4, true) => FieldType::I32,
        (8, true) => FieldType::I64,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
        \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n";

    fn text(fields: &str) -> String {
        format!("name: some\nID: 372\nformat:\n{COMMON}{fields}\nprint fmt: \"field:%d\", REC->x\n")
    }

    #[test]
    fn each_kind_of_field_is_known() {
        let format = EventFormat::parse(&text(
            "\tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
             \tfield:long prev_state;\toffset:24;\tsize:8;\tsigned:1;\n\
             \tfield:void * skbaddr;\toffset:32;\tsize:8;\tsigned:0;\n\
             \tfield:__data_loc char[] name;\toffset:40;\tsize:4;\tsigned:0;\n\
             \tfield:__rel_loc char[] other;\toffset:44;\tsize:4;\tsigned:0;\n\
             \tfield:unsigned long args[6];\toffset:48;\tsize:48;\tsigned:0;\n\
             \tfield:enum skb_drop_reason reason;\toffset:96;\tsize:4;\tsigned:0;\n\
             \tfield:struct thing *p;\toffset:100;\tsize:8;\tsigned:0;\n\
             \tfield:__data_loc u8[] raw;\toffset:108;\tsize:4;\tsigned:0;\n",
        ))
        .unwrap();
        let found: Vec<_> = format.fields.iter().map(|f| (f.name.as_str(), f.content)).collect();
        let number = Content::Number;
        assert_eq!(
            found,
            [
                ("prev_comm", Content::Characters),
                ("prev_state", number(FieldType::I64)),
                ("skbaddr", number(FieldType::U64)),
                ("name", Content::CharactersAt),
                ("other", Content::CharactersAfter),
                ("args", Content::Bytes),
                ("reason", number(FieldType::U32)),
                ("p", number(FieldType::U64)),
                ("raw", Content::Bytes),
            ]
        );
        assert_eq!((format.name.as_str(), format.id), ("some", 372));
        assert_eq!(format.thread, Position { offset: 4, size: 4 });
        assert_eq!(format.fields[6].c_type, "enum skb_drop_reason");
    }

    #[test]
    fn what_is_not_understood_is_refused_with_its_place() {
        let wrong = |text: &str| EventFormat::parse(text).unwrap_err().to_string();
        assert!(wrong("").contains("its name"));
        assert!(wrong("name: some\n").contains("no ID"));
        assert!(wrong(&text("").replace("some", "so me")).contains("its name"));
        assert!(wrong(&text("\tfield:int x;\toffset:8;\n")).contains("of some"));
        assert!(wrong(&text("\tfield:int x;\toffset:8;\n")).contains("int x"));
        assert!(wrong(&text("").replace("common_pid", "common_who")).contains("common_pid"));
        let huge = "\tfield:int x;\toffset:99999;\tsize:4;\tsigned:1;\n";
        assert!(wrong(&text(huge)).contains("99999"));
    }
}
