//! `InitProducerId` v6 of a producer with two-phase commit (KIP-939).

use txn_protocol::{Malformed, Put, Reader};

use super::transactions::ProducerIdAndEpoch;

/// Writes `InitProducerId` v6. With `keeps_prepared` an open transaction stays open.
pub fn encode_init(
    e: &mut Vec<u8>,
    transactional_id: &str,
    timeout_ms: i32,
    current: ProducerIdAndEpoch,
    keeps_prepared: bool,
) {
    e.put_compact_nullable_string(Some(transactional_id));
    e.put_i32(timeout_ms);
    e.put_i64(current.0);
    e.put_i16(current.1);
    e.put_bool(true); // enable2Pc
    e.put_bool(keeps_prepared);
    e.put_no_tags(true);
}

/// Reads `InitProducerId` v6: (error code, identity, identity of the transaction that was kept).
/// Nothing was kept if the producer id of the third is negative.
pub fn decode_init(
    r: &mut Reader<'_>,
) -> Result<(i16, ProducerIdAndEpoch, ProducerIdAndEpoch), Malformed> {
    r.i32()?; // throttle time
    let answer = (r.i16()?, (r.i64()?, r.i16()?), (r.i64()?, r.i16()?));
    r.skip_tags(true)?;
    Ok(answer)
}
