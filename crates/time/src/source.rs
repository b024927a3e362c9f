//! Reading the counter. Only the edges (probe sockets, collectors, workloads) call this; every
//! core takes its instants as arguments.
//!
//! A machine's counter is that of its processors' cycles, where it is invariant and the kernel keeps
//! time by it too. Elsewhere it is `CLOCK_MONOTONIC_RAW`, in nanoseconds. The code is C
//! (`c/counter.c`), which libloopscope has too: all programs of a machine choose alike.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{Counter, Frequency};

/// The environment variable that names the kind of counter, as [`CounterKind::name`] does.
pub const VARIABLE: &str = "LOOPSCOPE_COUNTER";

/// What a machine's counter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterKind {
    /// The processor's cycle counter: `rdtsc` on x86-64, `cntvct_el0` on aarch64.
    Cycles = 1,
    /// `CLOCK_MONOTONIC_RAW` in nanoseconds. It steps as the kernel's clock source does, and is a
    /// system call where that has no vDSO.
    MonotonicRaw = 2,
}

impl CounterKind {
    /// Both.
    pub const ALL: [CounterKind; 2] = [CounterKind::Cycles, CounterKind::MonotonicRaw];

    /// The kind that has this number in a process's control file or on a clock page.
    pub fn of_number(number: u64) -> Option<CounterKind> {
        CounterKind::ALL.into_iter().find(|kind| *kind as u64 == number)
    }

    /// The word for it in [`VARIABLE`] and in experiment files.
    pub fn name(self) -> &'static str {
        match self {
            CounterKind::Cycles => "cycles",
            CounterKind::MonotonicRaw => "monotonic-raw",
        }
    }

    /// Its frequency where that is the same on every machine.
    pub fn fixed_frequency(self) -> Option<Frequency> {
        match self {
            CounterKind::Cycles => None,
            CounterKind::MonotonicRaw => Frequency::from_hz(1_000_000_000),
        }
    }
}

impl fmt::Display for CounterKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that names no kind of counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKind(String);

impl fmt::Display for UnknownKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [cycles, raw] = CounterKind::ALL;
        write!(f, "{:?} is no kind of counter: use {cycles} or {raw}", self.0)
    }
}

impl std::error::Error for UnknownKind {}

impl FromStr for CounterKind {
    type Err = UnknownKind;

    fn from_str(word: &str) -> Result<CounterKind, UnknownKind> {
        let named = CounterKind::ALL.into_iter().find(|kind| kind.name() == word);
        named.ok_or_else(|| UnknownKind(word.to_owned()))
    }
}

/// What speaks against the processor's cycle counter as a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The processor does not promise a constant rate.
    NotInvariant = 1,
    /// The kernel keeps time by something else, or does not say by what.
    Distrusted = 2,
}

impl Fault {
    fn of_number(number: u32) -> Option<Fault> {
        [Fault::NotInvariant, Fault::Distrusted].into_iter().find(|each| *each as u32 == number)
    }
}

#[allow(unsafe_code)]
// SAFETY: those that are safe take and return numbers alone (c/counter.h).
unsafe extern "C" {
    safe fn loopscope_counter_choose() -> u32;
    safe fn loopscope_counter_set(kind: u32);
    safe fn loopscope_counter_fault() -> u32;
    safe fn loopscope_counter_read() -> u64;
    safe fn loopscope_counter_read_as(kind: u64) -> u64;
}

/// Reads this machine's counter. Not a serialising instruction: neighbouring instructions may be
/// reordered around it by some tens of ticks, as in the instrumentation itself.
pub fn read_counter() -> Counter {
    Counter(loopscope_counter_read())
}

/// Reads the counter of one kind, whatever the machine's is.
pub fn read_counter_of(kind: CounterKind) -> Counter {
    Counter(loopscope_counter_read_as(kind as u64))
}

/// What this process's counter is: what [`VARIABLE`] or [`set_counter_kind`] says, else by the
/// machine. Found out at the first call. A word that names neither counts as cycles here; programs
/// refuse it at their start, by [`check_variable`].
pub fn counter_kind() -> CounterKind {
    CounterKind::of_number(loopscope_counter_choose().into()).unwrap_or(CounterKind::Cycles)
}

/// Refuses a value of [`VARIABLE`] that names no kind.
pub fn check_variable() -> Result<(), UnknownKind> {
    match std::env::var_os(VARIABLE).filter(|word| !word.is_empty()) {
        Some(word) => word.to_string_lossy().parse::<CounterKind>().map(drop),
        None => Ok(()),
    }
}

/// Makes this the process's counter, whatever [`VARIABLE`] says. To be called before anything is
/// stamped.
pub fn set_counter_kind(kind: CounterKind) {
    GIVEN.store(true, Ordering::Relaxed);
    loopscope_counter_set(kind as u32);
}

/// Whether the kind was given, and not chosen by the machine.
pub fn is_counter_given() -> bool {
    GIVEN.load(Ordering::Relaxed) || std::env::var_os(VARIABLE).is_some_and(|word| !word.is_empty())
}

/// Whether [`set_counter_kind`] was called. It publishes nothing else.
static GIVEN: AtomicBool = AtomicBool::new(false);

/// What speaks against cycles on this machine, whichever counter this process uses; `None` is
/// nothing.
pub fn fault_of_cycles() -> Option<Fault> {
    Fault::of_number(loopscope_counter_fault())
}

#[cfg(test)]
mod tests {
    use std::ffi::{CString, c_char};
    use std::ptr::null;

    use super::*;

    #[allow(unsafe_code)]
    unsafe extern "C" {
        fn loopscope_counter_choice(word: *const c_char, fault: u32) -> u32;
        fn loopscope_counter_fault_of(invariant: i32, source: *const c_char) -> u32;
    }

    #[allow(unsafe_code)]
    fn choice(word: Option<&str>, fault: Option<Fault>) -> Option<CounterKind> {
        let word = word.map(|word| CString::new(word).unwrap());
        let pointer = word.as_ref().map_or(null(), |word| word.as_ptr());
        // SAFETY: a string that outlives the call, or null.
        let kind = unsafe { loopscope_counter_choice(pointer, fault.map_or(0, |f| f as u32)) };
        CounterKind::of_number(kind.into())
    }

    #[allow(unsafe_code)]
    fn fault(invariant: bool, source: &str) -> Option<Fault> {
        let source = CString::new(source).unwrap();
        // SAFETY: a string that outlives the call.
        Fault::of_number(unsafe { loopscope_counter_fault_of(invariant.into(), source.as_ptr()) })
    }

    #[test]
    fn cycles_need_an_invariant_counter_that_the_kernel_trusts() {
        for source in ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page"] {
            assert_eq!(fault(true, source), None, "{source}");
            assert_eq!(fault(false, source), Some(Fault::NotInvariant), "{source}");
        }
        for source in ["hpet", "acpi_pm", "jiffies", "xen", "tsc-early", ""] {
            assert_eq!(fault(true, source), Some(Fault::Distrusted), "{source}");
        }
    }

    #[test]
    fn a_word_is_obeyed_and_without_one_a_fault_decides() {
        for fault in [None, Some(Fault::NotInvariant), Some(Fault::Distrusted)] {
            for kind in CounterKind::ALL {
                assert_eq!(choice(Some(kind.name()), fault), Some(kind));
                assert_eq!(kind.name().parse(), Ok(kind));
            }
            let automatic =
                if fault.is_none() { CounterKind::Cycles } else { CounterKind::MonotonicRaw };
            assert_eq!(choice(None, fault), Some(automatic));
            assert_eq!(choice(Some(""), fault), Some(automatic));
            for word in ["tsc", "Cycles", "monotonic_raw", "monotonic-raw "] {
                assert_eq!(choice(Some(word), fault), None, "{word}");
                let error = word.parse::<CounterKind>().unwrap_err().to_string();
                assert!(error.contains(word) && error.contains("cycles or monotonic-raw"));
            }
        }
    }

    /// Each kind is the clock that it is called after: an hour's worth of the other would show.
    #[test]
    fn a_kind_reads_its_own_clock() {
        let raw = || read_counter_of(CounterKind::MonotonicRaw);
        let (before, cycles, after) = (raw(), read_counter_of(CounterKind::Cycles), raw());
        assert!(after.ticks_since(before) >= 0);
        assert!(read_counter_of(CounterKind::Cycles).ticks_since(cycles) > 0);
        let up = std::fs::read_to_string("/proc/uptime").unwrap();
        let up: f64 = up.split(' ').next().unwrap().parse().unwrap();
        // Boot time counts sleep, too.
        assert!(before.0 as f64 * 1e-9 <= up + 1.0, "{before:?} after {up} s");
    }
}
