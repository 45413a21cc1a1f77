//! Waits of a call on a socket: until its deadline, or until the user interrupts it.
//!
//! The timeouts of a socket count from the last byte, so a peer that sends or reads one byte now
//! and then never exceeds them. Reads and writes here last at most `INTERRUPT_LOOK`, and after each
//! the deadline and the interrupt are checked.

use std::io::{self, IoSlice, Read, Write};
use std::time::{Duration, Instant};

use crate::interrupt::Interrupt;
use crate::transport::Transport;

/// Time between two looks at the interrupt. A look may have to wait for Python's interpreter.
pub(crate) const INTERRUPT_LOOK: Duration = Duration::from_millis(100);
/// A socket takes no timeout of 0.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// A deadline, and the looks at the interrupt until then.
#[derive(Debug)]
pub(crate) struct Patience<'a> {
    began: Instant,
    timeout: Duration,
    interrupt: Option<&'a Interrupt>,
    /// The last look. Longer-lived than a call: many quick answers are looked at between, too.
    looked: &'a mut Instant,
    /// The read timeout that the socket has by this call.
    read_wait: Duration,
}

impl<'a> Patience<'a> {
    /// Begins now.
    pub(crate) fn new(
        timeout: Duration,
        interrupt: Option<&'a Interrupt>,
        looked: &'a mut Instant,
    ) -> Self {
        Self {
            began: Instant::now(),
            timeout,
            interrupt,
            looked,
            read_wait: Duration::ZERO,
        }
    }

    /// Moves the deadline to this time after the beginning.
    pub(crate) fn extend(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Time to the deadline.
    pub(crate) fn left(&self) -> Duration {
        self.timeout.saturating_sub(self.began.elapsed())
    }

    /// Longest wait before the next look; never 0.
    pub(crate) fn wait(&self) -> Duration {
        self.left().clamp(WAIT_MIN, INTERRUPT_LOOK)
    }

    /// Looks at the interrupt, if the last look is old.
    ///
    /// # Errors
    /// `Interrupted` once the user asked to stop.
    pub(crate) fn check_interrupt(&mut self) -> io::Result<()> {
        if self.looked.elapsed() < INTERRUPT_LOOK {
            return Ok(());
        }
        *self.looked = Instant::now();
        if self.interrupt.is_some_and(Interrupt::is_raised) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        Ok(())
    }

    /// Stands between two reads or writes of something that is not whole yet.
    ///
    /// # Errors
    /// `TimedOut` at the deadline, `Interrupted` once the user asked to stop.
    pub(crate) fn check(&mut self) -> io::Result<()> {
        if self.left().is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.check_interrupt()
    }

    /// Accepts the error of a read or a write that may be repeated.
    ///
    /// # Errors
    /// Every other one.
    pub(crate) fn tolerate(&mut self, error: io::Error) -> io::Result<()> {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Ok(()),
            io::ErrorKind::Interrupted => {
                // A signal has come: perhaps the user's.
                *self.looked = self
                    .looked
                    .checked_sub(INTERRUPT_LOOK)
                    .unwrap_or(*self.looked);
                Ok(())
            }
            _ => Err(error),
        }
    }
}

/// Fills the buffer from its start; a byte that has come before the deadline counts.
///
/// # Errors
/// `TimedOut`, `Interrupted`, `UnexpectedEof`, and those of the transport.
pub(crate) fn read_all(
    stream: &mut Transport,
    buffer: &mut [u8],
    patience: &mut Patience<'_>,
) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        let wait = patience.wait();
        if wait != patience.read_wait {
            stream.socket().set_read_timeout(Some(wait))?;
            patience.read_wait = wait;
        }
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => filled += read,
            Err(error) => patience.tolerate(error)?,
        }
        if filled < buffer.len() {
            patience.check()?;
        }
    }
    Ok(())
}

/// Writes all slices; the socket's write timeout is `INTERRUPT_LOOK`.
///
/// # Errors
/// `TimedOut`, `Interrupted`, and those of the transport.
pub(crate) fn write_all(
    stream: &mut Transport,
    mut slices: &mut [IoSlice<'_>],
    patience: &mut Patience<'_>,
) -> io::Result<()> {
    IoSlice::advance_slices(&mut slices, 0); // drops leading empty slices
    while !slices.is_empty() {
        match stream.write_vectored(slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut slices, written),
            Err(error) => patience.tolerate(error)?,
        }
        if !slices.is_empty() {
            patience.check()?;
        }
    }
    while let Err(error) = stream.flush() {
        patience.tolerate(error)?;
        patience.check()?;
    }
    Ok(())
}
