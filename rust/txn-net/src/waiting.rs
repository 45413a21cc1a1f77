//! A request that waits, and its reason.
//!
//! A connection has one request at most that waits. It lies in the connection, with its reason:
//!
//! | reason | the request goes on when |
//! |---|---|
//! | [`Reply`](Reason::Reply) | Python replies |
//! | [`Opening`](Reason::Opening) | the opener's threads give it back |
//! | [`Turn`](Reason::Turn) | all other connections had their turn |
//! | [`Condition`](Reason::Condition) | its condition is true, or its deadline has passed |
//!
//! Queues, messages and deadlines name it by its token. A token whose request does not wait any
//! more names nothing, so a connection that is closed takes its request out of all of them.

use crate::fetch::FetchRequest;
use crate::kept_produce::KeptProduce;
use crate::produce::ProduceRequest;
use crate::purgatory::{DelayedOperation, DelayedResponse};
use crate::token::RequestToken;

/// A request that waits.
pub struct Waiting {
    pub token: RequestToken,
    pub correlation_id: i32,
    pub reason: Reason,
}

/// The reason for which a request waits, with the parts of it that are needed later.
pub enum Reason {
    /// Python decides on it.
    Reply,
    /// Its batches take so long to open that other threads do it. They have the request.
    Opening,
    /// It took a turn and is not done.
    Turn(Box<Unfinished>),
    /// It lies in the purgatory.
    Condition(Box<DelayedResponse>),
}

/// A request that took its turn and is not answered.
pub enum Unfinished {
    /// A Fetch that was not looked at: its connection's next frame.
    LargeFetch,
    Fetch(FetchRequest),
    /// A Produce whose body is in its connection's next frame.
    FrontProduce(ProduceRequest),
    Produce(KeptProduce),
}

impl Waiting {
    /// True if a Fetch waits for bytes.
    pub fn is_delayed_fetch(&self) -> bool {
        self.delayed()
            .is_some_and(|response| matches!(response.operation, DelayedOperation::Fetch(_)))
    }

    /// The response that lies in the purgatory, if this one does.
    pub fn delayed(&self) -> Option<&DelayedResponse> {
        match &self.reason {
            Reason::Condition(response) => Some(response),
            Reason::Reply | Reason::Opening | Reason::Turn(_) => None,
        }
    }

    /// Like `delayed`, to be changed.
    pub fn delayed_mut(&mut self) -> Option<&mut DelayedResponse> {
        match &mut self.reason {
            Reason::Condition(response) => Some(response),
            Reason::Reply | Reason::Opening | Reason::Turn(_) => None,
        }
    }
}
