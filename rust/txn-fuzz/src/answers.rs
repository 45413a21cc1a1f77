//! A node's answers, as the client reads them: every API and version, Fetch to its columns, and log-ins.

use txn_client::fuzzing::{fetched_rows, log_in};
use txn_client::messages::{cluster, produce, sasl, transactions};
use txn_protocol::batch::{self, BatchView};
use txn_protocol::frame::read_response_header;
use txn_protocol::{Malformed, Put, Reader, apis};

use crate::seeds;

type AnswerReader = fn(&mut Reader<'_>) -> Result<usize, Malformed>;

/// Every reader of a body; the number is that of entries found.
const READERS: [AnswerReader; 19] = [
    |r| cluster::decode_api_versions(r, 0).map(|_| 1),
    |r| cluster::decode_api_versions(r, 3).map(|_| 1),
    |r| cluster::decode_metadata(r, 9).map(|found| found.topics.len()),
    |r| cluster::decode_metadata(r, 10).map(|found| found.topics.len()),
    |r| cluster::decode_metadata(r, 12).map(|found| found.topics.len()),
    |r| cluster::decode_find_coordinator(r).map(|_| 1),
    |r| cluster::decode_list_offsets(r).map(|found| found.len()),
    |r| cluster::decode_create_topics(r, 5).map(|found| found.len()),
    |r| cluster::decode_create_topics(r, 7).map(|found| found.len()),
    |r| transactions::decode_init_producer_id(r, 5).map(|_| 1),
    |r| transactions::decode_init_producer_id(r, 6).map(|_| 1),
    |r| transactions::decode_partition_errors(r).map(|found| found.len()),
    |r| transactions::decode_add_offsets(r).map(|_| 1),
    |r| transactions::decode_end_txn(r, 3).map(|_| 1),
    |r| transactions::decode_end_txn(r, 5).map(|_| 1),
    |r| transactions::decode_describe(r).map(|found| found.len()),
    |r| transactions::decode_list(r).map(|found| found.transactions.len()),
    |r| produce::decode(r).map(|found| found.len()),
    |r| read_response_header(r, apis::FETCH, 12).map(|_| 1),
];

pub fn run(data: &[u8]) {
    let [kind, number, body @ ..] = data else {
        return;
    };
    match kind % 4 {
        0 => {
            let mut reader = Reader::new(body);
            if let Ok(found) = READERS[usize::from(*number) % READERS.len()](&mut reader) {
                assert!(
                    found <= 1 + body.len(),
                    "{found} entries in {} bytes",
                    body.len()
                );
            }
        }
        1 => {
            let _ = sasl::decode_handshake(body);
            let version = i16::from(*number % 3);
            if let Ok(found) = sasl::decode_authenticate(body, version) {
                assert!(found.message.len() <= body.len());
            }
        }
        2 => {
            let mut body = body.to_vec();
            seal_inside(&mut body);
            let _ = fetched_rows(&body, number & 1 > 0);
        }
        _ => {
            if body.windows(6).any(|word| word == b"pencil") {
                return; // the secret that the target looks for in messages
            }
            let messages: Vec<_> = body.split(|&byte| byte == b'\n').collect();
            let (answered, is_in) = log_in(*number % 4, &messages);
            assert!(answered <= 2, "a log-in goes on and on");
            assert!(
                !is_in || number % 4 == 0 || number % 4 == 3,
                "SCRAM without proof"
            );
        }
    }
}

/// Gives batches that stand in a body their right checksums.
fn seal_inside(body: &mut [u8]) {
    let mut at = 0;
    while at + batch::HEADER_BYTES <= body.len() {
        let found = BatchView::parse(&body[at..]).map(|view| view.bytes().len());
        match found {
            Ok(size) if body[at + 16] == 2 => {
                batch::seal(&mut body[at..at + size]);
                at += size;
            }
            _ => at += 1,
        }
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    let mut named = Vec::new();
    named.put_i32(0);
    named.put_compact_length(1);
    named.put_compact_string(seeds::TOPIC);
    named.put_compact_length(1);
    named.put(&[0; 40]);
    for number in 0..READERS.len() as u8 {
        seeds.push([&[0, number], &[0; 40][..]].concat());
        seeds.push([&[0, number], &named[..]].concat());
        seeds.push([&[0, number], &named[4..]].concat());
    }
    for batch in seeds::CODECS.map(|codec| seeds::batch(codec, 5, true)) {
        seeds.push([&[2, 1], &fetched(&batch)[..]].concat());
    }
    seeds.push(b"\x01\x02\0\0\0\0\0\x02\0\x05PLAIN\0\x06SCRAM-".to_vec());
    for mechanism in 0..4 {
        let server =
            b"r=%tail,s=QSXCR+Q6sek8bd92,i=4096\nv=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
        seeds.push([&[3, mechanism], &server[..]].concat());
        let refused = b"{\"status\":\"invalid_token\"}\ne=other-error";
        seeds.push([&[3, mechanism], &refused[..]].concat());
    }
    seeds
}

/// The body of an answer to a Fetch.
fn fetched(batch: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_i32(0); // throttle time
    out.put_i16(0);
    out.put_i32(0); // session
    out.put_compact_length(1);
    out.put_compact_string("t");
    out.put_compact_length(1);
    out.put_i32(0);
    out.put_i16(0);
    out.put_i64(100);
    out.put_i64(100);
    out.put_i64(0);
    out.put_compact_length(1);
    out.put_i64(8); // an aborted producer
    out.put_i64(2);
    out.put_no_tags(true);
    out.put_i32(-1);
    out.put_compact_length(batch.len());
    out.put(batch);
    for _ in 0..3 {
        out.put_no_tags(true);
    }
    out
}
