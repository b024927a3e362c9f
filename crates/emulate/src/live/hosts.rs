//! Hosts at a router's ports, and the links between them.

use crate::EmulateError;
use crate::settings::{Document, Link};

/// The hosts by port.
#[derive(Clone, Debug)]
pub struct Hosts(Vec<String>);

impl Hosts {
    /// The hosts at the document's ports.
    pub fn of(document: &Document) -> Result<Hosts, EmulateError> {
        let hosts: Vec<String> = document.ports.iter().map(|port| port.host.clone()).collect();
        if let Some(twice) = hosts.iter().enumerate().find(|(i, host)| hosts[..*i].contains(host)) {
            return Err(EmulateError::Document(format!("`ports` has host {:?} twice", twice.1)));
        }
        Ok(Hosts(hosts))
    }

    /// Their names.
    pub fn names(&self) -> &[String] {
        &self.0
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The ports of two hosts. The error is for a person.
    pub fn pair(&self, from: &str, to: &str) -> Result<(usize, usize), String> {
        let port = |host: &str| {
            let known = || format!("there is no host {host:?} (there are {})", self.0.join(", "));
            self.0.iter().position(|known| known == host).ok_or_else(known)
        };
        let (from, to) = (port(from)?, port(to)?);
        if from == to { Err("a link joins two hosts".into()) } else { Ok((from, to)) }
    }

    /// The number of a link among all that there can be: below the square of the hosts' count.
    pub fn index(&self, from: usize, to: usize) -> usize {
        from * self.0.len() + to
    }

    /// The ports of the link with this number.
    pub fn ports(&self, index: usize) -> (usize, usize) {
        (index / self.0.len(), index % self.0.len())
    }

    /// What a link is called.
    pub fn link(&self, index: usize) -> String {
        let (from, to) = self.ports(index);
        format!("{} -> {}", self.0[from], self.0[to])
    }

    /// The document's links with their numbers, after `make` has had each of them.
    pub(crate) fn each_link(
        &self,
        document: &Document,
        mut make: impl FnMut(usize, &Link) -> Result<(), String>,
    ) -> Result<(), EmulateError> {
        let mut made = vec![false; self.0.len() * self.0.len()];
        for (i, link) in document.links.iter().enumerate() {
            let wrong = |what: String| {
                let (from, to) = (&link.from, &link.to);
                EmulateError::Document(format!("`links[{i}]` ({from} -> {to}): {what}"))
            };
            let (from, to) = self.pair(&link.from, &link.to).map_err(wrong)?;
            let index = self.index(from, to);
            if std::mem::replace(&mut made[index], true) {
                return Err(wrong("is there twice".into()));
            }
            make(index, link).map_err(wrong)?;
        }
        Ok(())
    }
}
