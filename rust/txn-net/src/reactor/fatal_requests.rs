//! Requests that cost their connection: the log gets a line of some.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use txn_protocol::apis::PRODUCE;
use txn_protocol::frame::RequestHeader;

use crate::connection::Connection;
use crate::control::{FatalRequest, Fault};
use crate::reactor::Reactor;
use crate::reactor::requests::Answered;

/// Python hears of at most one request of a reactor in this time, for each kind of fault.
const FAULT_PAUSE: Duration = Duration::from_millis(100);

impl Reactor {
    /// Closes the connection of a frame whose request header cannot be read.
    pub(super) fn refuse_header(
        &mut self,
        connection: &Connection,
        frame: &[u8],
        reason: impl Display,
    ) -> Answered {
        let number = |at: usize| Some(i16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?));
        let fault = Fault::Malformed(reason.to_string());
        self.report_fatal(connection, number(0), number(2), fault);
        Answered::Never
    }

    /// Closes the connection of a request whose body cannot be read.
    pub(super) fn refuse_body(
        &mut self,
        connection: &Connection,
        api_key: i16,
        api_version: i16,
        reason: impl Display,
    ) -> Answered {
        let fault = Fault::Malformed(reason.to_string());
        self.report_fatal(connection, Some(api_key), Some(api_version), fault);
        Answered::Never
    }

    /// Closes the connection of a request in a version that is not served.
    pub(super) fn refuse_version(
        &mut self,
        connection: &Connection,
        api_key: i16,
        api_version: i16,
    ) -> Answered {
        let (key, version) = (Some(api_key), Some(api_version));
        self.report_fatal(connection, key, version, Fault::Unsupported);
        Answered::Never
    }

    /// Reports a frame whose length no request has. Its connection is to be closed.
    pub(super) fn report_length(&mut self, connection: &Connection, max_bytes: usize) {
        let reason = format!(
            "the length of the request is negative or above {max_bytes} bytes, as of a client \
             that speaks TLS or HTTP to a plaintext listener"
        );
        self.report_fatal(connection, None, None, Fault::Malformed(reason));
    }

    /// Reports a request of a client that has not logged in. Its connection is to be closed.
    pub(super) fn report_unauthenticated(
        &mut self,
        connection: &Connection,
        header: &RequestHeader,
        has_expired: bool,
    ) {
        let (key, version) = (Some(header.api_key), Some(header.api_version));
        self.report_fatal(
            connection,
            key,
            version,
            Fault::Unauthenticated { has_expired },
        );
    }

    /// Reports a Produce that failed without an answer. Its connection is to be closed.
    pub(super) fn report_unacknowledged(
        &mut self,
        connection: &Connection,
        api_version: i16,
        code: i16,
        reason: String,
    ) {
        let fault = Fault::Unacknowledged { code, reason };
        self.report_fatal(connection, Some(PRODUCE), Some(api_version), fault);
    }

    fn report_fatal(
        &mut self,
        connection: &Connection,
        api_key: Option<i16>,
        api_version: Option<i16>,
        fault: Fault,
    ) {
        let now = self.clock.now;
        let logged_at = &mut self.fault_logged_at[fault.index()];
        if logged_at.is_none_or(|at| now >= at + FAULT_PAUSE) {
            *logged_at = Some(now);
            self.shared.control.push_fatal_request(FatalRequest {
                client_host: Arc::clone(&connection.host),
                api_key,
                api_version,
                fault,
            });
        }
    }
}
