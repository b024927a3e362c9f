//! Names that a trace can hold, from what `tracing` has.

use tracing_core::Metadata;

/// What is not a letter, digit, `_`, `.` or `-` becomes `_`.
fn legal(text: &str) -> String {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let name: String = text.chars().map(|c| if is_legal(c) { c } else { '_' }).collect();
    if name.is_empty() { "_".into() } else { name }
}

/// The target, `net::client` as `net.client`.
pub(crate) fn group(metadata: &Metadata<'_>) -> String {
    legal(&metadata.target().replace("::", "."))
}

/// The name given, or for an event without one its place: `client.rs-12`.
pub(crate) fn entity(metadata: &Metadata<'_>) -> String {
    let name = metadata.name();
    match (metadata.file(), metadata.line()) {
        // tracing's macros name an event that has no name so.
        (Some(file), Some(line))
            if metadata.is_event() && name == format!("event {file}:{line}") =>
        {
            let file = file.rsplit(['/', '\\']).next().unwrap_or(file);
            legal(&format!("{file}-{line}"))
        }
        _ => legal(name),
    }
}

/// A field's name as an identifier: `http.status` as `http_status`. `taken` are its predecessors'.
pub(crate) fn field(name: &str, taken: &[String]) -> String {
    let mut name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert(0, '_');
    }
    // A record has its id already; two names may become one.
    while name == "id" || taken.contains(&name) {
        name.push('_');
    }
    name
}

#[cfg(test)]
mod tests {
    use super::{field, legal};

    #[test]
    fn names_are_legal_and_fields_differ() {
        assert_eq!(legal("a b:c\"é%"), "a_b_c___");
        assert_eq!(legal(""), "_");
        assert_eq!(field("http.status", &[]), "http_status");
        assert_eq!(field("0", &[]), "_0");
        assert_eq!(field("id", &[]), "id_");
        assert_eq!(field("a-b", &["a_b".into(), "a_b_".into()]), "a_b__");
    }
}
