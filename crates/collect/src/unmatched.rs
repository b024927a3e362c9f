//! Patterns that match no entity, as misspelled ones do.

use std::collections::BTreeSet;
use std::ffi::CString;

use loopscope_trace::configure::glob_matches;

use crate::Collector;
use crate::site::SiteKind;
use crate::stream::{Choice, StreamSpec};

/// Entities that are remembered.
const MOST: usize = 1 << 14;

/// A stream's pattern that has matched none of the entities that programs have registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmatched {
    /// Name of the stream.
    pub stream: String,
    /// The pattern as given, without `!`.
    pub pattern: String,
    /// The entity whose name is most like it, if one is.
    pub nearest: Option<String>,
}

impl std::fmt::Display for Unmatched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "stream {}: no entity matches {:?}", self.stream, self.pattern)?;
        self.nearest.as_ref().map_or(Ok(()), |nearest| write!(f, "; did you mean {nearest}?"))
    }
}

impl Collector {
    /// Patterns that have matched nothing so far. None while no entity is known at all; later ones
    /// may still match.
    pub fn unmatched(&self) -> Vec<Unmatched> {
        let of = |spec: &StreamSpec| {
            patterns(spec)
                .into_iter()
                .filter_map(|pattern| {
                    let pattern = unmatched(pattern, &self.entities)?;
                    Some(Unmatched { stream: spec.name.clone(), ..pattern })
                })
                .collect::<Vec<_>>()
        };
        if self.entities.is_empty() || self.entities.len() >= MOST {
            return Vec::new();
        }
        self.streams().iter().flat_map(of).collect()
    }

    pub(crate) fn note_entities(&mut self) {
        for process in &mut self.processes {
            for site in process.unnoted_sites() {
                if site.kind != SiteKind::Describe && self.entities.len() < MOST {
                    self.entities.insert(site.entity());
                }
            }
        }
    }
}

/// Each pattern of a stream once.
fn patterns(spec: &StreamSpec) -> BTreeSet<&str> {
    let chosen = spec.entities.iter().map(|(Choice::Enable(glob) | Choice::Disable(glob))| glob);
    let filtered = spec.filters.iter().map(|filter| &filter.glob);
    let triggering = spec.triggers.iter().map(|(glob, _)| glob);
    chosen.chain(filtered).chain(triggering).map(String::as_str).collect()
}

fn unmatched(pattern: &str, entities: &BTreeSet<String>) -> Option<Unmatched> {
    let glob = CString::new(pattern).ok()?;
    let matches = |entity: &String| {
        CString::new(entity.as_str()).is_ok_and(|entity| glob_matches(&glob, &entity))
    };
    if entities.iter().any(matches) {
        return None;
    }
    let near = entities.iter().map(|entity| (distance(pattern, entity), entity)).min();
    let near = near.filter(|(distance, _)| *distance <= (pattern.len() / 3).max(1));
    let nearest = near.map(|(_, entity)| entity.clone());
    Some(Unmatched { stream: String::new(), pattern: pattern.to_owned(), nearest })
}

/// Letters to insert, leave out or exchange so that one text becomes the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let exchanged = before + usize::from(x != *y);
            before = row[j + 1];
            row[j + 1] = exchanged.min(row[j] + 1).min(before + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name() {
        let entities = ["pipe:sent", "pipe:received", "loop:step"].map(str::to_owned).into();
        let nearest = |pattern| unmatched(pattern, &entities).map(|found| found.nearest);
        assert_eq!(nearest("pipe:*"), None);
        assert_eq!(nearest("*:s[et]*"), None);
        assert_eq!(nearest("pipe:snet"), Some(Some("pipe:sent".to_owned())));
        assert_eq!(nearest("pip:recieved"), Some(Some("pipe:received".to_owned())));
        assert_eq!(nearest("nothing:alike"), Some(None));
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
