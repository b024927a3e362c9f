//! The two-state clock filter: offset and rate, whose rate walks randomly.
//!
//! A Kalman filter with the states and noises of Zucca and Tavella ("The clock model and its
//! relationship with the Allan and related variances", IEEE UFFC 2005), the random walk of the rate
//! alone, and a Rauch-Tung-Striebel smoother. How far the rate wanders in comparison with the noise
//! of a measurement is what its innovations say: of some ratios the likeliest.
//!
//! Time is in seconds, offsets are in nanoseconds, rates in ns/s. Variances are kept in units of a
//! measurement's.

/// Ratios of wander to noise that are tried, (ns/s)²/s for each ns² of a measurement: from a clock
/// that moves by its measurements' noise within some minutes to one that does within half a second.
pub(crate) const RATIOS: [f64; 15] =
    [1e-7, 3e-7, 1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0];

/// Innovations beyond so many standard deviations count as this many: a window in which every
/// message was held up is no news of the clock.
const BELIEVED: f64 = 3.0;

/// For how many innovations a guess of the noise counts. As degrees of freedom of the variance's
/// prior (scaled inverse chi-squared) it makes the logarithm's standard deviation √ψ₁(1/4) = 4.1, a
/// factor of eight for a standard deviation: what one window scatters tells no more than the order
/// of magnitude.
const GUESS_COUNTS: f64 = 0.5;

/// Offset and rate with their variances.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) offset: f64,
    pub(crate) rate: f64,
    /// Variance of the offset, covariance of offset and rate, variance of the rate.
    pub(crate) variance: [f64; 3],
}

/// What a measurement was against what was expected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Innovation {
    /// Its square in units of its variance, as far as it was believed.
    pub(crate) square: f64,
    /// Its variance.
    pub(crate) variance: f64,
}

impl Clock {
    /// Nothing is known but the rate's variance.
    pub(crate) fn unknown(offset: f64, rate_variance: f64) -> Clock {
        Clock { offset, rate: 0.0, variance: [1e6, 0.0, rate_variance] }
    }

    /// Later by `dt`.
    #[must_use]
    pub(crate) fn later(self, dt: f64, ratio: f64) -> Clock {
        let [oo, or, rr] = self.variance;
        let variance = [
            oo + 2.0 * dt * or + dt * dt * rr + ratio * dt * dt * dt / 3.0,
            or + dt * rr + ratio * dt * dt / 2.0,
            rr + ratio * dt,
        ];
        Clock { offset: self.offset + dt * self.rate, variance, ..self }
    }

    /// Takes in a measurement of a variance of its own (1: like all others). `noise` is what the
    /// unit is thought to be, in ns².
    pub(crate) fn measure(&mut self, offset: f64, own: f64, noise: f64) -> Innovation {
        let [oo, or, rr] = self.variance;
        let innovation = offset - self.offset;
        let square = innovation * innovation / noise;
        let believed = square.min(BELIEVED * BELIEVED * (oo + own));
        let variance = if square > 0.0 { (oo + own) * square / believed } else { oo + own };
        let gain = [oo / variance, or / variance];
        self.offset += gain[0] * innovation;
        self.rate += gain[1] * innovation;
        self.variance = [oo - gain[0] * oo, or - gain[0] * or, rr - gain[1] * or];
        Innovation { square: believed * noise / (oo + own), variance: oo + own }
    }
}

/// A measurement of the offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measurement {
    pub(crate) offset: f64,
    /// Its variance, where 1 is the usual one.
    pub(crate) own: f64,
}

/// How likely measurements are under one ratio.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Likelihood {
    count: f64,
    squares: f64,
    logarithms: f64,
}

impl Likelihood {
    /// `kept`: what remains of the earlier ones' weight.
    pub(crate) fn add(&mut self, innovation: Innovation, kept: f64) {
        self.count = kept * self.count + 1.0;
        self.squares = kept * self.squares + innovation.square;
        self.logarithms = kept * self.logarithms + innovation.variance.ln();
    }

    /// A measurement's variance, ns²: the innovations' own.
    pub(crate) fn noise(&self) -> f64 {
        self.squares / self.count.max(1.0)
    }

    /// The same, where before any innovation it was thought to be `guess`.
    pub(crate) fn noise_from(&self, guess: f64) -> f64 {
        (GUESS_COUNTS * guess + self.squares) / (GUESS_COUNTS + self.count)
    }

    /// Larger is likelier; compares ratios over the same measurements only.
    pub(crate) fn logarithm(&self) -> f64 {
        -0.5 * (self.count * self.noise().max(1e-6).ln() + self.logarithms)
    }
}

/// Offset and variance at each instant, from all measurements.
#[derive(Clone, Debug)]
pub(crate) struct Smoothed {
    pub(crate) offsets: Vec<f64>,
    /// ns².
    pub(crate) variances: Vec<f64>,
}

/// Offsets at instants that measurements were taken at, from all of them, for one ratio.
pub(crate) fn retrace(measurements: &[(f64, Measurement)], ratio: f64, noise: f64) -> Vec<f64> {
    let mut run: Vec<(Clock, Clock)> = Vec::with_capacity(measurements.len());
    for (i, (at, m)) in measurements.iter().enumerate() {
        let expected = match run.last() {
            Some((_, clock)) => clock.later(at - measurements[i - 1].0, ratio),
            // Any rate.
            None => Clock::unknown(m.offset, 1e12 / noise),
        };
        let mut clock = expected;
        clock.measure(m.offset, m.own, noise);
        run.push((expected, clock));
    }
    let mut offsets = vec![0.0; run.len()];
    let mut later: Option<Clock> = None;
    for i in (0..run.len()).rev() {
        let here = later.map_or(run[i].1, |later| {
            backward(&run[i].1, &run[i + 1].0, &later, measurements[i + 1].0 - measurements[i].0)
        });
        offsets[i] = here.offset;
        later = Some(here);
    }
    offsets
}

/// Measurements `dt` apart, some of them missing. `rate_sd` in ns/s; `noise` is a first guess of
/// their variance, ns².
pub(crate) fn smooth(
    measurements: &[Option<Measurement>],
    dt: f64,
    rate_sd: f64,
    noise: f64,
) -> Smoothed {
    let runs = RATIOS.map(|ratio| forward(measurements, dt, rate_sd, noise, ratio));
    let likelier = |a: &&Run, b: &&Run| a.1.logarithm().total_cmp(&b.1.logarithm());
    let (filtered, likelihood) = runs.iter().max_by(likelier).expect("there are ratios");
    // Few innovations say little of the noise.
    let noise =
        if likelihood.count < 8.0 { likelihood.noise().max(noise) } else { likelihood.noise() };
    let mut smoothed = Smoothed { offsets: Vec::new(), variances: Vec::new() };
    let mut later: Option<Clock> = None;
    for i in (0..filtered.len()).rev() {
        let clock = filtered[i].1;
        let here = match later {
            None => clock,
            Some(later) => backward(&clock, &filtered[i + 1].0, &later, dt),
        };
        smoothed.offsets.push(here.offset);
        smoothed.variances.push(here.variance[0].max(0.0) * noise);
        later = Some(here);
    }
    smoothed.offsets.reverse();
    smoothed.variances.reverse();
    smoothed
}

/// What was expected of the clock at each instant, and what it was with the measurement there.
type Run = (Vec<(Clock, Clock)>, Likelihood);

fn forward(
    measurements: &[Option<Measurement>],
    dt: f64,
    rate_sd: f64,
    noise: f64,
    ratio: f64,
) -> Run {
    let first = measurements.iter().flatten().next().map_or(0.0, |m| m.offset);
    let mut expected = Clock::unknown(first, rate_sd * rate_sd / noise);
    let (mut run, mut likelihood) = (Vec::with_capacity(measurements.len()), Likelihood::default());
    let mut known = 0;
    for measurement in measurements {
        let mut clock = expected;
        if let Some(m) = measurement {
            let innovation = clock.measure(m.offset, m.own, noise);
            // The first two fix offset and rate.
            if known >= 2 {
                likelihood.add(innovation, 1.0);
            }
            known += 1;
        }
        run.push((expected, clock));
        expected = clock.later(dt, ratio);
    }
    (run, likelihood)
}

/// One step of the Rauch-Tung-Striebel smoother.
fn backward(clock: &Clock, expected: &Clock, later: &Clock, dt: f64) -> Clock {
    let [oo, or, rr] = clock.variance;
    let [eoo, eor, err] = expected.variance;
    let determinant = eoo * err - eor * eor;
    // Clock's covariance with the expected one: P·Fᵀ.
    let [a, b, c, d] = [oo + dt * or, or, or + dt * rr, rr];
    let gain = [
        [(a * err - b * eor) / determinant, (b * eoo - a * eor) / determinant],
        [(c * err - d * eor) / determinant, (d * eoo - c * eor) / determinant],
    ];
    let moved = [later.offset - expected.offset, later.rate - expected.rate];
    let [doo, dor, drr] =
        [later.variance[0] - eoo, later.variance[1] - eor, later.variance[2] - err];
    let shrink = |i: usize, j: usize| {
        gain[i][0] * (doo * gain[j][0] + dor * gain[j][1])
            + gain[i][1] * (dor * gain[j][0] + drr * gain[j][1])
    };
    Clock {
        offset: clock.offset + gain[0][0] * moved[0] + gain[0][1] * moved[1],
        rate: clock.rate + gain[1][0] * moved[0] + gain[1][1] * moved[1],
        variance: [oo + shrink(0, 0), or + shrink(0, 1), rr + shrink(1, 1)],
    }
}
