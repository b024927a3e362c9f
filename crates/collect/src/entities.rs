//! Entities of a program with their places: from its file, without running it ([`of_file`]), or
//! from a process ([`of_pid`]).

mod elf;
mod process;
mod sites;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use loopscope_ctf::FieldType;
use serde::{Serialize, Serializer};

pub use crate::site::SiteKind;

/// A field of a call site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Field {
    /// The name in the records.
    pub name: String,
    /// `uint32_t`, `float64_t`, `string`, `bytes`, …
    #[serde(rename = "type", serialize_with = "type_name")]
    pub field_type: FieldType,
}

fn type_name<S: Serializer>(field_type: &FieldType, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(field_type.tsdl())
}

fn kind_name<S: Serializer>(kind: &SiteKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.name())
}

/// A histogram's buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "scale", rename_all = "lowercase")]
pub enum Buckets {
    /// Buckets of equal width.
    Linear {
        /// Lowest value of the first.
        low: i64,
        /// First value above the last.
        high: i64,
        /// Their number.
        buckets: u64,
    },
    /// 32 to a power of two; the histogram has no declared range.
    Log,
}

/// A call site of an entity. Copies of one site that a compiler made are one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EntitySite {
    /// First half of the entity's name.
    pub group: String,
    /// Second half.
    pub name: String,
    /// What the site does.
    #[serde(serialize_with = "kind_name")]
    pub kind: SiteKind,
    /// Typed fields, without the id.
    pub fields: Vec<Field>,
    /// Source file as the compiler was given it.
    pub file: String,
    /// Line in it.
    pub line: u32,
    /// Unit of the entity's values; empty where none is declared.
    pub unit: String,
    /// What the entity is; empty where it is not declared.
    pub description: String,
    /// What the group is; empty where it is not declared.
    pub group_description: String,
    /// Buckets, for histograms.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub buckets: Option<Buckets>,
}

/// Why there is nothing to tell.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Something else than a program.
    #[error("{}: {what}", path.display())]
    NotAProgram {
        /// The file.
        path: PathBuf,
        /// What it is or lacks, and what to do.
        what: String,
    },
    /// A program without call sites.
    #[error(
        "{} has no call sites of loopscope; the libraries that it loads may have some of their own",
        .0.display()
    )]
    NoSites(PathBuf),
    /// What is there cannot be understood.
    #[error("the call sites of {} cannot be read: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// A process that belongs to somebody else.
    #[error("cannot look into process {pid}")]
    Process {
        /// The process.
        pid: u32,
        /// Why not.
        source: io::Error,
    },
    /// A process whose call sites have no place where a collector finds them.
    #[error("process {pid} cannot be recorded: {}", if *.off {
        "it was started with LOOPSCOPE_RUNTIME_DIR empty, which switches its call sites off; start \
         it without that variable"
    } else if *.removed {
        "the directory in which it waited has been removed; start it anew"
    } else {
        "it could not make a directory in /dev/shm when it started: there was no room, or somebody \
         else's is in the way; start it anew when that is mended"
    })]
    Dormant {
        /// The process.
        pid: u32,
        /// Its environment says so.
        off: bool,
        /// It had one.
        removed: bool,
    },
    /// A process without call sites.
    #[error(
        "process {pid} ({name}) and the libraries that it has loaded have no call sites of loopscope"
    )]
    Uninstrumented {
        /// The process.
        pid: u32,
        /// Its short name.
        name: String,
    },
}

/// The process directories of a running process, for [`crate::Collector::attach`]: one for each
/// copy of the library in it.
pub fn directories_of(pid: u32) -> Result<Vec<PathBuf>, Error> {
    process::directories(pid)
}

/// The call sites of a program or shared library, sorted; libraries that it loads are not looked
/// at.
pub fn of_file(path: &Path) -> Result<Vec<EntitySite>, Error> {
    let found = elf::read(path)?;
    if found.is_empty() {
        return Err(Error::NoSites(path.to_owned()));
    }
    Ok(combine(found))
}

/// The call sites of a process, sorted: those that it has registered, or those of all that it has
/// loaded.
pub fn of_pid(pid: u32) -> Result<Vec<EntitySite>, Error> {
    process::read(pid).map(combine)
}

/// A call site as it was found: declarations are sites, too.
#[derive(Debug)]
struct Found {
    kind: SiteKind,
    group: String,
    name: String,
    file: String,
    line: u32,
    detail: Detail,
}

#[derive(Debug)]
enum Detail {
    Fields(Vec<Field>),
    Range { low: i64, high: i64, buckets: u64 },
    Text { unit: String, description: String },
}

/// Puts declarations to the sites that they are of.
fn combine(found: Vec<Found>) -> Vec<EntitySite> {
    let mut texts = BTreeMap::new();
    let mut ranges = BTreeMap::new();
    let mut sites = Vec::new();
    for Found { kind, group, name, file, line, detail } in found {
        match detail {
            Detail::Fields(fields) => sites.push(EntitySite {
                group,
                name,
                kind,
                fields,
                file,
                line,
                unit: String::new(),
                description: String::new(),
                group_description: String::new(),
                buckets: is_histogram(kind).then_some(Buckets::Log),
            }),
            Detail::Range { low, high, buckets } => {
                ranges.insert((group, name), Buckets::Linear { low, high, buckets });
            }
            Detail::Text { unit, description } => {
                texts.insert((group, name), (unit, description));
            }
        }
    }
    for site in &mut sites {
        let entity = (site.group.clone(), site.name.clone());
        if let Some((unit, description)) = texts.get(&entity) {
            site.unit.clone_from(unit);
            site.description.clone_from(description);
        }
        if let Some((_, description)) = texts.get(&(site.group.clone(), "*".to_owned())) {
            site.group_description.clone_from(description);
        }
        if let (Some(buckets), Some(range)) = (&mut site.buckets, ranges.get(&entity)) {
            *buckets = *range;
        }
    }
    let place = |site: &EntitySite| {
        let EntitySite { group, name, file, line, kind, fields, .. } = site;
        let fields = fields.iter().map(|field| (field.name.clone(), field.field_type as u8));
        (group.clone(), name.clone(), file.clone(), *line, *kind, fields.collect::<Vec<_>>())
    };
    sites.sort_by_cached_key(place);
    sites.dedup();
    sites
}

fn is_histogram(kind: SiteKind) -> bool {
    use SiteKind::{HistogramAdd, HistogramLog, HistogramReset};
    matches!(kind, HistogramAdd | HistogramLog | HistogramReset)
}
