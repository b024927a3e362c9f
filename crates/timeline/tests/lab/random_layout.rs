//! Random metadata, streams, and damage to them. Drawn from a seed.

/// Numbers from a seed (SplitMix64).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// From 0 up to, and without, `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn chance(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len() as u64) as usize]
    }
}

const NUMBERS: [&str; 18] = [
    "0",
    "1",
    "2",
    "3",
    "7",
    "8",
    "16",
    "27",
    "31",
    "32",
    "64",
    "65",
    "255",
    "1000",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "-1",
];

const WORDS: [&str; 30] = [
    "struct",
    "variant",
    "enum",
    "integer",
    "string",
    "floating_point",
    "typedef",
    "typealias",
    "trace",
    "stream",
    "event",
    "clock",
    "env",
    "size",
    "align",
    "signed",
    "true",
    "map",
    "fields",
    "context",
    "packet.context",
    "event.header",
    "timestamp",
    "id",
    "a0",
    "t0",
    "n0",
    "uint8_t",
    "t1",
    "const",
];

const SYMBOLS: [&str; 16] =
    ["{", "}", "[", "]", "(", ")", "<", ">", ";", ":", ":=", "=", ",", "...", ".", "*"];

/// Metadata that is mostly right.
pub fn random_metadata(random: &mut Random) -> String {
    let mut text = String::from("/* CTF 1.8 */\n");
    for (size, name) in [(8, "uint8_t"), (16, "uint16_t"), (32, "uint32_t"), (64, "uint64_t")] {
        text += &format!("typealias integer {{ size = {size}; align = 8; }} := {name};\n");
    }
    let order = random.pick(&["le", "be"]);
    let clocks = if random.chance(8) { 2 } else { random.below(2) };
    for clock in 0..clocks {
        let frequency =
            random.pick(&["1", "3", "1000", "1000000000", "2500000000", "18446744073709551615"]);
        let offset = random.pick(&["0", "-1", "5", "9223372036854775807", "-9223372036854775807"]);
        let seconds = random.pick(&["0", "-7", "1700000000", "9223372036", "-9223372036"]);
        text += &format!(
            "clock {{ name = c{clock}; freq = {frequency}; offset = {offset}; \
             offset_s = {seconds}; }};\n"
        );
    }
    // Types that use each other.
    let mut types = Types { random, made: 0, clocks, deep: 0 };
    for _ in 0..types.random.below(4) {
        let spec = types.spec();
        let number = types.made;
        types.made += 1;
        text += &format!("typedef {spec} t{number};\n");
    }
    if types.random.chance(32) {
        // Each of two of the one before.
        text += "struct d0 { uint8_t a; };\n";
        let levels = types.random.below(20);
        for level in 1..=levels {
            text += &format!("struct d{level} {{ struct d{} a, b; }};\n", level - 1);
        }
        text += &format!("typedef struct d{levels} t{};\n", types.made);
        types.made += 1;
    }
    let header = types.head(&["magic", "uuid", "stream_id", "stream_instance_id"]);
    let header =
        if types.random.chance(2) { format!("packet.header := {header};") } else { String::new() };
    text += &format!("trace {{ major = 1; minor = 8; byte_order = {order}; {header} }};\n");
    let streams = if types.random.chance(4) { 2 } else { types.random.below(2) };
    for id in 0..streams {
        text += &format!("stream {{ id = {id}; ");
        if types.random.chance(2) {
            let context = types.head(&[
                "packet_size",
                "content_size",
                "timestamp_begin",
                "timestamp_end",
                "events_discarded",
                "packet_seq_num",
                "cpu_id",
            ]);
            text += &format!("packet.context := {context}; ");
        }
        if types.random.chance(2) {
            text += &format!("event.header := {}; ", types.head(&["id", "timestamp"]));
        }
        if types.random.chance(4) {
            text += &format!("event.context := {}; ", types.structure());
        }
        text += "};\n";
    }
    let events = if types.random.chance(3) { 3 } else { 1 };
    for id in 0..events {
        let stream = match streams {
            0 => String::new(),
            _ => format!("stream_id = {};", types.random.below(streams)),
        };
        let name =
            types.random.pick(&["e", "\"a:b\"", "\"x y\"", "\"../..\"", "\"\"", "\".\"", "µ"]);
        let name = if name == "µ" { "\"µ/\\0\"" } else { name };
        text += &format!("event {{ name = {name}; id = {id}; {stream} ");
        if types.random.chance(4) {
            text += &format!("context := {}; ", types.structure());
        }
        text += &format!("fields := {}; }};\n", types.structure());
    }
    text
}

struct Types<'a> {
    random: &'a mut Random,
    /// Names `t0` and so on.
    made: u64,
    clocks: u64,
    deep: u32,
}

impl Types<'_> {
    fn integer(&mut self) -> String {
        if self.random.chance(3) {
            return self.random.pick(&["uint8_t", "uint16_t", "uint32_t", "uint64_t"]).to_owned();
        }
        let size = 1 + self.random.below(64);
        let mut text = format!("integer {{ size = {size}; ");
        if self.random.chance(3) {
            text += &format!("align = {}; ", 1 << self.random.below(8));
        }
        if self.random.chance(3) {
            text += "signed = true; ";
        }
        if self.random.chance(4) {
            text += &format!("byte_order = {}; ", self.random.pick(&["le", "be", "network"]));
        }
        if self.random.chance(8) {
            text += "encoding = UTF8; ";
        }
        if self.clocks > 0 && self.random.chance(4) {
            text += &format!("map = clock.c{}.value; ", self.random.below(self.clocks));
        }
        text + "}"
    }

    fn spec(&mut self) -> String {
        self.deep += 1;
        let kinds = if self.deep > 4 { 5 } else { 9 };
        let spec = match self.random.below(kinds) {
            0 | 1 => self.integer(),
            2 => "string".to_owned(),
            3 if self.random.chance(2) => "floating_point { exp_dig = 11; mant_dig = 53; }".into(),
            3 => "floating_point { exp_dig = 8; mant_dig = 24; align = 1; }".into(),
            4 if self.made > 0 => format!("t{}", self.random.below(self.made)),
            4 | 5 => self.enumeration(),
            _ => self.structure(),
        };
        self.deep -= 1;
        spec
    }

    fn enumeration(&mut self) -> String {
        let container = self.integer();
        format!("enum : {container} {{ A, B = 3 ... 200, C, }}")
    }

    /// With lengths and tags of its own.
    fn structure(&mut self) -> String {
        let mut text = String::from("struct { ");
        for number in 0..self.random.below(5) {
            match self.random.below(6) {
                0 => {
                    let length =
                        self.random.pick(&["0", "1", "3", "16", "1000", "4611686018427387904"]);
                    text += &format!("{} a{number}[{length}]; ", self.spec());
                }
                1 => {
                    let length = self.random.pick(&["uint8_t", "uint32_t", "uint64_t"]);
                    text += &format!("{length} n{number}; {} a{number}[n{number}]; ", self.spec());
                }
                2 => {
                    let (tag, a, b) = (self.enumeration(), self.spec(), self.spec());
                    text += &format!(
                        "{tag} v{number}; variant <v{number}> {{ {a} A; {b} B; struct {{ }} C; }} \
                         o{number}; "
                    );
                }
                _ => text += &format!("{} a{number}; ", self.spec()),
            }
        }
        text += "}";
        if self.random.chance(8) {
            text += &format!(" align({})", 1 << self.random.below(10));
        }
        text
    }

    /// A header of some fields with a meaning and others without.
    fn head(&mut self, names: &[&str]) -> String {
        let mut text = String::from("struct { ");
        for name in names {
            if self.random.chance(3) {
                continue;
            }
            let odd = self.random.chance(64);
            match *name {
                _ if odd => text += &format!("{} {name}; ", self.spec()),
                "uuid" => text += "uint8_t uuid[16]; ",
                "magic" => text += "uint32_t magic; ",
                _ if self.random.chance(2) => text += &format!("uint8_t {name}; "),
                _ => text += &format!("uint32_t {name}; "),
            }
        }
        if self.random.chance(8) {
            text += &format!("{} other; ", self.spec());
        }
        text + "}"
    }
}

/// Bytes with many small numbers.
pub fn random_stream(random: &mut Random) -> Vec<u8> {
    let size = match random.below(4) {
        0 => random.below(16),
        1 => random.below(200),
        _ => random.below(5000),
    };
    let small = 1 + random.below(12);
    let mut bytes: Vec<u8> = (0..size)
        .map(|_| match random.below(8) {
            0 => random.next() as u8,
            1 => 0xFF,
            _ => random.below(small) as u8,
        })
        .collect();
    if random.chance(2) && bytes.len() >= 4 {
        bytes[..4].copy_from_slice(&0xC1FC_1FC1u32.to_le_bytes());
    }
    bytes
}

/// With bytes changed, cut out, doubled or cut off.
pub fn spoiled_bytes(random: &mut Random, mut bytes: Vec<u8>) -> Vec<u8> {
    for _ in 0..1 + random.below(4) {
        if bytes.is_empty() {
            return bytes;
        }
        let at = random.below(bytes.len() as u64) as usize;
        let end = (at + random.below(64) as usize).min(bytes.len());
        match random.below(6) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            3 => bytes[at] = random.pick(&[&0, &1, &0x7F, &0x80, &0xFF]).to_owned(),
            _ => bytes[at] ^= 1 << random.below(8),
        }
    }
    bytes
}

/// With tokens changed, left out, doubled, put elsewhere, or repeated very often.
pub fn spoiled_text(random: &mut Random, text: &str) -> String {
    let mut tokens = tokens(text);
    for _ in 0..1 + random.below(4) {
        let at = random.below(tokens.len() as u64) as usize;
        let other = random.below(tokens.len() as u64) as usize;
        match random.below(9) {
            0 => drop(tokens.remove(at)),
            1 => tokens.swap(at, other),
            2 => {
                let token = tokens[other].clone();
                tokens.insert(at, token);
            }
            3 => tokens.insert(at, random.pick(&SYMBOLS).to_owned()),
            4 => tokens.insert(at, random.pick(&WORDS).to_owned()),
            5 => {
                let piece = tokens[at..(at + 40).min(tokens.len())].to_vec();
                tokens.splice(other..other, piece);
            }
            6 if random.chance(8) => {
                let many = random.below(3000) as usize;
                tokens[at] = tokens[at].repeat(many);
            }
            _ => {
                // A number for a number, a word for a word.
                let first = tokens[at].bytes().next().unwrap_or(b' ');
                tokens[at] = match first {
                    b'0'..=b'9' => random.pick(&NUMBERS).to_owned(),
                    b'a'..=b'z' | b'A'..=b'Z' | b'_' => random.pick(&WORDS).to_owned(),
                    b' ' | b'\n' => random.pick(&["/*", "//", " ", "\0", "\"", "\\"]).to_owned(),
                    _ => random.pick(&SYMBOLS).to_owned(),
                };
            }
        }
        if tokens.is_empty() {
            break;
        }
    }
    tokens.concat()
}

/// Words, numbers and single other characters.
fn tokens(text: &str) -> Vec<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found: Vec<String> = Vec::new();
    for c in text.chars() {
        match found.last_mut() {
            Some(last) if is_word(c) && last.ends_with(is_word) => last.push(c),
            _ => found.push(c.into()),
        }
    }
    found
}
