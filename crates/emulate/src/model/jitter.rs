//! How delays vary about their mean: deviates of a shape, correlated where asked.

use super::normal;
use super::random::Stream;
use crate::settings::{Distribution, Jitter};

/// A shape of mean 0 and deviation 1 (uniform: between -1 and 1).
#[derive(Clone, Debug)]
enum Shape {
    Uniform,
    Normal,
    Pareto,
    Exponential,
    /// Sorted.
    Table(Vec<f64>),
}

impl Shape {
    /// The value above which a share `above` lies.
    fn value(&self, above: f64) -> f64 {
        match self {
            Shape::Uniform => 1.0 - 2.0 * above,
            Shape::Normal => -normal::quantile(above),
            Shape::Pareto => {
                // Standard deviation of a Pareto distribution with shape 3 and scale 1: mean 3/2,
                // variance 3/4.
                const DEVIATION: f64 = 0.866_025_403_784_438_6;
                (1.0 / libm::cbrt(above) - 1.5) / DEVIATION
            }
            Shape::Exponential => -libm::log(above) - 1.0,
            Shape::Table(values) => {
                let from_top = (above * values.len() as f64) as usize;
                values[values.len() - 1 - from_top.min(values.len() - 1)]
            }
        }
    }
}

/// Deviates, packet by packet.
#[derive(Clone, Debug)]
pub(crate) struct Deviates {
    shape: Shape,
    correlation: f64,
    /// Share of a normal score that is new, so that its variance stays 1.
    fresh: f64,
    score: Option<f64>,
}

impl Deviates {
    /// `table` is what the file of [`Distribution::Table`] holds.
    pub(crate) fn new(jitter: &Jitter, table: &[f64]) -> Deviates {
        let shape = match jitter.distribution {
            Distribution::Uniform => Shape::Uniform,
            Distribution::Normal => Shape::Normal,
            Distribution::Pareto => Shape::Pareto,
            Distribution::Exponential => Shape::Exponential,
            Distribution::Table(_) => Shape::Table(standardised(table)),
        };
        let correlation = jitter.correlation;
        let fresh = (1.0 - correlation * correlation).sqrt();
        Deviates { shape, correlation, fresh, score: None }
    }

    pub(crate) fn next(&mut self, random: &mut Stream) -> f64 {
        let above = random.open();
        if self.correlation == 0.0 {
            return self.shape.value(above);
        }
        let fresh = -normal::quantile(above);
        let score = match self.score {
            None => fresh,
            Some(before) => self.correlation * before + self.fresh * fresh,
        };
        self.score = Some(score);
        match self.shape {
            Shape::Normal => score,
            _ => self.shape.value(normal::above(score)),
        }
    }

    /// What all but one deviate in a million stay below.
    pub(crate) fn high(&self) -> f64 {
        self.shape.value(1e-6)
    }
}

/// Sorted, with mean 0 and deviation 1.
fn standardised(values: &[f64]) -> Vec<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>();
    let deviation = (squares / count).sqrt();
    values.iter().map(|value| (value - mean) / deviation).collect()
}
