//! Values of any types, in both byte orders, are what was written.

use loopscope_ctf::decode::{Columns, Cursor, Decoder};
use loopscope_ctf::tsdl::{Order, Trace};
use proptest::prelude::*;

/// A type. Numbers tell lengths and tags apart.
#[derive(Clone, Debug)]
enum Type {
    Integer { size: u32, align: u32, signed: bool, order: Option<Order> },
    Enumeration { size: u32 },
    Float { size: u32, align: u32, order: Option<Order> },
    String,
    Text(u64),
    Structure { align: u32, members: Vec<Type> },
    Variant { tag: usize, options: Vec<Type> },
    Array(u64, Box<Type>),
    Sequence { length: usize, element: Box<Type> },
}

/// What a decoder says and a writer knows.
#[derive(Clone, Debug, PartialEq)]
enum Said {
    Integer(u64),
    Float(f64),
    Text(Vec<u8>),
    Member(usize),
    End,
    Option(usize),
    List(u64),
}

#[derive(Debug, Default)]
struct Log(Vec<Said>);

impl Columns for Log {
    fn integer(&mut self, value: u64) {
        self.0.push(Said::Integer(value));
    }
    fn float(&mut self, value: f64) {
        self.0.push(Said::Float(value));
    }
    fn text(&mut self, bytes: &[u8]) {
        self.0.push(Said::Text(bytes.to_vec()));
    }
    fn member(&mut self, index: usize) -> &mut Self {
        self.0.push(Said::Member(index));
        self
    }
    fn end_structure(&mut self) {
        self.0.push(Said::End);
    }
    fn option(&mut self, index: usize) -> &mut Self {
        self.0.push(Said::Option(index));
        self
    }
    fn list(&mut self, count: u64) -> &mut Self {
        self.0.push(Said::List(count));
        self
    }
}

fn types() -> impl Strategy<Value = Type> {
    let order = || prop::option::of(prop_oneof![Just(Order::Little), Just(Order::Big)]);
    let align = || prop::sample::select(vec![8u32, 16, 32, 64]);
    // Integers that are not whole bytes have the trace's order: it may not change within a byte.
    let bits = (1u32..=64, prop::sample::select(vec![1u32, 2, 4, 8, 32]), any::<bool>())
        .prop_map(|(size, align, signed)| Type::Integer { size, align, signed, order: None });
    let bytes =
        (prop::sample::select(vec![8u32, 16, 24, 32, 48, 64]), align(), any::<bool>(), order())
            .prop_map(|(size, align, signed, order)| Type::Integer { size, align, signed, order });
    let float = (prop::sample::select(vec![32u32, 64]), align(), order())
        .prop_map(|(size, align, order)| Type::Float { size, align, order });
    let leaf = prop_oneof![
        bits,
        bytes,
        float,
        (3u32..=64).prop_map(|size| Type::Enumeration { size }),
        Just(Type::String),
        (0u64..6).prop_map(Type::Text),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            (prop::sample::select(vec![1u32, 8, 64]), prop::collection::vec(inner.clone(), 0..5))
                .prop_map(|(align, members)| Type::Structure { align, members }),
            prop::collection::vec(inner.clone(), 1..4)
                .prop_map(|options| Type::Variant { tag: 0, options }),
            (0u64..4, inner.clone()).prop_map(|(count, of)| Type::Array(count, Box::new(of))),
            inner.prop_map(|of| Type::Sequence { length: 0, element: Box::new(of) }),
        ]
    })
}

/// Gives every length and tag its number.
fn number(of: &mut Type, next: &mut usize) {
    match of {
        Type::Structure { members: inside, .. } => {
            inside.iter_mut().for_each(|inner| number(inner, next));
        }
        Type::Variant { tag, options } => {
            (*tag, *next) = (*next, *next + 1);
            options.iter_mut().for_each(|inner| number(inner, next));
        }
        Type::Array(_, inner) => number(inner, next),
        Type::Sequence { length, element } => {
            (*length, *next) = (*next, *next + 1);
            number(element, next);
        }
        _ => {}
    }
}

/// Lengths and tags that a member needs before it: number, and the options of a tag.
fn needed(of: &Type, found: &mut Vec<(usize, Option<usize>)>) {
    match of {
        Type::Variant { tag, options } => {
            found.push((*tag, Some(options.len())));
            options.iter().for_each(|inner| needed(inner, found));
        }
        Type::Array(_, inner) => needed(inner, found),
        Type::Sequence { length, element } => {
            found.push((*length, None));
            needed(element, found);
        }
        _ => {}
    }
}

/// The tag that means an option, and its label's range.
fn range(option: usize) -> (i64, i64) {
    let low = 10 * option as i64 - 15;
    (low, low + 3)
}

/// Specification and what follows the name.
fn tsdl(of: &Type) -> (String, String) {
    let order = |order: &Option<Order>| match order {
        None => "native",
        Some(Order::Little) => "le",
        Some(Order::Big) => "be",
    };
    let plain = |text: String| (text, String::new());
    match of {
        Type::Integer { size, align, signed, order: of } => plain(format!(
            "integer {{ size = {size}; align = {align}; signed = {signed}; byte_order = {}; }}",
            order(of)
        )),
        Type::Enumeration { size } => {
            plain(format!("enum : integer {{ size = {size}; align = 1; }} {{ a, b = 3 ... 0x5, }}"))
        }
        Type::Float { size, align, order: of } => {
            let (exponent, mantissa) = if *size == 32 { (8, 24) } else { (11, 53) };
            plain(format!(
                "floating_point {{ exp_dig = {exponent}; mant_dig = {mantissa}; align = {align}; \
                 byte_order = {}; }}",
                order(of)
            ))
        }
        Type::String => plain("string { encoding = UTF8; }".into()),
        Type::Text(count) => {
            ("integer { size = 8; encoding = ASCII; }".into(), format!("[{count}]"))
        }
        Type::Structure { align, members } => {
            let mut body = String::new();
            for (index, member) in members.iter().enumerate() {
                let mut before = Vec::new();
                needed(member, &mut before);
                for (number, options) in before {
                    let Some(options) = options else {
                        body += &format!("integer {{ size = 8; }} l{number}; ");
                        continue;
                    };
                    let labels: String = (0..options)
                        .map(|option| (option, range(option)))
                        .map(|(option, (low, high))| format!("o{option} = {low} ... {high},"))
                        .collect();
                    body += &format!(
                        "enum : integer {{ size = 8; signed = true; }} {{ {labels} }} l{number}; "
                    );
                }
                let (spec, after) = tsdl(member);
                body += &format!("{spec} m{index}{after}; ");
            }
            plain(format!("struct {{ {body} }} align({align})"))
        }
        Type::Variant { tag, options } => {
            let member = |(index, option): (usize, &Type)| {
                let (spec, after) = tsdl(option);
                format!("{spec} o{index}{after}; ")
            };
            let body: String = options.iter().enumerate().map(member).collect();
            plain(format!("variant <l{tag}> {{ {body} }}"))
        }
        Type::Array(count, inner) => {
            let (spec, after) = tsdl(inner);
            (spec, format!("[{count}]{after}"))
        }
        Type::Sequence { length, element } => {
            let (spec, after) = tsdl(element);
            (spec, format!("[l{length}]{after}"))
        }
    }
}

/// In bits, as the specification has it.
fn align_of(of: &Type) -> usize {
    match of {
        Type::Integer { align, .. } | Type::Float { align, .. } => *align as usize,
        Type::Enumeration { .. } | Type::Variant { .. } => 1,
        Type::String | Type::Text(_) => 8,
        Type::Structure { align, members } => {
            let mut most = *align as usize;
            for member in members {
                let mut before = Vec::new();
                needed(member, &mut before);
                most = most.max(align_of(member)).max(if before.is_empty() { 1 } else { 8 });
            }
            most
        }
        Type::Array(_, inner) => align_of(inner),
        Type::Sequence { element, .. } => align_of(element),
    }
}

struct Writer {
    order: Order,
    bytes: Vec<u8>,
    at: usize,
    random: u64,
    /// Lengths and tags by number.
    known: Vec<i64>,
    said: Vec<Said>,
}

impl Writer {
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.random ^ (self.random >> 31)
    }

    fn align(&mut self, bits: usize) {
        self.at = self.at.next_multiple_of(bits);
        self.bytes.resize(self.at.div_ceil(8), 0xAA);
    }

    /// Bit by bit: whole bytes in their order, other integers in the trace's.
    fn put(&mut self, value: u64, size: u32, order: Option<Order>) {
        let order = order.unwrap_or(self.order);
        for bit in 0..size {
            let big = order == Order::Big;
            let from = if big { size - 1 - bit } else { bit };
            let place = if big { 7 - self.at % 8 } else { self.at % 8 };
            self.bytes.resize(self.at / 8 + 1, 0);
            let byte = &mut self.bytes[self.at / 8];
            *byte = (*byte & !(1 << place)) | (((value >> from & 1) as u8) << place);
            self.at += 1;
        }
    }

    fn write(&mut self, of: &Type) {
        self.align(align_of(of));
        match of {
            Type::Integer { size, signed, order, .. } => {
                let spare = 64 - size;
                let value = (self.random() << spare >> spare) as i64;
                let value = if *signed { value << spare >> spare } else { value };
                self.put(value as u64, *size, *order);
                self.said.push(Said::Integer(value as u64));
            }
            Type::Enumeration { size } => {
                let value = self.random() % 8;
                self.put(value, *size, None);
                self.said.push(Said::Integer(value));
            }
            Type::Float { size, order, .. } => {
                let value = f64::from((self.random() as i32) as f32 / 7.0);
                let bits =
                    if *size == 32 { (value as f32).to_bits().into() } else { value.to_bits() };
                self.put(bits, *size, *order);
                self.said.push(Said::Float(value));
            }
            Type::String => {
                let text: Vec<u8> =
                    (0..self.random() % 5).map(|_| self.random() as u8 | 1).collect();
                for byte in text.iter().chain(&[0]) {
                    self.put((*byte).into(), 8, None);
                }
                self.said.push(Said::Text(text));
            }
            Type::Text(count) => {
                let mut text = Vec::new();
                for _ in 0..*count {
                    let byte = self.random() as u8 & 3;
                    self.put(byte.into(), 8, None);
                    text.push(byte);
                }
                let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
                self.said.push(Said::Text(text[..end].to_vec()));
            }
            Type::Structure { members, .. } => {
                let mut index = 0;
                for member in members {
                    let mut before = Vec::new();
                    needed(member, &mut before);
                    for (number, options) in before {
                        let value = match options {
                            None => (self.random() % 4) as i64,
                            Some(options) => {
                                let low = range((self.random() % options as u64) as usize).0;
                                low + (self.random() % 4) as i64
                            }
                        };
                        self.known[number] = value;
                        self.said.push(Said::Member(index));
                        self.align(8);
                        self.put(value as u64, 8, None);
                        self.said.push(Said::Integer(value as u64));
                        index += 1;
                    }
                    self.said.push(Said::Member(index));
                    self.write(member);
                    index += 1;
                }
                self.said.push(Said::End);
            }
            Type::Variant { tag, options } => {
                let option = (0..options.len())
                    .find(|option| {
                        (range(*option).0..=range(*option).1).contains(&self.known[*tag])
                    })
                    .unwrap();
                self.said.push(Said::Option(option));
                self.write(&options[option]);
            }
            Type::Array(count, inner) => self.list(*count, inner),
            Type::Sequence { length, element } => self.list(self.known[*length] as u64, element),
        }
    }

    fn list(&mut self, count: u64, element: &Type) {
        self.said.push(Said::List(count));
        for _ in 0..count {
            self.write(element);
        }
    }
}

fn trace(of: &Type, order: Order) -> String {
    let order = if order == Order::Big { "be" } else { "le" };
    format!(
        "/* CTF 1.8 */ trace {{ major = 1; minor = 8; byte_order = {order}; }};\n\
         event {{ name = e; fields := {}; }};",
        tsdl(of).0
    )
}

/// A decoder in a packet that is large enough for any list of elements without bits.
fn decoder(trace: &Trace) -> Decoder<'_> {
    let mut decoder = Decoder::new(trace);
    decoder.head(&[0], 1 << 20).unwrap();
    decoder
}

proptest! {
    #[test]
    fn any_value_comes_back(
        members in prop::collection::vec(types(), 1..6),
        big in any::<bool>(),
        random in any::<u64>(),
        begin in 0usize..4,
    ) {
        let mut of = Type::Structure { align: 1, members };
        let mut count = 0;
        number(&mut of, &mut count);
        let order = if big { Order::Big } else { Order::Little };
        let read = Trace::read(trace(&of, order).as_bytes()).unwrap();
        let mut writer = Writer {
            order,
            bytes: vec![0; 64],
            at: 64 * begin,
            random,
            known: vec![0; count],
            said: Vec::new(),
        };
        writer.bytes.truncate(8 * begin);
        writer.write(&of);
        let payload = read.streams[0].events[0].payload.as_ref().unwrap();
        let mut decoder = decoder(&read);
        let mut log = Log::default();
        let mut cursor = Cursor::new(&writer.bytes, 64 * begin as u64, writer.at as u64);
        decoder.field(payload, &mut cursor, &mut log).unwrap();
        prop_assert_eq!(&log.0, &writer.said);
        prop_assert_eq!(cursor.at(), writer.at as u64);

        // One bit less is one bit too few, wherever it is cut.
        if writer.at > 64 * begin {
            let end = writer.at as u64 - 1;
            let mut cursor = Cursor::new(&writer.bytes, 64 * begin as u64, end);
            prop_assert!(self::decoder(&read).field(payload, &mut cursor, &mut ()).is_err());
        }
    }

    /// Any text is a trace or an error, and so are any bytes as a packet of it.
    #[test]
    fn any_damage_to_a_text_is_an_error(
        members in prop::collection::vec(types(), 1..6),
        cut in any::<prop::sample::Index>(),
        flip in any::<prop::sample::Index>(),
        bits in 1u8..,
        packet in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut of = Type::Structure { align: 1, members };
        number(&mut of, &mut 0);
        let text = trace(&of, Order::Little).into_bytes();
        // Before the last brace there is no event yet.
        if let Ok(read) = Trace::read(&text[..cut.index(text.len() - 1)]) {
            prop_assert!(read.streams.is_empty());
        }
        let mut damaged = text;
        let at = flip.index(damaged.len());
        damaged[at] ^= bits;
        if let Ok(read) = Trace::read(&damaged)
            && let Some(payload) = read.streams.first().and_then(|s| s.events[0].payload.as_ref())
        {
            let mut decoder = Decoder::new(&read);
            if decoder.head(&packet, packet.len() as u64).is_ok() {
                let mut cursor = Cursor::new(&packet, 0, 8 * packet.len() as u64);
                let _ = decoder.field(payload, &mut cursor, &mut Log::default());
            }
        }
    }
}

/// Metadata in packets, of either byte order and with bytes between them, is the text in them.
#[test]
fn metadata_comes_in_packets() {
    let of = Type::Structure { align: 1, members: vec![Type::String, Type::Text(3)] };
    let text = trace(&of, Order::Big);
    let expected = Trace::read(text.as_bytes()).unwrap();
    for big in [false, true] {
        let word = |value: u32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
        let mut packets = Vec::new();
        for piece in text.as_bytes().chunks(50) {
            packets.extend(word(0x75D1_1D57));
            packets.extend([0; 20]);
            packets.extend(word(8 * (37 + piece.len() as u32)));
            packets.extend(word(8 * 100));
            packets.extend([0, 0, 0, 1, 8]);
            packets.extend(piece);
            packets.resize(packets.len().next_multiple_of(100), 0xEE);
        }
        assert_eq!(Trace::read(&packets), Ok(expected.clone()));
        let said = Trace::read(&packets[..150]).unwrap_err().to_string();
        assert!(
            said.contains("in the metadata packet at byte 100: its sizes do not fit"),
            "{said}"
        );
    }
}

#[test]
fn the_byte_order_changes_between_bytes_only() {
    let read = |sizes: [u32; 2]| {
        let [first, second] = sizes;
        let text = format!(
            "/* CTF 1.8 */ trace {{ major = 1; minor = 8; byte_order = le; }};\n\
             event {{ name = e; fields := struct {{ integer {{ size = {first}; align = 1; }} a; \
             integer {{ size = {second}; align = 1; byte_order = be; }} b; }}; }};"
        );
        let trace = Trace::read(text.as_bytes()).unwrap();
        let payload = trace.streams[0].events[0].payload.as_ref().unwrap();
        let mut log = Log::default();
        let mut cursor = Cursor::new(&[0x12, 0x34, 0x56], 0, 24);
        let read = Decoder::new(&trace).field(payload, &mut cursor, &mut log);
        read.map(|()| log.0[3].clone()).map_err(|fault| fault.to_string())
    };
    assert_eq!(read([8, 4]), Ok(Said::Integer(3)));
    assert_eq!(read([4, 4]), Err("b: the byte order changes within a byte".into()));
}
