//! Reading hosts and writing the run's tables.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use loopscope_ctf::{Metadata, Records, StreamClass};
use rayon::prelude::*;
use serde::Serialize;

use crate::block::Block;
use crate::clocks::{self, HostClock, HostSummary, LoopResiduals};
use crate::column::Flaws;
use crate::cursor::{Decoder, Place};
use crate::decoded::{self, Decoded, StreamFile};
use crate::earlier::Earlier;
use crate::entity::Entities;
use crate::error::{BuildError, read};
use crate::loss::{Loss, loss_table};
use crate::source::{Host, Problem, Progress, Trace};
use crate::store;
use crate::streams::{self, Stream};
use crate::table::{Names, Table};
use crate::triggers;

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

/// The tables of a run, in the making.
#[derive(Default)]
pub struct Timeline {
    tables: Vec<Table>,
    /// Index of each entity's table.
    index: BTreeMap<(String, String), usize>,
    entities: Entities,
    names: Names,
    hosts: Vec<Host>,
    loops: Vec<LoopResiduals>,
    /// With the number of hosts that were there before: what is found in a host's streams stands
    /// after what was said of the host.
    problems: Vec<(usize, Problem)>,
}

impl Timeline {
    /// A time line without hosts.
    pub fn new() -> Timeline {
        Timeline::default()
    }

    /// Adds a problem that was found elsewhere, with the clocks for one.
    pub fn report(&mut self, problem: Problem) {
        self.problems.push((self.hosts.len(), problem));
    }

    /// Adds what an edge between two followers tells of the clocks.
    pub fn add_loop(&mut self, found: LoopResiduals) {
        self.loops.push(found);
    }

    /// Adds a host's directory: its streams under `trace/` and its `loss.json`, which are read when
    /// the tables are written. A host without streams has events of none.
    pub fn add_host(&mut self, dir: &Path, host: &str, clock: HostClock) -> Result<(), BuildError> {
        let traces = self.trace(dir, "", host)?.into_iter().collect();
        self.hosts.push(Host { name: host.to_owned(), dir: dir.to_owned(), clock, traces });
        Ok(())
    }

    /// Adds a directory with the same of a kernel, by the clock of the host that was added last,
    /// whose kernel it is.
    pub fn add_kernel(&mut self, dir: &Path) -> Result<(), BuildError> {
        let Some(host) = self.hosts.last().map(|host| host.name.clone()) else { return Ok(()) };
        let trace = self.trace(dir, "kernel/", &host)?;
        if let Some(host) = self.hosts.last_mut() {
            host.traces.extend(trace);
        }
        Ok(())
    }

    /// The trace in a directory, if there is one.
    fn trace(
        &mut self,
        dir: &Path,
        under: &'static str,
        host: &str,
    ) -> Result<Option<Trace>, BuildError> {
        let metadata = dir.join("trace/metadata");
        if !metadata.exists() {
            return Ok(None);
        }
        let metadata = read_metadata(&metadata)?;
        for (group, description) in &metadata.groups {
            self.entities.add_group(group, description);
        }
        let mut decoders = BTreeMap::new();
        for class in metadata.streams.values() {
            let (records, places) = (Records::new(class), self.places(class, host));
            let process = self.names.intern(&class.process);
            let host = self.names.intern(host);
            let kernel = class.kernel;
            decoders.insert(class.id, Decoder { host, process, kernel, records, places });
        }
        Ok(Some(Trace { dir: dir.to_owned(), under, decoders }))
    }

    /// Makes room for the events of a stream class: table and place of each, in the order of its
    /// event classes.
    fn places(&mut self, class: &StreamClass, host: &str) -> Vec<Place> {
        let mut places = Vec::new();
        let number = self.hosts.len();
        let mut problem = |what: String| {
            let file = "trace/metadata".into();
            self.problems.push((number, Problem { host: host.into(), file, what }));
        };
        for event in &class.events {
            let entity = (event.group.clone(), event.name.clone());
            let table = *self.index.entry(entity).or_insert_with(|| {
                self.tables.push(Table::default());
                self.tables.len() - 1
            });
            let earlier = Earlier::of(&class.process, event);
            let moves = earlier.is_some_and(|earlier| earlier.moves());
            let (site, renamed) = self.tables[table].site(event, moves, class.kernel);
            let who = format!("{}:{} at {}:{}", event.group, event.name, event.file, event.line);
            for field in renamed {
                problem(format!(
                    "{who} has field {field}, which is the name of another column; it is renamed"
                ));
            }
            for conflict in self.entities.add(event) {
                problem(format!("{who} has {conflict}"));
            }
            let (kind, fields) = (event.kind, !event.fields.is_empty());
            places.push(Place { table, site, kind, fields, earlier });
        }
        places
    }

    /// Decodes all streams, an event after the other into columns on the global time line, and
    /// keeps none: for benchmarks. Returns the number of events.
    pub fn decode(self) -> Result<u64, BuildError> {
        self.read_all(&mut |_, _| true, |_, _| Ok(()))
    }

    /// The same, and puts the events of each entity in order.
    pub fn order(mut self) -> Result<u64, BuildError> {
        let mut tables = std::mem::take(&mut self.tables);
        self.read_all(&mut |_, _| true, |blocks, until| {
            distribute(&mut tables, blocks);
            tables.par_iter_mut().for_each(|table| {
                table.order(until);
                table.clear();
            });
            Ok(())
        })
    }

    fn read_all(
        &self,
        progress: &mut Progress,
        take: impl FnMut(Vec<Block>, Option<i64>) -> Result<(), BuildError>,
    ) -> Result<u64, BuildError> {
        let streams: Vec<_> = streams::find(&self.hosts)?.into_iter().enumerate().collect();
        let tallies = streams::read_all(&self.hosts, &streams, progress, take)?;
        Ok(tallies.iter().flat_map(|tally| tally.recorded.values()).sum())
    }

    /// Its stream files, as `<host>/trace/<name>`.
    pub fn stream_files(&self) -> Result<Vec<String>, BuildError> {
        let found = streams::find(&self.hosts)?;
        let name = |each: &Stream| format!("{}/{}", self.hosts[each.host].name, each.name());
        Ok(found.iter().map(name).collect())
    }

    /// Writes `timeline/` and `tables/` under `dir`, in place of earlier ones.
    pub fn write(mut self, dir: &Path, progress: &mut Progress) -> Result<Summary, BuildError> {
        let root = dir.join("timeline");
        match fs::remove_dir_all(&root) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(BuildError::Io { path: root, source: error });
            }
            _ => {}
        }
        let streams = streams::find(&self.hosts)?.into_iter().enumerate().collect();
        let decoded = self.write_rows(streams, 0, dir, progress)?;
        self.conclude(vec![decoded], dir)
    }

    /// Decodes one of [`Self::stream_files`] alone: writes its rows to `timeline/` under `dir`, a
    /// part of each table whose number is the file's.
    pub fn write_part(mut self, file: usize, dir: &Path) -> Result<Decoded, BuildError> {
        let stream = streams::find(&self.hosts)?.into_iter().enumerate().nth(file);
        self.write_rows(stream.into_iter().collect(), file, dir, &mut |_, _| true)
    }

    /// Writes the rows of stream files in order, as a part of each table.
    fn write_rows(
        &mut self,
        streams: Vec<(usize, Stream)>,
        part: usize,
        dir: &Path,
        progress: &mut Progress,
    ) -> Result<Decoded, BuildError> {
        let root = dir.join("timeline");
        let mut files: Vec<TableFile> = Vec::new();
        files.resize_with(self.tables.len(), TableFile::default);
        for ((group, name), index) in &self.index {
            let file = format!("part-{part}.parquet");
            files[*index].path = root.join(group).join(name).join(file);
        }
        let (tables, names) = (&mut self.tables, &self.names);
        let tallies = streams::read_all(&self.hosts, &streams, progress, |blocks, until| {
            distribute(tables, blocks);
            let all = tables.par_iter_mut().zip(&mut files);
            all.try_for_each(|(table, file)| {
                table.order(until);
                if table.weight() >= GROUP { file.write(table, names) } else { Ok(()) }
            })?;
            while tables.iter().map(Table::weight).sum::<usize>() >= ALL {
                let largest = tables.iter_mut().zip(&mut files).max_by_key(|(t, _)| t.weight());
                let Some((table, file)) = largest else { break };
                file.write(table, names)?;
            }
            Ok(())
        })?;
        let all = self.tables.par_iter_mut().zip(&mut files);
        all.try_for_each(|(table, file)| file.finish(table, names))?;
        let mut decoded = Decoded::default();
        for ((group, name), index) in &self.index {
            // A call site that nobody enabled or reached says nothing.
            if files[*index].rows > 0 {
                decoded.rows.insert(format!("{group}:{name}"), files[*index].rows);
            }
        }
        let name = |((of, pid), count)| (self.names.name(of).to_owned(), pid, count);
        for ((index, stream), tally) in streams.iter().zip(tallies) {
            let mut flaws = Flaws { backward: tally.backward, ..Flaws::default() };
            for of_table in self.tables.iter().filter_map(|table| table.flaws().get(index)) {
                flaws.not_utf8 += of_table.not_utf8;
                flaws.left_out += of_table.left_out;
            }
            decoded.files.push(StreamFile {
                host: self.hosts[stream.host].name.clone(),
                trace: stream.trace,
                file: stream.name(),
                damage: tally.damage,
                flaws,
                recorded: tally.recorded.into_iter().map(name).collect(),
                max_err_ns: tally.max_err_ns,
            });
        }
        Ok(decoded)
    }

    /// After all stream files were decoded: writes `tables/` under `dir` and says what the tables
    /// hold.
    pub fn conclude(self, decoded: Vec<Decoded>, dir: &Path) -> Result<Summary, BuildError> {
        let mut events = BTreeMap::<String, u64>::new();
        let mut found = BTreeMap::new();
        for each in decoded {
            for (entity, rows) in each.rows {
                *events.entry(entity).or_default() += rows;
            }
            found.extend(each.files.into_iter().map(|f| ((f.host.clone(), f.file.clone()), f)));
        }
        let mut files: Vec<Vec<StreamFile>> = self.hosts.iter().map(|_| Vec::new()).collect();
        for stream in streams::find(&self.hosts)? {
            let file = found.remove(&(self.hosts[stream.host].name.clone(), stream.name()));
            files[stream.host].push(file.ok_or(BuildError::NotDecoded { path: stream.path })?);
        }
        let (mut losses, mut triggers) = (Vec::new(), Vec::new());
        let (mut problems, mut clocks) = (self.problems, Vec::new());
        for (number, (host, files)) in self.hosts.into_iter().zip(files).enumerate() {
            let (summary, of_host) = decoded::account(&host, files, &mut losses)?;
            let (listed, of_triggers) = triggers::of_host(&host);
            triggers.extend(listed);
            problems
                .extend(of_host.into_iter().chain(of_triggers).map(|problem| (number, problem)));
            clocks.push((host.name, host.clock, summary));
        }
        problems.sort_by_key(|(number, _)| *number);
        let about_hosts = [
            ("clock", clocks::clock_table(&clocks)?),
            ("hosts", clocks::hosts_table(&clocks)?),
            ("foreign_clocks", clocks::foreign_table(&clocks)?),
            ("clock_events", clocks::events_table(&clocks)?),
            ("loop_residuals", clocks::loops_table(&self.loops)?),
            ("loss", loss_table(&losses)?),
            ("triggers", triggers::table(triggers)?),
        ];
        for (name, table) in about_hosts {
            store::write(&dir.join(format!("tables/{name}.parquet")), &table)?;
        }
        let entities = self.entities.table(|entity| events.contains_key(entity))?;
        store::write(&dir.join("tables/entities.parquet"), &entities)?;
        let mut loss = Loss::default();
        losses.iter().for_each(|(_, of_host)| loss.add(of_host));
        Ok(Summary {
            events,
            hosts: clocks.into_iter().map(|(host, _, summary)| (host, summary)).collect(),
            emitted: loss.emitted,
            recorded: loss.recorded,
            overwritten: loss.overwritten,
            dropped: loss.dropped,
            filtered: loss.filtered,
            last_states: loss.last_states,
            problems: problems.into_iter().map(|(_, problem)| problem).collect(),
        })
    }
}

/// About how much memory the rows of a table may take before they are written as a group, and those
/// of all tables together.
const GROUP: usize = 12 << 20;
const ALL: usize = 384 << 20;

/// Gives decoded events to their tables.
fn distribute(tables: &mut [Table], blocks: Vec<Block>) {
    for block in blocks {
        tables[block.table].add(block);
    }
}

/// Where a table is written.
#[derive(Default)]
struct TableFile {
    path: PathBuf,
    writer: Option<store::Writer>,
    rows: u64,
}

impl TableFile {
    /// Writes the rows that are in order.
    fn write(&mut self, table: &mut Table, names: &Names) -> Result<(), BuildError> {
        let batch = table.batch(names)?;
        let writer = match &mut self.writer {
            Some(writer) => writer,
            None => self.writer.insert(store::Writer::new(&self.path, batch.schema())?),
        };
        self.rows += batch.num_rows() as u64;
        writer.group(&batch)
    }

    /// Writes what is left, if anything is.
    fn finish(&mut self, table: &mut Table, names: &Names) -> Result<(), BuildError> {
        if table.rows() > 0 {
            self.write(table, names)?;
        }
        self.writer.take().map_or(Ok(()), store::Writer::close)
    }
}

/// Reads a trace directory's metadata.
fn read_metadata(path: &Path) -> Result<Metadata, BuildError> {
    let text = String::from_utf8_lossy(&read(path)?).into_owned();
    Metadata::parse(&text).map_err(|source| BuildError::Metadata { path: path.to_owned(), source })
}
