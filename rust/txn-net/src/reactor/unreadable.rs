//! Requests that a reactor cannot read: the log gets a line of some, and their connections end.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use crate::connection::Connection;
use crate::control::UnreadableRequest;
use crate::reactor::Reactor;
use crate::reactor::requests::Answered;

/// Python hears of at most one unreadable request of a reactor in this time.
const UNREADABLE_PAUSE: Duration = Duration::from_millis(100);

impl Reactor {
    /// Closes the connection of a frame whose request header cannot be read.
    pub(super) fn refuse_header(
        &mut self,
        connection: &Connection,
        frame: &[u8],
        reason: impl Display,
    ) -> Answered {
        let number = |at: usize| Some(i16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?));
        self.report_unreadable(connection, number(0), number(2), Some(&reason));
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
        self.report_unreadable(connection, Some(api_key), Some(api_version), Some(&reason));
        Answered::Never
    }

    /// Closes the connection of a request in a version that is not served.
    pub(super) fn refuse_version(
        &mut self,
        connection: &Connection,
        api_key: i16,
        api_version: i16,
    ) -> Answered {
        self.report_unreadable(connection, Some(api_key), Some(api_version), None);
        Answered::Never
    }

    /// Reports a frame whose length no request has. Its connection is to be closed.
    pub(super) fn report_length(&mut self, connection: &Connection, max_bytes: usize) {
        let reason = format!(
            "the length of the request is negative or above {max_bytes} bytes, as of a client \
             that speaks TLS or HTTP to a plaintext listener"
        );
        self.report_unreadable(connection, None, None, Some(&reason));
    }

    fn report_unreadable(
        &mut self,
        connection: &Connection,
        api_key: Option<i16>,
        api_version: Option<i16>,
        reason: Option<&dyn Display>,
    ) {
        let now = self.clock.now;
        let logged_at = self.unreadable_logged_at;
        if logged_at.is_none_or(|at| now >= at + UNREADABLE_PAUSE) {
            self.unreadable_logged_at = Some(now);
            self.shared.control.push_unreadable(UnreadableRequest {
                client_host: Arc::clone(&connection.host),
                api_key,
                api_version,
                reason: reason.map(ToString::to_string),
            });
        }
    }
}
