//! Right tables in both forms, and what is said about wrong ones.

use loopscope_messages::{MessageType, Transport, read};

const CSV: &str = "\
# sizes with kB = 1000 B
name, transport, group, port, size, period, target, producers, consumers
slow, tcp, , , 0.5kB, 200ms, 100ms, p1, c1
fast, tcp-nodelay, , 7000, 10B, 1.5ms, , p1 p2, c1 c2

all, udp-multicast, 239.77.0.1:7701, , 4kB, 80ms, 40ms, p2, c1 c2
";

const YAML: &str = "\
# sizes with kB = 1000 B
- {name: slow, transport: tcp, size: 0.5kB, period: 200ms, target: 100ms, producers: [p1], consumers: c1}
- {name: fast, transport: tcp-nodelay, port: 7000, size: 10B, period: 1.5ms, producers: [p1, p2],
   consumers: [c1, c2]}
- name: all
  transport: udp-multicast
  group: 239.77.0.1:7701
  size: 4kB
  period: 80ms
  target: 40ms
  producers: p2
  consumers: [c1, c2]
";

fn without_lines(types: Vec<MessageType>) -> Vec<MessageType> {
    types.into_iter().map(|each| MessageType { line: 0, ..each }).collect()
}

#[test]
fn both_forms_say_the_same() {
    let types = read(CSV, "a.csv").unwrap();
    assert_eq!(types.iter().map(|each| each.line).collect::<Vec<_>>(), [3, 4, 6]);
    let [slow, fast, all] = &types[..] else { panic!("{types:?}") };
    assert_eq!((slow.size, slow.period_ns, slow.target_ns), (500, 200_000_000, Some(100_000_000)));
    assert_eq!((fast.size, fast.period_ns, fast.target_ns), (10, 1_500_000, None));
    assert_eq!((fast.transport, fast.port), (Transport::TcpNodelay, Some(7000)));
    assert_eq!(fast.producers, ["p1", "p2"]);
    assert_eq!(all.group, Some("239.77.0.1:7701".parse().unwrap()));
    let yaml = read(YAML, "a.yaml").unwrap();
    assert_eq!(yaml.iter().map(|each| each.line).collect::<Vec<_>>(), [2, 3, 5]);
    assert_eq!(without_lines(yaml), without_lines(types));
}

/// One row of a CSV with `cells` in the places of a right one's.
fn row(cells: &[(usize, &str)]) -> String {
    let mut right = ["a", "tcp", "", "", "100B", "10ms", "10ms", "p", "c", ""];
    for (i, text) in cells {
        right[*i] = text;
    }
    format!(
        "name,transport,group,port,size,period,target,producers,consumers,datagram\n{}\n",
        right.join(",")
    )
}

#[test]
fn every_mistake_is_told_with_its_line() {
    for (text, said) in [
        (
            row(&[(1, "tpc")]),
            "2:1: `transport`: there is no `tpc`; there are tcp, tcp-nodelay, udp",
        ),
        (row(&[(4, "100")]), "2:1: `size`: `100` is not a size: it has no unit"),
        (row(&[(5, "10")]), "2:1: `period`: `10` is not a duration: it has no unit"),
        (row(&[(5, "0ms")]), "2:1: `period`: `0ms` is too short"),
        (row(&[(5, "2h")]), "too long: at most 1h"),
        (row(&[(6, "10")]), "2:1: `target`: `10` is not a duration"),
        (row(&[(4, "7B")]), "`7B` is too small: a message has at least 8 B"),
        (row(&[(1, "udp"), (4, "17MiB")]), "too large: at most 16777216 B"),
        (row(&[(4, "17MiB")]), "too large: at most 16777216 B"),
        (row(&[(1, "udp-multicast")]), "2:1: `udp-multicast` needs a `group`"),
        (row(&[(1, "udp-multicast"), (2, "10.0.0.1:5")]), "not of 239.0.0.0/8"),
        (row(&[(1, "udp-multicast"), (2, "239.0.0.1")]), "is no group and port"),
        (row(&[(1, "udp-multicast"), (2, "239.0.0.1:5"), (3, "5")]), "leave `port` empty"),
        (row(&[(2, "239.0.0.1:5")]), "only `udp-multicast` has a group, not `tcp`"),
        (row(&[(3, "70000")]), "`port`: `70000` is no port"),
        (row(&[(9, "1kB")]), "2:1: only UDP has datagrams, not `tcp`"),
        (row(&[(1, "udp"), (9, "63B")]), "`63B` is no size of a datagram: 64 B to 65507 B"),
        (row(&[(1, "udp"), (9, "65508B")]), "`65508B` is no size of a datagram"),
        (row(&[(1, "udp"), (9, "1")]), "`datagram`: `1` is not a size: it has no unit"),
        (row(&[(7, "")]), "there are no `producers`"),
        (row(&[(8, "c c")]), "`consumers`: `c` is given twice"),
        (row(&[(8, "c p")]), "`p` is producer and consumer of one type"),
        (row(&[(0, "")]), "there is no `name`"),
        (row(&[(8, "c,d")]), "2:1: this line has 11 cells, the first line 10 names"),
        ("name,speed\na,b\n".into(), "1:1: there is no column `speed`"),
        ("name,name\na,b\n".into(), "1:1: the column `name` is given twice"),
        ("name\n".into(), "the table has no rows"),
    ] {
        let found = read(&text, "x.csv").unwrap_err();
        assert!(found.iter().any(|each| each.to_string().contains(said)), "{said}: {found:?}");
    }
    for (text, said) in [
        ("a: b", "1:1: a message table is a list of mappings"),
        ("- 3", "1:3: a row of a message table is a mapping"),
        ("- {name: a, name: b}", "not valid YAML: "),
        ("- {name: [a, b]}", "1:10: `name`: this should be a single value"),
        ("- {name: {a: b}}", "1:10: this should be a single value"),
        ("- {", "not valid YAML"),
        ("- name: a\n  transport: tcp\n  speed: 3\n", "3:10: there is no column `speed`"),
    ] {
        let found = read(text, "x.yml").unwrap_err();
        assert!(found.iter().any(|each| each.to_string().contains(said)), "{said}: {found:?}");
    }
}

#[test]
fn every_mistake_is_told_at_once_and_names_are_unique() {
    let text = "\
name,transport,group,size,period,producers,consumers
a,tcp,,10B,10ms,p,c
a,tpc,,10B,10,p,c
b,udp-multicast,239.1.1.1:5,10B,10ms,p,c
a,udp-multicast,239.1.1.1:5,10B,10ms,p,c
";
    let said: Vec<String> =
        read(text, "x.csv").unwrap_err().iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 4, "{said:?}");
    assert!(said[0].starts_with("3:1: `transport`") && said[1].starts_with("3:1: `period`"));
    assert_eq!(said[2], "5:1: the name `a` is given twice: first on line 2");
    assert_eq!(said[3], "5:1: the group `239.1.1.1:5` is given twice: first on line 4");
}
