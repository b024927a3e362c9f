//! The call sites in an ELF program or library: `struct loopscope_site` in
//! `include/loopscope/trace.h`.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use object::read::{ReadCache, ReadRef};
use object::{Architecture, Object, ObjectKind, ObjectSection, ObjectSegment, RelocationTarget};

use loopscope_ctf::FieldType;
use loopscope_trace::layout::site::{FIELDS, FILE, GROUP, KIND, LINE, NAME};

use super::{Detail, Error, Field, Found, SiteKind};

const SECTION: &str = "loopscope_sites";

/// The struct's size in its first version; it only ever grows.
const SIZE: usize = 64;

/// What is read of a file, which may be another user's: more than any program has.
const LARGEST_FILE: u64 = 4 << 30;
const LARGEST_SECTION: u64 = 16 << 20;
const LONGEST_TEXT: u64 = 64 << 10;

/// Empty where the file has no such section.
pub(super) fn read(path: &Path) -> Result<Vec<Found>, Error> {
    let unreadable = |source| Error::Read { path: path.to_owned(), source };
    let not_a_program =
        |what: &str| Error::NotAProgram { path: path.to_owned(), what: what.into() };
    // O_NONBLOCK: nobody waits for the other end of a FIFO.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if metadata.is_dir() {
        return Err(unreadable(io::ErrorKind::IsADirectory.into()));
    }
    if !metadata.is_file() || metadata.len() > LARGEST_FILE {
        return Err(not_a_program("not an ordinary file, or one of more than 4 GiB"));
    }
    let cache = ReadCache::new(file);
    let file = object::File::parse(&cache)
        .map_err(|_| not_a_program("not an ELF program or shared library"))?;
    if !matches!(file.kind(), ObjectKind::Executable | ObjectKind::Dynamic) {
        return Err(not_a_program(
            "not linked; name the program or library that it becomes part of",
        ));
    }
    let architecture = file.architecture();
    if !matches!(architecture, Architecture::X86_64 | Architecture::Aarch64) {
        return Err(not_a_program("neither for x86-64 nor for aarch64"));
    }
    if file.sections().next().is_none() {
        return Err(not_a_program(
            "its section table is stripped away; name the file before that, or the process id of \
             the running program",
        ));
    }
    Image::new(&file, &cache).sites().map_err(|what| Error::Damaged { path: path.to_owned(), what })
}

/// A file as the loader would see it before anything runs.
struct Image<'a, F> {
    file: &'a F,
    data: &'a ReadCache<File>,
    /// Addresses that the file is loaded at, and where in it the first of them is.
    segments: Vec<(Range<u64>, u64)>,
    /// Words that the loader fills in, by address: in shared objects the addresses of the file's
    /// own data. Packed relocations (RELR) keep theirs in place.
    relocated: HashMap<u64, u64>,
}

impl<'a, F: Object<'a>> Image<'a, F> {
    fn new(file: &'a F, data: &'a ReadCache<File>) -> Image<'a, F> {
        let segments = file.segments().map(|segment| {
            let (offset, size) = segment.file_range();
            (segment.address()..segment.address().saturating_add(size), offset)
        });
        let section = file.section_by_name(SECTION);
        let range = section.map_or(0..0, |s| s.address()..s.address().saturating_add(s.size()));
        let relocated = file.dynamic_relocations().into_iter().flatten();
        let relocated = relocated
            .filter(|(at, relocation)| {
                // R_X86_64_RELATIVE, R_AARCH64_RELATIVE.
                range.contains(at) && relocation.target() == RelocationTarget::Absolute
            })
            .map(|(at, relocation)| (at, relocation.addend().cast_unsigned()))
            .collect();
        Image { file, data, segments: segments.collect(), relocated }
    }

    fn sites(&self) -> Result<Vec<Found>, String> {
        let Some(section) = self.file.section_by_name(SECTION) else { return Ok(Vec::new()) };
        if section.size() > LARGEST_SECTION {
            return Err(format!("{SECTION} has {} bytes", section.size()));
        }
        let data = section.data().map_err(|error| error.to_string())?;
        let mut found = Vec::new();
        let mut at = 0;
        while at < data.len() {
            let what = |what: String| format!("site {} of {SECTION}: {what}", found.len());
            let size = word(data, at, 4).ok_or_else(|| what("cut off".into()))? as usize;
            let site = data.get(at..at.saturating_add(size)).filter(|site| site.len() >= SIZE);
            let site = site.ok_or_else(|| what(format!("size {size}")))?;
            let address = section.address().wrapping_add(at as u64);
            found.push(self.site(site, address).map_err(what)?);
            at += size;
        }
        Ok(found)
    }

    fn site(&self, site: &[u8], address: u64) -> Result<Found, String> {
        let number = |at: usize, size| word(site, at, size).unwrap_or(0);
        let pointer = |at: usize| {
            let relocated = self.relocated.get(&address.wrapping_add(at as u64));
            relocated.copied().unwrap_or_else(|| number(at, 8))
        };
        let kind = number(KIND, 4) as u32;
        let kind = SiteKind::from_number(kind).ok_or_else(|| {
            format!("kind {kind} is not known here; is the program for a newer loopscope?")
        })?;
        let detail = pointer(FIELDS);
        Ok(Found {
            kind,
            group: printable(&self.text(pointer(GROUP))?.0),
            name: printable(&self.text(pointer(NAME))?.0),
            file: printable(&self.text(pointer(FILE))?.0),
            line: number(LINE, 4) as u32,
            detail: match kind {
                SiteKind::HistogramRange => self.range(detail)?,
                SiteKind::Describe => {
                    let (unit, next) = self.text(detail)?;
                    let description = printable(&self.text(next)?.0);
                    Detail::Text { unit: printable(&unit), description }
                }
                _ => self.fields(detail)?,
            },
        })
    }

    /// Where in the file an address is, and what follows it there.
    fn place(&self, address: u64) -> Result<Range<u64>, String> {
        let segment = self.segments.iter().find(|(range, _)| range.contains(&address));
        let (range, offset) = segment.ok_or_else(|| format!("nothing is at {address:#x}"))?;
        let at = |address: u64| offset.saturating_add(address - range.start);
        Ok(at(address)..at(range.end))
    }

    /// The text at an address, and the address after its NUL.
    fn text(&self, address: u64) -> Result<(String, u64), String> {
        let Range { start, end } = self.place(address)?;
        let bytes =
            self.data.read_bytes_at_until(start..end.min(start.saturating_add(LONGEST_TEXT)), 0);
        let bytes = bytes.map_err(|()| format!("no text at {address:#x}"))?;
        Ok((String::from_utf8_lossy(bytes).into_owned(), address + bytes.len() as u64 + 1))
    }

    fn range(&self, address: u64) -> Result<Detail, String> {
        let bytes = self.data.read_bytes_at(self.place(address)?.start, 24);
        let bytes = bytes.map_err(|()| format!("no range at {address:#x}"))?;
        let number = |at| word(bytes, at, 8).unwrap_or(0);
        let (low, high) = (number(0).cast_signed(), number(8).cast_signed());
        Ok(Detail::Range { low, high, buckets: number(16) })
    }

    /// Per field a code and its name; an empty one is the end.
    fn fields(&self, mut address: u64) -> Result<Detail, String> {
        let mut fields = Vec::new();
        loop {
            let (text, next) = self.text(address)?;
            let mut chars = text.chars();
            let Some(code) = chars.next() else { return Ok(Detail::Fields(fields)) };
            let field_type = u8::try_from(code).ok().and_then(FieldType::from_code);
            let field_type = field_type
                .ok_or_else(|| format!("a field of type {} is not known here", code as u32))?;
            fields.push(Field { name: printable(chars.as_str()), field_type });
            address = next;
        }
    }
}

/// The text as the library writes it into the `sites` file.
fn printable(text: &str) -> String {
    text.replace(|c: char| c < ' ', "?")
}

fn word(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let mut value = [0; 8];
    value[..size].copy_from_slice(bytes.get(at..at.checked_add(size)?)?);
    Some(u64::from_le_bytes(value))
}
