//! An input as bytes that come in pieces, as a network may split them.

/// Splits bytes by a number: 0 leaves them whole, 1 makes pieces of a byte each.
pub fn pieces(bytes: &[u8], split: u8) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    let mut state = u32::from(split);
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let size = match split {
            0 => rest.len(),
            1 => 1,
            _ => {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                1 + (state >> 24) as usize * usize::from(split % 16 + 1)
            }
        };
        let (piece, behind) = rest.split_at(size.min(rest.len()));
        rest = behind;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_whole_in_order() {
        let bytes: Vec<u8> = (0..=255).cycle().take(10_000).collect();
        for split in 0..=255 {
            assert_eq!(pieces(&bytes, split).collect::<Vec<_>>().concat(), bytes);
        }
        assert_eq!(pieces(&bytes, 0).count(), 1);
        assert_eq!(pieces(&bytes, 1).count(), bytes.len());
    }
}
