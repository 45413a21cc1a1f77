//! The results of a transport's steps, the same for every kind of transport.

/// The state of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// Requests may be read.
    Done,
    /// The socket gives or takes no more bytes now.
    Blocked,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes of requests.
    pub bytes: usize,
    /// False if the socket has been emptied; it says so when more comes.
    pub may_have_more: bool,
    /// True at the end of the stream.
    pub is_end: bool,
}
