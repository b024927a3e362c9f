//! Calibration measures the hot path, which reads the counter once for each event.

use loopscope_trace::calibrate::{Work, calibrate};

fn least(work: Work) -> u64 {
    let mut ticks = [0; 50];
    assert!(calibrate(&mut ticks, 1000, work));
    ticks.into_iter().min().unwrap()
}

/// The fastest batches are what the processor does; an event cannot be cheaper than its read of the
/// counter, up to what one read at either end of a batch adds.
#[test]
fn an_event_costs_at_least_a_counter_read() {
    let (read, event) = (least(Work::CounterReads), least(Work::Events));
    assert!(read > 0 && event * 10 > read * 9, "{event} ticks against {read}");
}
