//! Tests of a cluster without a node.

use super::*;

fn cluster(timeout_ms: u64) -> Cluster {
    Cluster::new(
        "127.0.0.1:1",
        "test",
        Security::default(),
        Duration::from_millis(timeout_ms),
        None,
    )
    .unwrap()
}

#[test]
fn addresses_may_be_v6_and_carry_a_protocol() {
    let v6 = Address::parse("[::1]:9092").unwrap();
    assert_eq!(
        (v6.host.as_str(), v6.port, v6.to_string().as_str()),
        ("::1", 9092, "[::1]:9092")
    );
    assert_eq!(Address::parse("PLAINTEXT://h:1").unwrap().host, "h");
    assert_eq!(Address::parse("h"), None);
    assert_eq!(Address::parse("h:99999"), None);
}

#[test]
fn a_cluster_without_an_address_is_refused() {
    let error = Cluster::new(" , ", "test", Security::default(), Duration::ZERO, None).unwrap_err();
    assert!(error.message.contains("bootstrap.servers is empty"));
}

#[test]
fn an_unreachable_node_is_tried_until_the_timeout_and_named() {
    let error = cluster(40)
        .retry(|retry| retry.any_node().map(|_| ()))
        .unwrap_err();
    assert_eq!(
        (error.code, error.is_retriable),
        (codes::NETWORK_EXCEPTION, true)
    );
    assert!(
        error.message.contains("gave up after") && error.message.contains("127.0.0.1:1"),
        "{error}"
    );
}

#[test]
fn a_final_error_ends_the_call_at_once() {
    let mut attempts = 0;
    let result: Result<(), _> = cluster(60_000).retry(|_| {
        attempts += 1;
        Err(KafkaError::answered(90, "node", "EndTxn", "x", None))
    });
    assert_eq!((result.unwrap_err().code, attempts), (90, 1));
}

#[test]
fn a_topic_never_seen_is_unknown_for_good_and_one_seen_is_asked_for_again() {
    let cluster = cluster(1);
    cluster.mark_topic_seen("seen");
    let retry = cluster.begin();
    assert!(
        retry
            .topic_error(3, "node", "Metadata", "seen", "topic 'seen'")
            .is_retriable
    );
    assert!(
        !retry
            .topic_error(3, "node", "Metadata", "never", "topic 'never'")
            .is_retriable
    );
}

#[test]
fn a_closed_client_says_so() {
    let cluster = cluster(60_000);
    cluster.close();
    let error = cluster
        .retry(|retry| retry.any_node().map(|_| ()))
        .unwrap_err();
    assert!(error.message.contains("closed"));
}
