//! The lines of a process's `sites` file (`crate::site`), as call sites of entities.

use loopscope_ctf::FieldType;

use super::{Detail, Field, Found, SiteKind};
use crate::site::Site;

/// `None` for a line that is none of ours.
pub(super) fn parse(line: &str) -> Option<Found> {
    let Site { kind, group, name, fields, file, line, .. } = Site::parse(line)?;
    let detail = match kind {
        SiteKind::HistogramRange => {
            let mut numbers = fields.split(',');
            let low = numbers.next()?.parse().ok()?;
            let high = numbers.next()?.parse().ok()?;
            Detail::Range { low, high, buckets: numbers.next()?.parse().ok()? }
        }
        SiteKind::Describe => {
            let (unit, description) = fields.split_once('\x1f')?;
            Detail::Text { unit: unit.to_owned(), description: description.to_owned() }
        }
        _ => {
            let fields = fields.split(',').filter(|field| !field.is_empty());
            Detail::Fields(fields.map(field).collect::<Option<_>>()?)
        }
    };
    Some(Found { kind, group, name, file, line, detail })
}

fn field(text: &str) -> Option<Field> {
    let (field_type, name) = text.split_once(':')?;
    Some(Field { name: name.to_owned(), field_type: FieldType::from_tsdl(field_type)? })
}
