//! The counter's nominal frequency.

use loopscope_time::Frequency;
use loopscope_time::source::counter_kind;

use crate::Error;

/// The frequency that this machine's counter is said to have: 1 GHz if it is CLOCK_MONOTONIC_RAW, which
/// counts nanoseconds; of cycles on Arm what the hardware states, on x86 what the kernel uses, or, where
/// it does not tell, a calibration against CLOCK_MONOTONIC_RAW of some 50 ms. Calibrations differ in
/// their last digits: ask once for all traces of a host.
pub fn nominal() -> Result<Frequency, Error> {
    if let Some(frequency) = counter_kind().fixed_frequency() {
        return Ok(frequency);
    }
    #[cfg(target_arch = "x86_64")]
    return match x86::from_the_kernel() {
        Some(frequency) => Ok(frequency),
        None => x86::calibrated(),
    };
    #[cfg(target_arch = "aarch64")]
    return arm::stated();
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::fs::File;
    use std::io;
    use std::num::NonZeroUsize;
    use std::os::fd::FromRawFd as _;
    use std::ptr::NonNull;
    use std::time::Duration;

    use loopscope_time::source::read_counter;
    use loopscope_time::{Counter, Frequency};
    use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
    use nix::time::{ClockId, clock_gettime};

    use crate::Error;

    /// `struct perf_event_attr`, first version (linux/perf_event.h).
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        kind: u32,
        size: u32,
        config: u64,
        sample: [u64; 3],
        flags: u64,
        wakeup: u32,
        breakpoint_type: u32,
        config1: u64,
    }

    const SOFTWARE: u32 = 1;
    const DUMMY: u64 = 9;
    const DISABLED_AND_USER_ONLY: u64 = 1 | 1 << 5 | 1 << 6;

    /// The kernel's own conversion, from the page of a perf event that counts nothing:
    /// `ns = counter * mult >> shift`. `None` where perf is forbidden or the kernel's clock is not
    /// the counter.
    #[allow(unsafe_code)]
    pub(super) fn from_the_kernel() -> Option<Frequency> {
        let attributes = Attributes {
            kind: SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config: DUMMY,
            flags: DISABLED_AND_USER_ONLY,
            ..Attributes::default()
        };
        // SAFETY: the attributes outlive the call and state their size; the rest are numbers: this
        // thread, any processor, no group, close-on-exec.
        let fd = unsafe {
            libc::syscall(libc::SYS_perf_event_open, &raw const attributes, 0, -1, -1, 8u64)
        };
        let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0)?;
        // SAFETY: the descriptor is fresh and nobody else's.
        let event = unsafe { File::from_raw_fd(fd) };
        let size = NonZeroUsize::new(4096)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let page =
            unsafe { mmap(None, size, ProtFlags::PROT_READ, MapFlags::MAP_SHARED, &event, 0) };
        let page = page.ok()?;
        let [capabilities, shift, mult] = read_page(page);
        // SAFETY: mapped just now with this size; no reference to it is left.
        let _ = unsafe { munmap(page, size.get()) };
        let has_user_time = capabilities & 1 << 3 != 0;
        if !has_user_time || mult == 0 {
            return None;
        }
        let hz = (1_000_000_000u128 << shift.min(63)) / u128::from(mult);
        Frequency::from_hz(u64::try_from(hz).ok()?)
    }

    /// `capabilities`, `time_shift` and `time_mult` of `struct perf_event_mmap_page`.
    #[allow(unsafe_code)]
    fn read_page(page: NonNull<std::ffi::c_void>) -> [u64; 3] {
        let page = page.cast::<u8>();
        // SAFETY: the mapped page has these fields at these offsets, aligned. The kernel may update
        // them at any time, hence volatile; the dummy event is never scheduled, and the conversion
        // itself changes only while the machine boots.
        unsafe {
            [
                page.add(40).cast::<u64>().read_volatile(),
                page.add(50).cast::<u16>().read_volatile().into(),
                page.add(52).cast::<u32>().read_volatile().into(),
            ]
        }
    }

    /// Two readings of counter and clock, a while apart.
    pub(super) fn calibrated() -> Result<Frequency, Error> {
        let (start_ticks, start_ns) = together()?;
        std::thread::sleep(Duration::from_millis(50));
        let (end_ticks, end_ns) = together()?;
        let ticks = end_ticks.ticks_since(start_ticks) as f64;
        let hz = (ticks * 1e9 / (end_ns - start_ns) as f64).round() as u64;
        Frequency::from_hz(hz).ok_or_else(|| {
            Error::host("calibrate the cycle counter")(io::Error::other("it stands still"))
        })
    }

    /// Counter and CLOCK_MONOTONIC_RAW (ns) at one moment: the closest of some brackets.
    pub(super) fn together() -> Result<(Counter, i64), Error> {
        let mut best = (u64::MAX, Counter(0), 0);
        for _ in 0..64 {
            let before = read_counter();
            let time = clock_gettime(ClockId::CLOCK_MONOTONIC_RAW)
                .map_err(Error::host("read CLOCK_MONOTONIC_RAW"))?;
            let width = read_counter().ticks_since(before).unsigned_abs();
            if width < best.0 {
                let ns = time.tv_sec() * 1_000_000_000 + time.tv_nsec();
                best = (width, Counter(before.0 + width / 2), ns);
            }
        }
        Ok((best.1, best.2))
    }
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use loopscope_time::Frequency;

    use crate::Error;

    /// CNTFRQ_EL0.
    #[allow(unsafe_code)]
    pub(super) fn stated() -> Result<Frequency, Error> {
        let hz: u64;
        // SAFETY: Linux always enables user access to cntfrq_el0; the instruction touches no memory.
        unsafe { core::arch::asm!("mrs {}, cntfrq_el0", out(reg) hz, options(nomem, nostack)) };
        Frequency::from_hz(hz).ok_or_else(|| {
            let zero = std::io::Error::other("the firmware has set cntfrq_el0 to zero");
            Error::host("learn the counter's frequency")(zero)
        })
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// Over 200 ms the counter's rate is the nominal one: within what the brackets leave open, and
    /// the few ppm by which a crystal misses what the kernel once measured.
    #[test]
    fn the_nominal_frequency_is_the_counters_rate() {
        let nominal = nominal().unwrap().hz() as f64;
        let calibrated = x86::calibrated().unwrap().hz() as f64;
        let (start_ticks, start_ns) = x86::together().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(200));
        let (end_ticks, end_ns) = x86::together().unwrap();
        let rate = end_ticks.ticks_since(start_ticks) as f64 * 1e9 / (end_ns - start_ns) as f64;
        assert!((nominal / rate - 1.0).abs() < 500e-6, "nominal {nominal}, measured {rate}");
        assert!((calibrated / rate - 1.0).abs() < 200e-6, "{calibrated}, measured {rate}");
    }
}
