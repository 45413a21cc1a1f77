//! A Produce and its bytes: lent by its connection for a turn, or kept for longer.

use std::sync::Arc;

use crate::memory::{Claim, RequestMemory};
use crate::produce::ProduceRequest;

/// A Produce with the part of its frame that it still needs, while its connection is without it.
pub struct KeptProduce {
    pub request: ProduceRequest,
    pub body: Vec<u8>,
    /// For `body`, until it is dropped.
    claim: Claim,
}

impl KeptProduce {
    /// The request and its body, to go on with.
    pub fn into_parts(self) -> (ProduceRequest, Body<'static>) {
        (self.request, Body::Own(self.body, self.claim))
    }
}

/// The body of a Produce.
pub enum Body<'a> {
    /// Bytes of its connection's next frame.
    Lent(&'a mut [u8]),
    Own(Vec<u8>, Claim),
}

impl Body<'_> {
    pub fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Lent(bytes) => bytes,
            Self::Own(bytes, _) => bytes,
        }
    }

    /// Keeps a request and its bytes.
    pub fn keep(self, request: ProduceRequest, memory: &Arc<RequestMemory>) -> KeptProduce {
        let (body, claim) = match self {
            Self::Lent(bytes) => (bytes.to_vec(), Claim::of(memory, bytes.len())),
            Self::Own(bytes, claim) => (bytes, claim),
        };
        KeptProduce {
            request,
            body,
            claim,
        }
    }
}
