//! Questions about offsets: by time, committed ones; and commits. Each ends with an answer for each
//! partition, or is repeated until its asker gives up.

use std::collections::VecDeque;

use txn_protocol::codes;

use super::{Consumer, Place, Purpose};
use crate::engine::settings::backoff;
use crate::engine::{Effect, Millis, NodeId, Request, Response};
use crate::error::{KafkaError, is_retriable};
use crate::messages::cluster::{BrokerAddress, TopicMetadata};
use crate::messages::consumer::{Commit, Membership, OffsetAnswer};

/// The asked thing.
#[derive(Clone, Debug)]
pub enum Ask {
    /// Offsets by timestamps of partitions; -1: the end of what may be read, -2: the first.
    ByTime(Vec<(Place, i64)>),
    /// Committed offsets.
    Committed(Vec<Place>),
    /// A commit outside transactions.
    Commit(Membership, Vec<Commit>),
    /// Topics; None: all.
    Topics(Option<Vec<String>>),
}

/// The result of a question.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Of each partition.
    Offsets(Vec<OffsetAnswer>),
    /// Brokers and topics.
    Topics(Vec<BrokerAddress>, Vec<TopicMetadata>),
}

#[derive(Debug)]
pub(super) struct Query {
    ask: Ask,
    /// Partitions of `ByTime` that nobody was asked for yet.
    left: VecDeque<(Place, i64)>,
    in_flight: usize,
    answers: Vec<OffsetAnswer>,
    failures: u32,
    retry_at: Millis,
    /// True if its answers are the begins of partitions.
    is_begin: bool,
    /// When it ends without an answer; None: it is repeated until its asker forgets it.
    give_up_at: Option<Millis>,
    done: Option<Result<Answer, KafkaError>>,
}

impl Query {
    /// When it is given up, unless it is done.
    pub(super) fn give_up_at(&self) -> Option<Millis> {
        self.give_up_at.filter(|_| self.done.is_none())
    }

    pub(super) fn needs_coordinator(&self) -> bool {
        let is_open = self.done.is_none() && self.in_flight == 0;
        is_open && matches!(self.ask, Ask::Committed(_) | Ask::Commit(..))
    }

    pub(super) fn due(&self) -> Option<Millis> {
        (self.done.is_none() && self.in_flight == 0).then_some(self.retry_at)
    }

    /// Topics whose leaders it needs.
    pub(super) fn topics(&self) -> impl Iterator<Item = &Place> {
        self.left.iter().map(|(place, _)| place)
    }

    fn retry(&mut self, now: Millis, retry_ms: Millis) {
        self.failures += 1;
        self.retry_at = now + backoff(retry_ms, self.failures);
    }
}

impl Consumer {
    /// Asks; the result is that of `answer`. A commit is given up after `default.api.timeout.ms`.
    pub fn ask(&mut self, ask: Ask, now: Millis) -> u64 {
        let is_commit = matches!(ask, Ask::Commit(..));
        let number = self.query(ask, false);
        if let Some(query) = self.queries.get_mut(&number).filter(|_| is_commit) {
            query.give_up_at = Some(now + self.settings.api_timeout_ms);
        }
        number
    }

    /// Ends the commits whose time is over.
    pub(super) fn give_up_commits(&mut self, now: Millis) {
        for query in self.queries.values_mut() {
            if query.give_up_at().is_none_or(|at| now < at) {
                continue;
            }
            let last = self.last_error.as_ref();
            let last = last.map_or_else(String::new, |error| format!(": {}", error.message));
            let waited_ms = self.settings.api_timeout_ms;
            query.done = Some(Err(KafkaError {
                message: format!(
                    "the offsets of group '{}' were not committed within {waited_ms} ms \
                     (default.api.timeout.ms){last}; commit again once the cluster answers",
                    self.settings.group
                ),
                code: codes::REQUEST_TIMED_OUT,
                is_retriable: true,
                is_other_protocol: false,
            }));
        }
    }

    pub(super) fn query(&mut self, ask: Ask, is_begin: bool) -> u64 {
        self.next_query += 1;
        let left = match &ask {
            Ask::ByTime(wanted) => wanted.iter().cloned().collect(),
            _ => VecDeque::new(),
        };
        let query = Query {
            ask,
            left,
            in_flight: 0,
            answers: Vec::new(),
            failures: 0,
            retry_at: 0,
            is_begin,
            give_up_at: None,
            done: None,
        };
        self.queries.insert(self.next_query, query);
        self.next_query
    }

    /// The result of a question, once there is one. It is told once.
    pub fn answer(&mut self, number: u64) -> Option<Result<Answer, KafkaError>> {
        let is_done = self.queries.get(&number)?.done.is_some();
        is_done
            .then(|| self.queries.remove(&number)?.done)
            .flatten()
    }

    /// Forgets a question.
    pub fn forget(&mut self, number: u64) {
        self.queries.remove(&number);
    }

    /// Sends the questions that can be sent.
    pub(super) fn send_queries(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        let due = |query: &Query| query.due().is_some_and(|at| at <= now);
        let numbers: Vec<u64> = self
            .queries
            .iter()
            .filter(|(_, query)| due(query))
            .map(|(&number, _)| number)
            .collect();
        for number in numbers {
            let query = &self.queries[&number];
            match query.ask.clone() {
                Ask::ByTime(_) => self.send_by_time(number, now, effects),
                Ask::Committed(places) => {
                    let group = self.settings.group.clone();
                    let request = Request::FetchOffsets { group, places };
                    self.send_to_coordinator(number, request, now, effects);
                }
                Ask::Commit(member, offsets) => {
                    let request = Request::Commit { member, offsets };
                    self.send_to_coordinator(number, request, now, effects);
                }
                Ask::Topics(names) => {
                    let Some(node) = self.nodes.any(now, effects) else {
                        continue;
                    };
                    let request = names.map_or(Request::AllTopics, |names| Request::Metadata {
                        topics: names.iter().map(|name| name.as_str().into()).collect(),
                        makes_missing: false,
                    });
                    self.send_query(number, node, request, Vec::new(), now, effects);
                }
            }
        }
    }

    fn send_by_time(&mut self, number: u64, now: Millis, effects: &mut Vec<Effect>) {
        let query = self.queries.get_mut(&number).expect("it was listed");
        let mut by_node: Vec<(NodeId, Vec<(Place, i64)>)> = Vec::new();
        let mut left = VecDeque::new();
        for (place, at) in query.left.drain(..) {
            match self.leaders.leader(&place) {
                Some(node) if self.nodes.ready(node, now, effects) => {
                    match by_node.iter_mut().find(|(id, _)| *id == node) {
                        Some((_, wanted)) => wanted.push((place, at)),
                        None => by_node.push((node, vec![(place, at)])),
                    }
                }
                _ => left.push_back((place, at)),
            }
        }
        query.left = left;
        if by_node.is_empty() {
            query.retry_at = now + self.settings.retry_backoff_ms;
        }
        for (node, wanted) in by_node {
            let request = Request::ListOffsets {
                read_committed: true,
                wanted: wanted.clone(),
            };
            self.send_query(number, node, request, wanted, now, effects);
        }
    }

    fn send_to_coordinator(
        &mut self,
        number: u64,
        request: Request,
        now: Millis,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(node) = self.coordinator.node
            && self.nodes.ready(node, now, effects)
        {
            self.send_query(number, node, request, Vec::new(), now, effects);
        }
    }

    fn send_query(
        &mut self,
        number: u64,
        node: NodeId,
        request: Request,
        wanted: Vec<(Place, i64)>,
        now: Millis,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(query) = self.queries.get_mut(&number) {
            query.in_flight += 1;
        }
        let purpose = Purpose::Query(number, wanted);
        self.nodes.send(node, request, purpose, now, effects);
    }

    /// No answer came, or one that is of no use.
    pub(super) fn query_lost(
        &mut self,
        number: u64,
        wanted: Vec<(Place, i64)>,
        error: &KafkaError,
        now: Millis,
    ) {
        let retry_ms = self.settings.retry_backoff_ms;
        if let Some(query) = self.queries.get_mut(&number) {
            query.in_flight -= 1;
            query.left.extend(wanted);
            query.retry(now, retry_ms);
            if !error.is_retriable && query.done.is_none() {
                query.done = Some(Err(error.clone()));
            }
        }
    }

    /// An answer has come.
    pub(super) fn query_answered(
        &mut self,
        number: u64,
        wanted: &[(Place, i64)],
        response: Response,
        node: NodeId,
        now: Millis,
    ) {
        let retry_ms = self.settings.retry_backoff_ms;
        let name = self.nodes.name(node);
        let Some(query) = self.queries.get_mut(&number) else {
            return;
        };
        query.in_flight -= 1;
        if query.done.is_some() {
            return; // it was given up
        }
        let (code, answers) = match response {
            Response::Metadata(metadata) => {
                query.done = Some(Ok(Answer::Topics(metadata.brokers, metadata.topics)));
                return;
            }
            Response::Offsets(code, answers) => (code, answers),
            Response::Partitions(answers) => (0, answers.into_iter().map(committed).collect()),
            _ => (codes::UNKNOWN_SERVER_ERROR, Vec::new()),
        };
        let first_passing = answers.iter().map(|answer| answer.error_code);
        let is_whole_of_group = !matches!(query.ask, Ask::ByTime(_));
        let passing = std::iter::once(code).chain(first_passing);
        let passing = passing.into_iter().find(|&code| is_retriable(code));
        if let (true, Some(code)) = (is_whole_of_group, passing) {
            query.retry(now, retry_ms);
            if is_of_coordinator(code) {
                self.coordinator.forget();
            }
            let group = format!("group '{}'", self.settings.group);
            let what = if matches!(query.ask, Ask::Commit(..)) {
                "OffsetCommit"
            } else {
                "OffsetFetch"
            };
            self.last_error = Some(KafkaError::answered(code, &name, what, &group, None));
            return;
        }
        if code != 0 {
            let group = format!("group '{}'", self.settings.group);
            let error = KafkaError::answered(code, &name, "OffsetFetch", &group, None);
            query.done = Some(Err(error));
        }
        let mut stale = Vec::new();
        for answer in answers {
            if is_retriable(answer.error_code) {
                let again = wanted.iter().find(|(place, _)| *place == answer.place);
                query.left.extend(again.cloned());
                query.retry(now, retry_ms);
                stale.push(answer.place.0);
            } else {
                query.answers.push(answer);
            }
        }
        let is_done = query.left.is_empty() && query.in_flight == 0 && query.done.is_none();
        if is_done {
            let answers = std::mem::take(&mut query.answers);
            query.done = Some(Ok(Answer::Offsets(answers)));
        }
        for topic in stale {
            self.leaders.mark_stale(&topic);
        }
        self.begin_answered(now);
    }

    /// Starts the partitions whose begin is known by now.
    pub(super) fn begin_answered(&mut self, now: Millis) {
        let done: Vec<u64> = self
            .queries
            .iter()
            .filter(|(_, query)| {
                query.is_begin && (query.done.is_some() || !query.answers.is_empty())
            })
            .map(|(&number, _)| number)
            .collect();
        for number in done {
            let query = self.queries.get_mut(&number).expect("it was listed");
            let mut answers = std::mem::take(&mut query.answers);
            let is_committed = matches!(query.ask, Ask::Committed(_));
            let failure = match query.done.take() {
                Some(result) => {
                    self.queries.remove(&number);
                    match result {
                        Ok(Answer::Offsets(more)) => {
                            answers.extend(more);
                            None
                        }
                        Ok(Answer::Topics(..)) => None,
                        Err(error) => Some(error),
                    }
                }
                None => None,
            };
            for answer in answers {
                self.begin_at(number, &answer, is_committed);
            }
            if let Some(error) = failure {
                self.begin_failed(number, &error, now);
            }
        }
    }
}

fn committed((topic, partition, error_code): (String, i32, i16)) -> OffsetAnswer {
    OffsetAnswer {
        place: (topic.into(), partition),
        error_code,
        offset: -1,
        leader_epoch: -1,
        metadata: String::new(),
    }
}

/// True if the coordinator is to be looked for again.
pub(super) fn is_of_coordinator(code: i16) -> bool {
    matches!(
        code,
        codes::NOT_COORDINATOR | codes::COORDINATOR_NOT_AVAILABLE
    )
}
