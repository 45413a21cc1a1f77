//! The limit on the number of partitions that one Produce or Fetch names.

use txn_protocol::{Malformed, Reader};

/// More partitions than this in one request are malformed: to keep one takes more memory than its
/// name takes bytes of the request.
const MAX_PARTITIONS: usize = 200_000;

/// Checks the partitions that a request has named so far; the reader stands behind their number.
///
/// # Errors
/// They are too many, or `topics`, the topics before this one, are.
#[inline]
pub fn require_few(reader: &Reader<'_>, partitions: usize, topics: usize) -> Result<(), Malformed> {
    if partitions > MAX_PARTITIONS || topics >= MAX_PARTITIONS {
        return Err(Malformed {
            at: reader.at(),
            reason: "it names too many partitions",
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_two_hundred_thousand_partitions_and_as_many_topics() {
        let reader = Reader::new(&[]);
        assert!(require_few(&reader, MAX_PARTITIONS, MAX_PARTITIONS - 1).is_ok());
        assert!(require_few(&reader, MAX_PARTITIONS + 1, 0).is_err());
        assert!(require_few(&reader, 0, MAX_PARTITIONS).is_err());
    }
}
