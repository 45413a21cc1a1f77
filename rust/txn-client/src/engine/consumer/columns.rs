//! Records of any partitions as columns; see `crate::columns` for their layout.

use std::collections::HashSet;
use std::sync::Arc;

use super::{Message, Place};
use crate::columns::BinaryColumn;

/// Rows, in the order in which they were handed out.
#[derive(Clone, Debug)]
pub struct MessageColumns {
    /// Number of rows.
    pub rows: usize,
    /// Topics that rows name by their place here.
    pub topics: Vec<Arc<str>>,
    /// `i32` little endian: places in `topics`.
    pub topic_indices: Vec<u8>,
    /// `i32` little endian.
    pub partitions: Vec<u8>,
    /// `i64` little endian.
    pub offsets: Vec<u8>,
    /// `i64` little endian, milliseconds.
    pub timestamps_ms: Vec<u8>,
    /// Keys.
    pub key: BinaryColumn,
    /// Values.
    pub value: BinaryColumn,
    /// `i32` little endian, one more than rows: places in the next two.
    pub header_list_offsets: Vec<u8>,
    /// Header names.
    pub header_keys: BinaryColumn,
    /// Header contents.
    pub header_values: BinaryColumn,
    /// Of each partition among the rows: its first offset.
    pub firsts: Vec<(Place, i64)>,
}

impl MessageColumns {
    /// Copies the records.
    #[must_use]
    pub fn of(messages: &[Message]) -> Self {
        let mut columns = Self {
            rows: messages.len(),
            topics: Vec::new(),
            topic_indices: Vec::with_capacity(messages.len() * 4),
            partitions: Vec::with_capacity(messages.len() * 4),
            offsets: Vec::with_capacity(messages.len() * 8),
            timestamps_ms: Vec::with_capacity(messages.len() * 8),
            key: BinaryColumn::new(),
            value: BinaryColumn::new(),
            header_list_offsets: vec![0; 4],
            header_keys: BinaryColumn::new(),
            header_values: BinaryColumn::new(),
            firsts: Vec::new(),
        };
        let mut known: HashSet<Place> = HashSet::new();
        let mut last: Option<(Arc<str>, i32)> = None;
        let mut topic_index = 0_i32;
        for message in messages {
            let is_same = last.as_ref().is_some_and(|(topic, partition)| {
                Arc::ptr_eq(topic, message.topic()) && *partition == message.partition()
            });
            if !is_same {
                let place = (Arc::clone(message.topic()), message.partition());
                topic_index = columns.index_of(message.topic());
                if known.insert(place.clone()) {
                    columns.firsts.push((place.clone(), message.offset()));
                }
                last = Some(place);
            }
            columns.push(message, topic_index);
        }
        columns
    }

    fn index_of(&mut self, topic: &Arc<str>) -> i32 {
        let known = self.topics.iter().position(|known| known == topic);
        known.unwrap_or_else(|| {
            self.topics.push(Arc::clone(topic));
            self.topics.len() - 1
        }) as i32
    }

    fn push(&mut self, message: &Message, topic_index: i32) {
        let add = |column: &mut Vec<u8>, number: &[u8]| column.extend_from_slice(number);
        add(&mut self.topic_indices, &topic_index.to_le_bytes());
        add(&mut self.partitions, &message.partition().to_le_bytes());
        add(&mut self.offsets, &message.offset().to_le_bytes());
        add(
            &mut self.timestamps_ms,
            &message.timestamp().1.to_le_bytes(),
        );
        self.key.push(message.key());
        self.value.push(message.value());
        for (name, content) in message.headers() {
            let name = String::from_utf8_lossy(name); // Arrow's text is UTF-8
            self.header_keys.push(Some(name.as_bytes()));
            self.header_values.push(content);
        }
        let end = self.header_keys.rows as i32;
        add(&mut self.header_list_offsets, &end.to_le_bytes());
    }
}
