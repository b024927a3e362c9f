//! A trace with something of everything that can be damaged, in either byte order.

#![allow(dead_code, reason = "each test program uses its part")]

use std::fs;
use std::path::Path;

use loopscope_timeline::{ImportError, ImportSummary, import};

pub fn metadata(order: &str) -> String {
    format!(
        r#"/* CTF 1.8 */
typealias integer {{ size = 8; align = 8; signed = false; }} := uint8_t;
typealias integer {{ size = 32; align = 8; signed = false; }} := uint32_t;
typealias integer {{ size = 5; align = 1; signed = false; }} := uint5_t;
trace {{
    major = 1; minor = 8; byte_order = {order};
    packet.header := struct {{ uint32_t magic; uint8_t uuid[16]; uint32_t stream_id; }};
    uuid = "30313233-3435-3637-3839-616263646566";
}};
env {{ domain = "test"; }};
clock {{ name = c; freq = 1000000; offset_s = 5; }};
typealias integer {{ size = 64; align = 8; signed = false; map = clock.c.value; }} := stamp_t;
typealias integer {{ size = 27; align = 1; signed = false; map = clock.c.value; }} := low_t;
stream {{
    id = 0;
    packet.context := struct {{
        stamp_t timestamp_begin; stamp_t timestamp_end; uint32_t content_size;
        uint32_t packet_size; uint32_t packet_seq_num; uint32_t events_discarded; uint32_t cpu_id;
    }};
    event.header := struct {{
        enum : uint5_t {{ compact = 0 ... 30, extended = 31 }} id;
        variant <id> {{
            struct {{ low_t timestamp; }} compact;
            struct {{ uint32_t id; stamp_t timestamp; }} extended;
        }} v;
    }} align(8);
}};
event {{
    name = "all"; id = 0; stream_id = 0;
    fields := struct {{
        uint8_t _count;
        uint32_t _values[_count];
        struct {{ uint8_t n; uint8_t x[n]; }} _rows[_count];
        enum : uint8_t {{ text, number, none }} _tag;
        variant <_tag> {{ string text; uint32_t number; struct {{ }} none; }} _choice;
        string _name;
        integer {{ size = 8; align = 8; signed = true; encoding = UTF8; }} _word[4];
        floating_point {{ exp_dig = 8; mant_dig = 24; align = 32; }} _real;
    }};
}};
event {{ name = "little:one"; id = 40; stream_id = 0; fields := struct {{ uint5_t _a; uint5_t _b; }}; }};
"#
    )
}

/// Writes bits in a byte order.
struct Writer {
    big: bool,
    bytes: Vec<u8>,
    at: usize,
}

impl Writer {
    fn align(&mut self, bits: usize) {
        self.at = self.at.next_multiple_of(bits);
        self.bytes.resize(self.at.div_ceil(8), 0);
    }

    fn put(&mut self, value: u64, bits: usize) {
        for bit in 0..bits {
            let from = if self.big { bits - 1 - bit } else { bit };
            let place = if self.big { 7 - self.at % 8 } else { self.at % 8 };
            self.bytes.resize(self.at / 8 + 1, 0);
            self.bytes[self.at / 8] |= ((value >> from & 1) as u8) << place;
            self.at += 1;
        }
    }

    /// A whole value of whole bytes, aligned to a byte.
    fn word(&mut self, value: u64, bits: usize) {
        self.align(8);
        let raw = value.to_le_bytes();
        for index in 0..bits / 8 {
            let byte = raw[if self.big { bits / 8 - 1 - index } else { index }];
            self.put(byte.into(), 8);
        }
    }

    fn text(&mut self, text: &[u8]) {
        self.align(8);
        for byte in text {
            self.word((*byte).into(), 8);
        }
    }
}

pub const BEGIN: u64 = (1 << 40) - 5;

/// A packet with two events.
pub fn packet(big: bool, sequence: u64) -> Vec<u8> {
    let mut out = Writer { big, bytes: Vec::new(), at: 0 };
    out.word(0xC1FC_1FC1, 32);
    out.text(b"0123456789abcdef");
    out.word(0, 32);
    // The first packet's stamp of 27 bits wraps.
    let begin = BEGIN + 1000 * sequence;
    for (value, bits) in [(begin, 64), (begin + 999, 64), (0, 32), (0, 32)] {
        out.word(value, bits);
    }
    for value in [sequence, 7 * sequence, 3] {
        out.word(value, 32);
    }
    out.put(0, 5);
    out.put((begin + 10) & 0x7FF_FFFF, 27);
    out.word(2, 8);
    for value in [11, 12] {
        out.word(value, 32);
    }
    for row in [&[1, 2, 3][..], &[]] {
        out.word(row.len() as u64, 8);
        out.text(row);
    }
    out.word(sequence % 3, 8);
    match sequence % 3 {
        0 => out.text(b"chosen\0"),
        1 => out.word(77, 32),
        _ => {}
    }
    out.text(if sequence == 0 { b"" } else { b"name" });
    out.text(b"\0wd\0\0");
    out.align(32);
    out.word(1.5f32.to_bits().into(), 32);
    out.align(8);
    out.put(31, 5);
    out.word(40, 32);
    out.word(begin + 20, 64);
    out.put(9, 5);
    out.put(21, 5);
    let content = out.at;
    out.align(8);
    out.word(0, 8);
    let size = out.at;
    for (at, value) in [(40, content), (44, size)] {
        let mut word = Writer { big, bytes: Vec::new(), at: 0 };
        word.word(value as u64, 32);
        out.bytes[at..at + 4].copy_from_slice(&word.bytes);
    }
    out.bytes
}

pub fn write(dir: &Path, metadata: &[u8], stream: &[u8]) {
    fs::create_dir_all(dir).unwrap();
    fs::write(dir.join("metadata"), metadata).unwrap();
    fs::write(dir.join("stream"), stream).unwrap();
}

pub fn stream(big: bool) -> Vec<u8> {
    [0, 1, 2, 5].map(|sequence| packet(big, sequence)).concat()
}

pub fn read(dir: &Path, out: Option<&Path>) -> Result<ImportSummary, ImportError> {
    import(dir, out, &mut |_, _| true)
}

/// Every byte changed in three ways, and all cut at every byte.
pub fn damaged(whole: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let flips = (0..whole.len()).flat_map(|at| {
        [0x01, 0x80, 0xFF].map(|bits| {
            let mut bytes = whole.to_vec();
            bytes[at] ^= bits;
            bytes
        })
    });
    flips.chain((0..whole.len()).map(|at| whole[..at].to_vec()))
}
