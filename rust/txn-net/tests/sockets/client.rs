//! A client: a socket, and frames over it.

use std::io::{Read, Write};
use std::net::TcpStream;

pub struct Client {
    pub socket: TcpStream,
}

impl Client {
    pub fn send(&mut self, frame: &[u8]) {
        self.socket.write_all(frame).unwrap();
    }

    /// The content of the next answer.
    pub fn receive(&mut self) -> Vec<u8> {
        let mut length = [0; 4];
        self.socket.read_exact(&mut length).unwrap();
        let mut content = vec![0; i32::from_be_bytes(length) as usize];
        self.socket.read_exact(&mut content).unwrap();
        content
    }

    pub fn ask(&mut self, frame: &[u8]) -> Vec<u8> {
        self.send(frame);
        self.receive()
    }

    /// The same connection, for another thread.
    pub fn again(&self) -> Self {
        let socket = self.socket.try_clone().unwrap();
        Self { socket }
    }

    /// True if no byte of an answer has come yet.
    pub fn has_nothing(&self) -> bool {
        self.socket.set_nonblocking(true).unwrap();
        let peeked = self.socket.peek(&mut [0]);
        self.socket.set_nonblocking(false).unwrap();
        peeked.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    }

    /// True if the server closed the connection without another byte.
    pub fn is_closed(&mut self) -> bool {
        match self.socket.read(&mut [0]) {
            Ok(bytes) => bytes == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}
