//! Tests of a connection over a real socket.

use super::answers::{HELD_ANSWER_BYTES, HOLDING_FRAME_BYTES};
use super::buffers::STEP_BYTES;
use super::*;
use crate::authentication::ANONYMOUS;
use crate::control::ControlQueue;
use crate::memory::RequestMemory;
use std::io::Write;
use std::net::TcpListener;
use txn_protocol::frame::{Front, LENGTH_BYTES};

fn pair() -> (Connection, std::net::TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    server.set_nonblocking(true).unwrap();
    let control = Arc::new(ControlQueue::new().unwrap());
    let memory = Arc::new(RequestMemory::new(None, Vec::new(), &control));
    let connection = Connection::new(
        Transport::Plain(TcpStream::from_std(server)),
        0,
        ("127.0.0.1".into(), ANONYMOUS.into()),
        Authentication::at_first(false),
        1,
        Instant::now(),
        Claim::of(&memory, 0),
    );
    (connection, client)
}

fn fill_until(connection: &mut Connection, buffers: &mut Buffers, bytes: usize) {
    while connection.input.len() < bytes {
        connection.fill(1 << 30, buffers).unwrap();
    }
}

#[test]
fn an_announced_gigabyte_reserves_no_more_than_was_received() {
    let (mut connection, mut client) = pair();
    let mut buffers = Buffers::default();
    client.write_all(&vec![7; 100_000]).unwrap();
    fill_until(&mut connection, &mut buffers, 100_000);
    assert!(connection.input.capacity() <= 2 * 100_000 + STEP_BYTES);
}

#[test]
fn a_connection_with_nothing_buffered_owns_no_buffer() {
    let (mut connection, mut client) = pair();
    let mut buffers = Buffers::default();
    client.write_all(&[0, 0, 0, 1, 9]).unwrap();
    fill_until(&mut connection, &mut buffers, 5);
    let (input, _) = connection.lend();
    connection.put_back(input, 5);
    connection.settle(&mut buffers);
    assert_eq!(connection.input.capacity(), 0);
    assert_eq!(buffers.spare.len(), 1);
}

#[test]
fn a_half_frame_keeps_only_about_as_much_memory_as_it_has_bytes() {
    let (mut connection, mut client) = pair();
    let mut buffers = Buffers::default();
    client.write_all(&[0, 0, 0, 9, 1]).unwrap();
    fill_until(&mut connection, &mut buffers, 5);
    connection.settle(&mut buffers);
    assert!(connection.input.capacity() <= 16 * 5);
    assert_eq!(connection.front(100), Front::Partial { missing: 8 });
}

#[test]
fn small_answers_wait_for_each_other_while_small_frames_are_here() {
    let (mut connection, mut client) = pair();
    let mut buffers = Buffers::default();
    let small = [0, 0, 0, 1, 9];
    client.write_all(&[small, small].concat()).unwrap();
    fill_until(&mut connection, &mut buffers, 10);
    assert!(!connection.holds_answer(100)); // there is none
    connection.push(Chunk::bytes(vec![1]));
    assert!(connection.holds_answer(100));
    connection.push(Chunk::bytes(vec![2]));
    assert_eq!(connection.output.len(), 1);
    assert_eq!(connection.output[0].left(), 2);
    let (input, _) = connection.lend();
    connection.put_back(input, 10);
    assert!(!connection.holds_answer(100)); // nothing more to answer
}

#[test]
fn nothing_large_holds_an_answer_up_or_is_held_up() {
    let (mut connection, mut client) = pair();
    let mut buffers = Buffers::default();
    let large = HOLDING_FRAME_BYTES + 1;
    client
        .write_all(&u32::try_from(large).unwrap().to_be_bytes())
        .unwrap();
    client.write_all(&vec![7; large]).unwrap();
    fill_until(&mut connection, &mut buffers, LENGTH_BYTES + large);
    connection.push(Chunk::bytes(vec![1]));
    assert!(!connection.holds_answer(1 << 20));

    let (mut connection, mut client) = pair();
    client.write_all(&[0, 0, 0, 1, 9]).unwrap();
    fill_until(&mut connection, &mut buffers, 5);
    connection.push(Chunk::bytes(vec![0; HELD_ANSWER_BYTES]));
    assert!(!connection.holds_answer(100));
}

#[test]
fn of_several_mutes_the_longest_counts() {
    let (mut connection, _client) = pair();
    let now = Instant::now();
    let [short, long] = [1, 2].map(Duration::from_secs);
    let [first, second, third] = [1, 2, 3].map(|stamp| RequestToken::new(0, 0, stamp));
    assert!(connection.mute(now + short, first));
    assert!(connection.mute(now + long, second));
    assert!(!connection.mute(now + short, third));
    assert!(connection.awaits(second) && !connection.awaits(first));
    assert!(!connection.unmute(first) && connection.is_muted());
    assert!(connection.unmute(second) && !connection.is_muted());
}

#[test]
fn what_the_socket_does_not_take_stays_queued_in_order() {
    let (mut connection, mut client) = pair();
    let bytes: Vec<u8> = (0..32_u32 << 20).map(|n| (n / 4096) as u8).collect();
    connection.push(Chunk::bytes(bytes.clone()));
    connection.push(Chunk::bytes(vec![1, 2, 3]));
    let reader = std::thread::spawn(move || {
        let mut received = vec![0; bytes.len() + 3];
        std::io::Read::read_exact(&mut client, &mut received).unwrap();
        received[..bytes.len()] == bytes && received[bytes.len()..] == [1, 2, 3]
    });
    while connection.flush().unwrap() != Flush::Done {}
    assert!(reader.join().unwrap());
}
