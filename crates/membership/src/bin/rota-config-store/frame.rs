//! Records in the file. One frame is one write and one sync, so only the last can be torn.
//!
//! ```text
//!   marker 4 | length 4 | number 8 | xxh3-64 of length, number and content 8 | content
//! ```
//!
//! Numbers are little-endian. The content is JSON, so it never holds the marker's first byte
//! (0xFF is no UTF-8): after damage, a whole later frame can be found by its marker.

use xxhash_rust::xxh3::Xxh3;

const MARKER: [u8; 4] = [0xFF, b'R', b'O', b'F'];
const HEAD_BYTES: usize = 24;

/// A frame that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// Its number; the first of a file is 0.
    pub number: u64,
    /// What it holds.
    pub content: &'a [u8],
    /// Where the next one begins.
    pub end: usize,
}

/// What stands at a place of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found<'a> {
    /// A whole frame.
    Whole(Frame<'a>),
    /// The file ends here.
    End,
    /// No whole frame here, and none after it: the last write was cut short.
    Torn,
    /// No whole frame here, but a later one at this offset: what stood here was damaged.
    Damaged(usize),
}

/// A frame with this content.
///
/// # Errors
/// When the content is 4 GiB or longer.
pub fn encode(number: u64, content: &[u8]) -> Result<Vec<u8>, std::num::TryFromIntError> {
    let length = u32::try_from(content.len())?;
    let mut bytes = Vec::with_capacity(HEAD_BYTES + content.len());
    bytes.extend_from_slice(&MARKER);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&number.to_le_bytes());
    bytes.extend_from_slice(&checksum(length, number, content).to_le_bytes());
    bytes.extend_from_slice(content);
    Ok(bytes)
}

/// Reads what stands at `offset`.
pub fn read(bytes: &[u8], offset: usize) -> Found<'_> {
    if offset == bytes.len() {
        return Found::End;
    }
    if let Some(frame) = whole(bytes, offset) {
        return Found::Whole(frame);
    }
    let later = (offset + 1..bytes.len()).filter(|at| bytes[*at] == MARKER[0]);
    match later.into_iter().find(|at| whole(bytes, *at).is_some()) {
        Some(at) => Found::Damaged(at),
        None => Found::Torn,
    }
}

fn whole(bytes: &[u8], offset: usize) -> Option<Frame<'_>> {
    let (head, rest) = bytes.get(offset..)?.split_at_checked(HEAD_BYTES)?;
    let (marker, head) = head.split_first_chunk::<4>()?;
    let (length, head) = head.split_first_chunk::<4>()?;
    let (number, head) = head.split_first_chunk::<8>()?;
    let (sum, _) = head.split_first_chunk::<8>()?;
    let length = u32::from_le_bytes(*length);
    let number = u64::from_le_bytes(*number);
    let content = rest.get(..usize::try_from(length).ok()?)?;
    let holds = *marker == MARKER && u64::from_le_bytes(*sum) == checksum(length, number, content);
    holds.then_some(Frame { number, content, end: offset + HEAD_BYTES + content.len() })
}

fn checksum(length: u32, number: u64, content: &[u8]) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(&length.to_le_bytes());
    hash.update(&number.to_le_bytes());
    hash.update(content);
    hash.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> (Vec<u8>, [usize; 3]) {
        let mut bytes = encode(0, b"{}").unwrap();
        let second = bytes.len();
        bytes.extend(encode(1, b"[1,2,3]").unwrap());
        let third = bytes.len();
        bytes.extend(encode(2, b"\"x\"").unwrap());
        (bytes, [0, second, third])
    }

    #[test]
    fn frames_come_back_in_order_until_the_end() {
        let (bytes, offsets) = three();
        let mut at = 0;
        for (number, offset) in (0..).zip(offsets) {
            assert_eq!(at, offset);
            let Found::Whole(frame) = read(&bytes, at) else { panic!("no frame at {at}") };
            assert_eq!(frame.number, number);
            at = frame.end;
        }
        assert_eq!(read(&bytes, at), Found::End);
    }

    #[test]
    fn a_last_frame_cut_at_any_byte_is_torn() {
        let (bytes, [_, _, third]) = three();
        for length in third + 1..bytes.len() {
            assert_eq!(read(&bytes[..length], third), Found::Torn);
        }
        assert_eq!(read(&bytes[..third], third), Found::End);
    }

    #[test]
    fn any_changed_bit_of_a_middle_frame_is_damage_and_never_a_tail() {
        let (bytes, [_, second, third]) = three();
        for at in second..third {
            for bit in 0..8 {
                let mut bytes = bytes.clone();
                bytes[at] ^= 1 << bit;
                assert_eq!(read(&bytes, second), Found::Damaged(third), "byte {at} bit {bit}");
            }
        }
    }
}
