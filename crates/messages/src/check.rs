//! Rows to types of messages, or everything that is wrong in them.

use std::collections::HashMap;
use std::net::SocketAddrV4;

use loopscope_quantity as quantity;

use crate::{
    Cell, Given, LARGEST, LARGEST_DATAGRAM, MOST_TYPES, MessageType, Problem, Row, SMALLEST,
    SMALLEST_DATAGRAM, Transport, problem,
};

pub(crate) const COLUMNS: [&str; 10] = [
    "name",
    "transport",
    "group",
    "port",
    "size",
    "datagram",
    "period",
    "target",
    "producers",
    "consumers",
];

const LONGEST_NS: u64 = 3_600_000_000_000;

pub(crate) fn types(rows: &[Row]) -> Result<Vec<MessageType>, Vec<Problem>> {
    let mut check = Check { problems: Vec::new() };
    if rows.is_empty() {
        check.report(1, 1, "the table has no rows");
    }
    if rows.len() > MOST_TYPES {
        check.report(1, 1, format!("the table has {} rows; at most {MOST_TYPES}", rows.len()));
    }
    let types: Vec<MessageType> = rows.iter().filter_map(|row| check.message_type(row)).collect();
    let mut names = HashMap::new();
    let mut groups = HashMap::new();
    for each in &types {
        check.once(&mut names, &each.name, each.line, "the name");
        if let Some(group) = each.group {
            check.once(&mut groups, &group.to_string(), each.line, "the group");
        }
    }
    if check.problems.is_empty() {
        return Ok(types);
    }
    check.problems.sort_by_key(|problem| (problem.line, problem.column));
    Err(check.problems)
}

pub(crate) fn unknown(column: &str) -> String {
    format!("there is no column `{column}`; there are {}", COLUMNS.join(", "))
}

struct Check {
    problems: Vec<Problem>,
}

impl Check {
    fn report(&mut self, line: usize, column: usize, message: impl Into<String>) {
        self.problems.push(problem(line, column, message));
    }

    fn once(&mut self, first: &mut HashMap<String, usize>, value: &str, line: usize, what: &str) {
        if let Some(before) = first.get(value) {
            self.report(
                line,
                1,
                format!("{what} `{value}` is given twice: first on line {before}"),
            );
        } else {
            first.insert(value.to_owned(), line);
        }
    }

    /// `None` where something was wrong, which is reported.
    fn message_type(&mut self, row: &Row) -> Option<MessageType> {
        let before = self.problems.len();
        for cell in &row.cells {
            if !COLUMNS.contains(&cell.key.as_str()) {
                self.report(cell.line, cell.column, unknown(&cell.key));
            }
        }
        let name = self.required(row, "name", |text| {
            if text.len() <= 64 {
                Ok(text.to_owned())
            } else {
                Err("it is too long: at most 64 bytes".into())
            }
        });
        let transport = self.required(row, "transport", transport);
        let size = self.required(row, "size", |text| {
            match quantity::size(text).map_err(|error| error.to_string())? {
                size if size < SMALLEST.into() => Err(format!(
                    "`{text}` is too small: a message has at least {SMALLEST} B, its number"
                )),
                size if size > LARGEST.into() => {
                    Err(format!("`{text}` is too large: at most {LARGEST} B"))
                }
                size => Ok(size as u32),
            }
        });
        let datagram = self.optional(row, "datagram", |text| {
            let limits = SMALLEST_DATAGRAM..=LARGEST_DATAGRAM;
            let size = quantity::size(text).map_err(|error| error.to_string())?;
            let fits = u32::try_from(size).ok().filter(|size| limits.contains(size));
            fits.ok_or_else(|| {
                format!("`{text}` is no size of a datagram: {SMALLEST_DATAGRAM} B to {LARGEST_DATAGRAM} B")
            })
        });
        let period = self.required(row, "period", duration);
        let target = self.optional(row, "target", duration);
        let group = self.optional(row, "group", group);
        let port = self.optional(row, "port", port);
        let producers = self.names(row, "producers");
        let consumers = self.names(row, "consumers");
        if let Some(both) = producers.iter().find(|name| consumers.contains(name)) {
            let message = format!("`{both}` is producer and consumer of one type");
            self.report(row.line, row.column, message);
        }
        match transport {
            Some(Transport::UdpMulticast) => {
                if cell(row, "group").is_none() {
                    let message = "`udp-multicast` needs a `group`, such as 239.77.2.1:7701";
                    self.report(row.line, row.column, message);
                }
                if let Some(cell) = cell(row, "port") {
                    let message = "the port of a group is a part of `group`; leave `port` empty";
                    self.report(cell.line, cell.column, message);
                }
            }
            Some(transport) => {
                if let Some(cell) = cell(row, "group") {
                    let message =
                        format!("only `udp-multicast` has a group, not `{}`", transport.name());
                    self.report(cell.line, cell.column, message);
                }
            }
            None => {}
        }
        if let (Some(cell), Some(transport)) = (cell(row, "datagram"), transport)
            && !transport.is_udp()
        {
            let message = format!("only UDP has datagrams, not `{}`", transport.name());
            self.report(cell.line, cell.column, message);
        }
        if self.problems.len() > before {
            return None;
        }
        Some(MessageType {
            name: name?,
            transport: transport?,
            group,
            port,
            size: size?,
            datagram,
            period_ns: period?,
            target_ns: target,
            producers,
            consumers,
            line: row.line,
        })
    }

    fn required<T>(
        &mut self,
        row: &Row,
        key: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        if cell(row, key).is_none() {
            self.report(row.line, row.column, format!("there is no `{key}`"));
        }
        self.optional(row, key, read)
    }

    fn optional<T>(
        &mut self,
        row: &Row,
        key: &str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let cell = cell(row, key)?;
        let read = match &cell.given {
            Given::Text(text) => read(text),
            Given::List(_) => Err("this should be a single value".into()),
        };
        match read {
            Ok(value) => Some(value),
            Err(message) => {
                self.report(cell.line, cell.column, format!("`{key}`: {message}"));
                None
            }
        }
    }

    fn names(&mut self, row: &Row, key: &str) -> Vec<String> {
        let Some(cell) = cell(row, key) else {
            self.report(row.line, row.column, format!("there are no `{key}`"));
            return Vec::new();
        };
        let names: Vec<String> = match &cell.given {
            Given::Text(text) => text.split_whitespace().map(str::to_owned).collect(),
            Given::List(names) => names.clone(),
        };
        if names.is_empty() {
            self.report(cell.line, cell.column, format!("there are no `{key}`"));
        }
        for (i, name) in names.iter().enumerate() {
            if names[..i].contains(name) {
                let message = format!("`{key}`: `{name}` is given twice");
                self.report(cell.line, cell.column, message);
            }
        }
        names
    }
}

/// A cell that is not empty.
fn cell<'a>(row: &'a Row, key: &str) -> Option<&'a Cell> {
    let filled = |cell: &&Cell| !matches!(&cell.given, Given::Text(text) if text.is_empty());
    row.cells.iter().filter(filled).find(|cell| cell.key == key)
}

fn transport(text: &str) -> Result<Transport, String> {
    let known = Transport::ALL.iter().find(|(name, _)| *name == text);
    known.map(|(_, transport)| *transport).ok_or_else(|| {
        let names = Transport::ALL.map(|(name, _)| name).join(", ");
        format!("there is no `{text}`; there are {names}")
    })
}

fn duration(text: &str) -> Result<u64, String> {
    let duration = quantity::duration(text).map_err(|error| error.to_string())?;
    match u64::try_from(duration.as_nanos()) {
        Ok(0) => Err(format!("`{text}` is too short")),
        Ok(ns) if ns <= LONGEST_NS => Ok(ns),
        _ => Err(format!("`{text}` is too long: at most 1h")),
    }
}

fn group(text: &str) -> Result<SocketAddrV4, String> {
    let group: SocketAddrV4 = text
        .parse()
        .map_err(|_| format!("`{text}` is no group and port, such as 239.77.2.1:7701"))?;
    // RFC 2365: the scope that no router carries beyond its administrator's domain.
    if group.ip().octets()[0] != 239 || group.port() == 0 {
        return Err(format!("`{text}` is not of 239.0.0.0/8 with a port, such as 239.77.2.1:7701"));
    }
    Ok(group)
}

fn port(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err(format!("`{text}` is no port: 1 to 65535")),
        Ok(port) => Ok(port),
    }
}
