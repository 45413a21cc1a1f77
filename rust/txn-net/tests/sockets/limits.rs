//! The limits on connections.

use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use txn_net::{ConnectionLimits, CreationRates, ListenerLimits, Options, Server};

use crate::client::Client;
use crate::running::{bind, listener, options, start};
use crate::wire::{batch, produce, produce_to, produced};

#[test]
fn connections_without_descriptors_are_closed_and_leave_room_when_others_go() {
    let running = start(&Options {
        reactors: 1,
        max_connections: 1,
        ..options()
    });
    let mut first = running.connect();
    assert_eq!(produced(&first.ask(&produce(1, &batch(b"x")))), [(0, 0)]);
    assert!(running.connect().is_closed());
    first.send(&[0xff; 4]);
    assert!(first.is_closed());
    assert_eq!(
        produced(&running.connect().ask(&produce(1, &batch(b"x")))),
        [(0, 1)]
    );
}

const HERE: std::net::IpAddr = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// Counts of a listener by reason, without zeros.
pub fn counted(server: &Server, listener: usize, which: fn(ListenerCounts) -> Counts) -> Counts {
    let counts = server.metrics().listeners.swap_remove(listener);
    let counts = which((counts.refused, counts.closed)).into_iter();
    counts.filter(|(_, count)| *count > 0).collect()
}

type Counts = Vec<(&'static str, u64)>;

type ListenerCounts = (Counts, Counts);

pub fn refused(counts: ListenerCounts) -> Counts {
    counts.0
}

pub fn closed(counts: ListenerCounts) -> Counts {
    counts.1
}

/// True once a client is answered.
fn serves(client: &mut Client) -> bool {
    !client.ask(&produce_to("unknown", None, 1, &[])).is_empty()
}

#[test]
fn a_connection_beyond_max_connections_is_served_once_another_has_left() {
    let running = start(&options());
    running.server.limit_connections(ConnectionLimits {
        max_connections: 1,
        ..ConnectionLimits::default()
    });
    let mut first = running.connect();
    assert!(serves(&mut first));
    let (mut second, mut third) = (running.connect(), running.connect());
    for client in [&mut second, &mut third] {
        client.send(&produce_to("unknown", None, 1, &[]));
    }
    assert!(serves(&mut first));
    assert!(second.has_nothing() && third.has_nothing());

    drop(first);
    second.receive();
    assert!(third.has_nothing());
    drop(second);
    third.receive();
    assert_eq!(counted(&running.server, 0, refused), []);
    assert!(running.server.metrics().listeners[0].blocked_s > 0.0);
}

#[test]
fn a_raised_limit_lets_in_those_that_wait() {
    let running = start(&options());
    let limited_to = |max_connections| ConnectionLimits {
        max_connections,
        ..ConnectionLimits::default()
    };
    running.server.limit_connections(limited_to(1));
    let mut first = running.connect();
    assert!(serves(&mut first));
    let mut second = running.connect();
    second.send(&produce_to("unknown", None, 1, &[]));
    assert!(serves(&mut first) && second.has_nothing());

    running.server.limit_connections(limited_to(2));

    second.receive();
}

#[test]
fn a_lowered_limit_closes_the_connections_that_were_used_least() {
    let running = start(&Options {
        reactors: 1,
        ..options()
    });
    let [mut first, mut second, mut third] = running.accepted();
    assert!(serves(&mut third) && serves(&mut first));

    running.server.limit_connections(ConnectionLimits {
        max_connections: 2,
        ..ConnectionLimits::default()
    });

    assert!(second.is_closed());
    assert!(serves(&mut first) && serves(&mut third));
    assert_eq!(
        counted(&running.server, 0, closed),
        [("max_connections", 1)]
    );
}

#[test]
fn one_address_may_have_so_many_connections_and_its_override() {
    let running = start(&options());
    let limits = ConnectionLimits {
        max_per_ip: 1,
        ..ConnectionLimits::default()
    };
    running.server.limit_connections(limits.clone());
    let mut first = running.connect();
    assert!(serves(&mut first));
    assert!(running.connect().is_closed());
    running.wait_for_control();
    let told = running.server.take_refused().pop().unwrap();
    assert_eq!((told.listener, &*told.client_host), (0, "127.0.0.1"));
    assert_eq!(told.reason, "max_connections_per_ip");

    running.server.limit_connections(ConnectionLimits {
        overrides: [(HERE, 2)].into(),
        ..limits
    });

    let mut second = running.connect();
    assert!(serves(&mut second));
    assert!(running.connect().is_closed());
    let expected = [("max_connections_per_ip", 2)];
    assert_eq!(counted(&running.server, 0, refused), expected);
}

#[test]
fn connections_that_come_faster_than_their_rate_wait_for_their_turn() {
    let running = start(&options());
    running.server.limit_connections(ConnectionLimits {
        creation_rate: 1,
        ..ConnectionLimits::default()
    });
    let began = Instant::now();
    let mut clients: Vec<_> = (0..10).map(|_| running.connect()).collect();
    assert!(clients.iter_mut().all(serves));
    assert!(began.elapsed() < Duration::from_millis(900));
    let mut next = running.connect();
    assert!(serves(&mut next));
    assert!(began.elapsed() >= Duration::from_millis(900));
}

#[test]
fn an_address_that_connects_too_often_is_closed_after_a_while_and_others_are_not_held_up() {
    let running = start(&options());
    running.server.limit_creation_rates(CreationRates {
        default: None,
        of_addresses: [(HERE, 1.0)].into(),
    });
    let mut clients: Vec<_> = (0..10).map(|_| running.connect()).collect();
    assert!(clients.iter_mut().all(serves));
    let began = Instant::now();
    let mut late = running.connect();
    late.send(&produce_to("unknown", None, 1, &[]));
    assert!(serves(&mut clients[0]));
    assert!(late.has_nothing());
    assert!(late.is_closed());
    assert!(began.elapsed() >= Duration::from_millis(500));
    let expected = [("ip_connection_creation_rate", 1)];
    assert_eq!(counted(&running.server, 0, refused), expected);
}

#[test]
fn a_protected_listener_takes_the_place_of_the_least_used_connection_of_another() {
    let listeners = [listener("CLIENTS"), listener("BROKERS")];
    let options = Options {
        reactors: 1,
        ..options()
    };
    let server = Arc::new(bind(&listeners, options).unwrap());
    let reactor = std::thread::spawn({
        let server = Arc::clone(&server);
        move || server.run_reactor(0).expect("it runs")
    });
    let protected = ListenerLimits {
        is_protected: true,
        ..ListenerLimits::default()
    };
    server.limit_connections(ConnectionLimits {
        max_connections: 2,
        listeners: vec![ListenerLimits::default(), protected],
        ..ConnectionLimits::default()
    });
    let connect = |listener: usize| {
        let socket = TcpStream::connect(server.listeners()[listener].address).unwrap();
        let mut client = Client { socket };
        client.ask(&produce_to("unknown", None, 1, &[]));
        client
    };
    let (mut first, mut second) = (connect(0), connect(0));

    let mut broker = connect(1);

    assert!(first.is_closed());
    broker.ask(&produce_to("unknown", None, 1, &[]));
    second.ask(&produce_to("unknown", None, 1, &[]));
    server.stop();
    reactor.join().unwrap();
}
