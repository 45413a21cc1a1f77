//! `limits`: this machine's best, each in the way a broker would use it.
//!
//! CPU is that of the thread that does the broker's part. A broker on the same machine cannot
//! spend less per byte than append, checksum and receive together, nor answer faster than the
//! round trip.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

use crate::arguments::{Arguments, Failure};
use crate::connection::unpaced;
use crate::samples::{Samples, micros, print};

const PIECE: usize = 64 << 10;
const GB: f64 = 1e9;
const FILE_BYTES: u64 = 256 << 20;
const ROUND_TRIPS: u32 = 30_000;
const MESSAGE_BYTES: usize = 100;
const READER_BYTES: usize = 256 << 10;

/// Runs the command.
pub fn run(arguments: &Arguments) -> Result<(), Failure> {
    let directory = Path::new(arguments.text("directory")?);
    let bytes: u64 = arguments.number("bytes", 1_000_000_000)?;
    let path = directory.join("limits.bin");
    let append = append(&path, bytes)?;
    let crc = checksum(bytes);
    let receive = receive(bytes)?;
    let (p50, echo) = round_trip()?;
    let (rate, sendfile) = send_file(&path, bytes)?;
    fs::remove_file(&path)?;
    print(&[
        ("append_cpu_s_per_gb", append),
        ("crc_cpu_s_per_gb", crc),
        ("receive_cpu_s_per_gb", receive),
        ("round_trip_p50_us", p50),
        ("round_trip_cpu_us", echo),
        ("sendfile_gb_per_s", rate),
        ("sendfile_cpu_s_per_gb", sendfile),
    ]);
    Ok(())
}

/// CPU time of this thread, in seconds.
fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn per_gb(seconds: f64, bytes: u64) -> f64 {
    seconds / (bytes as f64 / GB)
}

/// CPU seconds per GB written to a growing file, 64 KiB at a time.
fn append(path: &Path, bytes: u64) -> Result<f64, Failure> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)?;
    let piece = vec![7; PIECE];
    let before = cpu();
    for position in (0..bytes).step_by(PIECE) {
        file.write_all_at(&piece, position)?;
    }
    let spent = cpu() - before;
    file.set_len(FILE_BYTES.min(bytes))?;
    Ok(per_gb(spent, bytes))
}

/// CPU seconds per GB of CRC-32C over 64 KiB that are in the cache.
fn checksum(bytes: u64) -> f64 {
    let piece = vec![7; PIECE];
    let before = cpu();
    for _ in (0..bytes).step_by(PIECE) {
        std::hint::black_box(crc32c::crc32c(std::hint::black_box(&piece)));
    }
    per_gb(cpu() - before, bytes)
}

fn pair() -> Result<(TcpStream, TcpStream), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    unpaced(&client);
    unpaced(&server);
    Ok((client, server))
}

/// CPU seconds per GB received from a loopback socket, 64 KiB at a time.
fn receive(bytes: u64) -> Result<f64, Failure> {
    let (mut client, mut server) = pair()?;
    let sender = thread::spawn(move || {
        let piece = vec![7; PIECE];
        for _ in (0..bytes).step_by(PIECE) {
            if client.write_all(&piece).is_err() {
                return;
            }
        }
    });
    let mut piece = vec![0; PIECE];
    let before = cpu();
    while server.read(&mut piece)? > 0 {}
    let spent = cpu() - before;
    sender.join().expect("the sender does not panic");
    Ok(per_gb(spent, bytes))
}

/// Microseconds of one question and answer at the median, and CPU of the answering thread.
fn round_trip() -> Result<(f64, f64), Failure> {
    let (mut client, mut server) = pair()?;
    let echo = thread::spawn(move || {
        let mut message = [0; MESSAGE_BYTES];
        let before = cpu();
        while server.read_exact(&mut message).is_ok() && server.write_all(&message).is_ok() {}
        (cpu() - before) * 1e6 / f64::from(ROUND_TRIPS)
    });
    let mut samples = Samples::default();
    let mut message = [7; MESSAGE_BYTES];
    for _ in 0..ROUND_TRIPS {
        let began = Instant::now();
        client.write_all(&message)?;
        client.read_exact(&mut message)?;
        samples.push(micros(began.elapsed()));
    }
    drop(client);
    Ok((
        samples.percentile(0.5),
        echo.join().expect("the echo does not panic"),
    ))
}

/// GB per second from a cached file to a socket whose other end reads all, and CPU of the sender.
fn send_file(path: &Path, bytes: u64) -> Result<(f64, f64), Failure> {
    let (mut client, broker) = pair()?;
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let reader = thread::spawn(move || {
        let mut piece = vec![0; READER_BYTES];
        while client.read(&mut piece).is_ok_and(|received| received > 0) {}
    });
    let (began, before) = (Instant::now(), cpu());
    let mut served = 0;
    while served < bytes {
        let position = served % size;
        let len = (size - position).min(4 << 20) as usize;
        served += txn_sys::send_file(broker.as_fd(), file.as_fd(), position, len)? as u64;
    }
    let spent = cpu() - before;
    drop(broker);
    reader.join().expect("the reader does not panic");
    let rate = served as f64 / GB / began.elapsed().as_secs_f64();
    Ok((rate, per_gb(spent, served)))
}
