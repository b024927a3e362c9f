//! A component's `with:` laid over the command line.

use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::ValueEnum;
use loopscope_phase::{Config, Value};

use crate::quantity::{self, QuantityError};

/// Reads settings from the experiment; each method's `given` is what the command line says.
pub(crate) struct Settings<'a>(&'a Config);

impl<'a> Settings<'a> {
    /// Refuses keys that are not `known`: a setting that is misspelt would silently do nothing.
    pub(crate) fn new(config: &'a Config, known: &[&str]) -> Result<Settings<'a>> {
        if let Some(key) = config.keys().find(|key| !known.contains(key)) {
            bail!("`{key}` is not a setting of this program; it has {}", known.join(", "));
        }
        Ok(Settings(config))
    }

    /// Whether the experiment says it.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.0.get(key).is_some()
    }

    /// Text in any form that `T` reads.
    pub(crate) fn text<T: FromStr>(&self, key: &str, given: Option<T>) -> Result<Option<T>>
    where
        T::Err: std::error::Error + Send + Sync + 'static,
    {
        match self.0.text(key)? {
            Some(text) => Ok(Some(text.parse().with_context(|| format!("`{key}` is `{text}`"))?)),
            None => Ok(given),
        }
    }

    /// A whole number between `least` and `most`.
    pub(crate) fn number(&self, key: &str, given: u64, least: u64, most: u64) -> Result<u64> {
        let number = match self.0.integer(key)? {
            Some(number) => {
                u64::try_from(number).with_context(|| format!("`{key}` is {number}"))?
            }
            None => given,
        };
        ensure!(number >= least, "`{key}` is {number}; it must be at least {least}");
        ensure!(number <= most, "`{key}` is {number}; it must be at most {most}");
        Ok(number)
    }

    /// A duration, as in `2ms`.
    pub(crate) fn duration(&self, key: &str, given: Duration) -> Result<Duration> {
        match self.quantity(key)? {
            Some(text) => quantity::duration(&text).with_context(|| format!("`{key}`")),
            None => Ok(given),
        }
    }

    /// A size between `least` and `most` bytes, as in `6B`.
    pub(crate) fn size(&self, key: &str, given: u64, least: usize, most: usize) -> Result<usize> {
        let size = match self.quantity(key)? {
            Some(text) => quantity::size(&text).with_context(|| format!("`{key}`"))?,
            None => given,
        };
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        ensure!(size >= least, "`{key}` is {size} B; it must be at least {least} B");
        ensure!(size <= most, "`{key}` is {size} B; it must be at most {most} B");
        Ok(size)
    }

    /// A quantity that `read` reads.
    pub(crate) fn optional<T>(
        &self,
        key: &str,
        given: Option<T>,
        read: fn(&str) -> Result<T, QuantityError>,
    ) -> Result<Option<T>> {
        match self.quantity(key)? {
            Some(text) => read(&text).map(Some).with_context(|| format!("`{key}`")),
            None => Ok(given),
        }
    }

    /// `true` or `false`.
    pub(crate) fn switch(&self, key: &str, given: bool) -> Result<bool> {
        match self.0.get(key) {
            None => Ok(given),
            Some(Value::Bool(value)) => Ok(*value),
            Some(other) => bail!("`{key}` is {other}; it must be true or false"),
        }
    }

    /// One of the values that the command line knows too.
    pub(crate) fn choice<T: ValueEnum>(&self, key: &str, given: T) -> Result<T> {
        match self.0.text(key)? {
            Some(text) => T::from_str(text, false).map_err(|_| {
                let names: Vec<String> = T::value_variants()
                    .iter()
                    .filter_map(|known| Some(known.to_possible_value()?.get_name().to_owned()))
                    .collect();
                anyhow!("`{key}` is `{text}`; it must be one of {}", names.join(", "))
            }),
            None => Ok(given),
        }
    }

    /// A bare number passes as text too: the quantity's own error then asks for its unit.
    fn quantity(&self, key: &str) -> Result<Option<String>> {
        match self.0.get(key) {
            Some(number) if number.is_number() => Ok(Some(number.to_string())),
            _ => Ok(self.0.text(key)?.map(str::to_owned)),
        }
    }
}
