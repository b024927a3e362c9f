//! What an event costs on this machine, measured on the hot path itself.

use core::ffi::c_int;

#[allow(unsafe_code)]
unsafe extern "C" {
    fn loopscope_calibrate(ticks: *mut u64, batches: u32, count: u32, events: c_int) -> c_int;
}

/// What a batch repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Enabled events with an id.
    Events,
    /// Bare reads of the counter, the floor of any stamped event.
    CounterReads,
}

/// Fills `ticks` with the durations, in ticks of the counter, of batches of `count` repetitions each;
/// false if there was no memory for it. Takes about `ticks.len() * count` times 10 ns; the calling
/// thread's own events are not recorded meanwhile.
#[allow(unsafe_code)]
pub fn calibrate(ticks: &mut [u64], count: u32, work: Work) -> bool {
    let events = c_int::from(work == Work::Events);
    // SAFETY: the core writes the slice's elements and keeps no pointer.
    unsafe { loopscope_calibrate(ticks.as_mut_ptr(), ticks.len() as u32, count, events) != 0 }
}
