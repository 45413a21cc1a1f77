//! This node as its clients know it.

/// The number of this node, and its address on one listener.
#[derive(Clone, Debug)]
pub struct NodeEndpoint {
    /// `node.id`.
    pub id: i32,
    /// The host by which clients reach it.
    pub host: String,
    /// The port by which clients reach it.
    pub port: u16,
}
