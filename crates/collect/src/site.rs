//! A process's call sites: the lines of its `sites` file, and the event classes that they become.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use loopscope_ctf::{Buckets, EventClass, FieldType, Kind};
use loopscope_trace::layout::{LOG_BUCKETS, MOST_CELLS};

/// A call site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    pub(crate) index: u16,
    pub(crate) kind: SiteKind,
    pub(crate) group: String,
    pub(crate) name: String,
    /// The text in the file; its meaning depends on the kind.
    pub(crate) fields: String,
    pub(crate) file: String,
    pub(crate) line: u32,
    /// Where an entity's state is kept.
    pub(crate) cells: Option<Cells>,
}

/// What a call site does: `enum loopscope_kind` in include/loopscope/trace.h, which explains them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names say it")]
pub enum SiteKind {
    Event = 1,
    IntervalStart,
    IntervalEnd,
    CounterAdd,
    CounterLog,
    CounterReset,
    HistogramAdd,
    HistogramLog,
    HistogramReset,
    FlowOut,
    FlowIn,
    FlowLink,
    HistogramRange,
    Describe,
}

/// Cells of an entity's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cells {
    Counter { first: usize },
    Histogram { first: usize, buckets: usize, range: Option<(i64, i64)> },
}

const KINDS: [(&str, SiteKind); 14] = [
    ("event", SiteKind::Event),
    ("interval-start", SiteKind::IntervalStart),
    ("interval-end", SiteKind::IntervalEnd),
    ("counter-add", SiteKind::CounterAdd),
    ("counter-log", SiteKind::CounterLog),
    ("counter-reset", SiteKind::CounterReset),
    ("histogram-add", SiteKind::HistogramAdd),
    ("histogram-log", SiteKind::HistogramLog),
    ("histogram-reset", SiteKind::HistogramReset),
    ("flow-out", SiteKind::FlowOut),
    ("flow-in", SiteKind::FlowIn),
    ("flow-link", SiteKind::FlowLink),
    ("histogram-range", SiteKind::HistogramRange),
    ("describe", SiteKind::Describe),
];

impl SiteKind {
    /// The kind that has this number in call sites; `None` if there is none.
    pub(crate) fn from_number(number: u32) -> Option<SiteKind> {
        KINDS.into_iter().map(|(_, kind)| kind).find(|kind| *kind as u32 == number)
    }

    /// The name in the `sites` file: `interval-end`.
    pub fn name(self) -> &'static str {
        KINDS[self as usize - 1].0
    }
}

/// Bytes of a line, its end aside, and buckets of a histogram: no program writes more (sites.c).
pub(crate) const LONGEST_LINE: usize = 8208;
const BUCKETS: RangeInclusive<usize> = 1..=60_000;
const MOST_FIELDS: usize = 8;

/// True for a name that sites.c accepts: names go into text formats with tabs and quotes, and are
/// split at the colon.
fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_graphic() && !":\"\\,".contains(c);
    !text.is_empty() && text.chars().all(fits)
}

impl Site {
    /// Reads a line: index, kind, group, name, fields, file, line, cell. A line that the library
    /// would not write is refused, because any program may have written it.
    pub(crate) fn parse(text: &str) -> Option<Site> {
        let columns: Vec<&str> = text.split('\t').collect();
        let [index, kind, group, name, fields, file, line, cell] = columns[..] else { return None };
        let kind = KINDS.into_iter().find(|(word, _)| *word == kind)?.1;
        let is_group = kind == SiteKind::Describe && name == "*";
        let is_text = |text: &str| text.chars().all(|c| c >= ' ' || c == '\x1f');
        if text.len() > LONGEST_LINE
            || !(is_name(group) && (is_name(name) || is_group))
            || !(is_text(fields) && is_text(file))
        {
            return None;
        }
        let site = Site {
            index: index.parse().ok()?,
            kind,
            group: group.to_owned(),
            name: name.to_owned(),
            fields: fields.to_owned(),
            file: file.to_owned(),
            line: line.parse().ok()?,
            cells: if cell == "-" { None } else { Some(Cells::parse(kind, cell)?) },
        };
        // Checked here, where the line can be told.
        site.parse_fields()?;
        Some(site)
    }

    /// In the place of a line that is none: nothing is known of it, and it is not recorded.
    pub(crate) fn unreadable(index: u16) -> Site {
        Site {
            index,
            kind: SiteKind::Describe,
            group: "unreadable".to_owned(),
            name: index.to_string(),
            fields: String::new(),
            file: String::new(),
            line: 0,
            cells: None,
        }
    }

    /// `group:name`.
    pub(crate) fn entity(&self) -> String {
        format!("{}:{}", self.group, self.name)
    }

    pub(crate) fn parse_fields(&self) -> Option<Vec<(String, FieldType)>> {
        let flow = [SiteKind::FlowOut, SiteKind::FlowIn, SiteKind::FlowLink];
        if self.kind != SiteKind::Event && !flow.contains(&self.kind) {
            return Some(Vec::new());
        }
        let fields = self.fields.split(',').filter(|field| !field.is_empty());
        let mut found: Vec<(String, FieldType)> = Vec::new();
        for field in fields {
            let (field_type, name) = field.split_once(':')?;
            // Metadata is a program text, in which names are identifiers.
            let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let taken = name == "id" || found.iter().any(|(other, _)| other == name);
            if found.len() == MOST_FIELDS || name.is_empty() || !name.chars().all(fits) || taken {
                return None;
            }
            let field_type = FieldType::from_tsdl(field_type)?;
            // Only a histogram's record has those.
            found.push((name.to_owned(), Some(field_type).filter(|t| *t != FieldType::Buckets)?));
        }
        Some(found)
    }
}

impl Cells {
    fn parse(kind: SiteKind, text: &str) -> Option<Cells> {
        let columns: Vec<&str> = text.split(':').collect();
        let first = columns[0].parse().ok()?;
        let histogram = [
            SiteKind::HistogramAdd,
            SiteKind::HistogramLog,
            SiteKind::HistogramReset,
            SiteKind::HistogramRange,
        ];
        let cells = match (histogram.contains(&kind), &columns[1..]) {
            (false, []) => Cells::Counter { first },
            (true, [buckets, "log"]) => {
                Cells::Histogram { first, buckets: buckets.parse().ok()?, range: None }
            }
            (true, [buckets, low, high]) => {
                let (low, high) = (low.parse().ok()?, high.parse().ok()?);
                Cells::Histogram { first, buckets: buckets.parse().ok()?, range: Some((low, high)) }
            }
            _ => return None,
        };
        let sound = match cells {
            Cells::Counter { .. } => true,
            Cells::Histogram { buckets, range: None, .. } => buckets == LOG_BUCKETS,
            Cells::Histogram { buckets, range: Some((low, high)), .. } => {
                let width = i128::from(high) - i128::from(low);
                BUCKETS.contains(&buckets) && (buckets as i128..=i64::MAX.into()).contains(&width)
            }
        };
        (sound && first < MOST_CELLS && cells.all().end <= MOST_CELLS).then_some(cells)
    }
}

/// The classes of the records that call sites write; those that write none have no class.
pub(crate) fn event_classes(sites: &[Site]) -> Vec<EventClass> {
    let described = descriptions(sites);
    sites.iter().filter_map(|site| event_class(site, &described)).collect()
}

/// Unit and description of an entity; empty where nobody told.
pub(crate) fn description(sites: &[Site], of: &Site) -> (String, String) {
    let told = descriptions(sites).get(&(&*of.group, &*of.name)).copied().unwrap_or_default();
    (told.0.to_owned(), told.1.to_owned())
}

/// What groups are, by group.
pub(crate) fn group_descriptions(sites: &[Site]) -> BTreeMap<String, String> {
    let groups = descriptions(sites).into_iter().filter(|((_, name), _)| *name == "*");
    groups.map(|((group, _), (_, text))| (group.to_owned(), text.to_owned())).collect()
}

/// Unit and description by group and name.
fn descriptions(sites: &[Site]) -> BTreeMap<(&str, &str), (&str, &str)> {
    let describe = sites.iter().filter(|site| site.kind == SiteKind::Describe);
    describe
        .filter_map(|site| Some(((&*site.group, &*site.name), site.fields.split_once('\x1f')?)))
        .collect()
}

impl SiteKind {
    /// What a call site's records say; `None` where it writes none.
    fn record(self) -> Option<Kind> {
        match self {
            SiteKind::Event => Some(Kind::Event),
            SiteKind::IntervalEnd => Some(Kind::Interval),
            SiteKind::CounterLog => Some(Kind::Counter),
            SiteKind::HistogramLog => Some(Kind::Histogram),
            SiteKind::FlowOut => Some(Kind::FlowOut),
            SiteKind::FlowIn => Some(Kind::FlowIn),
            SiteKind::FlowLink => Some(Kind::FlowLink),
            _ => None,
        }
    }
}

impl Cells {
    pub(crate) fn first(self) -> usize {
        match self {
            Cells::Counter { first } | Cells::Histogram { first, .. } => first,
        }
    }

    /// All of the entity's cells.
    pub(crate) fn all(self) -> std::ops::Range<usize> {
        match self {
            Cells::Counter { first } => first..first + 1,
            Cells::Histogram { first, buckets, .. } => first..first + buckets + 3,
        }
    }

    /// How a histogram divides its values.
    pub(crate) fn buckets(self) -> Option<Buckets> {
        match self {
            Cells::Counter { .. } => None,
            Cells::Histogram { range: None, .. } => Some(Buckets::Log),
            Cells::Histogram { buckets, range: Some((low, high)), .. } => {
                Some(Buckets::Linear { low, high, count: buckets as u32 })
            }
        }
    }
}

fn event_class(
    site: &Site,
    described: &BTreeMap<(&str, &str), (&str, &str)>,
) -> Option<EventClass> {
    let kind = site.kind.record()?;
    let fields = match kind.fields() {
        Some(fields) => fields.iter().map(|(name, t)| ((*name).to_owned(), *t)).collect(),
        None => site.parse_fields()?,
    };
    let (unit, description) =
        described.get(&(&*site.group, &*site.name)).copied().unwrap_or_default();
    Some(EventClass {
        id: site.index,
        group: site.group.clone(),
        name: site.name.clone(),
        kind,
        fields,
        unit: unit.to_owned(),
        description: description.to_owned(),
        histogram: site.cells.and_then(Cells::buckets),
        file: site.file.clone(),
        line: site.line,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let site = |text| Site::parse(text).unwrap();
        let event = site("7\tevent\tpipe\tsent\tuint32_t:size,float64_t:x\tsrc/a b.c\t40\t-");
        assert_eq!((event.index, event.line, event.file.as_str()), (7, 40, "src/a b.c"));
        let fields = [("size".to_owned(), FieldType::U32), ("x".to_owned(), FieldType::F64)];
        assert_eq!(event_classes(&[event])[0].fields, fields);
        assert_eq!(site("7\tevent\tpipe\tsent\t\tf\t1\t-").parse_fields().unwrap(), []);
        let counter = site("1\tcounter-add\ta\tb\t\tf\t1\t5");
        assert_eq!(counter.cells, Some(Cells::Counter { first: 5 }));
        let histogram = site("1\thistogram-add\ta\tb\t\tf\t1\t6:50:-10:1000").cells;
        let range = Some((-10, 1000));
        assert_eq!(histogram, Some(Cells::Histogram { first: 6, buckets: 50, range }));
        let log = site("1\thistogram-log\ta\tb\t\tf\t1\t6:1888:log").cells;
        assert_eq!(log, Some(Cells::Histogram { first: 6, buckets: 1888, range: None }));
        assert_eq!(event_classes(&[counter]), []);
        for bad in [
            "",
            "7\tgauge\ta\tb\t\tf\t1\t-",
            "7\tevent\ta\tb\tlong:x\tf\t1\t-",
            "7\tevent\ta",
            "1\tcounter-add\ta\tb\t\tf\t1\t5:3",
            "1\thistogram-add\ta\tb\t\tf\t1\t5",
            "1\thistogram-add\ta\tb\t\tf\t1\t5:18446744073709551610:log",
            "1\thistogram-add\ta\tb\t\tf\t1\t524000:1888:log",
            "1\thistogram-add\ta\tb\t\tf\t1\t0:7:log",
            "1\thistogram-add\ta\tb\t\tf\t1\t0:10:5:5",
            "1\thistogram-add\ta\tb\t\tf\t1\t0:10:-9223372036854775808:9223372036854775807",
            "1\tcounter-add\ta\tb\t\tf\t1\t524288",
            "1\tevent\ta:b\tb\t\tf\t1\t-",
            "1\tevent\ta\t\"\t\tf\t1\t-",
            "1\tevent\ta\t\t\tf\t1\t-",
            "1\tevent\ta\tb\tuint8_t:x; } evil\tf\t1\t-",
            "1\tevent\ta\tb\tuint8_t:x,uint8_t:x\tf\t1\t-",
            "1\tevent\ta\tb\tuint8_t:id\tf\t1\t-",
            "1\tevent\ta\tb\t\tf\u{1b}\t1\t-",
            "1\tevent\ta\tb\tbuckets:x\tf\t1\t-",
        ] {
            assert_eq!(Site::parse(bad), None, "{bad:?}");
        }
    }
}
