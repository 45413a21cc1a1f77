//! Tests of fetch sessions: their partitions, their errors, their limits.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use txn_log::Origin;
use txn_log::builder::BatchBuilder;
use txn_protocol::batch::Codec;
use txn_protocol::{Put, Reader};

use super::*;
use crate::access::Ada;
use crate::chunk::Chunk;
use crate::test_logs::Logs;

const NAME: &str = "pay";
const ID: TopicId = [7; 16];
/// A little more, and a little less, than the age at which sessions go.
const AGE: Duration = Duration::from_secs(121);
const ALMOST: Duration = Duration::from_secs(119);
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
                out.put_i32(-1);
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
        Self {
            code,
            session_id,
            partitions,
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
        let mut answer = request.answer(true);
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

#[test]
fn a_session_tells_only_of_partitions_that_changed() {
    let bench = Bench::new(4);
    let id = bench.open();
    assert_eq!(bench.go_on(id, 1, &[]).indexes(), []);
    bench.append(2, b"a");
    let told = bench.go_on(id, 2, &[]);
    assert_eq!((told.code, told.session_id), (0, id));
    assert_eq!(told.indexes(), [2]);
    assert!(!told.partitions[0].records.is_empty());
    assert_eq!(
        bench.go_on(id, 3, &[]).indexes(),
        [2],
        "it has not moved on"
    );
    assert_eq!(bench.go_on(id, 4, &[(2, 1)]).indexes(), []);
}

#[test]
fn a_changed_log_start_is_told_without_records() {
    let bench = Bench::new(2);
    bench.append(1, b"a");
    let id = bench.open();
    assert_eq!(bench.go_on(id, 1, &[(1, 1)]).indexes(), []);
    assert_eq!(bench.go_on(id, 2, &[]).indexes(), []);
    bench.logs[1].delete_records(1, &mut |_| Ok(())).unwrap();
    let told = bench.go_on(id, 3, &[]);
    assert_eq!(told.indexes(), [1]);
    assert_eq!(told.partitions[0].offsets, [1, 1, 1]);
    assert_eq!(told.partitions[0].records, b"");
    assert_eq!(bench.go_on(id, 4, &[]).indexes(), []);
}

#[test]
fn epochs_count_on_and_wrap_to_1() {
    let bench = Bench::new(1);
    let id = bench.open();
    let session = bench
        .sessions
        .find(id, &SessionOwner::of(Ada::connected().sender()));
    session.unwrap().set_epoch(i32::MAX);
    assert_eq!(bench.go_on(id, i32::MAX, &[]).code, 0);
    assert_eq!(bench.go_on(id, 1, &[]).code, 0);
    assert_eq!(bench.go_on(id, 2, &[]).code, 0);
}

#[test]
fn a_request_of_another_epoch_or_session_or_naming_is_refused_and_changes_nothing() {
    let bench = Bench::new(1);
    let id = bench.open();
    let code_of = |session, version| {
        let told = bench.ask(&Asked {
            version,
            session,
            forgotten: &[0],
            ..Asked::default()
        });
        assert_eq!((told.session_id, told.partitions), (0, Vec::new()));
        told.code
    };
    assert_eq!(code_of((id, 2), 11), codes::INVALID_FETCH_SESSION_EPOCH);
    assert_eq!(code_of((id ^ 1, 1), 11), codes::FETCH_SESSION_ID_NOT_FOUND);
    assert_eq!(code_of((0, 1), 11), codes::FETCH_SESSION_ID_NOT_FOUND);
    assert_eq!(code_of((id, 1), 13), codes::FETCH_SESSION_TOPIC_ID_ERROR);
    bench.append(0, b"a");
    assert_eq!(bench.go_on(id, 1, &[]).indexes(), [0]);
}

#[test]
fn a_session_is_its_owners_alone() {
    let bench = Bench::new(1);
    let id = bench.open();
    let mallory = Ada::at("10.6.6.6");
    for epoch in [1, 0, -1] {
        let told = bench.ask_as(
            &mallory,
            &Asked {
                session: (id, epoch),
                forgotten: &[0],
                ..Asked::default()
            },
        );
        let expected = match epoch {
            1 => codes::FETCH_SESSION_ID_NOT_FOUND,
            _ => codes::NONE,
        };
        assert_eq!(told.code, expected);
    }
    assert_eq!(
        bench.go_on(id, 1, &[]).code,
        codes::NONE,
        "it is still there"
    );
}

#[test]
fn a_full_request_closes_the_session_it_names() {
    let bench = Bench::new(1);
    let id = bench.open();
    let told = bench.go_on(id, -1, &[(0, 0)]);
    assert_eq!((told.code, told.session_id), (0, 0));
    assert_eq!(
        bench.go_on(id, 1, &[]).code,
        codes::FETCH_SESSION_ID_NOT_FOUND
    );
    let (first, other) = (bench.open(), bench.open());
    assert!(bench.go_on(first, 0, &[(0, 0)]).session_id != first);
    assert_eq!(
        bench.go_on(first, 1, &[]).code,
        codes::FETCH_SESSION_ID_NOT_FOUND
    );
    assert_eq!(bench.go_on(other, 1, &[]).code, 0);
}

#[test]
fn a_session_ends_with_its_last_partition() {
    let bench = Bench::new(2);
    let id = bench.open();
    let forget = |epoch, forgotten: &[i32]| {
        bench.ask(&Asked {
            session: (id, epoch),
            forgotten,
            ..Asked::default()
        })
    };
    assert_eq!(forget(1, &[1, 1, 9]).session_id, id);
    bench.append(1, b"a");
    assert_eq!(forget(2, &[]).indexes(), []);
    let told = forget(3, &[0]);
    assert_eq!((told.code, told.session_id), (0, 0));
    assert_eq!(forget(4, &[]).code, codes::FETCH_SESSION_ID_NOT_FOUND);
    assert_eq!(bench.sessions.snapshot(), SessionSnapshot::default());
    assert!(bench.logs.iter().all(|log| log.watcher_count() == 0));
}

#[test]
fn a_partition_that_got_records_goes_behind_the_others() {
    let bench = Bench::new(3);
    let id = bench.open();
    for partition in 0..3 {
        bench.append(partition, &[7; 100]);
        bench.append(partition, &[7; 100]);
    }
    let mut served = Vec::new();
    for epoch in 1..=6 {
        let told = bench.ask(&Asked {
            session: (id, epoch),
            max_bytes: 1, // one batch
            ..Asked::default()
        });
        let with_records = told.partitions.iter().filter(|one| !one.records.is_empty());
        served.extend(with_records.map(|one| one.index));
    }
    assert_eq!(served, [0, 1, 2, 0, 1, 2]);
}

#[test]
fn an_idle_session_looks_at_no_partition_and_a_woken_one_at_those_that_changed() {
    let bench = Bench::new(200);
    let id = bench.open();
    let come = |epoch, partitions: &[(i32, i64)]| {
        let asked = Asked {
            session: (id, epoch),
            partitions,
            max_wait_ms: 60_000,
            ..Asked::default()
        };
        bench.come(&Ada::connected(), &asked)
    };
    let idle = come(1, &[]);
    assert_eq!(idle.partition_count(), 0);
    assert_eq!(idle.readiness(), Readiness::TooLittle);
    assert_eq!(bench.answer(&idle).indexes(), []);
    let waiting = come(2, &[]);
    let count = Arc::new(Count::default());
    let watch = waiting.watch(&(Arc::clone(&count) as Arc<dyn Watcher>));
    assert_eq!(waiting.readiness(), Readiness::TooLittle);
    bench.append(17, b"a");
    assert_eq!(count.0.load(Ordering::SeqCst), 1);
    assert_eq!(waiting.readiness(), Readiness::Ready);
    assert_eq!(waiting.partition_count(), 1);
    assert_eq!(bench.answer(&waiting).indexes(), [17]);
    drop(watch);
    bench.append(18, b"a");
    assert_eq!(count.0.load(Ordering::SeqCst), 1, "nobody waits any more");
    assert_eq!(come(3, &[(17, 1)]).partition_count(), 1);
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Watcher for Count {
    fn log_advanced(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_request_that_waits_is_refused_once_another_of_its_session_came() {
    let bench = Bench::new(1);
    let id = bench.open();
    let waiting = bench.come(
        &Ada::connected(),
        &Asked {
            session: (id, 1),
            max_wait_ms: 60_000,
            ..Asked::default()
        },
    );
    assert_eq!(waiting.readiness(), Readiness::TooLittle);
    assert_eq!(bench.go_on(id, 2, &[]).code, 0);
    assert_eq!(waiting.readiness(), Readiness::Ready);
    let told = bench.answer(&waiting);
    assert_eq!(told.code, codes::INVALID_FETCH_SESSION_EPOCH);
    assert_eq!(told.session_id, id);
}

#[test]
fn an_answer_that_is_throttled_is_given_by_the_next() {
    let bench = Bench::new(2);
    let id = bench.open();
    bench.append(0, b"a");
    let throttled = bench.come(
        &Ada::connected(),
        &Asked {
            session: (id, 1),
            partitions: &[(0, 1)],
            ..Asked::default()
        },
    );
    throttled.answer(true);
    let told = Told::parse(11, &[throttled.throttled(9)]);
    assert_eq!((told.code, told.session_id), (0, id));
    assert_eq!(bench.go_on(id, 2, &[]).indexes(), [0]);
    let full = bench.come(
        &Ada::connected(),
        &Asked {
            partitions: &[(0, 0)],
            ..Asked::default()
        },
    );
    full.answer(true);
    assert_eq!(Told::parse(11, &[full.throttled(9)]).session_id, 0);
    assert_eq!(bench.sessions.snapshot().sessions, 1);
}

#[test]
fn a_topic_that_goes_or_comes_again_is_told_in_a_session_by_id() {
    let bench = Bench::new(1);
    let ask = |session| {
        bench.ask(&Asked {
            version: 16,
            session,
            partitions: if session.1 == 0 { &[(0, 0)] } else { &[] },
            ..Asked::default()
        })
    };
    let id = ask((0, 0)).session_id;
    assert_eq!(ask((id, 1)).indexes(), []);
    bench.catalog.remove(NAME);
    assert_eq!(ask((id, 2)).codes(), [codes::UNKNOWN_TOPIC_OR_PARTITION]);
    assert_eq!(
        ask((id, 3)).codes(),
        [codes::UNKNOWN_TOPIC_OR_PARTITION],
        "each time"
    );
    bench.serve([9; 16]);
    assert_eq!(ask((id, 4)).codes(), [codes::INCONSISTENT_TOPIC_ID]);
    bench.catalog.remove(NAME);
    let unknown = ask((0, 0));
    assert_eq!(unknown.codes(), [codes::UNKNOWN_TOPIC_ID]);
    assert_eq!(
        ask((unknown.session_id, 1)).codes(),
        [codes::UNKNOWN_TOPIC_ID]
    );
    bench.serve(ID);
    assert_eq!(ask((unknown.session_id, 2)).codes(), [0]);
    assert_eq!(ask((unknown.session_id, 3)).codes(), []);
}

#[test]
fn a_partition_that_is_led_no_longer_is_told_while_it_is_quiet() {
    let bench = Bench::new(2);
    let id = bench.open();
    assert_eq!(bench.go_on(id, 1, &[]).indexes(), []);
    let topic = bench.catalog.find(TopicKey::Name(NAME.as_bytes())).unwrap();
    let role = topic.partition(1).unwrap().role().unwrap();
    topic
        .partition(1)
        .unwrap()
        .set_role(crate::PartitionRole::Offline);
    bench.catalog.note_change();
    let told = bench.go_on(id, 2, &[]);
    assert_eq!(told.indexes(), [1]);
    assert_eq!(told.codes(), [codes::KAFKA_STORAGE_ERROR]);
    topic.partition(1).unwrap().set_role(role);
    bench.catalog.note_change();
    assert_eq!(bench.go_on(id, 3, &[]).codes(), [0], "the error is over");
    assert_eq!(bench.go_on(id, 4, &[]).codes(), []);
}

#[test]
fn a_permission_that_is_taken_away_counts_for_the_next_request_of_a_session() {
    let mut bench = Bench::new(2);
    let is_allowed = Arc::new(Mutex::new(true));
    let asked = Arc::new(AtomicUsize::new(0));
    bench.access = Access::default();
    let (rule, count) = (Arc::clone(&is_allowed), Arc::clone(&asked));
    bench.access.authorize_by(Box::new(move |_, _, _, _| {
        count.fetch_add(1, Ordering::SeqCst);
        *rule.lock().unwrap()
    }));
    let id = bench.open();
    assert_eq!(bench.go_on(id, 1, &[]).codes(), []);
    assert_eq!(bench.go_on(id, 2, &[]).codes(), []);
    assert_eq!(asked.load(Ordering::SeqCst), 1, "it is remembered");
    *is_allowed.lock().unwrap() = false;
    bench.access.forget();
    let refused = [codes::TOPIC_AUTHORIZATION_FAILED; 2];
    assert_eq!(bench.go_on(id, 3, &[]).codes(), refused);
    assert_eq!(bench.go_on(id, 4, &[]).codes(), refused);
    assert_eq!(asked.load(Ordering::SeqCst), 3, "each refusal is asked for");
    *is_allowed.lock().unwrap() = true;
    bench.access.forget();
    assert_eq!(bench.go_on(id, 5, &[]).codes(), [0, 0]);
    assert_eq!(bench.go_on(id, 6, &[]).codes(), []);
}

#[test]
fn a_reader_whose_log_went_on_after_its_epoch_ended_here_is_told_where() {
    let bench = Bench::new(1);
    bench.append(0, b"a");
    bench.logs[0].lead(5);
    bench.append(0, b"b");
    let ask = |start, last_fetched_epoch| {
        let told = bench.ask(&Asked {
            version: 12,
            session: (0, -1),
            partitions: &[(0, start)],
            last_fetched_epoch,
            ..Asked::default()
        });
        let one = told.partitions.into_iter().next().unwrap();
        (one.code, one.records.is_empty(), one.tags)
    };
    assert_eq!(ask(1, 0), (0, false, vec![0]));
    let end_of_0 = [&[1, 0, 13, 0, 0, 0, 0][..], &1_i64.to_be_bytes(), &[0]].concat();
    assert_eq!(ask(2, 0), (0, true, end_of_0));
    assert_eq!(ask(2, 5), (0, true, vec![0]));
    assert_eq!(ask(2, 6).0, codes::OFFSET_OUT_OF_RANGE);
}

// ------------------------------------------------------------ room

fn open_from(bench: &Bench, host: &str, partitions: &[(i32, i64)]) -> i32 {
    let asked = Asked {
        partitions,
        ..Asked::default()
    };
    bench.ask_as(&Ada::at(host), &asked).session_id
}

fn is_open(bench: &Bench, host: &str, id: i32) -> bool {
    let owner = SessionOwner::of(Ada::at(host).sender());
    id != 0 && bench.sessions.find(id, &owner).is_some()
}

#[test]
fn a_client_that_opens_sessions_without_end_pushes_out_nobody_and_gives_way_to_others() {
    let bench = Bench::with_limits(9, 10, 64 << 20);
    let mut bench = bench;
    let friends = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];
    let kept = friends.map(|host| (host, open_from(&bench, host, &[(0, 0)])));
    let wide: Vec<_> = (0..9).map(|index| (index, 0)).collect();
    for round in 0..50 {
        let id = open_from(&bench, "10.6.6.6", &wide);
        assert_eq!(id != 0, round < 7, "there is room for seven");
    }
    assert!(kept.iter().all(|&(host, id)| is_open(&bench, host, id)));
    let late = open_from(&bench, "10.0.0.4", &[(0, 0)]);
    assert!(is_open(&bench, "10.0.0.4", late), "one of the many went");
    // Kafka's age does not help it: its sessions are larger, but the others' are not its own.
    bench.now += AGE;
    for (host, id) in kept {
        bench.ask_as(
            &Ada::at(host),
            &Asked {
                session: (id, 1),
                ..Asked::default()
            },
        );
    }
    for _ in 0..50 {
        open_from(&bench, "10.6.6.6", &wide);
    }
    assert!(kept.iter().all(|&(host, id)| is_open(&bench, host, id)));
}

#[test]
fn owners_who_want_all_the_room_end_with_equal_shares_and_stay_there() {
    let bench = Bench::with_limits(1, 8, 64 << 20);
    for _ in 0..8 {
        assert!(open_from(&bench, "10.0.0.1", &[(0, 0)]) > 0);
    }
    let opened = (0..20).filter(|_| open_from(&bench, "10.0.0.2", &[(0, 0)]) > 0);
    assert_eq!(opened.count(), 4);
    let evictions = bench.sessions.snapshot().evictions;
    assert_eq!(evictions, 4);
    for _ in 0..20 {
        assert_eq!(open_from(&bench, "10.0.0.1", &[(0, 0)]), 0);
    }
    assert_eq!(bench.sessions.snapshot().evictions, evictions);
}

#[test]
fn a_session_of_the_same_owner_goes_when_it_is_old_and_smaller_or_unused() {
    let mut bench = Bench::with_limits(3, 2, 64 << 20);
    let host = "10.0.0.1";
    let small = open_from(&bench, host, &[(0, 0)]);
    let large = open_from(&bench, host, &[(0, 0), (1, 0)]);
    assert_eq!(
        open_from(&bench, host, &[(0, 0), (1, 0), (2, 0)]),
        0,
        "both are young"
    );
    bench.now += ALMOST;
    for id in [small, large] {
        let asked = Asked {
            session: (id, 1),
            ..Asked::default()
        };
        bench.ask_as(&Ada::at(host), &asked);
    }
    bench.now += Duration::from_secs(2);
    assert_eq!(open_from(&bench, host, &[(0, 0)]), 0, "none is smaller");
    let largest = open_from(&bench, host, &[(0, 0), (1, 0), (2, 0)]);
    assert!(largest > 0 && !is_open(&bench, host, small) && is_open(&bench, host, large));
    bench.now += AGE;
    assert!(open_from(&bench, host, &[(0, 0)]) > 0, "both are unused");
    assert!(!is_open(&bench, host, large) && is_open(&bench, host, largest));
}

#[test]
fn sessions_are_bounded_in_bytes_also_when_they_grow() {
    let small = session::session_bytes(1, 1, 3);
    let bench = Bench::with_limits(60, 100, 20 * small);
    let many: Vec<_> = (0..60).map(|index| (index, 0)).collect();
    assert_eq!(open_from(&bench, "10.0.0.1", &many), 0);
    let id = open_from(&bench, "10.0.0.1", &many[..1]);
    let grow = |id, epoch, partitions| {
        bench.ask_as(
            &Ada::at("10.0.0.1"),
            &Asked {
                session: (id, epoch),
                partitions,
                ..Asked::default()
            },
        )
    };
    assert_eq!(grow(id, 1, &many[..5]).code, 0);
    assert_eq!(bench.sessions.snapshot().partitions, 5);
    assert_eq!(grow(id, 2, &many).code, codes::FETCH_SESSION_ID_NOT_FOUND);
    let expected = SessionSnapshot {
        evictions: 1,
        ..SessionSnapshot::default()
    };
    assert_eq!(bench.sessions.snapshot(), expected);
    let ids: Vec<_> = (0..30)
        .map(|_| open_from(&bench, "10.6.6.6", &many[..1]))
        .collect();
    assert_eq!(ids.iter().filter(|&&id| id > 0).count(), 20);
    assert!(open_from(&bench, "10.0.0.1", &many[..3]) > 0);
    assert_eq!(bench.sessions.snapshot().evictions, 4);
}

#[test]
fn without_slots_there_are_no_sessions() {
    let bench = Bench::with_limits(1, 0, 64 << 20);
    assert_eq!(open_from(&bench, "10.0.0.1", &[(0, 0)]), 0);
}

// ------------------------------------------------------------ a model

#[derive(Clone, Debug)]
enum Step {
    Append(usize),
    DeleteRecords(usize),
    /// Follow the session: read on in these partitions, with room for one batch or for all.
    Fetch {
        is_narrow: bool,
        isolation: i8,
    },
    /// An answer that its client never gets: it was throttled.
    Throttled,
    Forget(usize),
    Want(usize),
    /// Move a position, as a client that seeks does.
    Seek(usize, u8),
    TopicAgain,
    SessionLost,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let partition = || 0..PARTITIONS;
    let step = prop_oneof![
        6 => partition().prop_map(Step::Append),
        1 => partition().prop_map(Step::DeleteRecords),
        8 => (any::<bool>(), 0..2_i8)
            .prop_map(|(is_narrow, isolation)| Step::Fetch { is_narrow, isolation }),
        1 => Just(Step::Throttled),
        2 => partition().prop_map(Step::Forget),
        3 => partition().prop_map(Step::Want),
        2 => (partition(), any::<u8>()).prop_map(|(partition, to)| Step::Seek(partition, to)),
        1 => Just(Step::TopicAgain),
        1 => Just(Step::SessionLost),
    ];
    prop::collection::vec(step, 1..60)
}

const PARTITIONS: usize = 4;

/// A client as KIP-227 has it: the partitions it wants, and what it has been told of them.
#[derive(Default)]
struct Client {
    session: (i32, i32),
    /// Positions.
    wanted: BTreeMap<i32, i64>,
    /// Offsets that were told last of the partitions in the session.
    told: BTreeMap<i32, [i64; 3]>,
    /// What the session knows: the position of each of its partitions.
    known: BTreeMap<i32, i64>,
}

impl Client {
    /// Makes the next request: what changed since the last.
    fn next(&self) -> (Vec<(i32, i64)>, Vec<i32>) {
        let is_full = self.session.1 == 0;
        let changed = |(index, start): (&i32, &i64)| {
            (is_full || self.known.get(index) != Some(start)).then_some((*index, *start))
        };
        let partitions = self.wanted.iter().filter_map(changed).collect();
        let is_forgotten = |index: &&i32| !is_full && !self.wanted.contains_key(index);
        let forgotten = self.known.keys().filter(is_forgotten).copied().collect();
        (partitions, forgotten)
    }

    fn was_sent(&mut self) {
        self.known = self.wanted.clone();
        self.told.retain(|index, _| self.wanted.contains_key(index));
    }
}

proptest! {
    #[test]
    fn a_reader_that_follows_a_session_is_told_what_one_without_is(steps in steps()) {
        let bench = Bench::new(PARTITIONS);
        let mut client = Client::default();
        for step in steps {
            match step {
                Step::Append(partition) => bench.append(partition, &[7; 20]),
                Step::DeleteRecords(partition) => {
                    let end = bench.logs[partition].state().log_end_offset;
                    bench.logs[partition].delete_records(end, &mut |_| Ok(())).unwrap();
                }
                Step::Forget(partition) => {
                    client.wanted.remove(&(partition as i32));
                }
                Step::Want(partition) => {
                    client.wanted.entry(partition as i32).or_insert(0);
                }
                Step::Seek(partition, to) => {
                    if let Some(one) = client.wanted.get_mut(&(partition as i32)) {
                        *one = i64::from(to % 6);
                    }
                }
                Step::TopicAgain => bench.serve(ID),
                Step::SessionLost => client.session = (client.session.0, 0),
                Step::Throttled => {
                    if client.session.1 == 0 { continue }
                    let (partitions, forgotten) = client.next();
                    let asked = Asked {
                        session: client.session,
                        partitions: &partitions,
                        forgotten: &forgotten,
                        ..Asked::default()
                    };
                    let request = bench.come(&Ada::connected(), &asked);
                    request.answer(true);
                    let told = Told::parse(11, &[request.throttled(1)]);
                    prop_assert_eq!(told.code, 0);
                    client.was_sent();
                    client.session = (told.session_id, client.session.1 + 1);
                    if told.session_id == 0 { client.session = (0, 0); }
                }
                Step::Fetch { is_narrow, isolation } => {
                    let (partitions, forgotten) = client.next();
                    let told = bench.ask(&Asked {
                        session: client.session,
                        partitions: &partitions,
                        forgotten: &forgotten,
                        max_bytes: if is_narrow { 1 } else { 1 << 20 },
                        isolation,
                        ..Asked::default()
                    });
                    prop_assert_eq!(told.code, 0);
                    let all: Vec<_> = client.wanted.clone().into_iter().collect();
                    let plain = bench.ask(&Asked {
                        session: (0, -1),
                        partitions: &all,
                        isolation,
                        ..Asked::default()
                    });
                    client.was_sent();
                    let is_full = client.session.1 == 0;
                    client.session = (told.session_id, client.session.1 + 1);
                    if told.session_id == 0 { client.session = (0, 0); }
                    for one in &told.partitions {
                        prop_assert!(client.wanted.contains_key(&one.index), "it was forgotten");
                        let before = client.told.insert(one.index, one.offsets);
                        let is_news = !one.records.is_empty() || one.code != 0;
                        let is_other = before != Some(one.offsets);
                        prop_assert!(is_full || is_news || is_other, "it is no news");
                    }
                    let mut is_any_told = false;
                    for expected in &plain.partitions {
                        prop_assert_eq!(client.told[&expected.index], expected.offsets);
                        let told = told.partitions.iter().find(|one| one.index == expected.index);
                        let records = told.map_or(&[][..], |one| &one.records);
                        is_any_told |= !records.is_empty();
                        if !is_narrow {
                            prop_assert_eq!(told.map_or(0, |one| one.code), expected.code);
                            prop_assert_eq!(records, &expected.records[..]);
                        }
                    }
                    let is_any = plain.partitions.iter().any(|one| !one.records.is_empty());
                    prop_assert_eq!(is_any_told, is_any, "one batch at least");
                    for one in told.partitions.iter().filter(|one| !one.records.is_empty()) {
                        let end = i64::from_be_bytes(*one.records.first_chunk().unwrap());
                        client.wanted.insert(one.index, end + 1);
                    }
                }
            }
        }
    }
}
