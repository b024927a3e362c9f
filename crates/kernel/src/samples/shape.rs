//! What is in the records of looks.

use loopscope_ctf::FieldType;

/// Name of a text, and how it is read from a record.
type Text = (&'static str, fn(&[u8]) -> String);

/// What is in the records of a class. Each begins with the counter before the look and the ticks that
/// it took, 64 bits each.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) class: &'static str,
    /// Name of its one event.
    pub(crate) name: &'static str,
    /// Bytes of a record.
    pub(crate) size: usize,
    /// Where the number of the thread is, 32 bits.
    pub(crate) tid: usize,
    /// Name, type and place of each number.
    pub(crate) numbers: &'static [(&'static str, FieldType, usize)],
    pub(crate) texts: &'static [Text],
}

impl Shape {
    /// The fields of the event.
    pub(crate) fn fields(&self) -> Vec<(String, FieldType)> {
        let took = [("took_ns".to_owned(), FieldType::U32)];
        let numbers = self.numbers.iter().map(|(name, kind, _)| ((*name).to_owned(), *kind));
        let texts = self.texts.iter().map(|(name, _)| ((*name).to_owned(), FieldType::String));
        took.into_iter().chain(numbers).chain(texts).collect()
    }
}
