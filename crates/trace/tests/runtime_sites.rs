//! Call sites made at run time refuse what the core would.

use loopscope_trace::{FieldType, Kind, Refused, RuntimeSite, Value};

fn refusal(group: &str, name: &str, kind: Kind<'_>) -> Option<Refused> {
    RuntimeSite::new(group, name, kind, "file.rs", 1).err()
}

#[test]
fn refusals() {
    for name in ["", "a b", "a:b", "a,b", "a\"b", "a\\b", "a\tb", "ä", "a\0b"] {
        assert_eq!(refusal(name, "n", Kind::CounterAdd), Some(Refused::Name), "{name:?}");
        assert_eq!(refusal("g", name, Kind::CounterAdd), Some(Refused::Name), "{name:?}");
        let fields = [("good", FieldType::U8), (name, FieldType::U8)];
        assert_eq!(refusal("g", "n", Kind::Event(&fields)), Some(Refused::Name), "{name:?}");
    }
    let fields = [("f", FieldType::U8); 9];
    assert_eq!(refusal("g", "n", Kind::FlowOut(&fields)), Some(Refused::Fields));
    assert_eq!(refusal("g", "n", Kind::FlowOut(&fields[..8])), None);
    let range = |low, high, buckets| Kind::HistogramRange { low, high, buckets };
    for kind in [range(1, 1, 1), range(0, 5, 6), range(0, 5, 0), range(i64::MIN, 0, 1)] {
        assert_eq!(refusal("g", "n", kind), Some(Refused::Range), "{kind:?}");
    }
    assert_eq!(refusal("g", "n", range(-5, 5, 10)), None);
    let describe = Kind::Describe { unit: "ns", description: "a\0b" };
    assert_eq!(refusal("g", "n", describe), Some(Refused::Nul));
    assert_eq!(refusal("g", "*", Kind::Describe { unit: "%", description: "ä\n" }), None);
    let file = RuntimeSite::new("g", "n", Kind::CounterAdd, "a\0b", 1).err();
    assert_eq!(file, Some(Refused::Nul));
}

/// Where nobody records, a hit is nothing, but one of another kind is a mistake in the program.
#[test]
#[should_panic = "another kind"]
fn other_kind() {
    let site = RuntimeSite::new("g", "n", Kind::CounterAdd, "file.rs", 1).unwrap();
    site.add(1);
    site.record(1, &[Value::U8(1)]);
}
