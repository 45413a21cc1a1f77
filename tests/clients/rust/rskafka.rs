//! rskafka, which has neither groups nor transactions, through its part of the story of
//! `test_clients.py`; its results as JSON.
//!
//!     client HOST:PORT NAME

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{TimeZone, Utc};
use rskafka::client::partition::{Compression, OffsetAt, UnknownTopicHandling};
use rskafka::client::ClientBuilder;
use rskafka::record::Record;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let (servers, name) = (arguments[1].clone(), arguments[2].as_str());
    let client = ClientBuilder::new(vec![servers]).build().await.unwrap();
    let controller = client.controller_client().unwrap();
    controller.create_topic(name, 3, 1, 10_000).await.unwrap();
    let brief = format!("{name}-brief");
    controller.create_topic(&brief, 1, 1, 10_000).await.unwrap();

    let mut offsets = Vec::new();
    let mut read = Vec::new();
    let mut ends = Vec::new();
    for partition in 0..3 {
        let of_partition = client
            .partition_client(name, partition, UnknownTopicHandling::Retry)
            .await
            .unwrap();
        let records = (0..10).map(|n| record(n * 3 + partition)).collect();
        let stored = of_partition.produce(records, Compression::Zstd).await.unwrap();
        offsets.extend(stored.iter().map(|offset| format!("[{partition},{offset}]")));
        while read.len() < 10 * (partition as usize + 1) {
            let next = (read.len() - 10 * partition as usize) as i64;
            let (records, _) = of_partition.fetch_records(next, 1..1_000_000, 1_000).await.unwrap();
            for found in records {
                let (record, offset) = (found.record, found.offset);
                let (key, value) = (text(record.key.unwrap()), text(record.value.unwrap()));
                let header = text(record.headers["n"].clone());
                read.push(format!("\"{partition}:{offset}:{key}={value};n={header}\""));
            }
        }
        of_partition.delete_records(4, 10_000).await.unwrap();
        let first = of_partition.get_offset(OffsetAt::Earliest).await.unwrap();
        let end = of_partition.get_offset(OffsetAt::Latest).await.unwrap();
        ends.push(format!("[{first},{end}]"));
    }
    controller.delete_topic(&brief, 10_000).await.unwrap();
    let gone = async {
        while client.list_topics().await.unwrap().iter().any(|topic| topic.name == brief) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone).await.unwrap();
    read.sort();
    println!(
        "{{\"offsets\":[{}],\"first\":[{}],\"ends\":[{}],\"gone\":true}}",
        offsets.join(","),
        read.join(","),
        ends.join(",")
    );
}

fn record(n: i32) -> Record {
    Record {
        key: Some(format!("k{n}").into_bytes()),
        value: Some(format!("v{n}").into_bytes()),
        headers: BTreeMap::from([("n".to_owned(), n.to_string().into_bytes())]),
        timestamp: Utc.timestamp_millis_opt(1_000).unwrap(),
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}
