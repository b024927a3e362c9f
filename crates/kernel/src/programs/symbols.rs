//! Names of the kernel's functions, by addresses within them.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

/// Where the kernel tells where its functions are.
const KALLSYMS: &str = "/proc/kallsyms";

/// Names of functions, by addresses in stacks.
#[derive(Debug, Default)]
pub(crate) struct Symbols(BTreeMap<u64, String>);

/// The kernel's functions: where each begins, in that order. They are read when they are first asked
/// for: that takes some 50 ms.
#[derive(Debug, Default)]
pub(crate) struct Functions(OnceCell<Vec<(u64, String)>>);

impl Functions {
    fn get(&self) -> io::Result<&[(u64, String)]> {
        if let Some(known) = self.0.get() {
            return Ok(known);
        }
        let read = Functions::read(BufReader::new(File::open(KALLSYMS)?))?;
        Ok(self.0.get_or_init(|| read))
    }

    fn read(lines: impl BufRead) -> io::Result<Vec<(u64, String)>> {
        let functions =
            lines.lines().filter_map(|line| line.map(|line| function(&line)).transpose());
        let mut functions = functions.collect::<io::Result<Vec<_>>>()?;
        functions.sort_by_key(|(address, _)| *address);
        Ok(functions)
    }
}

impl Symbols {
    /// Notes an address.
    pub(crate) fn meet(&mut self, address: u64) {
        self.0.entry(address).or_default();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Finds the names. Without the right (`kernel.kptr_restrict`) all stay unknown.
    pub(crate) fn find(&mut self, functions: &Functions) -> io::Result<()> {
        let functions = functions.get()?;
        for (address, name) in &mut self.0 {
            // What a stack has is where a function goes on, which is never its begin.
            let before = functions.partition_point(|(begin, _)| begin < address);
            if let Some((_, found)) = before.checked_sub(1).map(|place| &functions[place]) {
                name.clone_from(found);
            }
        }
        Ok(())
    }

    /// The content of a file: a line for each, as kallsyms has them.
    pub(crate) fn to_text(&self) -> String {
        self.0.iter().map(|(address, name)| format!("{address:016x} t {name}\n")).collect()
    }

    /// Reads such a file; none without one.
    pub(crate) fn load(path: &Path) -> io::Result<Symbols> {
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Symbols::default()),
            file => file?,
        };
        let lines = BufReader::new(file).lines();
        lines.filter_map(|line| line.map(|line| function(&line)).transpose()).collect()
    }

    /// Writes the names of a stack's functions with a semicolon between them; `?` is an unknown one.
    pub(crate) fn write(&self, stack: impl Iterator<Item = u64>, out: &mut String) -> fmt::Result {
        for (number, address) in stack.enumerate() {
            let name = self.0.get(&address).filter(|name| !name.is_empty());
            let between = if number > 0 { ";" } else { "" };
            write!(out, "{between}{}", name.map_or("?", String::as_str))?;
        }
        Ok(())
    }
}

impl FromIterator<(u64, String)> for Symbols {
    fn from_iter<T: IntoIterator<Item = (u64, String)>>(functions: T) -> Symbols {
        Symbols(functions.into_iter().collect())
    }
}

/// Address and name of a line of kallsyms that tells where a function is.
fn function(line: &str) -> Option<(u64, String)> {
    let mut words = line.split_ascii_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok().filter(|address| *address > 0)?;
    let is_code = matches!(words.next()?, "t" | "T" | "w" | "W");
    is_code.then(|| Some((address, words.next()?.to_owned())))?
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "ffffffff81000200 T do_futex\nffffffff81000100 t futex_wait\n\
                         ffffffff81000180 d a_table\nffffffff81000300 W last [module]\n";

    fn named(lines: &str, addresses: &[u64]) -> String {
        let mut symbols = Symbols::default();
        addresses.iter().for_each(|address| symbols.meet(*address));
        let functions = Functions::read(lines.as_bytes()).unwrap();
        symbols.find(&Functions(OnceCell::from(functions))).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("symbols");
        std::fs::write(&path, symbols.to_text()).unwrap();
        let mut text = String::new();
        Symbols::load(&path).unwrap().write(addresses.iter().copied(), &mut text).unwrap();
        text
    }

    #[test]
    fn an_address_is_in_the_function_that_begins_before_it() {
        let stack = [0xffff_ffff_8100_01ff, 0xffff_ffff_8100_0200, 0xffff_ffff_8100_0201];
        assert_eq!(named(LINES, &stack), "futex_wait;futex_wait;do_futex");
        assert_eq!(named(LINES, &[0xffff_ffff_8200_0000, 0x400]), "last;?");
    }

    #[test]
    fn without_the_right_nothing_is_known() {
        assert_eq!(named("0000000000000000 T do_futex\n", &[0xffff_ffff_8100_01ff]), "?");
        let none = Symbols::load(Path::new("/nowhere/symbols")).unwrap();
        assert!(none.is_empty());
    }
}
