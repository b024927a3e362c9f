//! Metadata with very many members: each length and tag finds its field, whatever their number.

use std::fmt::Write as _;

use loopscope_ctf::tsdl::{Choice, Field, ListLength, Trace};

const FIELDS: usize = 20_000;
const LABELS: usize = 50_000;

fn read(body: &str) -> Trace {
    let text = format!(
        "/* CTF 1.8 */\n\
         typealias integer {{ size = 8; align = 8; signed = false; }} := u8;\n\
         typealias integer {{ size = 32; align = 8; signed = false; }} := u32;\n\
         trace {{ major = 1; minor = 8; byte_order = le; }};\n{body}"
    );
    Trace::read(text.as_bytes()).unwrap()
}

fn fields(trace: &Trace) -> &Field {
    trace.streams[0].events[0].payload.as_ref().unwrap()
}

/// Each list's length is the field of its number, and each has a slot of its own; of two paths into
/// structures each finds the member of its own one.
#[test]
fn each_of_many_lengths_finds_its_field() {
    let mut body = String::from("event { name = e; fields := struct {\n");
    for part in ["a", "b"] {
        body += "struct {";
        for i in 0..FIELDS / 4 {
            write!(body, "u8 n{i};").unwrap();
        }
        writeln!(body, "}} {part};").unwrap();
    }
    for i in 0..FIELDS / 4 {
        write!(body, "u8 n{i}; u8 l{i}[n{i}]; u8 a{i}[a.n{i}]; u8 b{i}[event.fields.b.n{i}];")
            .unwrap();
    }
    body += "}; };";
    let trace = read(&body);
    assert!(trace.warnings.is_empty(), "{:?}", trace.warnings);
    let slot = |field: &Field| match field {
        Field::Integer(integer) => integer.slot.unwrap(),
        Field::List(list) => match list.length {
            ListLength::Slot(slot) => slot,
            ListLength::Fixed(_) => panic!("{list:?}"),
        },
        other => panic!("{other:?}"),
    };
    let all = fields(&trace).members();
    let (a, b, rest) = (all[0].field.members(), all[1].field.members(), &all[2..]);
    for (i, four) in rest.chunks(4).enumerate() {
        let [length, own, of_a, of_b] = four else { panic!("{i}") };
        assert_eq!(slot(&own.field), slot(&length.field));
        assert_eq!(slot(&of_a.field), slot(&a[i].field));
        assert_eq!(slot(&of_b.field), slot(&b[i].field));
    }
    assert_eq!(trace.slots, 3 * (FIELDS / 4));
}

/// Each option is chosen by the values of its label, in their order, of several ranges too.
#[test]
fn each_of_many_options_finds_its_label() {
    let mut body = String::from("event { name = e; fields := struct { enum : u32 {");
    for i in 0..LABELS {
        write!(body, "o{i},").unwrap();
    }
    write!(body, "o7 = {LABELS} ... {}, unused }} tag; variant <tag> {{", LABELS + 9).unwrap();
    // Backwards: an option's number is not its label's.
    for i in (0..LABELS).rev() {
        write!(body, "u8 o{i};").unwrap();
    }
    body += "} value; }; };";
    let trace = read(&body);
    let Field::Variant(variant) = &fields(&trace).members()[1].field else { panic!() };
    let last = LABELS - 1;
    let choice = |label: usize| {
        let at = i128::try_from(label).unwrap();
        Choice { low: at, high: at, option: last - label }
    };
    let (first, high) = (i128::try_from(LABELS).unwrap(), i128::try_from(LABELS).unwrap() + 9);
    let mut expected: Vec<Choice> = (0..LABELS).rev().map(choice).collect();
    expected.insert(last - 7 + 1, Choice { low: first, high, option: last - 7 });
    assert_eq!(variant.choices, expected);
}
