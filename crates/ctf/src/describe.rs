//! What CTF has no word for, as JSON texts in the metadata's `env`: kind, unit and description of
//! event classes, descriptions of groups.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::class::{Buckets, EventClass, Kind};

/// The text of an event class; none for a plain event without description.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClassText {
    kind: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    unit: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    description: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    low: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    high: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    buckets: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scale: Option<String>,
}

/// The text of a group.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GroupText {
    pub(crate) group: String,
    pub(crate) description: String,
}

/// The only value of `scale`.
const LOG: &str = "log";

impl ClassText {
    pub(crate) fn of(class: &EventClass) -> Option<ClassText> {
        let plain = class.unit.is_empty() && class.description.is_empty();
        if class.kind == Kind::Event && plain {
            return None;
        }
        let mut text = ClassText {
            kind: class.kind.name().to_owned(),
            unit: class.unit.clone(),
            description: class.description.clone(),
            ..ClassText::default()
        };
        match class.histogram {
            None => {}
            Some(Buckets::Log) => text.scale = Some(LOG.to_owned()),
            Some(Buckets::Linear { low, high, count }) => {
                (text.low, text.high, text.buckets) = (Some(low), Some(high), Some(count));
            }
        }
        Some(text)
    }

    /// Gives `class` what the text says; the error is in words.
    pub(crate) fn apply(self, class: &mut EventClass) -> Result<(), String> {
        let kind = Kind::from_name(&self.kind)
            .ok_or_else(|| format!("unknown kind of entity {:?}", self.kind))?;
        let histogram = match (self.low, self.high, self.buckets, self.scale.as_deref()) {
            (None, None, None, None) => None,
            (None, None, None, Some(LOG)) => Some(Buckets::Log),
            (Some(low), Some(high), Some(count), None) => {
                Some(Buckets::Linear { low, high, count })
            }
            _ => return Err("a histogram has low, high and buckets, or scale \"log\"".into()),
        };
        if histogram.is_some() != (kind == Kind::Histogram) {
            return Err("histograms, and only they, have buckets".into());
        }
        (class.kind, class.histogram) = (kind, histogram);
        (class.unit, class.description) = (self.unit, self.description);
        Ok(())
    }
}

/// JSON without control characters: TSDL has no word for most of them.
pub(crate) fn json(text: &impl Serialize) -> String {
    let plain = serde_json::to_string(text).expect("texts and numbers are JSON");
    let mut out = String::with_capacity(plain.len());
    for c in plain.chars() {
        if c.is_control() {
            // Infallible: writing to a String.
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}
