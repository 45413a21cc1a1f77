//! Buffers that a reactor lends to its connections for a turn.

/// First size of a buffer's growth, and the least a read asks for when more is to come.
pub(super) const STEP_BYTES: usize = 64 << 10;
/// Larger buffers are freed, not kept for the next turn.
const KEPT_BUFFER_BYTES: usize = 2 << 20;
/// Number of buffers that a reactor keeps.
const KEPT_BUFFERS: usize = 4;

/// A reactor's spare buffers.
#[derive(Default)]
pub struct Buffers {
    pub(super) spare: Vec<Vec<u8>>,
}

impl Buffers {
    /// An empty buffer; of some size, if there is one.
    pub fn take(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Takes a buffer back.
    pub fn give(&mut self, mut buffer: Vec<u8>) {
        if (STEP_BYTES..=KEPT_BUFFER_BYTES).contains(&buffer.capacity())
            && self.spare.len() < KEPT_BUFFERS
        {
            buffer.clear();
            self.spare.push(buffer);
        }
    }
}
