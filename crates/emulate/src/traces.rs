//! The files that a link follows: each is checked line by line, so that a hole is an error before
//! the experiment and not a surprise in it.

use std::fmt;
use std::path::Path;

use crate::settings::{Distribution, Jitter, Loss, Settings};

/// The kind of a trace file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One line for each packet: 1 lost, 0 not.
    Loss,
    /// Header `at,delay`, then lines as `1.5s,20ms`.
    Delays,
    /// Milliseconds of delivery opportunities: mahimahi's format.
    Opportunities,
    /// Numbers that have the shape of the jitter.
    Table,
}

impl Kind {
    /// By the name that settings have for it.
    pub fn named(name: &str) -> Option<Kind> {
        Some(match name {
            "loss" => Kind::Loss,
            "delays" => Kind::Delays,
            "opportunities" => Kind::Opportunities,
            "table" => Kind::Table,
            _ => return None,
        })
    }
}

/// What is wrong with a file, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// From 1; none: the file as a whole.
    pub line: Option<usize>,
    /// For a person.
    pub problem: String,
}

impl Fault {
    /// With the file's name in front.
    pub fn of(&self, path: &Path) -> String {
        match self.line {
            Some(line) => format!("{}:{line}: {}", path.display(), self.problem),
            None => format!("{}: {}", path.display(), self.problem),
        }
    }
}

fn fault<T>(line: Option<usize>, problem: impl fmt::Display) -> Result<T, Fault> {
    Err(Fault { line, problem: problem.to_string() })
}

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Lines without the header.
    pub lines: usize,
    /// Share lost; mean of the delays over time, in nanoseconds (the last one counts nothing); bits
    /// per second of Ethernet frames; mean of the numbers.
    pub mean: f64,
}

/// Whether a file's text is of that kind.
pub fn check(kind: Kind, text: &str) -> Result<Summary, Fault> {
    Ok(match kind {
        Kind::Loss => {
            let lost = loss(text)?;
            let share = lost.iter().filter(|lost| **lost).count() as f64 / lost.len() as f64;
            Summary { lines: lost.len(), mean: share }
        }
        Kind::Delays => {
            let delays = delays(text)?;
            let spans = delays.windows(2).map(|pair| {
                u128::from(pair[0].delay_ns) * u128::from(pair[1].at_ns - pair[0].at_ns)
            });
            let last = delays.last().map_or(0, |last| last.at_ns);
            let mean = match last {
                0 => delays[0].delay_ns as f64,
                _ => spans.sum::<u128>() as f64 / last as f64,
            };
            Summary { lines: delays.len(), mean }
        }
        Kind::Opportunities => {
            let at = opportunities(text)?;
            Summary { lines: at.len(), mean: mean_bps(&at) }
        }
        Kind::Table => {
            let values = table(text)?;
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            Summary { lines: values.len(), mean }
        }
    })
}

/// The text of a file, or what hinders reading it.
pub fn read(path: &Path) -> Result<String, Fault> {
    std::fs::read_to_string(path).or_else(|error| fault(None, format!("cannot be read: {error}")))
}

/// What the files that settings name hold.
#[derive(Debug, Default)]
pub(crate) struct Files {
    pub loss: Vec<bool>,
    pub table: Vec<f64>,
    pub delays: Option<Vec<DelayAt>>,
    pub opportunities: Option<Vec<u64>>,
}

impl Files {
    /// Reads those of `new` that belong to settings other than in `old`.
    pub(crate) fn read(old: &Settings, new: &Settings) -> Result<Files, String> {
        let mut files = Files::default();
        if let Some(Loss::Trace { path }) = &new.loss
            && old.loss != new.loss
        {
            files.loss = parsed("loss", path, loss)?;
        }
        if let Some(Jitter { distribution: Distribution::Table(path), .. }) = &new.jitter
            && old.jitter != new.jitter
        {
            files.table = parsed("jitter", path, table)?;
        }
        if let Some(path) = &new.delays
            && old.delays != new.delays
        {
            files.delays = Some(parsed("delays", path, delays)?);
        }
        if let Some(path) = &new.opportunities
            && old.opportunities != new.opportunities
        {
            files.opportunities = Some(parsed("opportunities", path, opportunities)?);
        }
        Ok(files)
    }
}

fn parsed<T>(
    key: &str,
    path: &Path,
    parse: impl Fn(&str) -> Result<T, Fault>,
) -> Result<T, String> {
    let text = read(path);
    text.and_then(|text| parse(&text)).map_err(|fault| format!("`{key}`: {}", fault.of(path)))
}

/// Lines with their numbers. Blank ones are holes, but for those at the end.
fn lines(text: &str) -> Result<Vec<(usize, &str)>, Fault> {
    let text = text.trim_end();
    if text.is_empty() {
        return fault(None, "is empty");
    }
    let numbered = text.lines().zip(1..).map(|(line, number)| match line.trim() {
        "" => {
            fault(Some(number), "is blank: a hole. Write what belongs there, or take the line out")
        }
        line => Ok((number, line)),
    });
    numbered.collect()
}

/// Losses by packet: true if lost.
pub(crate) fn loss(text: &str) -> Result<Vec<bool>, Fault> {
    let lost = lines(text)?.into_iter().map(|(number, line)| match line {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => fault(Some(number), format!("`{line}` is neither 1 (lost) nor 0 (not)")),
    });
    lost.collect()
}

/// From when on which delay holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DelayAt {
    pub at_ns: u64,
    pub delay_ns: u64,
}

pub(crate) fn delays(text: &str) -> Result<Vec<DelayAt>, Fault> {
    let lines = lines(text)?;
    let (_, header) = lines[0];
    if header.split(',').map(str::trim).ne(["at", "delay"]) {
        return fault(Some(1), format!("`{header}` is not the header. Write: at,delay"));
    }
    let mut delays: Vec<DelayAt> = Vec::with_capacity(lines.len() - 1);
    for (number, line) in &lines[1..] {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let [at, delay] = cells[..] else {
            return fault(Some(*number), format!("`{line}` is not two cells, as in 1.5s,20ms"));
        };
        let quantity = |what: &str, cell: &str| {
            if cell.is_empty() {
                let problem = format!("{what} is missing: a hole. Write it, as in 1.5s,20ms");
                return fault(Some(*number), problem);
            }
            let wrong =
                |problem| Fault { line: Some(*number), problem: format!("{what}: {problem}") };
            let read =
                loopscope_quantity::duration(cell).map_err(|error| wrong(error.to_string()))?;
            u64::try_from(read.as_nanos()).map_err(|_| wrong(format!("`{cell}` is too long")))
        };
        let next = DelayAt { at_ns: quantity("at", at)?, delay_ns: quantity("delay", delay)? };
        match delays.last() {
            None if next.at_ns != 0 => {
                return fault(Some(*number), format!("begins at {at}. The first line is at 0s"));
            }
            Some(last) if next.at_ns <= last.at_ns => {
                return fault(
                    Some(*number),
                    format!("{at} is not after the line before. Put the lines in order of time"),
                );
            }
            _ => delays.push(next),
        }
    }
    if delays.is_empty() {
        return fault(None, "has a header and no delays. Write lines as 0s,20ms");
    }
    no_gap(&delays)?;
    Ok(delays)
}

/// A file that keeps a steady step has been recorded; where it misses one, a record is missing.
/// Steps written by hand are few or differ.
fn no_gap(delays: &[DelayAt]) -> Result<(), Fault> {
    let steps: Vec<u64> = delays.windows(2).map(|pair| pair[1].at_ns - pair[0].at_ns).collect();
    if steps.len() < 10 {
        return Ok(());
    }
    let mut sorted = steps.clone();
    sorted.sort_unstable();
    let usual = sorted[sorted.len() / 2];
    let alike = steps.iter().filter(|step| step.abs_diff(usual) <= usual / 10).count();
    if alike * 10 < steps.len() * 9 {
        return Ok(());
    }
    match steps.iter().position(|step| *step > usual + usual / 2) {
        // The header is a line, and the step ends at its second one.
        Some(gap) => fault(
            Some(gap + 3),
            format!(
                "comes {} ms after the line before, where the others keep {} ms: a hole. Write the \
                 missing lines; they may repeat the delay",
                steps[gap] as f64 / 1e6,
                usual as f64 / 1e6
            ),
        ),
        None => Ok(()),
    }
}

/// Milliseconds of the opportunities in one period, which is the last of them.
pub(crate) fn opportunities(text: &str) -> Result<Vec<u64>, Fault> {
    let mut at: Vec<u64> = Vec::new();
    for (number, line) in lines(text)? {
        let Ok(ms) = line.parse::<u64>() else {
            let problem = format!("`{line}` is no whole number of milliseconds");
            return fault(Some(number), problem);
        };
        if ms > MAX_MS {
            return fault(Some(number), format!("{ms} ms is more than a year"));
        }
        if let Some(last) = at.last().filter(|last| ms < **last) {
            return fault(
                Some(number),
                format!(
                    "{ms} ms is before the {last} ms of the line above. Put the lines in order"
                ),
            );
        }
        at.push(ms);
    }
    if at.last() == Some(&0) {
        return fault(None, "ends at 0 ms, which is also its period. Write a last line above 0");
    }
    Ok(at)
}

/// Bits per second of Ethernet frames if each opportunity has a packet of 1500 bytes.
pub(crate) fn mean_bps(opportunities: &[u64]) -> f64 {
    let period_ms = opportunities[opportunities.len() - 1];
    opportunities.len() as f64 * 1514.0 * 8.0 * 1e3 / period_ms as f64
}

/// In nanoseconds it must fit.
const MAX_MS: u64 = 366 * 24 * 3600 * 1000;

pub(crate) fn table(text: &str) -> Result<Vec<f64>, Fault> {
    let mut values = Vec::new();
    for (number, line) in lines(text)? {
        match line.parse::<f64>() {
            Ok(value) if value.is_finite() => values.push(value),
            _ => return fault(Some(number), format!("`{line}` is no number")),
        }
    }
    if values.iter().all(|value| *value == values[0]) {
        return fault(
            None,
            "has one value only, which is no jitter. Write two that differ, or more",
        );
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(kind: Kind, text: &str) -> (Option<usize>, String) {
        let fault = check(kind, text).expect_err("refused");
        (fault.line, fault.problem)
    }

    #[test]
    fn holes_and_garbage_are_found_where_they_are() {
        use Kind::{Delays, Loss, Opportunities, Table};
        let mut steady = String::from("at,delay\n");
        for second in (0..40).filter(|second| *second != 17) {
            steady += &format!("{second}s,{}ms\n", 20 + second);
        }
        for (kind, text, line, words) in [
            (Loss, "", None, "is empty"),
            (Loss, "\n \n", None, "is empty"),
            (Loss, "0\n\n1\n", Some(2), "a hole"),
            (Loss, "0\n1\n2\n", Some(3), "`2` is neither 1 (lost) nor 0"),
            (Loss, "0,1\n", Some(1), "`0,1` is neither"),
            (Delays, "", None, "is empty"),
            (Delays, "0s,20ms\n", Some(1), "Write: at,delay"),
            (Delays, "at,delay\n", None, "no delays"),
            (Delays, "at,delay\n1s,20ms\n", Some(2), "The first line is at 0s"),
            (Delays, "at,delay\n0s,20ms\n1s,\n2s,20ms\n", Some(3), "delay is missing: a hole"),
            (Delays, "at,delay\n0s,20ms\n,20ms\n", Some(3), "at is missing: a hole"),
            (Delays, "at,delay\n0s,20ms\n\n2s,20ms\n", Some(3), "is blank: a hole"),
            (Delays, "at,delay\n0s,20ms\n0s,20ms\n", Some(3), "order of time"),
            (Delays, "at,delay\n0s,20ms\n2s,20ms\n1s,20ms\n", Some(4), "order of time"),
            (Delays, "at,delay\n0s,20\n", Some(2), "delay: `20` is not a duration"),
            (Delays, "at,delay\n0s,-2ms\n", Some(2), "delay: `-2ms` is not a duration"),
            (Delays, "at,delay\n0s,20ms,3\n", Some(2), "two cells"),
            (Delays, "at,delay\n0s\n", Some(2), "two cells"),
            (Delays, steady.as_str(), Some(19), "2000 ms after the line before"),
            (Opportunities, "", None, "is empty"),
            (Opportunities, "1\n\n2\n", Some(2), "a hole"),
            (Opportunities, "1\n3\n2\n", Some(3), "before the 3 ms"),
            (Opportunities, "1\n2.5\n", Some(2), "no whole number"),
            (Opportunities, "1\n-2\n", Some(2), "no whole number"),
            (Opportunities, "0\n0\n", None, "above 0"),
            (Opportunities, "99999999999999\n", Some(1), "more than a year"),
            (Table, "", None, "is empty"),
            (Table, "1\nx\n", Some(2), "`x` is no number"),
            (Table, "1\nnan\n", Some(2), "`nan` is no number"),
            (Table, "1\n\n2", Some(2), "a hole"),
            (Table, "1\n1\n1\n", None, "two that differ"),
        ] {
            let (found, problem) = refused(kind, text);
            assert_eq!(found, line, "{text:?}: {problem}");
            assert!(problem.contains(words), "{text:?}: {problem}");
        }
    }

    #[test]
    fn sound_files_are_read() {
        assert_eq!(check(Kind::Loss, "0\n1\n0\n0\n"), Ok(Summary { lines: 4, mean: 0.25 }));
        let steps = "at, delay\r\n0s, 20ms\r\n1s, 40ms\r\n4s,1ms\r\n\r\n";
        assert_eq!(check(Kind::Delays, steps), Ok(Summary { lines: 3, mean: 35e6 }));
        assert_eq!(check(Kind::Delays, "at,delay\n0s,7us"), Ok(Summary { lines: 1, mean: 7e3 }));
        let mbit_12 = check(Kind::Opportunities, "1\n2\n3\n3\n4\n4\n").expect("sound");
        assert_eq!(mbit_12, Summary { lines: 6, mean: 6.0 * 1514.0 * 8.0 / 4e-3 });
        assert_eq!(check(Kind::Table, "1\n-3\n5e0\n"), Ok(Summary { lines: 3, mean: 1.0 }));
    }
}
