//! `NativeConsumer`: the native engine of `txn.Consumer`.
//!
//! Only `take`, `take_columns`, `answer` and `wait_until_left` wait. They release the interpreter
//! and look for signals.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFloat, PyInt};
use txn_client::engine::consumer::{
    Answer, Ask, Assignor, Begin, Change, ClassicSettings, Commit, Membership, Message,
    MessageColumns, Place, Reset, Subscription,
};
use txn_client::engine::{Consumer, ConsumerClient, ConsumerSettings};
use txn_client::security::Security;

use crate::client::{Signal, set_column};
use crate::fast_path::FastPath;
use crate::message::PyMessage;
use crate::native::{self, ConnectTuple, connect_tuples};
use crate::producer::ClientThread;
use crate::security::ClientSecurity;

/// The bytes after which columns are handed over: their offsets are 32 bits wide.
const COLUMN_BYTES_MAX: usize = 256 << 20;

const OFFSET_BEGINNING: i64 = -2;
const OFFSET_END: i64 = -1;
const OFFSET_STORED: i64 = -1_000;
const OFFSET_INVALID: i64 = -1_001;
const OFFSET_TAIL: i64 = -2_000;

/// (code, is retriable, message).
type ErrorTuple = (i16, bool, String);
/// (topic, partition, error code, offset, leader epoch, metadata).
type OffsetTuple = (String, i32, i16, i64, i32, String);
/// (id, host, port).
type BrokerTuple = (i32, String, u16);
/// (name, error code, [(error code, partition, leader)]).
type TopicTuple = (String, i16, Vec<(i16, i32, i32)>);
/// (error code, is retriable, message, topic, partition, is without begin).
type ReportTuple = (i16, bool, String, Option<String>, i32, bool);
/// (number, kind, partitions).
type EventTuple = (u64, &'static str, Vec<(String, i32)>);

/// A consumer on the native engine.
#[pyclass(frozen, module = "txn._core")]
struct NativeConsumer {
    client: ConsumerClient,
    signal: Signal,
    fast_path: FastPath,
}

#[pymethods]
impl NativeConsumer {
    #[new]
    #[pyo3(signature = (thread, bootstrap_servers, *, client_id, security, group_id, member_id,
                        instance_id, assignor, assignors, session_timeout_ms,
                        heartbeat_interval_ms, reset, max_poll_interval_ms, request_timeout_ms,
                        retry_backoff_ms, metadata_max_age_ms, unknown_topic_max_ms,
                        api_timeout_ms, fetch_wait_ms, fetch_min_bytes, fetch_max_bytes, partition_fetch_bytes,
                        queued_kbytes, batch_bytes, reports_ends))]
    #[allow(clippy::too_many_arguments)] // as the stub says
    fn new(
        py: Python<'_>,
        thread: &ClientThread,
        bootstrap_servers: &str,
        client_id: &str,
        security: Option<PyRef<'_, ClientSecurity>>,
        group_id: String,
        member_id: String,
        instance_id: Option<String>,
        assignor: Option<String>,
        assignors: Option<Vec<String>>,
        session_timeout_ms: i32,
        heartbeat_interval_ms: u64,
        reset: &str,
        max_poll_interval_ms: u64,
        request_timeout_ms: u64,
        retry_backoff_ms: u64,
        metadata_max_age_ms: u64,
        unknown_topic_max_ms: u64,
        api_timeout_ms: u64,
        fetch_wait_ms: i32,
        fetch_min_bytes: i32,
        fetch_max_bytes: i32,
        partition_fetch_bytes: i32,
        queued_kbytes: usize,
        batch_bytes: usize,
        reports_ends: bool,
    ) -> PyResult<Self> {
        let named = |name: String| {
            Assignor::from_name(&name)
                .ok_or_else(|| PyValueError::new_err(format!("{name} is no assignor")))
        };
        let assignors = assignors
            .map(|names| names.into_iter().map(named).collect::<PyResult<Vec<_>>>())
            .transpose()?;
        let settings = ConsumerSettings {
            classic: assignors.map(|assignors| ClassicSettings {
                assignors,
                session_timeout_ms,
                heartbeat_interval_ms,
            }),
            group: group_id,
            member_id,
            instance_id,
            assignor,
            max_poll_interval_ms,
            request_timeout_ms,
            retry_backoff_ms,
            metadata_age_max_ms: metadata_max_age_ms,
            fetch_wait_ms,
            fetch_min_bytes,
            fetch_max_bytes,
            partition_fetch_bytes,
            queued_bytes_max: queued_kbytes.saturating_mul(1024),
            content_bytes_max: batch_bytes,
            reports_ends,
            reset: match reset {
                "earliest" => Reset::Earliest,
                "latest" => Reset::Latest,
                _ => Reset::Error,
            },
            unknown_topic_max_ms,
            api_timeout_ms,
        };
        let signal = Signal::default();
        let security = security.map_or_else(Security::default, |security| {
            security.of_client(py, &signal.token_failure)
        });
        let client =
            ConsumerClient::new(&thread.0, bootstrap_servers, client_id, security, settings)
                .map_err(|error| PyValueError::new_err(error.message))?;
        Ok(Self {
            client,
            signal,
            fast_path: FastPath::new(),
        })
    }

    fn subscribe(&self, topics: Vec<String>, pattern: Option<String>) {
        let subscription = Subscription { topics, pattern };
        self.client
            .call(|consumer, now| consumer.subscribe(subscription, now));
    }

    fn unsubscribe(&self) {
        self.client.call(|consumer, _| consumer.unsubscribe());
    }

    /// True once the coordinator was told, or could not be.
    fn wait_until_left(&self, py: Python<'_>, timeout_ms: u64) -> PyResult<bool> {
        let is_left = |consumer: &mut Consumer| (!consumer.is_leaving()).then_some(());
        Ok(self.wait(py, timeout_ms, is_left)?.is_some())
    }

    /// The next change of the group, with its number.
    fn take_event(&self) -> Option<EventTuple> {
        let (number, change) = self.client.look(|consumer, _| consumer.take_event())?;
        let (kind, places) = match change {
            Change::Assign(places) => ("assign", places),
            Change::Revoke(places) => ("revoke", places),
            Change::Lost(places) => ("lost", places),
        };
        Some((number, kind, places.into_iter().map(tuple_of).collect()))
    }

    fn event_done(&self, number: u64) {
        self.client.call(|consumer, _| consumer.event_done(number));
    }

    fn take_report(&self) -> Option<ReportTuple> {
        let report = self.client.look(|consumer, _| consumer.take_report())?;
        let (topic, partition) = report.place.map_or((None, -1), |(topic, partition)| {
            (Some(topic.to_string()), partition)
        });
        let error = report.error;
        Some((
            error.code,
            error.is_retriable,
            error.message,
            topic,
            partition,
            report.is_without_begin,
        ))
    }

    /// The next partition that was read to its end: (topic, partition, offset).
    fn take_end(&self) -> Option<(String, i32, i64)> {
        let (place, offset) = self.client.look(|consumer, _| consumer.take_end())?;
        let (topic, partition) = tuple_of(place);
        Some((topic, partition, offset))
    }

    /// (epoch, member id); -1 and "" without a membership.
    fn membership(&self) -> (i32, String) {
        let member = self.client.look(|consumer, _| consumer.membership());
        (member.epoch, member.member_id)
    }

    /// Reads partitions, each from an offset or one of librdkafka's names of offsets.
    fn assign(&self, partitions: Vec<(String, i32, i64)>) -> PyResult<()> {
        let begins = partitions
            .into_iter()
            .map(|(topic, partition, offset)| Ok((place(&topic, partition), begin_of(offset)?)))
            .collect::<PyResult<Vec<_>>>()?;
        self.client.call(|consumer, _| consumer.assign(begins));
        Ok(())
    }

    fn unassign(&self, places: Vec<(String, i32)>) {
        let places = places_of(places);
        self.client.call(|consumer, _| consumer.unassign(&places));
    }

    fn assignment(&self) -> Vec<(String, i32)> {
        self.client.look(|consumer, _| {
            let places = consumer.assignment().cloned();
            places.map(tuple_of).collect()
        })
    }

    /// False: it is not assigned.
    fn seek(&self, topic: &str, partition: i32, offset: i64) -> PyResult<bool> {
        let (place, begin) = (place(topic, partition), begin_of(offset)?);
        Ok(self.client.call(|consumer, _| consumer.seek(&place, begin)))
    }

    /// False: it is not assigned.
    fn pause(&self, topic: &str, partition: i32, is_paused: bool) -> bool {
        let place = place(topic, partition);
        self.client
            .call(|consumer, _| consumer.pause(&place, is_paused))
    }

    /// (offset, leader epoch).
    fn position(&self, topic: &str, partition: i32) -> Option<(i64, i32)> {
        let place = place(topic, partition);
        self.client.look(|consumer, _| consumer.position(&place))
    }

    /// The offset behind the last record handed out since the partition was assigned or sought.
    fn handed_out(&self, topic: &str, partition: i32) -> Option<i64> {
        let place = place(topic, partition);
        self.client.look(|consumer, _| consumer.handed_out(&place))
    }

    /// (first offset, end).
    fn watermarks(&self, topic: &str, partition: i32) -> Option<(i64, i64)> {
        let place = place(topic, partition);
        self.client.look(|consumer, _| consumer.watermarks(&place))
    }

    /// The next record if one is ready, the fast path is open for this thread, and no callback or
    /// error is due. Else None: `take` and its caller's rules decide.
    fn take_fast(&self, timeout: &Bound<'_, PyAny>) -> Option<PyMessage> {
        let is_number =
            timeout.is_exact_instance_of::<PyInt>() || timeout.is_exact_instance_of::<PyFloat>();
        if !is_number || !self.fast_path.is_open() {
            return None;
        }
        let (taken, is_urgent) = self.client.look(|consumer, now| {
            if consumer.has_news() {
                return (None, false);
            }
            let is_urgent = consumer.note_poll(false, now);
            let (taken, has_room) = consumer.take_further();
            (taken, is_urgent || has_room)
        });
        if is_urgent {
            self.client.poke();
        }
        taken.is_some().then(|| self.fast_path.note_read());
        taken.map(PyMessage)
    }

    /// Opens the fast path for this thread, unless one of these partitions has handed out a record:
    /// they wait for their first one, which the caller has to see.
    fn open_fast_path(&self, awaited: Vec<(String, i32)>) {
        let awaited = places_of(awaited);
        let has_begun = self.client.look(|consumer, _| {
            let mut awaited = awaited.iter();
            awaited.any(|place| consumer.handed_out(place).is_some())
        });
        if !has_begun {
            self.fast_path.open();
        }
    }

    fn close_fast_path(&self) {
        self.fast_path.close();
    }

    /// Seconds since this thread took a record on the fast path. None: it never did, or another
    /// thread did so later.
    fn fast_read_age_s(&self) -> Option<f64> {
        self.fast_path.read_age_s()
    }

    /// Records; none after the time-out, and if there is an event or a report.
    fn take(&self, py: Python<'_>, max: usize, timeout_ms: u64) -> PyResult<Vec<PyMessage>> {
        let messages = self.messages(py, max, usize::MAX, timeout_ms)?;
        Ok(messages.into_iter().map(PyMessage).collect())
    }

    /// `take` as columns; `MessageColumns` of the stub.
    fn take_columns<'py>(
        &self,
        py: Python<'py>,
        max: usize,
        timeout_ms: u64,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let messages = self.messages(py, max, COLUMN_BYTES_MAX, timeout_ms)?;
        if messages.is_empty() {
            return Ok(None);
        }
        let columns = py.detach(|| MessageColumns::of(&messages));
        columns_dict(py, &columns).map(Some)
    }

    fn ask_by_time(&self, wanted: Vec<(String, i32, i64)>) -> u64 {
        let wanted = wanted.into_iter().map(|(t, p, at)| (place(&t, p), at));
        self.ask(Ask::ByTime(wanted.collect()))
    }

    fn ask_committed(&self, places: Vec<(String, i32)>) -> u64 {
        self.ask(Ask::Committed(places_of(places)))
    }

    fn ask_commit(&self, offsets: Vec<(String, i32, i64, i32, String)>) -> u64 {
        self.fast_path.close(); // its answer may be due to the program
        let commit =
            |(topic, partition, offset, leader_epoch, metadata): (String, i32, _, _, _)| Commit {
                place: place(&topic, partition),
                offset,
                leader_epoch,
                metadata,
            };
        let offsets = offsets.into_iter().map(commit).collect();
        let member: Membership = self.client.look(|consumer, _| consumer.membership());
        self.ask(Ask::Commit(member, offsets))
    }

    fn ask_topics(&self, names: Option<Vec<String>>) -> u64 {
        self.ask(Ask::Topics(names))
    }

    /// (error, offsets, brokers, topics) of a question; None after the time-out, which drops it.
    #[allow(clippy::type_complexity)] // as the stub says
    fn answer(
        &self,
        py: Python<'_>,
        number: u64,
        timeout_ms: u64,
        drops: bool,
    ) -> PyResult<
        Option<(
            Option<ErrorTuple>,
            Vec<OffsetTuple>,
            Vec<BrokerTuple>,
            Vec<TopicTuple>,
        )>,
    > {
        let waited = self.wait(py, timeout_ms, |consumer| consumer.answer(number));
        if drops && !matches!(waited, Ok(Some(_))) {
            self.client.look(|consumer, _| consumer.forget(number));
        }
        Ok(waited?.map(|result| match result {
            Err(error) => {
                let error = (error.code, error.is_retriable, error.message);
                (Some(error), Vec::new(), Vec::new(), Vec::new())
            }
            Ok(Answer::Offsets(answers)) => {
                let tuple = |a: txn_client::engine::consumer::OffsetAnswer| {
                    let (topic, partition) = tuple_of(a.place);
                    (
                        topic,
                        partition,
                        a.error_code,
                        a.offset,
                        a.leader_epoch,
                        a.metadata,
                    )
                };
                let offsets = answers.into_iter().map(tuple).collect();
                (None, offsets, Vec::new(), Vec::new())
            }
            Ok(Answer::Topics(brokers, topics)) => {
                let brokers = brokers
                    .into_iter()
                    .map(|b| (b.id, b.host, b.port))
                    .collect();
                let topics = topics.into_iter();
                let topics = topics
                    .map(|t| (t.name, t.error_code, t.partitions))
                    .collect();
                (None, Vec::new(), brokers, topics)
            }
        }))
    }

    fn has_connected(&self) -> bool {
        self.client.look(|consumer, _| consumer.has_connected())
    }

    fn connect_errors(&self) -> Vec<ConnectTuple> {
        let errors = self.client.look(|consumer, _| consumer.connect_errors());
        connect_tuples(errors)
    }

    fn last_error(&self) -> Option<String> {
        let last = |consumer: &mut Consumer, _| consumer.last_error().map(|e| e.message.clone());
        self.client.look(last)
    }

    fn close(&self) {
        self.fast_path.close();
        self.client.close();
    }
}

impl NativeConsumer {
    fn ask(&self, ask: Ask) -> u64 {
        self.client.call(|consumer, now| consumer.ask(ask, now))
    }

    /// None: the time is over, or the consumer is closed.
    fn wait<T: Send>(
        &self,
        py: Python<'_>,
        timeout_ms: u64,
        outcome: impl Fn(&mut Consumer) -> Option<T> + Send,
    ) -> PyResult<Option<T>> {
        native::wait(py, &self.client, &self.signal, timeout_ms, outcome)
    }

    fn messages(
        &self,
        py: Python<'_>,
        max: usize,
        bytes_max: usize,
        timeout_ms: u64,
    ) -> PyResult<Vec<Message>> {
        let mut taken = Vec::new();
        let (has_news, is_urgent) = self.client.look(|consumer, now| {
            let mut is_urgent = consumer.note_poll(timeout_ms > 0, now);
            if !consumer.has_news() {
                is_urgent |= consumer.take(max, bytes_max, &mut taken);
            }
            (consumer.has_news(), is_urgent)
        });
        if is_urgent {
            self.client.poke();
        }
        let mut result = Ok(None);
        if taken.is_empty() && !has_news && timeout_ms > 0 {
            result = self.wait(py, timeout_ms, |consumer| {
                let mut taken = Vec::new();
                let has_room = consumer.take(max, bytes_max, &mut taken);
                if has_room && taken.is_empty() {
                    self.client.poke(); // what came had nothing to show
                }
                let is_done = !taken.is_empty() || consumer.has_news();
                is_done.then_some((taken, has_room))
            });
        }
        if timeout_ms > 0 {
            self.client
                .look(|consumer, now| consumer.note_poll(false, now));
        }
        if let Some((waited, has_room)) = result? {
            if has_room {
                self.client.poke();
            }
            taken = waited;
        }
        Ok(taken)
    }
}

fn columns_dict<'py>(py: Python<'py>, columns: &MessageColumns) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("rows", columns.rows)?;
    let topics: Vec<&str> = columns.topics.iter().map(AsRef::as_ref).collect();
    dict.set_item("topics", topics)?;
    for (name, column) in [
        ("topic_indices", &columns.topic_indices),
        ("partitions", &columns.partitions),
        ("offsets", &columns.offsets),
        ("timestamps_ms", &columns.timestamps_ms),
        ("header_list_offsets", &columns.header_list_offsets),
    ] {
        dict.set_item(name, PyBytes::new(py, column))?;
    }
    set_column(&dict, "key", &columns.key)?;
    set_column(&dict, "value", &columns.value)?;
    set_column(&dict, "header_key", &columns.header_keys)?;
    set_column(&dict, "header_value", &columns.header_values)?;
    let first =
        |((topic, partition), offset): &(Place, i64)| (topic.to_string(), *partition, *offset);
    let firsts: Vec<(String, i32, i64)> = columns.firsts.iter().map(first).collect();
    dict.set_item("firsts", firsts)?;
    Ok(dict)
}

fn place(topic: &str, partition: i32) -> Place {
    (topic.into(), partition)
}

fn places_of(places: Vec<(String, i32)>) -> Vec<Place> {
    let places = places.into_iter();
    places
        .map(|(topic, partition)| place(&topic, partition))
        .collect()
}

fn tuple_of((topic, partition): Place) -> (String, i32) {
    (topic.to_string(), partition)
}

fn begin_of(offset: i64) -> PyResult<Begin> {
    match offset {
        0.. => Ok(Begin::At(offset)),
        OFFSET_BEGINNING => Ok(Begin::Earliest),
        OFFSET_END => Ok(Begin::Latest),
        OFFSET_STORED | OFFSET_INVALID => Ok(Begin::Committed),
        ..=OFFSET_TAIL => Ok(Begin::Tail(OFFSET_TAIL - offset)),
        _ => Err(PyValueError::new_err(format!("{offset} is no offset"))),
    }
}

/// Adds this file's classes to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<NativeConsumer>()
}
