//! Reading hosts and writing the run's tables.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use loopscope_ctf::{Kind, Metadata, Packets, Record, Records, StreamClass, packet};
use loopscope_time::{Bound, ClockMap, Counter, Frequency, GlobalNs};
use serde::Serialize;

use crate::clocks::{self, ClockEvent, ForeignReading, LoopResiduals};
use crate::column::Flaws;
use crate::entity::Entities;
use crate::loss::{Counted, Loss, Spread};
use crate::store;
use crate::table::{Names, Origin, Site, Table};

/// Why tables could not be made at all. Damage inside a stream is a [`Problem`] instead.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A file or directory could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A trace's metadata is not loopscope's.
    #[error("{path}: {source}")]
    Metadata {
        /// The metadata file.
        path: PathBuf,
        /// What is wrong with it.
        source: loopscope_ctf::ParseError,
    },
    /// A loss account is not what its schema says.
    #[error("{path}: {source}")]
    Loss {
        /// The loss.json.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The table library refused a table.
    #[error(transparent)]
    Arrow(#[from] arrow_schema::ArrowError),
    /// The table library could not write a table.
    #[error(transparent)]
    Parquet(#[from] parquet::errors::ParquetError),
}

/// Something that a reader of the run has to know: damage, disagreement, a changed name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Host.
    pub host: String,
    /// File under the host's directory.
    pub file: String,
    /// What, with the offset in the file where there is one.
    pub what: String,
}

/// A host's clock as the time line needs it, and what else is known of the host's clocks.
#[derive(Clone, Debug)]
pub struct HostClock {
    /// Its counter's map.
    pub map: ClockMap,
    /// Nominal frequency of its counter.
    pub frequency: Frequency,
    /// Whether it is the reference.
    pub reference: bool,
    /// Probe exchanges that the map rests on.
    pub exchanges: u64,
    /// Messages of the probes that contradicted the others and were left out.
    pub rejected: u64,
    /// Readings of the host's other clocks, by time.
    pub readings: Vec<ForeignReading>,
    /// What happened to its clocks.
    pub events: Vec<ClockEvent>,
}

/// What the run's tables hold.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Rows per entity (`group:name`).
    pub events: BTreeMap<String, u64>,
    /// Per host.
    pub hosts: BTreeMap<String, HostSummary>,
    /// Summed over the hosts' accounts.
    pub emitted: u64,
    /// See [`Loss::recorded`].
    pub recorded: u64,
    /// See [`Loss::overwritten`].
    pub overwritten: u64,
    /// See [`Loss::dropped`].
    pub dropped: u64,
    /// See [`Loss::filtered`].
    pub filtered: u64,
    /// See [`Loss::last_states`].
    #[serde(rename = "final")]
    pub last_states: u64,
    /// In the order of discovery.
    pub problems: Vec<Problem>,
}

/// One host of a [`Summary`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostSummary {
    /// Whether it is the reference.
    pub reference: bool,
    /// Largest hard half-width over its events, or over its map where it has no event.
    pub max_err_ns: u64,
    /// Bound on the difference between the host's rate and its mean.
    pub drift_ppm: f64,
    /// Probe exchanges that its map rests on.
    pub exchanges: u64,
    /// See [`HostClock::rejected`].
    pub rejected: u64,
    /// Events.
    pub events: u64,
    /// What an event costs there in ns, and the spread of that (p90 − p10); where it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_cost_ns: Option<(f64, f64)>,
}

/// Where a call site's records go: its table, and their place there.
type Place = (usize, Site);

/// How a stream class's packets are read.
struct Decoder<'a> {
    class: &'a StreamClass,
    records: Records,
    /// By index of the event class.
    places: Vec<Place>,
}

/// The tables of a run, in the making.
#[derive(Default)]
pub struct Timeline {
    tables: Vec<Table>,
    /// Index of each entity's table.
    index: BTreeMap<(String, String), usize>,
    entities: Entities,
    names: Names,
    clocks: Vec<(String, HostClock, HostSummary)>,
    loops: Vec<LoopResiduals>,
    loss: Loss,
    problems: Vec<Problem>,
}

impl Timeline {
    /// A time line without hosts.
    pub fn new() -> Timeline {
        Timeline::default()
    }

    /// Adds a problem that was found elsewhere, with the clocks for one.
    pub fn report(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// Adds what an edge between two followers tells of the clocks.
    pub fn add_loop(&mut self, found: LoopResiduals) {
        self.loops.push(found);
    }

    /// Reads a host's directory: its streams under `trace/` and its `loss.json`. A host without
    /// streams has events of none.
    pub fn add_host(&mut self, dir: &Path, host: &str, clock: HostClock) -> Result<(), BuildError> {
        let knots = clock.map.knots().iter();
        let mut summary = HostSummary {
            reference: clock.reference,
            max_err_ns: 0,
            drift_ppm: clock.map.drift().map_or(f64::NAN, |drift| drift * 1e6),
            exchanges: clock.exchanges,
            rejected: clock.rejected,
            events: 0,
            event_cost_ns: None,
        };
        let trace = dir.join("trace");
        if trace.join("metadata").exists() {
            let metadata = read_metadata(&trace.join("metadata"))?;
            for (group, description) in &metadata.groups {
                self.entities.add_group(group, description);
            }
            let mut decoders = BTreeMap::new();
            for class in metadata.streams.values() {
                let (records, places) = (Records::new(class), self.places(class, host));
                decoders.insert(class.id, Decoder { class, records, places });
            }
            let mut recorded = Counted::new();
            for path in stream_files(&trace)? {
                self.stream(&path, host, &decoders, &clock, &mut summary, &mut recorded)?;
            }
            summary.event_cost_ns = self.check_loss(dir, host, &recorded)?;
        }
        if summary.events == 0 {
            let widest = knots.map(|k| k.err_ns).fold(0.0, f64::max);
            summary.max_err_ns = Bound::of_rounded(widest).ns();
        }
        self.clocks.push((host.to_owned(), clock, summary));
        Ok(())
    }

    fn stream(
        &mut self,
        path: &Path,
        host: &str,
        decoders: &BTreeMap<u32, Decoder>,
        clock: &HostClock,
        summary: &mut HostSummary,
        recorded: &mut Counted,
    ) -> Result<(), BuildError> {
        let bytes = read(path)?;
        let file = format!("trace/{}", path.file_name().unwrap_or_default().to_string_lossy());
        let mut problems = Vec::new();
        let mut problem = |what: String| {
            problems.push(Problem { host: host.into(), file: file.clone(), what });
        };
        let mut next_sequence = 0;
        let mut flaws = Flaws::default();
        for packet in Packets::new(&bytes) {
            let (context, records) = match packet {
                Ok(packet) => packet,
                Err(error) => {
                    problem(format!("{error}; the rest of the stream is unreadable"));
                    break;
                }
            };
            if context.sequence != next_sequence {
                problem(format!("packet {} follows packet {next_sequence}", context.sequence));
            }
            next_sequence = context.sequence + 1;
            let Some(decoder) = decoders.get(&context.stream_id) else {
                problem(format!("stream class {} is not declared", context.stream_id));
                continue;
            };
            let origin = Origin {
                host: self.names.intern(host),
                process: self.names.intern(&decoder.class.process),
                pid: context.pid,
                tid: context.tid,
            };
            let mut count = 0;
            let tables = &mut self.tables;
            let result = decoder.records.decode(&context, records, |record| {
                let (table, site) = &decoder.places[record.class];
                let mut instant = clock.map.map(record.counter);
                count += 1;
                let interval;
                let fields = if site.kind == Kind::Interval {
                    interval = global_interval(&clock.map, &mut instant, &record);
                    flaws.backward += u64::from(interval.is_none());
                    interval.as_ref().map(|fields| fields.as_flattened())
                } else {
                    Some(record.fields)
                };
                summary.max_err_ns = summary.max_err_ns.max(instant.1.ns());
                tables[*table].push(instant, &record, &origin, site, fields, &mut flaws);
            });
            if let Err(error) = result {
                problem(format!(
                    "packet {}: {error}; its other records are lost",
                    context.sequence
                ));
            }
            summary.events += count;
            *recorded.entry((decoder.class.process.clone(), context.pid)).or_default() += count;
        }
        for (count, what) in [
            (flaws.not_utf8, "strings are not UTF-8; what is wrong in them became \u{fffd}"),
            (flaws.left_out, "values are null in the tables: their columns hold 2 GiB at most"),
            (flaws.backward, "intervals start after their end; start and duration are null"),
        ] {
            if count > 0 {
                problem(format!("{count} {what}"));
            }
        }
        self.problems.append(&mut problems);
        Ok(())
    }

    /// Makes room for the events of a stream class: table and place of each, in the order of its
    /// event classes.
    fn places(&mut self, class: &StreamClass, host: &str) -> Vec<Place> {
        let mut places = Vec::new();
        let mut problem = |what: String| {
            let file = "trace/metadata".into();
            self.problems.push(Problem { host: host.into(), file, what });
        };
        for event in &class.events {
            let entity = (event.group.clone(), event.name.clone());
            let table = *self.index.entry(entity).or_insert_with(|| {
                self.tables.push(Table::default());
                self.tables.len() - 1
            });
            let (site, renamed) = self.tables[table].site(event);
            let who = format!("{}:{} at {}:{}", event.group, event.name, event.file, event.line);
            for field in renamed {
                problem(format!(
                    "{who} has field {field}, which is the name of another column; it is renamed"
                ));
            }
            for conflict in self.entities.add(event) {
                problem(format!("{who} has {conflict}"));
            }
            places.push((table, site));
        }
        places
    }

    /// Counts again: what the collector says it recorded must be in the streams.
    fn check_loss(
        &mut self,
        dir: &Path,
        host: &str,
        counted: &Counted,
    ) -> Result<Option<(f64, f64)>, BuildError> {
        let path = dir.join("loss.json");
        let mut problem = |what: String| {
            self.problems.push(Problem { host: host.into(), file: "loss.json".into(), what });
        };
        if !path.exists() {
            problem("is missing: nobody accounts for lost events".into());
            return Ok(None);
        }
        let loss: Loss = serde_json::from_slice(&read(&path)?)
            .map_err(|source| BuildError::Loss { path: path.clone(), source })?;
        loss.contradictions(counted).into_iter().for_each(problem);
        self.loss.add(&loss);
        let of_event = |cost: crate::loss::Cost| {
            let Spread { median, p10, p90 } = cost.event_ns;
            (median, p90 - p10)
        };
        Ok(loss.cost.map(of_event))
    }

    /// Writes `timeline/` and `tables/` under `dir`, in place of earlier ones.
    pub fn write(self, dir: &Path) -> Result<Summary, BuildError> {
        let root = dir.join("timeline");
        match fs::remove_dir_all(&root) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(BuildError::Io { path: root, source: error });
            }
            _ => {}
        }
        let mut events = BTreeMap::new();
        let mut tables: Vec<_> = self.tables.into_iter().map(Some).collect();
        for ((group, name), index) in self.index {
            let table = tables[index].take().expect("each entity has a table of its own");
            let rows = table.rows() as u64;
            if rows == 0 {
                // A call site that nobody enabled or reached: it says nothing.
                continue;
            }
            let batch = store::sorted(&table.into_batch(&self.names)?)?;
            store::write(&root.join(&group).join(&name).join("part-0.parquet"), &batch)?;
            events.insert(format!("{group}:{name}"), rows);
        }
        let about_clocks = [
            ("clock", clocks::clock_table(&self.clocks)?),
            ("hosts", clocks::hosts_table(&self.clocks)?),
            ("foreign_clocks", clocks::foreign_table(&self.clocks)?),
            ("clock_events", clocks::events_table(&self.clocks)?),
            ("loop_residuals", clocks::loops_table(&self.loops)?),
        ];
        for (name, table) in about_clocks {
            store::write(&dir.join(format!("tables/{name}.parquet")), &table)?;
        }
        let entities = self.entities.table(|entity| events.contains_key(entity))?;
        store::write(&dir.join("tables/entities.parquet"), &entities)?;
        Ok(Summary {
            events,
            hosts: self.clocks.into_iter().map(|(host, _, summary)| (host, summary)).collect(),
            emitted: self.loss.emitted,
            recorded: self.loss.recorded,
            overwritten: self.loss.overwritten,
            dropped: self.loss.dropped,
            filtered: self.loss.filtered,
            last_states: self.loss.last_states,
            problems: self.problems,
        })
    }
}

/// Start and duration, in global time and as fields, of an interval that ended at `end`. One that
/// began when nothing was known of the clock has an unknown error.
fn global_interval(
    map: &ClockMap,
    end: &mut (GlobalNs, Bound),
    record: &Record,
) -> Option<[[u8; 8]; 2]> {
    let start = Counter(packet::get_u64(record.fields, packet::INTERVAL_START - packet::RECORD));
    if start > record.counter {
        return None;
    }
    let (start, bound) = map.map(start);
    let (end, end_bound) = end;
    if !bound.is_known() {
        *end_bound = Bound::UNKNOWN;
    }
    Some([start.0, *end - start].map(i64::to_le_bytes))
}

fn read(path: &Path) -> Result<Vec<u8>, BuildError> {
    fs::read(path).map_err(|source| BuildError::Io { path: path.to_owned(), source })
}

/// Reads a trace directory's metadata.
fn read_metadata(path: &Path) -> Result<Metadata, BuildError> {
    let text = String::from_utf8_lossy(&read(path)?).into_owned();
    Metadata::parse(&text).map_err(|source| BuildError::Metadata { path: path.to_owned(), source })
}

/// The stream files of a trace directory, by name.
fn stream_files(dir: &Path) -> Result<Vec<PathBuf>, BuildError> {
    let at = |source| BuildError::Io { path: dir.to_owned(), source };
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(at)? {
        let entry = entry.map_err(at)?;
        let name = entry.file_name();
        let hidden = name.to_string_lossy().starts_with('.');
        if !hidden && name != "metadata" && entry.file_type().map_err(at)?.is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}
