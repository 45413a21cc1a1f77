//! The parts of an answer: bytes in memory, and ranges of segment files.

use std::io;

use txn_log::LentFile;

use crate::transport::Transport;

/// A part of an answer.
pub enum Chunk {
    /// Bytes of our own, from `at` on.
    Bytes {
        /// All of them.
        data: Vec<u8>,
        /// Number of bytes sent.
        at: usize,
    },
    /// Bytes of a segment, sent from there.
    File {
        /// The segment.
        file: LentFile,
        /// Position of the next byte.
        position: u64,
        /// Bytes still to be sent.
        left: usize,
    },
}

impl Chunk {
    pub fn bytes(data: Vec<u8>) -> Self {
        Self::Bytes { data, at: 0 }
    }

    /// Bytes still to be sent.
    pub fn left(&self) -> usize {
        match self {
            Self::Bytes { data, at } => data.len() - at,
            Self::File { left, .. } => *left,
        }
    }

    /// Bytes that it holds in memory.
    pub fn held(&self) -> usize {
        match self {
            Self::Bytes { data, .. } => data.len(),
            Self::File { .. } => 0,
        }
    }

    /// Sends some of it; `more` says that other chunks follow.
    pub fn send(&mut self, transport: &mut Transport, more: bool) -> io::Result<usize> {
        match self {
            Self::Bytes { data, at } => {
                let sent = transport.send(&data[*at..], more)?;
                *at += sent;
                Ok(sent)
            }
            Self::File {
                file,
                position,
                left,
            } => {
                let sent = transport.send_file(file, *position, *left)?;
                if sent == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                *position += sent as u64;
                *left -= sent;
                Ok(sent)
            }
        }
    }
}
