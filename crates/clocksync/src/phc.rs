//! The clock of a network interface (PTP hardware clock), read against the counter.
//!
//! The kernel reads it together with `CLOCK_REALTIME`: at one instant where the hardware can
//! (`PTP_SYS_OFFSET_PRECISE`), else in between (`PTP_SYS_OFFSET_EXTENDED`). From there it is the
//! way of any kernel stamp to the counter.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use nix::libc::{
    self, PTP_SYS_OFFSET_EXTENDED, PTP_SYS_OFFSET_PRECISE, ptp_clock_time, ptp_sys_offset_extended,
    ptp_sys_offset_precise,
};

use crate::Span;
use crate::stamp::{ClockStep, Placer, Reading, StampNs};

/// Readings of one call; the narrowest serves.
const SAMPLES: usize = 5;

/// `/dev/ptpN`.
#[derive(Debug)]
pub(crate) struct Phc {
    number: u32,
    device: File,
}

impl Phc {
    /// The first clock that can be opened.
    pub(crate) fn open(number: u32) -> Option<Phc> {
        let device = File::open(format!("/dev/ptp{number}")).ok()?;
        Some(Phc { number, device })
    }

    /// All of this machine that may be opened.
    pub(crate) fn all() -> Vec<Phc> {
        let entries = std::fs::read_dir(Path::new("/dev")).into_iter().flatten().flatten();
        let number = |name: &str| name.strip_prefix("ptp")?.parse().ok();
        let mut phcs: Vec<Phc> =
            entries.filter_map(|e| Phc::open(number(e.file_name().to_str()?)?)).collect();
        phcs.sort_by_key(|phc| phc.number);
        phcs
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Reads it. `None` if the device refuses, or `CLOCK_REALTIME` was set meanwhile.
    pub(crate) fn read(&mut self, kernel: &mut Placer) -> Option<Reading> {
        let readings = self.precise().map(|(device, real)| (device, [real, real]));
        let (device, around) = readings.or_else(|| self.extended())?;
        kernel.see(Reading::take()).ok()?;
        beside(device, around, kernel).ok()
    }

    /// Its time and `CLOCK_REALTIME` at one instant.
    fn precise(&self) -> Option<(i64, StampNs)> {
        let mut answer = zeroed::<ptp_sys_offset_precise>();
        self.ask(PTP_SYS_OFFSET_PRECISE, &mut answer)?;
        Some((nanoseconds(answer.device), StampNs(nanoseconds(answer.sys_realtime))))
    }

    /// Its time between two readings of `CLOCK_REALTIME`.
    fn extended(&self) -> Option<(i64, [StampNs; 2])> {
        let mut answer = zeroed::<ptp_sys_offset_extended>();
        answer.n_samples = SAMPLES as u32;
        self.ask(PTP_SYS_OFFSET_EXTENDED, &mut answer)?;
        narrowest(answer.ts[..SAMPLES].iter().map(|sample| sample.map(nanoseconds)))
    }

    #[allow(unsafe_code)]
    fn ask<T>(&self, request: libc::Ioctl, answer: &mut T) -> Option<()> {
        // SAFETY: each of the two requests above comes with the structure that the kernel defines
        // for it, which lives through the call.
        let result = unsafe { libc::ioctl(self.device.as_raw_fd(), request, answer) };
        (result == 0).then_some(())
    }
}

#[allow(unsafe_code)]
fn zeroed<T: Offset>() -> T {
    // SAFETY: both structures are numbers only, for which zero is a value.
    unsafe { std::mem::zeroed() }
}

/// Structures of numbers only.
trait Offset {}
impl Offset for ptp_sys_offset_precise {}
impl Offset for ptp_sys_offset_extended {}

fn nanoseconds(time: ptp_clock_time) -> i64 {
    time.sec * 1_000_000_000 + i64::from(time.nsec)
}

/// The sample [before, device, after] that took the least time.
fn narrowest(samples: impl Iterator<Item = [i64; 3]>) -> Option<(i64, [StampNs; 2])> {
    let [before, device, after] = samples.min_by_key(|[before, _, after]| after - before)?;
    Some((device, [StampNs(before), StampNs(after)]))
}

/// A reading of a clock that was read between two instants of `CLOCK_REALTIME`.
fn beside(device: i64, around: [StampNs; 2], kernel: &Placer) -> Result<Reading, ClockStep> {
    let [before, after] =
        [kernel.place(around[0], Span::ANY)?, kernel.place(around[1], Span::ANY)?];
    let at = Span { lo: before.lo, hi: after.hi };
    Ok(Reading { clock: StampNs(device), at, setting: Reading::ANY_SETTING })
}

#[cfg(test)]
mod tests {
    use loopscope_time::{Counter, Frequency};

    use super::*;
    use crate::stamp::Steering;

    /// Kernel's clock: 1 s at counter 0, a nanosecond for each two ticks.
    fn kernel() -> Placer {
        let reading = |ns: i64| Reading {
            clock: StampNs(1_000_000_000 + ns),
            at: Span { lo: Counter(2 * ns as u64), hi: Counter(2 * ns as u64 + 60) },
            setting: Reading::ANY_SETTING,
        };
        let hz = Frequency::from_hz(2_000_000_000).unwrap();
        let mut placer = Placer::new(hz, reading(0), Steering::Monotone);
        for ns in [10_000_000, 20_000_000, 30_000_000] {
            placer.see(reading(ns)).unwrap();
        }
        placer
    }

    /// The device's time stands for the counter between the kernel's two, whatever its epoch.
    #[test]
    fn a_device_is_placed_by_the_kernels_clock_around_it() {
        let samples = [
            [1_021_000_000, 77_000_000_900, 1_021_003_000],
            [1_021_005_000, 77_000_005_100, 1_021_005_800],
            [1_021_009_000, 77_000_009_900, 1_021_011_000],
        ];
        let (device, around) = narrowest(samples.into_iter()).unwrap();
        assert_eq!(device, 77_000_005_100);
        let reading = beside(device, around, &kernel()).unwrap();
        assert_eq!(reading.clock, StampNs(77_000_005_100));
        let (lo, hi) = (reading.at.lo.0, reading.at.hi.0);
        assert!((42_009_980..=42_010_000).contains(&lo), "{lo}");
        assert!((42_011_660..=42_011_690).contains(&hi), "{hi}");
        // A stamp of the device, 2 µs later on its clock, by two such readings.
        let hz = Frequency::from_hz(2_000_000_000).unwrap();
        let mut placer = Placer::new(hz, reading, Steering::Any);
        let later = beside(device + 4_000, around.map(|ns| StampNs(ns.0 + 4_000)), &kernel());
        placer.see(later.unwrap()).unwrap();
        let span = placer.place(StampNs(device + 2_000), Span::ANY).unwrap();
        assert!(span.lo.0 <= 42_014_000 && 42_015_600 <= span.hi.0, "{span:?}");
        assert!(span.width() < 1_720, "{span:?}");
    }

    #[test]
    fn the_kernels_clock_must_cover_the_reading() {
        let beyond = [StampNs(1_030_000_100), StampNs(1_030_000_900)];
        assert_eq!(beside(5, beyond, &kernel()), Err(ClockStep));
        assert_eq!(narrowest(std::iter::empty()), None);
    }
}
