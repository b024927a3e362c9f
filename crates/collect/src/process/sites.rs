//! A process's call sites as they are read and declared.

use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::sync::atomic::Ordering;

use loopscope_trace::configure::apply;
use loopscope_trace::layout::MAX_SITES;

use super::{LARGEST_SITES, Process, records_of};
use crate::output::Output;
use crate::process_stream::NOTHING;
use crate::site::{Site, event_classes, group_descriptions};

impl Process {
    /// Reads call sites registered since the last time. What cannot be read is noted, and not
    /// recorded.
    pub(crate) fn read_sites(&mut self) {
        // Acquire pairs with the release store in index_of (sites.c): the lines are in the file.
        let count = self.control.get().site_count.load(Ordering::Acquire) as usize;
        let count = count.min(MAX_SITES);
        let known = self.sites.len();
        if count <= known || self.sites_end || self.is_lost() {
            return;
        }
        let text = match self.sites_text() {
            Ok(text) => text,
            Err(error) => {
                self.sites_end = true;
                let missing = count - known;
                self.doubts.add(format!(
                    "the sites file cannot be read: {error}; {missing} call sites are not known"
                ));
                return;
            }
        };
        for (index, line) in text.lines().enumerate().take(count).skip(known) {
            let site = Site::parse(line).filter(|site| usize::from(site.index) == index);
            let site = site.unwrap_or_else(|| {
                let line: String = line.chars().take(100).collect();
                self.doubts.add(format!(
                    "line {} of its sites file cannot be understood ({line:?}); what that call \
                     site recorded is lost",
                    index + 1
                ));
                for recorded in &self.streams {
                    apply(self.control.get(), recorded.slot, index, NOTHING, c"");
                }
                Site::unreadable(index as u16)
            });
            self.sites.push(site);
        }
        if self.sites.len() < count {
            self.sites_end = true;
            let missing = count - self.sites.len();
            self.doubts.add(format!("its sites file ends too early: {missing} are not known"));
        }
        self.classes = event_classes(&self.sites);
        self.groups = group_descriptions(&self.sites);
        self.records = records_of(&self.classes);
        self.declared = false;
    }

    /// Call sites since this was last called.
    pub(crate) fn unnoted_sites(&mut self) -> &[Site] {
        let from = std::mem::replace(&mut self.noted, self.sites.len());
        &self.sites[from..]
    }

    pub(super) fn sites_text(&self) -> io::Result<String> {
        let mut bytes = Vec::new();
        let file = self.folder()?.read(OsStr::new("sites"))?;
        if file.take(LARGEST_SITES + 1).read_to_end(&mut bytes)? as u64 > LARGEST_SITES {
            return Err(io::Error::other(format!("it has more than {LARGEST_SITES} bytes")));
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Tells the outputs of its streams what it records, if they do not know yet.
    pub(crate) fn declare(&mut self, outputs: &mut [Output]) {
        if std::mem::replace(&mut self.declared, true) {
            return;
        }
        for recorded in &self.streams {
            outputs[recorded.output].declare(self.id, &self.name, &self.classes, &self.groups);
        }
    }
}
