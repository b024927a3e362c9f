//! Bytes as they arrive, to lines.

/// Cuts a byte stream into lines.
#[derive(Debug)]
pub struct Lines {
    limit: usize,
    partial: Vec<u8>,
}

/// A result of [`Lines::push`].
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// A line, without its newline.
    Line(&'a [u8]),
    /// The limit was reached before a newline: the bytes so far. The rest follows as further
    /// pieces.
    Overlong(&'a [u8]),
}

impl Lines {
    /// Lines of at most `limit` bytes.
    pub fn new(limit: usize) -> Lines {
        Lines { limit, partial: Vec::new() }
    }

    /// Takes `bytes` and hands every line that they complete to `each`.
    pub fn push(&mut self, mut bytes: &[u8], mut each: impl FnMut(Piece<'_>)) {
        while !bytes.is_empty() {
            // One byte more than the limit, so that a line of just that length still ends.
            let window = &bytes[..bytes.len().min(self.limit + 1 - self.partial.len())];
            if let Some(end) = window.iter().position(|&b| b == b'\n') {
                self.partial.extend_from_slice(&window[..end]);
                each(Piece::Line(&self.partial));
                self.partial.clear();
                bytes = &bytes[end + 1..];
            } else {
                self.partial.extend_from_slice(window);
                bytes = &bytes[window.len()..];
                if self.partial.len() > self.limit {
                    let kept = self.partial.split_off(self.limit);
                    each(Piece::Overlong(&self.partial));
                    self.partial = kept;
                }
            }
        }
    }

    /// The bytes after the last newline, if there are any.
    pub fn finish(self) -> Option<Vec<u8>> {
        (!self.partial.is_empty()).then_some(self.partial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(limit: usize, chunks: &[&[u8]]) -> (Vec<String>, Option<Vec<u8>>) {
        let mut lines = Lines::new(limit);
        let mut pieces = vec![];
        for chunk in chunks {
            lines.push(chunk, |piece| {
                pieces.push(match piece {
                    Piece::Line(l) => String::from_utf8(l.to_vec()).unwrap(),
                    Piece::Overlong(l) => format!("{}…", String::from_utf8(l.to_vec()).unwrap()),
                });
            });
        }
        (pieces, lines.finish())
    }

    #[test]
    fn lines_do_not_depend_on_how_the_bytes_arrive() {
        let text = b"one\n\ntwo words\nabcdefghijkl\nabcdefghij\ntail";
        let whole = cut(10, &[text]);
        assert_eq!(whole.0, ["one", "", "two words", "abcdefghij…", "kl", "abcdefghij"]);
        assert_eq!(whole.1.as_deref(), Some(&b"tail"[..]));
        for split in 0..text.len() {
            assert_eq!(cut(10, &[&text[..split], &text[split..]]), whole, "split at {split}");
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(cut(10, &bytes), whole);
    }

    #[test]
    fn nothing_after_the_last_newline_is_no_line() {
        assert_eq!(cut(10, &[b"a\n"]), (vec!["a".to_owned()], None));
    }
}
