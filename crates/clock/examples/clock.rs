//! Says what the clock page says, as `tests/c/clock.c` does in C: `map COUNTER`,
//! `elapsed COUNTER COUNTER`, `utc`.

use loopscope_clock::{Time, Utc};
use loopscope_time::Counter;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    while let Some(command) = words.next() {
        let mut map = || -> Result<Time, Box<dyn std::error::Error>> {
            Ok(loopscope_clock::map(Counter(words.next().ok_or("no counter")?.parse()?)))
        };
        match command.as_str() {
            "map" => {
                let Time { earliest, best, latest, counter, calibrated_ns, epoch, status } = map()?;
                println!(
                    "[{}, {}, {}, {}, {calibrated_ns}, {epoch}, {}]",
                    earliest.0, best.0, latest.0, counter.0, status as u32
                );
            }
            "elapsed" => match loopscope_clock::elapsed(&map()?, &map()?) {
                Some(span) => println!(
                    "[{}, {}, {}, {}]",
                    span.shortest, span.best, span.longest, span.status as u32
                ),
                None => println!("[{}, {}, {}, 0]", i64::MIN, i64::MIN, i64::MAX),
            },
            "utc" => match loopscope_clock::utc() {
                Some(Utc { offset_ns, error_ns }) => println!("[{offset_ns}, {error_ns}]"),
                None => println!("[0, {}]", u64::MAX),
            },
            _ => return Err(format!("no command {command}").into()),
        }
    }
    Ok(())
}
