//! A TCP connection to one of the addresses of a name.
//!
//! Ctrl-C cannot interrupt the connect of the standard library, and a name may have addresses that
//! never answer. So the socket does not block, and the remaining time is divided evenly among the
//! remaining addresses.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};

use crate::interrupt::Interrupt;
use crate::patience::Patience;

/// A connection to the first of the addresses that takes one, and that address.
///
/// # Errors
/// That of the last address; `Interrupted` once the user asked to stop.
pub(crate) fn connect_to_any(
    addresses: &[SocketAddr],
    timeout: Duration,
    interrupt: Option<&Interrupt>,
) -> io::Result<(TcpStream, SocketAddr)> {
    let (began, mut looked) = (Instant::now(), Instant::now());
    let mut failure = io::Error::other("its name has no address");
    for (tried, &address) in addresses.iter().enumerate() {
        let left = timeout.saturating_sub(began.elapsed());
        let share = left / u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
        let mut patience = Patience::new(share, interrupt, &mut looked);
        match connect_to(address, &mut patience) {
            Ok(stream) => return Ok((stream, address)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn connect_to(address: SocketAddr, patience: &mut Patience<'_>) -> io::Result<TcpStream> {
    patience.check_interrupt()?;
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    match connect(&socket, &address) {
        Err(Errno::INPROGRESS) => loop {
            let wait = Timespec::try_from(patience.wait()).expect("a look is 100 ms away at most");
            match poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&wait)) {
                Ok(0) => {}
                Ok(_) => break,
                Err(error) => patience.tolerate(error.into())?,
            }
            patience.check().map_err(|error| match error.kind() {
                io::ErrorKind::TimedOut => io::Error::new(error.kind(), "connection timed out"),
                _ => error,
            })?;
        },
        result => result?,
    }
    socket_error(&socket)??;
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(1200);

    /// A listener that answers no connect: its queue holds one connection, which is there.
    struct Full {
        listener: TcpListener,
        _queue: Vec<TcpStream>,
    }

    impl Full {
        fn new() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            rustix::net::listen(&listener, 0).unwrap();
            let address = listener.local_addr().unwrap();
            let connect = |_| TcpStream::connect_timeout(&address, TIMEOUT / 6).ok();
            Self {
                _queue: (0..16).map_while(connect).collect(),
                listener,
            }
        }

        fn address(&self) -> SocketAddr {
            self.listener.local_addr().unwrap()
        }
    }

    /// Each address of a name had the whole timeout: one with eight addresses took eight times as long.
    #[test]
    fn all_addresses_of_a_name_share_one_timeout() {
        let full = Full::new();
        let began = Instant::now();
        let error = connect_to_any(&[full.address(); 8], TIMEOUT, None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        assert!(began.elapsed() >= TIMEOUT, "{:?}", began.elapsed());
        assert!(began.elapsed() < TIMEOUT * 4, "{:?}", began.elapsed());
    }

    #[test]
    fn an_address_that_swallows_packets_leaves_time_for_the_next() {
        let (full, open) = (Full::new(), TcpListener::bind("127.0.0.1:0").unwrap());
        let open = open.local_addr().unwrap();
        let (stream, peer) = connect_to_any(&[full.address(), open], TIMEOUT, None).unwrap();
        assert_eq!((stream.peer_addr().unwrap(), peer), (open, open));
    }

    /// Ctrl-C was not looked at while a connection was made.
    #[test]
    fn an_interrupt_ends_a_connect_and_leaves_out_the_next_address() {
        let (full, open) = (Full::new(), TcpListener::bind("127.0.0.1:0").unwrap());
        let addresses = [full.address(), open.local_addr().unwrap()];
        let raised = Interrupt::new(|| true);
        let began = Instant::now();
        let error = connect_to_any(&addresses, TIMEOUT * 50, Some(&raised)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted, "{error}");
        assert!(began.elapsed() < TIMEOUT * 10, "{:?}", began.elapsed());
    }

    #[test]
    fn a_port_where_nobody_listens_is_told_at_once() {
        let closed = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let began = Instant::now();
        let error = connect_to_any(&[closed], TIMEOUT * 50, None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert!(began.elapsed() < TIMEOUT * 10);
    }
}
