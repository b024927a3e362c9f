//! A program's configuration: from its command line, overruled by the experiment's `with:`.

use serde_json::{Map, Value};

use crate::PhaseError;

/// Keys and values that a program was configured with.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config(Map<String, Value>);

impl Config {
    /// Reads `--key value` and `--key=value`. A value that is a JSON number, `true` or `false`
    /// becomes that; any other is a string.
    pub fn from_arguments(
        arguments: impl IntoIterator<Item = String>,
    ) -> Result<Config, PhaseError> {
        let mut config = Map::new();
        let mut arguments = arguments.into_iter();
        while let Some(word) = arguments.next() {
            let key =
                word.strip_prefix("--").filter(|key| !key.is_empty() && !key.starts_with('='));
            let Some(key) = key else { return Err(PhaseError::Argument(word)) };
            let (key, value) = match key.split_once('=') {
                Some((key, value)) => (key.to_owned(), value.to_owned()),
                None => match arguments.next() {
                    Some(value) => (key.to_owned(), value),
                    None => return Err(PhaseError::Argument(word)),
                },
            };
            let scalar = serde_json::from_str(&value).ok().filter(|v: &Value| {
                // Blanks around a number are JSON but nobody's intention.
                (v.is_number() || v.is_boolean()) && value.trim() == value
            });
            config.insert(key, scalar.unwrap_or(Value::String(value)));
        }
        Ok(Config(config))
    }

    /// The value of `key`, of any type.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// The keys, in no particular order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The string at `key`; `None` where there is no such key.
    pub fn text(&self, key: &str) -> Result<Option<&str>, PhaseError> {
        self.typed(key, "a string", Value::as_str)
    }

    /// The integer at `key`; `None` where there is no such key.
    pub fn integer(&self, key: &str) -> Result<Option<i64>, PhaseError> {
        self.typed(key, "a whole number", Value::as_i64)
    }

    /// The number at `key`; `None` where there is no such key.
    pub fn number(&self, key: &str) -> Result<Option<f64>, PhaseError> {
        self.typed(key, "a number", Value::as_f64)
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        wanted: &'static str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, PhaseError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| PhaseError::Config {
            key: key.to_owned(),
            found: value.to_string(),
            wanted,
        })
    }

    /// Takes over every key of `with`, which wins over what is here.
    pub(crate) fn overrule(&mut self, with: Map<String, Value>) {
        self.0.extend(with);
    }
}

impl From<Map<String, Value>> for Config {
    fn from(map: Map<String, Value>) -> Config {
        Config(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn config(words: &[&str]) -> Result<Config, PhaseError> {
        Config::from_arguments(words.iter().map(|w| w.to_string()))
    }

    #[test]
    fn command_line_values_keep_quantities_as_text() {
        let config =
            config(&["--count", "100", "--period=2ms", "--fast", "true", "--x=", "--y=-1.5"]);
        let config = config.unwrap();
        assert_eq!(config.integer("count").unwrap(), Some(100));
        assert_eq!(config.text("period").unwrap(), Some("2ms"));
        assert_eq!(config.get("fast"), Some(&json!(true)));
        assert_eq!(config.text("x").unwrap(), Some(""));
        assert_eq!(config.number("y").unwrap(), Some(-1.5));
        assert_eq!(config.text("absent").unwrap(), None);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for words in [&["count"][..], &["--count"], &["--"], &["--=5"], &["-c", "5"]] {
            assert!(matches!(config(words), Err(PhaseError::Argument(_))), "{words:?}");
        }
        let error = config(&["--count=2ms"]).unwrap().integer("count").unwrap_err();
        assert_eq!(error.to_string(), "`count` is \"2ms\"; it must be a whole number");
    }
}
