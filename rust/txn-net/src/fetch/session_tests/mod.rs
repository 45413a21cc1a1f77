//! Tests of fetch sessions: a broker without sockets, its requests and their answers.

mod answers;
mod model;
mod room;

use txn_log::Origin;
use txn_log::builder::BatchBuilder;
use txn_protocol::batch::Codec;
use txn_protocol::{Put, Reader};

use super::wanted::is_flexible;
use super::*;
use crate::access::Ada;
use crate::catalog::{Topic, TopicId, TopicKey};
use crate::chunk::Chunk;
use crate::node::NodeEndpoint;
use crate::test_logs::Logs;

const NAME: &str = "pay";
const ID: TopicId = [7; 16];
/// Nothing waits for bytes.
const AT_ONCE: i32 = 0;

/// A broker with one topic.
struct Bench {
    catalog: Arc<Catalog>,
    sessions: Arc<FetchSessions>,
    logs: Vec<Arc<PartitionLog>>,
    access: Access,
    now: Instant,
    _directory: Logs,
}

/// A request for partitions `(index, start)` of the topic.
#[derive(Clone)]
struct Asked<'a> {
    version: i16,
    session: (i32, i32),
    partitions: &'a [(i32, i64)],
    forgotten: &'a [i32],
    max_bytes: i32,
    max_wait_ms: i32,
    isolation: i8,
    last_fetched_epoch: i32,
    leader_epoch: i32,
}

impl Default for Asked<'_> {
    fn default() -> Self {
        Self {
            version: 11,
            session: (0, 0),
            partitions: &[],
            forgotten: &[],
            max_bytes: 1 << 20,
            max_wait_ms: AT_ONCE,
            isolation: 0,
            last_fetched_epoch: -1,
            leader_epoch: -1,
        }
    }
}

impl Asked<'_> {
    fn body(&self) -> Vec<u8> {
        let version = self.version;
        let is_flexible = is_flexible(version);
        let mut out = Vec::new();
        if version < 15 {
            out.put_i32(-1);
        }
        for value in [self.max_wait_ms, 1, self.max_bytes] {
            out.put_i32(value);
        }
        out.put(&self.isolation.to_be_bytes());
        out.put_i32(self.session.0);
        out.put_i32(self.session.1);
        out.put_length(usize::from(!self.partitions.is_empty()), is_flexible);
        if !self.partitions.is_empty() {
            self.put_topic(&mut out, self.partitions.len());
            for &(index, start) in self.partitions {
                out.put_i32(index);
                out.put_i32(self.leader_epoch);
                out.put_i64(start);
                if version >= 12 {
                    out.put_i32(self.last_fetched_epoch);
                }
                out.put_i64(-1);
                out.put_i32(1 << 20);
                out.put_no_tags(is_flexible);
            }
            out.put_no_tags(is_flexible);
        }
        out.put_length(usize::from(!self.forgotten.is_empty()), is_flexible);
        if !self.forgotten.is_empty() {
            self.put_topic(&mut out, self.forgotten.len());
            for &index in self.forgotten {
                out.put_i32(index);
            }
            out.put_no_tags(is_flexible);
        }
        out.put_nullable_string(Some(b""), is_flexible);
        out.put_no_tags(is_flexible);
        out
    }

    fn put_topic(&self, out: &mut Vec<u8>, partitions: usize) {
        let is_flexible = is_flexible(self.version);
        if has_topic_ids(self.version) {
            out.put(&ID);
        } else {
            out.put_nullable_string(Some(NAME.as_bytes()), is_flexible);
        }
        out.put_length(partitions, is_flexible);
    }
}

/// An answer, parsed.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    code: i16,
    session_id: i32,
    partitions: Vec<ToldPartition>,
    tags: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ToldPartition {
    index: i32,
    code: i16,
    /// High watermark, last stable offset, log start.
    offsets: [i64; 3],
    records: Vec<u8>,
    tags: Vec<u8>,
}

impl Told {
    fn parse(version: i16, chunks: &[Chunk]) -> Self {
        let bytes: Vec<u8> = chunks
            .iter()
            .flat_map(|chunk| match chunk {
                Chunk::Bytes { data, .. } => data.clone(),
                Chunk::File { .. } => panic!("small records are copied"),
            })
            .collect();
        let is_flexible = is_flexible(version);
        let mut reader = Reader::new(&bytes);
        reader.i32().unwrap();
        reader.i32().unwrap();
        reader.skip_tags(is_flexible).unwrap();
        reader.i32().unwrap();
        let (code, session_id) = (reader.i16().unwrap(), reader.i32().unwrap());
        let mut partitions = Vec::new();
        for _ in 0..reader.array(is_flexible, 1).unwrap() {
            if has_topic_ids(version) {
                reader.uuid().unwrap();
            } else {
                reader.string(is_flexible).unwrap();
            }
            for _ in 0..reader.array(is_flexible, 1).unwrap() {
                let (index, code) = (reader.i32().unwrap(), reader.i16().unwrap());
                let offsets = [(); 3].map(|()| reader.i64().unwrap());
                let aborted = reader.nullable_array(is_flexible, 1).unwrap();
                assert_eq!(aborted.unwrap_or(0), 0, "nothing is aborted here");
                reader.i32().unwrap();
                let records = reader.nullable_bytes(is_flexible).unwrap();
                let at = reader.at();
                reader.skip_tags(is_flexible).unwrap();
                partitions.push(ToldPartition {
                    index,
                    code,
                    offsets,
                    records: records.map_or_else(Vec::new, |range| bytes[range].to_vec()),
                    tags: bytes[at..reader.at()].to_vec(),
                });
            }
            reader.skip_tags(is_flexible).unwrap();
        }
        let at = reader.at();
        reader.skip_tags(is_flexible).unwrap();
        Self {
            code,
            session_id,
            partitions,
            tags: bytes[at..reader.at()].to_vec(),
        }
    }

    fn indexes(&self) -> Vec<i32> {
        self.partitions.iter().map(|one| one.index).collect()
    }

    fn codes(&self) -> Vec<i16> {
        self.partitions.iter().map(|one| one.code).collect()
    }
}

impl Bench {
    fn new(partitions: usize) -> Self {
        Self::with_limits(partitions, 1_000, 64 << 20)
    }

    fn with_limits(partitions: usize, sessions: usize, bytes: usize) -> Self {
        let directory = Logs::new();
        let names = (0..partitions).map(|index| format!("pay-{index}"));
        let logs: Vec<_> = names.map(|name| directory.open(&name)).collect();
        let catalog = Arc::<Catalog>::default();
        let bench = Self {
            sessions: Arc::new(FetchSessions::with_limits(
                Arc::clone(&catalog),
                sessions,
                bytes,
            )),
            catalog,
            logs,
            access: Access::default(),
            now: Instant::now(),
            _directory: directory,
        };
        bench.serve(ID);
        bench
    }

    /// Serves the topic under an id.
    fn serve(&self, id: TopicId) {
        let logs = self.logs.clone();
        let log_of = Box::new(move |index: usize| Ok(Arc::clone(&logs[index])));
        let topic = Topic::new(NAME.to_owned(), id, self.logs.len(), log_of, false);
        self.catalog.add(topic);
    }

    fn append(&self, partition: usize, value: &[u8]) {
        let mut builder = BatchBuilder::new(Codec::None);
        builder.push(5, None, Some(value), &[]);
        let origin = Origin::Client {
            transaction_version: 2,
            transactional_id_hash: None,
        };
        let mut batch = builder.seal().unwrap();
        self.logs[partition].append(origin, &mut batch).unwrap();
    }

    /// Comes with a request, as far as the decision whether it waits.
    fn come(&self, ada: &Ada, asked: &Asked<'_>) -> FetchRequest {
        let parsed = FetchRequest::parse(&asked.body(), asked.version, 1, &self.catalog);
        let mut request = parsed.unwrap();
        request.enter_session(&self.sessions, ada.sender(), self.now);
        let turn = &mut Turn::of(Duration::from_secs(3600));
        assert!(request.authorize(&self.access, ada.sender(), turn));
        request.readiness();
        request
    }

    fn answer(&self, request: &FetchRequest) -> Told {
        let node = NodeEndpoint {
            id: 3,
            host: "me".to_owned(),
            port: 9092,
        };
        let mut answer = request.answer(true, Some(&node));
        request.settle(&mut answer, self.now);
        Told::parse(request.version, &answer.chunks)
    }

    fn ask_as(&self, ada: &Ada, asked: &Asked<'_>) -> Told {
        self.answer(&self.come(ada, asked))
    }

    fn ask(&self, asked: &Asked<'_>) -> Told {
        self.ask_as(&Ada::connected(), asked)
    }

    /// Opens a session of all partitions, from the start.
    fn open(&self) -> i32 {
        let partitions: Vec<_> = (0..self.logs.len() as i32)
            .map(|index| (index, 0))
            .collect();
        let told = self.ask(&Asked {
            partitions: &partitions,
            ..Asked::default()
        });
        assert_eq!(told.indexes().len(), partitions.len());
        assert!(told.session_id > 0);
        told.session_id
    }

    fn go_on(&self, id: i32, epoch: i32, partitions: &[(i32, i64)]) -> Told {
        self.ask(&Asked {
            session: (id, epoch),
            partitions,
            ..Asked::default()
        })
    }
}
