//! `--name value` pairs.

use std::collections::HashMap;
use std::str::FromStr;

/// Any error; shown and not handled.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The options of the command line.
pub struct Arguments(HashMap<String, String>);

impl Arguments {
    /// Reads `--name value` pairs.
    pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut pairs = HashMap::new();
        while let Some(word) = words.next() {
            let name = word
                .strip_prefix("--")
                .ok_or_else(|| format!("{word:?} is no --name"))?;
            let value = words
                .next()
                .ok_or_else(|| format!("--{name} has no value"))?;
            pairs.insert(name.to_owned(), value);
        }
        Ok(Self(pairs))
    }

    /// The value of a name that has to be given.
    pub fn text(&self, name: &str) -> Result<&str, Failure> {
        let value = self.0.get(name).map(String::as_str);
        value.ok_or_else(|| format!("--{name} is not given").into())
    }

    /// The value of a name, if it is given.
    pub fn maybe(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The value of a name, or its default.
    pub fn number<T: FromStr>(&self, name: &str, otherwise: T) -> Result<T, Failure> {
        match self.0.get(name) {
            None => Ok(otherwise),
            Some(value) => value
                .parse()
                .map_err(|_| format!("--{name} cannot be {value:?}").into()),
        }
    }
}
