//! The tables of a run's clocks.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray, UInt32Array,
    UInt64Array,
};
use loopscope_time::{Bound, ClockMap, Frequency, GlobalNs, Knot};
use serde::{Deserialize, Serialize};

use crate::error::BuildError;

/// A host's clock as the time line needs it, and what else is known of the host's clocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostClock {
    /// Its counter's map.
    pub map: ClockMap,
    /// Nominal frequency of its counter.
    pub frequency: Frequency,
    /// Whether it is the reference.
    pub reference: bool,
    /// Probe exchanges that the map rests on.
    pub exchanges: u64,
    /// Messages of the probes that contradicted the others and were left out.
    pub rejected: u64,
    /// Readings of the host's other clocks, by time.
    pub readings: Vec<ForeignReading>,
    /// What happened to its clocks.
    pub events: Vec<ClockEvent>,
}

/// One host of a [`Summary`](crate::Summary).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostSummary {
    /// Whether it is the reference.
    pub reference: bool,
    /// Largest hard maximum error over its events, or over its map where it has no event.
    pub max_err_ns: u64,
    /// Bound on the difference between the host's rate and its mean.
    pub drift_ppm: f64,
    /// How far the counters of two of its processors may be apart; where it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apart_ns: Option<u64>,
    /// Probe exchanges that its map rests on.
    pub exchanges: u64,
    /// See [`HostClock::rejected`].
    pub rejected: u64,
    /// Events.
    pub events: u64,
    /// What an event costs there in ns, and the spread of that (p90 − p10); where it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_cost_ns: Option<(f64, f64)>,
}

/// What a clock that is not loopscope's showed at an instant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignReading {
    /// `realtime`, `monotonic`, `ptp0` …
    pub clock: String,
    /// When.
    pub ts: GlobalNs,
    /// Maximum error of `ts`.
    pub err: Bound,
    /// What it gained on global time since its first reading, and the maximum error of that.
    pub gained: Option<(i64, i64)>,
    /// By how much it is ahead of the reference's clock of the same name, and the maximum error.
    pub offset: Option<(i64, i64)>,
}

/// Something happened to one of a host's clocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockEvent {
    /// `counter`, or the name of another clock.
    pub clock: String,
    /// What kind of thing.
    pub kind: String,
    /// Not before this, if that is known.
    pub from: Option<GlobalNs>,
    /// Not after this, if that is known.
    pub until: Option<GlobalNs>,
    /// By how many nanoseconds, at least and at most, where that can be said.
    pub ns: Option<(i64, i64)>,
    /// In words.
    pub what: String,
}

/// The loop that an edge between two followers closes over the reference, in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopResiduals {
    /// The host that probed.
    pub host: String,
    /// The host that answered.
    pub peer: String,
    /// Exchanges that the edge's map rests on.
    pub exchanges: u64,
    /// Messages of it that contradicted the others and were left out.
    pub rejected: u64,
    /// Instants that were looked at.
    pub instants: u64,
    /// Exchanges without a residual, because a clock was disturbed.
    pub unknown: u64,
    /// Exchanges with a residual inside its calibrated error bound.
    pub covered: u64,
    /// Exchanges with a residual outside its hard maximum error.
    pub contradictions: u64,
    /// None where no instant has one.
    pub figures: Option<LoopFigures>,
    /// Why there are none.
    pub problem: Option<String>,
}

/// Percentiles of an edge's residuals, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopFigures {
    /// Median of their sizes.
    pub p50: i64,
    /// 99th percentile.
    pub p99: i64,
    /// The largest.
    pub max: i64,
    /// Median of their hard maximum errors.
    pub err: i64,
    /// And of the calibrated ones.
    pub calibrated: i64,
}

pub(crate) type Clocks = [(String, HostClock, HostSummary)];

pub(crate) fn clock_table(clocks: &Clocks) -> Result<RecordBatch, BuildError> {
    let (mut host, mut counter, mut ts) = (Vec::new(), Vec::new(), Vec::new());
    let (mut offset, mut rate, mut err) = (Vec::new(), Vec::new(), Vec::new());
    let (mut calibrated, mut epochs) = (Vec::new(), Vec::new());
    for (name, clock, _) in clocks {
        let knots = clock.map.knots();
        let nominal = clock.frequency.ns_per_tick();
        let epoch = |knot: &Knot| clock.map.epoch(knot.counter);
        for (i, knot) in knots.iter().enumerate() {
            let (instant, bound) = clock.map.map(knot.counter);
            let ticks = knot.counter.ticks_since(knots[0].counter) as f64;
            host.push(name.clone());
            counter.push(knot.counter.0);
            ts.push(instant.0);
            offset.push(knot.offset_ns - knots[0].offset_ns - ticks * nominal);
            let next = knots.get(i + 1).filter(|next| epoch(next) == epoch(knot));
            rate.push(next.map(|next| {
                let ns = next.offset_ns - knot.offset_ns;
                let ticks = next.counter.ticks_since(knot.counter) as f64;
                (ns / (ticks * nominal) - 1.0) * 1e6
            }));
            err.push(bound.ns().cast_signed());
            calibrated.push(clock.map.calibrated(knot.counter).ns().cast_signed());
            epochs.push(epoch(knot));
        }
    }
    Ok(RecordBatch::try_from_iter([
        ("host", Arc::new(StringArray::from(host)) as ArrayRef),
        ("counter", Arc::new(UInt64Array::from(counter))),
        ("ts", Arc::new(Int64Array::from(ts))),
        ("offset_ns", Arc::new(Float64Array::from(offset))),
        ("rate_ppm", Arc::new(Float64Array::from(rate))),
        ("err_ns", Arc::new(Int64Array::from(err))),
        ("calibrated_ns", Arc::new(Int64Array::from(calibrated))),
        ("epoch", Arc::new(UInt32Array::from(epochs))),
    ])?)
}

pub(crate) fn hosts_table(clocks: &Clocks) -> Result<RecordBatch, BuildError> {
    let column = |of: &dyn Fn(&HostSummary) -> u64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(clocks.iter().map(|(_, _, s)| of(s).cast_signed())))
    };
    let names = clocks.iter().map(|(host, ..)| Some(host.as_str()));
    let references = clocks.iter().map(|(_, clock, _)| Some(clock.reference));
    let drifts = clocks.iter().map(|(_, _, s)| s.drift_ppm);
    let apart = clocks.iter().map(|(_, _, s)| s.apart_ns.map(u64::cast_signed));
    let (costs, spreads): (Vec<_>, Vec<_>) =
        clocks.iter().map(|(_, _, s)| s.event_cost_ns.unzip()).unzip();
    Ok(RecordBatch::try_from_iter([
        ("host", Arc::new(StringArray::from_iter(names)) as ArrayRef),
        ("reference", Arc::new(BooleanArray::from_iter(references))),
        ("max_err_ns", column(&|s| s.max_err_ns)),
        ("drift_ppm", Arc::new(Float64Array::from_iter_values(drifts))),
        ("exchanges", column(&|s| s.exchanges)),
        ("rejected", column(&|s| s.rejected)),
        ("events", column(&|s| s.events)),
        ("event_cost_ns", Arc::new(Float64Array::from(costs))),
        ("event_cost_err_ns", Arc::new(Float64Array::from(spreads))),
        ("apart_ns", Arc::new(Int64Array::from_iter(apart))),
    ])?)
}

pub(crate) fn foreign_table(clocks: &Clocks) -> Result<RecordBatch, BuildError> {
    let all =
        || clocks.iter().flat_map(|(host, clock, _)| clock.readings.iter().map(move |r| (host, r)));
    let integers = |of: &dyn Fn(&ForeignReading) -> Option<i64>| -> ArrayRef {
        Arc::new(Int64Array::from_iter(all().map(|(_, reading)| of(reading))))
    };
    let hosts = all().map(|(host, _)| Some(host.as_str()));
    let names = all().map(|(_, reading)| Some(reading.clock.as_str()));
    Ok(RecordBatch::try_from_iter_with_nullable([
        ("host", Arc::new(StringArray::from_iter(hosts)) as ArrayRef, false),
        ("clock", Arc::new(StringArray::from_iter(names)), false),
        ("ts", integers(&|r| Some(r.ts.0)), false),
        ("err_ns", integers(&|r| Some(r.err.ns().cast_signed())), false),
        ("gained_ns", integers(&|r| r.gained.map(|(ns, _)| ns)), true),
        ("gained_err_ns", integers(&|r| r.gained.map(|(_, err)| err)), true),
        ("offset_ns", integers(&|r| r.offset.map(|(ns, _)| ns)), true),
        ("offset_err_ns", integers(&|r| r.offset.map(|(_, err)| err)), true),
    ])?)
}

pub(crate) fn events_table(clocks: &Clocks) -> Result<RecordBatch, BuildError> {
    let all =
        || clocks.iter().flat_map(|(host, clock, _)| clock.events.iter().map(move |e| (host, e)));
    let texts = |of: &dyn Fn(&ClockEvent) -> String| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(all().map(|(_, event)| of(event))))
    };
    let integers = |of: &dyn Fn(&ClockEvent) -> Option<i64>| -> ArrayRef {
        Arc::new(Int64Array::from_iter(all().map(|(_, event)| of(event))))
    };
    let hosts = StringArray::from_iter_values(all().map(|(host, _)| host));
    Ok(RecordBatch::try_from_iter_with_nullable([
        ("host", Arc::new(hosts) as ArrayRef, false),
        ("clock", texts(&|e| e.clock.clone()), false),
        ("kind", texts(&|e| e.kind.clone()), false),
        ("from_ts", integers(&|e| e.from.map(|ts| ts.0)), true),
        ("until_ts", integers(&|e| e.until.map(|ts| ts.0)), true),
        ("least_ns", integers(&|e| e.ns.map(|(least, _)| least)), true),
        ("most_ns", integers(&|e| e.ns.map(|(_, most)| most)), true),
        ("what", texts(&|e| e.what.clone()), false),
    ])?)
}

pub(crate) fn loops_table(loops: &[LoopResiduals]) -> Result<RecordBatch, BuildError> {
    let texts = |of: &dyn Fn(&LoopResiduals) -> Option<String>| -> ArrayRef {
        Arc::new(StringArray::from_iter(loops.iter().map(of)))
    };
    let counts = |of: &dyn Fn(&LoopResiduals) -> u64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(loops.iter().map(|l| of(l).cast_signed())))
    };
    let figures = |of: &dyn Fn(LoopFigures) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter(loops.iter().map(|l| l.figures.map(of))))
    };
    Ok(RecordBatch::try_from_iter_with_nullable([
        ("host", texts(&|l| Some(l.host.clone())), false),
        ("peer", texts(&|l| Some(l.peer.clone())), false),
        ("exchanges", counts(&|l| l.exchanges), false),
        ("rejected", counts(&|l| l.rejected), false),
        ("instants", counts(&|l| l.instants), false),
        ("unknown", counts(&|l| l.unknown), false),
        ("covered", counts(&|l| l.covered), false),
        ("contradictions", counts(&|l| l.contradictions), false),
        ("p50_ns", figures(&|f| f.p50), true),
        ("p99_ns", figures(&|f| f.p99), true),
        ("max_ns", figures(&|f| f.max), true),
        ("err_ns", figures(&|f| f.err), true),
        ("calibrated_ns", figures(&|f| f.calibrated), true),
        ("problem", texts(&|l| l.problem.clone()), true),
    ])?)
}
