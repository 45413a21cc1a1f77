//! The presence of a client, and the attachment of its connection.

use std::net::Shutdown;
use std::sync::Arc;
use std::thread;

use txn_net::Attachment;

use crate::running::{options, start};
use crate::wire::control;

#[test]
fn a_request_under_way_is_told_when_its_client_leaves() {
    let running = start(&options());
    let mut client = running.connect();
    client.send(&control(1));
    let request = running.take_request();
    assert!(!request.presence.has_ended());
    client.socket.shutdown(Shutdown::Write).unwrap();
    while !request.presence.has_ended() {
        thread::yield_now();
    }
    running.server.reply(request.token, false, b"done");
    client.receive(); // its answer comes all the same
}

#[test]
fn a_client_whose_connection_was_closed_here_has_left() {
    let running = start(&options());
    let mut client = running.connect();
    client.send(&control(1));
    let request = running.take_request();
    running.server.disconnect(request.token);
    assert!(client.is_closed());
    assert!(request.presence.has_ended());
}

#[test]
fn an_attachment_comes_with_every_later_request_of_its_connection_alone() {
    let running = start(&options());
    let mut client = running.connect();
    client.send(&control(1));
    let request = running.take_request();
    assert!(request.attachment.is_none());
    let attachment = Attachment(Arc::new("mine"));
    running.server.attach(request.token, attachment.clone());
    running.server.reply(request.token, false, b"");
    client.receive();
    client.send(&control(2));
    assert_eq!(running.take_request().attachment, Some(attachment));
    let mut other = running.connect();
    other.send(&control(3));
    assert!(running.take_request().attachment.is_none());
}
