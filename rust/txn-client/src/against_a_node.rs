//! The client against a node that loses requests, loses answers and refuses, on a real socket.
//!
//! `Node` keeps partitions the way Kafka does as far as a producer can tell: a batch is stored if its
//! sequence follows the last one, is a duplicate if it is one of the last five, and is refused
//! with 45 otherwise. Its treatment of the next requests is a list of `RequestFate`s.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use txn_log::builder::{BatchBuilder, encode_marker};
use txn_log::producer_state::Marker;
use txn_protocol::batch::{BatchView, Batches, Codec};
use txn_protocol::frame::{LENGTH_BYTES, RequestHeader, begin_response, set_length};
use txn_protocol::{Put, Reader};

use crate::columns::{BinaryColumn, Columns, Parts};
use crate::fetch::Selection;
use crate::interrupt::Interrupt;
use crate::messages::cluster::{decode_metadata, encode_metadata};
use crate::messages::{self, ClientApi};
use crate::rows::{BinaryRows, Rows};
use crate::security::Security;
use crate::writer::WriterSettings;
use crate::{Client, KafkaError, ProducerIdAndEpoch};

const TOPIC: &str = "t";
const WHO: ProducerIdAndEpoch = (7, 0);

/// The fate of one Produce or Fetch request.
#[derive(Clone, Copy, Debug)]
enum RequestFate {
    None,
    /// The connection closes before the request is looked at.
    LoseRequest,
    /// The request is carried out, then the connection closes.
    LoseAnswer,
    /// Nothing is done, this code is answered.
    Refuse(i16),
    /// It is done, and this code is answered.
    RefuseAfterStoring(i16),
    /// It is never answered, and the connection stays open.
    Ignore,
    /// A Fetch is answered without a word of its partition, as by a node that throttles.
    TellNothing,
    /// A Fetch is answered with half a batch.
    Halve,
}

#[derive(Debug, Default)]
struct NodePartition {
    batches: Vec<Vec<u8>>,
    next_offset: i64,
    /// Per producer: the sequence due next, and the first ones of the last five batches.
    producers: HashMap<ProducerIdAndEpoch, (i32, VecDeque<i32>)>,
}

#[derive(Debug, Default)]
struct NodeState {
    transaction_version: i16,
    /// (API key, lowest, highest).
    offers: Vec<(i16, i16, i16)>,
    partitions: Vec<NodePartition>,
    faults: VecDeque<RequestFate>,
    joined: HashSet<i32>,
    produce_requests: usize,
    /// (producer id, first offset, offset of the abort marker).
    aborted: Vec<(i64, i64, i64)>,
    /// -1: the end of the log.
    last_stable_offset: i64,
    /// True if a Fetch that finds nothing is answered only after its `max_wait_ms`.
    waits_for_records: bool,
}

struct Node {
    port: u16,
    state: Arc<Mutex<NodeState>>,
}

impl Node {
    fn start(partitions: usize, transaction_version: i16) -> Self {
        let offers = [
            (0, 9, 12),
            (1, 12, 12),
            (2, 6, 8),
            (3, 9, 12),
            (10, 3, 4),
            (22, 0, 5),
            (24, 0, 3),
            (26, 3, 5),
        ];
        let state = NodeState {
            transaction_version,
            offers: offers.to_vec(),
            partitions: (0..partitions).map(|_| NodePartition::default()).collect(),
            last_stable_offset: -1,
            ..NodeState::default()
        };
        let state = Arc::new(Mutex::new(state));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = Arc::clone(&shared);
                thread::spawn(move || serve(stream.unwrap(), &shared, port));
            }
        });
        Self { port, state }
    }

    fn client(&self, timeout_ms: u64) -> Client {
        let timeout = Duration::from_millis(timeout_ms);
        Client::new(
            &format!("127.0.0.1:{}", self.port),
            "test",
            Security::default(),
            timeout,
            None,
        )
        .unwrap()
    }

    fn fault(&self, faults: &[RequestFate]) {
        self.state.lock().unwrap().faults.extend(faults);
    }

    /// Appends a batch or a marker as it is, under any sequence.
    fn store(&self, partition: usize, batch: Vec<u8>) -> i64 {
        self.state.lock().unwrap().partitions[partition].append(batch)
    }
}

impl NodePartition {
    fn append(&mut self, mut batch: Vec<u8>) -> i64 {
        let base_offset = self.next_offset;
        batch[..8].copy_from_slice(&base_offset.to_be_bytes());
        self.next_offset = BatchView::parse(&batch).unwrap().last_offset() + 1;
        self.batches.push(batch);
        base_offset
    }

    fn produce(&mut self, bytes: &[u8]) -> i16 {
        let batch = BatchView::parse(bytes).unwrap();
        batch.validate().unwrap();
        let who = (batch.producer_id(), batch.producer_epoch());
        let (due, recent) = self.producers.entry(who).or_default();
        let sequence = batch.base_sequence();
        if recent.contains(&sequence) {
            return 0;
        }
        if sequence != *due {
            return 45;
        }
        *due += batch.record_count();
        recent.push_back(sequence);
        if recent.len() > 5 {
            recent.pop_front();
        }
        self.append(bytes.to_vec());
        0
    }
}

/// Answers one connection until it ends or a fault ends it.
fn serve(mut stream: TcpStream, state: &Mutex<NodeState>, port: u16) {
    loop {
        let mut size = [0; 4];
        if stream.read_exact(&mut size).is_err() {
            return;
        }
        let mut request = vec![0; i32::from_be_bytes(size) as usize];
        stream.read_exact(&mut request).unwrap();
        let mut r = Reader::new(&request);
        let header = RequestHeader::parse(&request).unwrap();
        let (key, version) = (header.api_key, header.api_version);
        r.skip(header.body).unwrap();
        let mut answer = Vec::new();
        begin_response(&mut answer, header.correlation_id, key != 18);
        let mut state = state.lock().unwrap();
        let fault = if key < 2 {
            state.faults.pop_front().unwrap_or(RequestFate::None)
        } else {
            RequestFate::None
        };
        if matches!(fault, RequestFate::LoseRequest) {
            return;
        }
        if matches!(fault, RequestFate::Ignore) {
            continue;
        }
        let wait_ms = state.answer(key, version, &mut r, &mut answer, fault, port);
        drop(state);
        thread::sleep(Duration::from_millis(wait_ms));
        if matches!(fault, RequestFate::LoseAnswer) {
            return;
        }
        let size = answer.len() - LENGTH_BYTES;
        set_length(&mut answer, size);
        if stream.write_all(&answer).is_err() {
            return;
        }
    }
}

impl NodeState {
    /// Encodes the answer; returns the time to wait before it is sent.
    fn answer(
        &mut self,
        key: i16,
        version: i16,
        r: &mut Reader<'_>,
        e: &mut Vec<u8>,
        fault: RequestFate,
        port: u16,
    ) -> u64 {
        match key {
            0 => self.produce(version, r, e, fault),
            1 => return self.fetch(r, e, fault),
            2 => self.list_offsets(r, e),
            3 => self.metadata(e, port),
            10 => {
                e.put_i32(0);
                e.put_i16(0);
                e.put_compact_nullable_string(None);
                e.put_i32(1);
                e.put_compact_string("127.0.0.1");
                e.put_i32(i32::from(port));
                e.put_no_tags(true);
            }
            18 => self.api_versions(e),
            22 => {
                e.put_i32(0);
                e.put_i16(0);
                e.put_i64(9);
                e.put_i16(0);
                e.put_no_tags(true);
            }
            24 => self.add_partitions(r, e),
            _ => panic!("a request of API {key}, which this node does not offer"),
        }
        0
    }

    fn api_versions(&self, e: &mut Vec<u8>) {
        e.put_i16(0);
        e.put_compact_array(self.offers.iter(), |e, (key, lowest, highest)| {
            for n in [key, lowest, highest] {
                e.put_i16(*n);
            }
            e.put_no_tags(true);
        });
        e.put_i32(0);
        let mut levels = Vec::new();
        levels.put_compact_array(["transaction.version"].iter(), |e, name| {
            e.put_compact_string(name);
            e.put_i16(self.transaction_version);
            e.put_i16(self.transaction_version);
            e.put_no_tags(true);
        });
        e.put_uvarint(2); // tagged fields: the epoch, the levels
        e.put_uvarint(1);
        e.put_uvarint(8);
        e.put_i64(1);
        e.put_uvarint(2);
        e.put_uvarint(levels.len() as u32);
        e.extend(levels);
    }

    fn metadata(&self, e: &mut Vec<u8>, port: u16) {
        e.put_i32(0);
        e.put_compact_array([1].iter(), |e, id| {
            e.put_i32(*id);
            e.put_compact_string("127.0.0.1");
            e.put_i32(i32::from(port));
            e.put_compact_nullable_string(None);
            e.put_no_tags(true);
        });
        e.put_compact_nullable_string(None);
        e.put_i32(1);
        e.put_compact_array([TOPIC].iter(), |e, name| {
            e.put_i16(0);
            e.put_compact_string(name);
            e.put(&[0; 16]);
            e.put_bool(false);
            e.put_compact_array(0..self.partitions.len(), |e, partition| {
                e.put_i16(0);
                e.put_i32(partition as i32);
                e.put_i32(1);
                e.put_i32(0);
                (0..3).for_each(|_| e.put_compact_length(0));
                e.put_no_tags(true);
            });
            e.put_i32(0);
            e.put_no_tags(true);
        });
        e.put_no_tags(true);
    }

    fn add_partitions(&mut self, r: &mut Reader<'_>, e: &mut Vec<u8>) {
        r.compact_string().unwrap();
        assert_eq!((r.i64().unwrap(), r.i16().unwrap()), WHO);
        let joined = r.compact_array(|r| {
            assert_eq!(r.compact_string()?, TOPIC);
            let partitions = r.compact_array(Reader::i32);
            r.skip_tags(true)?;
            partitions
        });
        let joined = joined.unwrap().concat();
        self.joined.extend(&joined);
        e.put_i32(0);
        e.put_compact_array([TOPIC].iter(), |e, name| {
            e.put_compact_string(name);
            e.put_compact_array(joined.iter(), |e, partition| {
                e.put_i32(*partition);
                e.put_i16(0);
                e.put_no_tags(true);
            });
            e.put_no_tags(true);
        });
        e.put_no_tags(true);
    }

    fn produce(&mut self, version: i16, r: &mut Reader<'_>, e: &mut Vec<u8>, fault: RequestFate) {
        self.produce_requests += 1;
        let transactional_id = r.compact_nullable_string().unwrap();
        assert_eq!(r.i16().unwrap(), -1, "acks");
        r.i32().unwrap();
        assert!(transactional_id.is_none() || (version >= 12) == (self.transaction_version == 2));
        let topics = r.compact_array(|r| {
            assert_eq!(r.compact_string()?, TOPIC);
            let parts = r.compact_array(|r| {
                let part = (r.i32()?, r.compact_nullable_bytes()?.unwrap().to_vec());
                r.skip_tags(true)?;
                Ok(part)
            })?;
            r.skip_tags(true)?;
            Ok(parts)
        });
        let needs_join = transactional_id.is_some() && self.transaction_version < 2;
        let mut outcomes = Vec::new();
        for (partition, batch) in topics.unwrap().into_iter().flatten() {
            assert_eq!(
                BatchView::parse(&batch).unwrap().is_transactional(),
                transactional_id.is_some()
            );
            let code = match fault {
                RequestFate::Refuse(code) => code,
                _ if needs_join && !self.joined.contains(&partition) => 48,
                RequestFate::RefuseAfterStoring(code) => {
                    self.partitions[partition as usize].produce(&batch);
                    code
                }
                _ => self.partitions[partition as usize].produce(&batch),
            };
            outcomes.push((partition, code));
        }
        e.put_compact_array([TOPIC].iter(), |e, name| {
            e.put_compact_string(name);
            e.put_compact_array(outcomes.iter(), |e, (partition, code)| {
                e.put_i32(*partition);
                e.put_i16(*code);
                (0..3).for_each(|_| e.put_i64(-1));
                e.put_compact_length(0);
                e.put_compact_nullable_string(None);
                e.put_no_tags(true);
            });
            e.put_no_tags(true);
        });
        e.put_i32(0);
        e.put_no_tags(true);
    }

    fn fetch(&mut self, r: &mut Reader<'_>, e: &mut Vec<u8>, fault: RequestFate) -> u64 {
        let [_, wait_ms, _, _] = [(); 4].map(|()| r.i32().unwrap());
        r.bool().unwrap();
        for _ in 0..2 {
            r.i32().unwrap();
        }
        let asked = r.compact_array(|r| {
            r.compact_string()?;
            let asked = r.compact_array(|r| {
                let partition = r.i32()?;
                r.i32()?;
                let offset = r.i64()?;
                r.i32()?;
                r.i64()?;
                let bytes_max = r.i32()?;
                r.skip_tags(true)?;
                Ok((partition, offset, bytes_max))
            });
            r.skip_tags(true)?;
            asked
        });
        let (partition, offset, bytes_max) = asked.unwrap()[0][0];
        let log = &self.partitions[partition as usize];
        let stable = if self.last_stable_offset < 0 {
            log.next_offset
        } else {
            self.last_stable_offset
        };
        let mut records: Vec<u8> = Vec::new();
        for batch in &log.batches {
            let view = BatchView::parse(batch).unwrap();
            if view.last_offset() >= offset && view.last_offset() < stable {
                records.extend_from_slice(batch);
            }
        }
        // As Kafka: the first batch whole, then as many bytes as asked for, wherever that cuts.
        let first = BatchView::parse(&records).map_or(0, |batch| batch.size());
        records.truncate(first.max(bytes_max as usize));
        let code = match fault {
            RequestFate::TellNothing => {
                e.put_i32(0);
                e.put_i16(0);
                e.put_i32(0);
                e.put_compact_length(0);
                e.put_no_tags(true);
                return 0;
            }
            RequestFate::Halve => {
                records.truncate(first / 2);
                0
            }
            RequestFate::Refuse(code) => {
                records.clear();
                code
            }
            _ => 0,
        };
        let aborted: Vec<_> = self
            .aborted
            .iter()
            .filter(|(.., marker)| *marker >= offset)
            .collect();
        e.put_i32(0);
        e.put_i16(0);
        e.put_i32(0);
        e.put_compact_array([TOPIC].iter(), |e, name| {
            e.put_compact_string(name);
            e.put_compact_array([partition].iter(), |e, partition| {
                e.put_i32(*partition);
                e.put_i16(code);
                e.put_i64(log.next_offset);
                e.put_i64(stable);
                e.put_i64(0);
                e.put_compact_array(aborted.iter(), |e, (producer_id, first, _)| {
                    e.put_i64(*producer_id);
                    e.put_i64(*first);
                    e.put_no_tags(true);
                });
                e.put_i32(-1);
                e.put_compact_length(records.len());
                e.extend_from_slice(&records);
                e.put_no_tags(true);
            });
            e.put_no_tags(true);
        });
        e.put_no_tags(true);
        if self.waits_for_records && code == 0 && records.is_empty() {
            return wait_ms as u64;
        }
        0
    }

    /// Every partition begins at 0, on this node's own disk.
    fn list_offsets(&mut self, r: &mut Reader<'_>, e: &mut Vec<u8>) {
        assert!(r.left() > 0);
        e.put_i32(0);
        e.put_compact_array([TOPIC].iter(), |e, name| {
            e.put_compact_string(name);
            e.put_compact_array(0..self.partitions.len(), |e, partition| {
                e.put_i32(partition as i32);
                e.put_i16(0);
                e.put_i64(-1);
                e.put_i64(0);
                e.put_i32(0);
                e.put_no_tags(true);
            });
            e.put_no_tags(true);
        });
        e.put_no_tags(true);
    }
}

// ---------------------------------------------------------------- rows in, rows out

const EVERYTHING: Parts = Parts {
    keys: true,
    values: true,
    headers: true,
};

fn selection(end: i64, bytes_max: i32) -> Selection {
    Selection {
        start: 0,
        end,
        read_committed: true,
        bytes_max,
        content_bytes_max: usize::MAX,
        parts: EVERYTHING,
    }
}

fn settings(batch_bytes: usize, codec: Codec) -> WriterSettings {
    let metadata_age_max = Duration::from_secs(300);
    WriterSettings {
        batch_bytes,
        codec,
        metadata_age_max,
    }
}

fn little_endian<const N: usize>(numbers: impl Iterator<Item = [u8; N]>) -> Vec<u8> {
    numbers.flatten().collect()
}

/// Writes `values` to the partitions named beside them, in one call.
fn write(writer: &mut crate::writer::Writer, values: &[(i32, Vec<u8>)]) -> Result<(), KafkaError> {
    let ends = values.iter().scan(0, |end, (_, value)| {
        *end += value.len() as i32;
        Some(*end)
    });
    let offsets = little_endian([0].into_iter().chain(ends).map(i32::to_le_bytes));
    let data = values
        .iter()
        .flat_map(|(_, value)| value.clone())
        .collect::<Vec<u8>>();
    let partitions = little_endian(values.iter().map(|(partition, _)| partition.to_le_bytes()));
    let rows = Rows {
        count: values.len(),
        keys: None,
        values: BinaryRows::new("value", values.len(), &offsets, &data, None).unwrap(),
        headers: None,
        partitions: Some(
            crate::rows::Numbers::new("partition", values.len(), &partitions).unwrap(),
        ),
        timestamps_ms: None,
    };
    writer.write(TOPIC, &rows)
}

fn cells(column: &BinaryColumn, rows: usize) -> Vec<Option<Vec<u8>>> {
    let rows_of = BinaryRows::new(
        "x",
        rows,
        &column.offsets,
        &column.data,
        column.validity.as_deref(),
    )
    .unwrap();
    (0..rows)
        .map(|row| rows_of.get(row).map(<[u8]>::to_vec))
        .collect()
}

/// Reads a partition to `end` and returns its values.
fn read(
    client: &Client,
    partition: i32,
    end: i64,
    bytes_max: i32,
) -> Result<Vec<Vec<u8>>, KafkaError> {
    let mut fetch = client.fetch(TOPIC, partition, selection(end, bytes_max))?;
    let mut values = Vec::new();
    while let Some(columns) = fetch.next_chunk()? {
        values.extend(
            cells(columns.value.as_ref().unwrap(), columns.rows)
                .into_iter()
                .flatten(),
        );
    }
    Ok(values)
}

fn of_partition(values: &[(i32, Vec<u8>)], partition: i32) -> Vec<Vec<u8>> {
    values
        .iter()
        .filter(|(of, _)| *of == partition)
        .map(|(_, value)| value.clone())
        .collect()
}

fn numbered(count: usize) -> Vec<(i32, Vec<u8>)> {
    (0..count)
        .map(|i| (0, format!("row {i}").into_bytes()))
        .collect()
}

fn batch_of(who: ProducerIdAndEpoch, is_transactional: bool, values: &[&str]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Codec::None);
    (builder.producer_id, builder.producer_epoch) = who;
    builder.is_transactional = is_transactional;
    for value in values {
        builder.push(0, None, Some(value.as_bytes()), &[]);
    }
    builder.seal().unwrap()
}

fn marker(producer_id: i64, is_commit: bool) -> Vec<u8> {
    let (producer_epoch, coordinator_epoch, timestamp_ms) = (0, 0, 0);
    encode_marker(&Marker {
        producer_id,
        producer_epoch,
        coordinator_epoch,
        is_commit,
        timestamp_ms,
    })
}

/// A batch that was stored and refused stood five behind when it was sent a third time. The node had
/// forgotten it, and the writer ended with `OUT_OF_ORDER_SEQUENCE_NUMBER`.
#[test]
fn a_stored_batch_that_fails_again_is_remembered_when_it_is_sent_once_more() {
    let node = Node::start(1, 2);
    node.fault(&[
        RequestFate::RefuseAfterStoring(7), // the first batch
        RequestFate::None,
        RequestFate::Refuse(51), // the third; the two behind it meet a gap
        RequestFate::None,
        RequestFate::None,
        RequestFate::Refuse(51), // the first again, and behind it the third to the sixth are stored
    ]);
    let client = node.client(20_000);
    let mut writer = client
        .writer(None, WHO, settings(100, Codec::None))
        .unwrap();
    let values: Vec<_> = (0..10_u8).map(|n| (0, vec![n; 80])).collect();
    write(&mut writer, &values).unwrap();
    assert_eq!(writer.flush().unwrap(), 10);
    assert_eq!(
        read(&client, 0, 10, 1 << 20).unwrap(),
        of_partition(&values, 0)
    );
}

fn any_fault() -> impl Strategy<Value = RequestFate> {
    prop_oneof![
        Just(RequestFate::None),
        Just(RequestFate::LoseRequest),
        Just(RequestFate::LoseAnswer),
        Just(RequestFate::Refuse(6)),
        Just(RequestFate::Refuse(51)),
        Just(RequestFate::RefuseAfterStoring(7)),
        Just(RequestFate::RefuseAfterStoring(20)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_happens_to_requests_rows_are_stored_once_and_in_order(
        values in prop::collection::vec((0..3, prop::collection::vec(any::<u8>(), 0..60)), 1..150),
        faults in prop::collection::vec(any_fault(), 0..7),
        read_faults in prop::collection::vec(
            prop_oneof![
                Just(RequestFate::None),
                Just(RequestFate::LoseAnswer),
                Just(RequestFate::LoseRequest),
                Just(RequestFate::Refuse(6)),
            ],
            0..4,
        ),
        batch_bytes in 100_usize..1500,
        bytes_max in 1..3000,
        transaction_version in 1_i16..=2,
        codec in prop::sample::select(vec![Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd]),
        is_transactional: bool,
    ) {
        let node = Node::start(3, transaction_version);
        node.fault(&faults);
        let client = node.client(20_000);
        let id = is_transactional.then_some("pay");
        let mut writer = client.writer(id, WHO, settings(batch_bytes, codec)).unwrap();
        let (some, rest) = values.split_at(values.len() / 2);
        write(&mut writer, some).unwrap();
        write(&mut writer, rest).unwrap();
        prop_assert_eq!(writer.flush().unwrap(), values.len() as u64);
        node.state.lock().unwrap().faults.clear();
        node.fault(&read_faults);
        for partition in 0..3 {
            let expected = of_partition(&values, partition);
            prop_assert_eq!(read(&client, partition, expected.len() as i64, bytes_max).unwrap(), expected);
        }
    }

    #[test]
    fn columns_give_back_what_a_batch_was_made_of(
        records in prop::collection::vec(
            (any::<Option<Vec<u8>>>(), any::<Option<Vec<u8>>>(), any::<i64>(),
             prop::collection::vec((any::<Vec<u8>>(), any::<Option<Vec<u8>>>()), 0..3)),
            1..40,
        ),
        codec in prop::sample::select(vec![Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd]),
    ) {
        let mut builder = BatchBuilder::new(codec);
        for (key, value, timestamp_ms, headers) in &records {
            let headers: Vec<_> = headers.iter().map(|(k, v)| (k.as_slice(), v.as_deref())).collect();
            builder.push(*timestamp_ms, key.as_deref(), value.as_deref(), &headers);
        }
        let batch = builder.seal().unwrap();
        let mut columns = Columns::new(EVERYTHING, 0);
        let view = BatchView::parse(&batch).unwrap();
        columns.push_batch(&view, &(0..i64::MAX), &mut Vec::new(), usize::MAX).unwrap();
        let rows = records.len();
        prop_assert_eq!(columns.rows, rows);
        let keys: Vec<_> = records.iter().map(|r| r.0.clone()).collect();
        let values: Vec<_> = records.iter().map(|r| r.1.clone()).collect();
        prop_assert_eq!(cells(columns.key.as_ref().unwrap(), rows), keys);
        prop_assert_eq!(cells(columns.value.as_ref().unwrap(), rows), values);
        prop_assert_eq!(columns.offsets, little_endian((0..rows as i64).map(i64::to_le_bytes)));
        prop_assert_eq!(columns.timestamps_ms, little_endian(records.iter().map(|r| r.2.to_le_bytes())));
        let headers = columns.headers.unwrap();
        let entries: Vec<_> = records.iter().flat_map(|r| r.3.clone()).collect();
        let header_keys: Vec<_> = entries.iter().map(|(key, _)| Some(key.clone())).collect();
        let header_values: Vec<_> = entries.iter().map(|(_, value)| value.clone()).collect();
        prop_assert_eq!(cells(&headers.keys, entries.len()), header_keys);
        prop_assert_eq!(cells(&headers.values, entries.len()), header_values);
        let ends = records.iter().scan(0, |end, r| { *end += r.3.len() as i32; Some(*end) });
        prop_assert_eq!(headers.list_offsets, little_endian([0].into_iter().chain(ends).map(i32::to_le_bytes)));
        let is_null = |row: usize| headers.list_validity.as_ref().is_some_and(|bits| bits[row / 8] >> (row % 8) & 1 == 0);
        let nulls: Vec<_> = (0..rows).map(is_null).collect();
        prop_assert_eq!(nulls, records.iter().map(|r| r.3.is_empty()).collect::<Vec<_>>());
    }

    #[test]
    fn no_damaged_batch_makes_the_decoder_panic(
        at in any::<prop::sample::Index>(), byte: u8, codec in prop::sample::select(vec![Codec::None, Codec::Lz4, Codec::Zstd]),
    ) {
        let mut builder = BatchBuilder::new(codec);
        (0..5).for_each(|i| builder.push(i, Some(b"key"), Some(&[7; 50]), &[(b"h", None)]));
        let mut batch = builder.seal().unwrap();
        let at = 17 + at.index(batch.len() - 17); // not the magic: that would be another error
        batch[at] = byte;
        for view in Batches::new(&batch) {
            let _ = Columns::new(EVERYTHING, 0).push_batch(&view, &(0..i64::MAX), &mut Vec::new(), usize::MAX);
        }
    }
}

#[test]
fn a_batch_whose_answer_was_lost_is_sent_again_and_stored_once() {
    let node = Node::start(1, 2);
    node.fault(&[RequestFate::LoseAnswer]);
    let mut writer = node
        .client(20_000)
        .writer(Some("pay"), WHO, settings(1 << 20, Codec::None))
        .unwrap();
    write(&mut writer, &numbered(3)).unwrap();
    assert_eq!(writer.flush().unwrap(), 3);
    let state = node.state.lock().unwrap();
    assert_eq!(
        (state.produce_requests, state.partitions[0].next_offset),
        (2, 3)
    );
}

#[test]
fn gaps_behind_a_batch_that_failed_are_its_echo() {
    let node = Node::start(1, 2);
    // The third to fifth then come too early: 45.
    node.fault(&[RequestFate::None, RequestFate::Refuse(6)]);
    let client = node.client(20_000);
    let mut writer = client
        .writer(Some("pay"), WHO, settings(100, Codec::None))
        .unwrap();
    let values = numbered(12);
    write(&mut writer, &values).unwrap();
    assert_eq!(writer.flush().unwrap(), 12);
    assert_eq!(
        read(&client, 0, 12, 1 << 20).unwrap(),
        of_partition(&values, 0)
    );
}

#[test]
fn a_gap_that_nothing_explains_is_final_and_ends_the_writer() {
    let node = Node::start(1, 2);
    node.fault(&[RequestFate::Refuse(45)]);
    let mut writer = node
        .client(20_000)
        .writer(Some("pay"), WHO, settings(1 << 20, Codec::None))
        .unwrap();
    write(&mut writer, &numbered(1)).unwrap();
    assert_eq!(writer.flush().unwrap_err().code, 45);
    assert_eq!(write(&mut writer, &numbered(1)).unwrap_err().code, 45);
    assert_eq!(writer.flush().unwrap_err().code, 45);
    assert_eq!(node.state.lock().unwrap().produce_requests, 1);
}

#[test]
fn a_fenced_writer_never_tries_again() {
    let node = Node::start(1, 2);
    node.fault(&[RequestFate::Refuse(47)]);
    let mut writer = node
        .client(20_000)
        .writer(Some("pay"), WHO, settings(1 << 20, Codec::None))
        .unwrap();
    write(&mut writer, &numbered(1)).unwrap();
    let error = writer.flush().unwrap_err();
    assert_eq!((error.code, error.is_retriable), (47, false));
    assert!(
        error
            .message
            .contains("transactional id 'pay', producer id 7, producer epoch 0"),
        "{error}"
    );
    assert_eq!(node.state.lock().unwrap().produce_requests, 1);
}

#[test]
fn a_node_that_stays_away_is_given_up_after_the_timeout() {
    let node = Node::start(1, 2);
    node.fault(&[RequestFate::Refuse(6); 1000]);
    let mut writer = node
        .client(60)
        .writer(Some("pay"), WHO, settings(1 << 20, Codec::None))
        .unwrap();
    write(&mut writer, &numbered(1)).unwrap();
    let error = writer.flush().unwrap_err();
    assert_eq!((error.code, error.is_retriable), (6, true));
    assert!(error.message.starts_with("gave up after "), "{error}");
}

#[test]
fn a_second_writer_of_an_identity_is_refused_before_it_sends() {
    let node = Node::start(1, 2);
    let client = node.client(20_000);
    let mut first = client
        .writer(Some("pay"), WHO, settings(1 << 20, Codec::None))
        .unwrap();
    write(&mut first, &numbered(1)).unwrap();
    first.flush().unwrap();
    let mut second = client
        .writer(Some("pay"), WHO, settings(1 << 20, Codec::None))
        .unwrap();
    write(&mut second, &numbered(1)).unwrap();
    assert!(
        second
            .flush()
            .unwrap_err()
            .message
            .contains("another writer already wrote")
    );
    assert_eq!(node.state.lock().unwrap().produce_requests, 1);
}

#[test]
fn an_api_the_node_does_not_offer_is_named() {
    let node = Node::start(1, 2);
    let error = node.client(20_000).list_transactions(&[], "").unwrap_err();
    assert_eq!((error.code, error.is_retriable), (35, false));
    assert!(
        error
            .message
            .contains("does not offer it, but this client needs ListTransactions"),
        "{error}"
    );
}

#[test]
fn records_of_aborted_transactions_and_markers_are_never_shown() {
    let node = Node::start(1, 2);
    let first = node.store(0, batch_of((1, 0), true, &["aborted a", "aborted b"]));
    node.store(0, batch_of((2, 0), true, &["committed"]));
    node.store(0, batch_of((-1, -1), false, &["plain"]));
    let abort = node.store(0, marker(1, false));
    node.store(0, batch_of((1, 0), true, &["the same producer, later"]));
    node.store(0, marker(2, true));
    let end = node.store(0, marker(1, true)) + 1;
    node.state.lock().unwrap().aborted = vec![(1, first, abort)];
    let client = node.client(20_000);
    let expected: [&[u8]; 3] = [b"committed", b"plain", b"the same producer, later"];
    assert_eq!(read(&client, 0, end, 1 << 20).unwrap(), expected);
    assert_eq!(read(&client, 0, end, 1).unwrap(), expected); // one batch per answer
}

#[test]
fn a_range_starts_and_ends_inside_batches() {
    let node = Node::start(1, 2);
    node.store(0, batch_of((-1, -1), false, &["0", "1", "2"]));
    node.store(0, batch_of((-1, -1), false, &["3", "4", "5"]));
    let client = node.client(20_000);
    let mut fetch = client
        .fetch(
            TOPIC,
            0,
            Selection {
                start: 1,
                ..selection(5, 1 << 20)
            },
        )
        .unwrap();
    let columns = fetch.next_chunk().unwrap().unwrap();
    let expected = ["1", "2", "3", "4"].map(|text| Some(text.as_bytes().to_vec()));
    assert_eq!(cells(&columns.value.unwrap(), 4), expected);
    assert_eq!((columns.rows, columns.next_offset), (4, 5));
    assert_eq!(fetch.next_chunk().unwrap(), None);
}

#[test]
fn a_tail_that_was_compacted_away_ends_the_range() {
    let node = Node::start(1, 2);
    node.store(0, batch_of((-1, -1), false, &["kept"]));
    node.state.lock().unwrap().partitions[0].next_offset = 10;
    assert_eq!(
        read(&node.client(20_000), 0, 10, 1 << 20).unwrap(),
        [b"kept"]
    );
}

#[test]
fn an_open_transaction_is_waited_for_and_then_named() {
    let node = Node::start(1, 2);
    node.store(0, batch_of((-1, -1), false, &["before"]));
    node.store(0, batch_of((1, 0), true, &["open"]));
    node.state.lock().unwrap().last_stable_offset = 1;
    // Every request has this time too: on a machine under load 100 ms were not enough.
    let client = node.client(2_000);
    let mut fetch = client.fetch(TOPIC, 0, selection(2, 1 << 20)).unwrap();
    assert_eq!(fetch.next_chunk().unwrap().unwrap().rows, 1);
    let error = fetch.next_chunk().unwrap_err();
    assert_eq!((error.code, error.is_retriable), (7, true));
    assert!(
        error.message.contains("last stable offset stayed at 1"),
        "{error}"
    );
    node.state.lock().unwrap().last_stable_offset = 2; // and once it is over, the fetch goes on
    assert_eq!(fetch.next_chunk().unwrap().unwrap().rows, 1);
    assert_eq!(fetch.next_chunk().unwrap(), None);
}

/// The last Fetch waited half a second at the node, and the rest of the timeout was shorter. Its answer
/// came too late, and the error told the user to look after the broker.
#[test]
fn an_open_transaction_is_named_when_the_last_answer_has_too_little_time() {
    let node = Node::start(1, 2);
    node.store(0, batch_of((1, 0), true, &["open"]));
    {
        let mut state = node.state.lock().unwrap();
        (state.last_stable_offset, state.waits_for_records) = (0, true);
    }
    let error = read(&node.client(1_300), 0, 1, 1 << 20).unwrap_err();
    assert!(
        error.message.contains("last stable offset stayed at 0"),
        "{error}"
    );
}

#[test]
fn a_node_that_falls_silent_is_named_though_a_transaction_was_open() {
    let node = Node::start(1, 2);
    node.store(0, batch_of((1, 0), true, &["open"]));
    node.state.lock().unwrap().last_stable_offset = 0;
    node.fault(&[RequestFate::None, RequestFate::Ignore]);
    let error = read(&node.client(1_500), 0, 1, 1 << 20).unwrap_err();
    assert!(error.message.contains("did not answer Fetch"), "{error}");
}

/// The client asked again at once and for ever, and the timeout and Ctrl-C had no effect.
#[test]
fn a_node_that_tells_nothing_is_asked_now_and_then_until_the_timeout() {
    let many = 1 << 16;
    for fate in [RequestFate::TellNothing, RequestFate::Halve] {
        let node = Node::start(1, 2);
        node.store(0, batch_of(WHO, false, &["a"]));
        node.fault(&vec![fate; many]);
        let error = read(&node.client(500), 0, 1, 1 << 30).unwrap_err();
        assert_eq!((error.code, error.is_retriable), (7, true), "{error}");
        assert!(
            error.message.contains("t-0 at offset 0 told nothing"),
            "{error}"
        );
        let asked = many - node.state.lock().unwrap().faults.len();
        assert!((2..50).contains(&asked), "{asked} requests");
    }
}

#[test]
fn an_interrupt_ends_the_reading_of_a_node_that_tells_nothing() {
    let node = Node::start(1, 2);
    node.fault(&vec![RequestFate::TellNothing; 1 << 16]);
    let looks = Arc::new(Mutex::new(0));
    let raised = Interrupt::new(move || {
        *looks.lock().unwrap() += 1;
        *looks.lock().unwrap() > 3
    });
    let client = Client::new(
        &format!("127.0.0.1:{}", node.port),
        "test",
        Security::default(),
        Duration::from_secs(60),
        Some(raised),
    )
    .unwrap();
    let began = Instant::now();
    let error = read(&client, 0, 1, 1 << 20).unwrap_err();
    assert!(error.message.contains("told nothing"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[test]
fn answers_that_tell_nothing_now_and_then_are_passed_over() {
    let node = Node::start(1, 2);
    node.store(0, batch_of(WHO, false, &["a", "b"]));
    node.fault(&[RequestFate::TellNothing, RequestFate::Halve]);
    let values = read(&node.client(20_000), 0, 2, 1 << 20).unwrap();
    assert_eq!(values, [b"a", b"b"]);
}

#[test]
fn a_damaged_batch_is_named_and_never_passed_over() {
    let node = Node::start(1, 2);
    node.store(0, batch_of((-1, -1), false, &["sound"]));
    node.store(0, batch_of((-1, -1), false, &["damaged"]));
    *node.state.lock().unwrap().partitions[0].batches[1]
        .last_mut()
        .unwrap() ^= 1;
    let client = node.client(20_000);
    let mut fetch = client.fetch(TOPIC, 0, selection(2, 1)).unwrap();
    assert_eq!(fetch.next_chunk().unwrap().unwrap().rows, 1);
    let error = fetch.next_chunk().unwrap_err();
    assert_eq!((error.code, error.is_retriable), (2, false));
    assert!(
        error.message.contains("t-0 at offset 1") && error.message.contains("CRC"),
        "{error}"
    );
    assert_eq!(fetch.next_chunk().unwrap_err(), error);
}

#[test]
fn an_offset_that_is_gone_is_told_at_once() {
    let node = Node::start(1, 2);
    node.fault(&[RequestFate::Refuse(1)]);
    let error = read(&node.client(20_000), 0, 5, 1 << 20).unwrap_err();
    assert_eq!((error.code, error.is_retriable), (1, false));
}

#[test]
fn rows_for_a_partition_that_does_not_exist_leave_the_writer_usable() {
    let node = Node::start(2, 2);
    let mut writer = node
        .client(20_000)
        .writer(None, (-1, -1), settings(1 << 20, Codec::None))
        .unwrap();
    assert_eq!(
        write(&mut writer, &[(0, vec![]), (2, vec![])])
            .unwrap_err()
            .code,
        3
    );
    assert_eq!(write(&mut writer, &[(-2, vec![])]).unwrap_err().code, 3);
    write(&mut writer, &[(1, vec![])]).unwrap();
    assert_eq!(writer.flush().unwrap(), 1);
}

/// A worker's client counted the partitions of its first day for ever. Those of a newer worker counted the
/// added ones too, so one batch of Spark had rows of the same key in two partitions.
#[test]
fn a_writer_counts_added_partitions_once_the_metadata_is_old() {
    let node = Node::start(1, 2);
    let client = node.client(20_000);
    let put = |producer_id, metadata_age_max| {
        let settings = WriterSettings {
            metadata_age_max,
            ..settings(1 << 20, Codec::None)
        };
        let mut writer = client
            .writer(Some("id"), (producer_id, 0), settings)
            .unwrap();
        let row = (-1, vec![0; 1 << 14]); // without a key, and large: the next goes to another partition
        let values = vec![row; 8];
        write(&mut writer, &values).unwrap();
        writer.flush().unwrap();
        let state = node.state.lock().unwrap();
        let written = state.partitions.iter().filter(|p| p.next_offset > 0);
        written.count()
    };
    assert_eq!(put(1, Duration::ZERO), 1);
    let added = (0..3).map(|_| NodePartition::default());
    node.state.lock().unwrap().partitions.extend(added);
    assert_eq!(put(2, Duration::from_secs(300)), 1);
    assert_eq!(put(3, Duration::ZERO), 4);
}

#[test]
fn a_body_of_the_callers_goes_to_the_node_the_caller_names() {
    let node = Node::start(1, 2);
    let client = node.client(20_000);
    let address = client.any_node().unwrap();
    let api = ClientApi::known(messages::METADATA.key, 0, 12).unwrap();
    let version = client.version(&address, api).unwrap();
    let mut body = Vec::new();
    encode_metadata(&mut body, version, None, false);
    let answer = client.send(&address, api, version, &body).unwrap();
    let metadata = decode_metadata(&mut Reader::new(&answer), version).unwrap();
    assert_eq!((version, metadata.topics.len()), (12, 1));
}

#[test]
fn a_version_that_the_node_does_not_offer_is_refused_before_anything_is_sent() {
    let node = Node::start(1, 2);
    let client = node.client(20_000);
    let api = ClientApi::known(messages::METADATA.key, 0, 8).unwrap();
    let error = client
        .version(&client.any_node().unwrap(), api)
        .unwrap_err();
    assert_eq!((error.code, error.is_retriable), (35, false));
    assert!(error.message.contains("Metadata in version 0 to 8"));
    assert_eq!(ClientApi::known(7, 0, 0), None);
}

/// Accepts one connection, and sends it these bytes before it closes.
fn stranger(answer: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]).unwrap();
        stream.write_all(answer).unwrap();
        let _ = stream.read_to_end(&mut Vec::new()); // until the client closes
    });
    port
}

#[test]
fn a_stranger_is_told_from_a_broker_at_its_first_bytes() {
    for (answer, part) in [
        (
            &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
            "wants TLS or SASL",
        ),
        (b"\x15\x03\x03\0\x02\x02\x46", "speaks TLS"),
    ] {
        let servers = format!("127.0.0.1:{}", stranger(answer));
        let client = Client::new(
            &servers,
            "test",
            Security::default(),
            Duration::from_secs(60),
            None,
        )
        .unwrap();
        let error = client.any_node().unwrap_err();
        assert!(!error.is_retriable, "{error}");
        assert!(error.message.contains(part), "{error}");
    }
}
