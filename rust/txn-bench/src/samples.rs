//! Measured values, and their output: one line of JSON.

use std::fmt::Write as _;
use std::time::Duration;

/// Durations of single requests.
#[derive(Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Adds one, in the unit that the name in the output has.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// Adds those of another thread.
    pub fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// The smallest value that `share` of all do not exceed; 0 if there is none.
    pub fn percentile(&mut self, share: f64) -> f64 {
        if self.0.is_empty() {
            return 0.0;
        }
        let rank = ((self.0.len() as f64 * share).ceil() as usize).clamp(1, self.0.len()) - 1;
        let (_, value, _) = self.0.select_nth_unstable_by(rank, f64::total_cmp);
        *value
    }
}

/// Microseconds.
pub fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// Prints named numbers as one JSON object.
pub fn print(values: &[(&str, f64)]) {
    println!("{}", json(values));
}

fn json(values: &[(&str, f64)]) -> String {
    let mut line = String::from("{");
    for (name, value) in values {
        let comma = if line.len() > 1 { ", " } else { "" };
        write!(line, "{comma}\"{name}\": {value}").expect("a string takes everything");
    }
    line.push('}');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let mut samples = Samples::default();
        (1..=100).rev().for_each(|n| samples.push(f64::from(n)));
        assert_eq!(
            [0.5, 0.99, 1.0].map(|share| samples.percentile(share) as i32),
            [50, 99, 100]
        );
    }

    #[test]
    fn numbers_are_printed_as_one_json_object() {
        assert_eq!(
            json(&[("bytes", 2.0), ("p50_us", 1.5)]),
            "{\"bytes\": 2, \"p50_us\": 1.5}"
        );
    }
}
