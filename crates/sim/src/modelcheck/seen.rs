//! What a search remembers: hashes of 128 bits, and nothing of the states themselves.

use std::hash::{Hash, Hasher};

/// Two independent 64-bit hashes in one pass, each a chain of folded multiplications. Among 10^8
/// states two share one with a chance of about 10^-23.
#[derive(Clone, Debug)]
struct Wide {
    first: u64,
    second: u64,
}

fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    let (low, high) = (product & u128::from(u64::MAX), product >> 64);
    u64::try_from(low ^ high).unwrap_or_default()
}

impl Wide {
    fn take(&mut self, word: u64) {
        self.first = fold(self.first ^ word, 0x9E37_79B9_7F4A_7C15).rotate_left(23);
        self.second = fold(self.second ^ word.rotate_left(32), 0xD6E8_FEB8_6659_FD93)
            .wrapping_add(self.first);
    }
}

impl Hasher for Wide {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.take(u64::from_le_bytes(word));
        }
        self.take(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    }

    fn write_u8(&mut self, number: u8) {
        self.take(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.take(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.take(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.take(u64::try_from(number).unwrap_or(u64::MAX));
    }

    fn finish(&self) -> u64 {
        fold(self.first ^ self.second, 0xA076_1D64_78BD_642F)
    }
}

/// The hash of what feeds a hasher.
pub fn wide_of(feed: impl FnOnce(&mut WideHasher)) -> u128 {
    let mut hasher =
        WideHasher(Wide { first: 0x243F_6A88_85A3_08D3, second: 0x1319_8A2E_0370_7344 });
    feed(&mut hasher);
    let Wide { first, second } = hasher.0.clone();
    let last = fold(first ^ 0x0A40_9382_2299_F31D, second ^ 0x082E_FA98_EC4E_6C89);
    (u128::from(hasher.finish()) << 64) | u128::from(last ^ first)
}

/// The hash of a value.
pub fn wide(value: &impl Hash) -> u128 {
    wide_of(|into| value.hash(into))
}

/// The hasher behind [`wide_of`].
#[derive(Clone, Debug)]
pub struct WideHasher(Wide);

impl Hasher for WideHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    fn write_u8(&mut self, number: u8) {
        self.0.write_u8(number);
    }

    fn write_u32(&mut self, number: u32) {
        self.0.write_u32(number);
    }

    fn write_u64(&mut self, number: u64) {
        self.0.write_u64(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.0.write_usize(number);
    }

    fn finish(&self) -> u64 {
        self.0.finish()
    }
}

/// Numbers by hash: open addressing, twenty bytes for each. Numbers are given out by the caller.
#[derive(Clone, Debug)]
pub struct Seen {
    hashes: Vec<u128>,
    numbers: Vec<u32>,
    count: usize,
}

impl Default for Seen {
    fn default() -> Self {
        Self { hashes: vec![0; 1024], numbers: vec![0; 1024], count: 0 }
    }
}

impl Seen {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn place(&self, hash: u128) -> usize {
        let mask = self.hashes.len() - 1;
        let low = u64::try_from(hash & u128::from(u64::MAX)).unwrap_or_default();
        let mut at = usize::try_from(low).unwrap_or_default() & mask;
        while self.hashes[at] != 0 && self.hashes[at] != hash {
            at = (at + 1) & mask;
        }
        at
    }

    /// The number of a hash.
    pub fn get(&self, hash: u128) -> Option<u32> {
        let at = self.place(hash.max(1));
        (self.hashes[at] != 0).then(|| self.numbers[at])
    }

    /// Takes a number for a hash. Gives the number that it has already, if so.
    pub fn insert(&mut self, hash: u128, number: u32) -> Option<u32> {
        let hash = hash.max(1);
        let at = self.place(hash);
        if self.hashes[at] != 0 {
            return Some(self.numbers[at]);
        }
        (self.hashes[at], self.numbers[at]) = (hash, number);
        self.count += 1;
        if self.count * 4 > self.hashes.len() * 3 {
            self.grow();
        }
        None
    }

    fn grow(&mut self) {
        let size = self.hashes.len() * 2;
        let hashes = std::mem::replace(&mut self.hashes, vec![0; size]);
        let numbers = std::mem::replace(&mut self.numbers, vec![0; size]);
        for (hash, number) in hashes.into_iter().zip(numbers).filter(|(hash, _)| *hash != 0) {
            let at = self.place(hash);
            (self.hashes[at], self.numbers[at]) = (hash, number);
        }
    }
}

/// Values that are kept once each and named by small numbers. `key` tells values apart; `canon` says
/// what is alike to the search (and is the same for all by default).
#[derive(Clone, Debug)]
pub struct Table<T> {
    seen: Seen,
    values: Vec<(T, u128)>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { seen: Seen::default(), values: Vec::new() }
    }
}

impl<T> Table<T> {
    /// The number of a value, which is kept when it is new.
    pub fn keep(&mut self, value: T, key: u128, canon: u128) -> u32 {
        let number = u32::try_from(self.values.len()).expect("fewer values than states");
        match self.seen.insert(key, number) {
            Some(known) => known,
            None => {
                self.values.push((value, canon));
                number
            }
        }
    }

    /// A value.
    pub fn get(&self, number: u32) -> &T {
        &self.values[number as usize].0
    }

    /// What a value counts as.
    pub fn canon(&self, number: u32) -> u128 {
        self.values[number as usize].1
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_small_numbers_differ_in_both_halves() {
        let mut halves = std::collections::BTreeSet::new();
        for number in 0..20_000_u32 {
            let hash = wide(&(number, "text"));
            assert!(halves.insert(u64::try_from(hash >> 64).unwrap()));
            assert!(halves.insert(u64::try_from(hash & u128::from(u64::MAX)).unwrap()));
        }
    }

    #[test]
    fn numbers_are_found_again_after_the_table_grew() {
        let mut seen = Seen::default();
        for number in 0..5_000 {
            assert_eq!(seen.insert(wide(&number), number), None);
        }
        assert!((0..5_000).all(|it| seen.get(wide(&it)) == Some(it)));
        assert_eq!((seen.len(), seen.get(wide(&5_000))), (5_000, None));
        assert_eq!(seen.insert(wide(&7), 9), Some(7));
    }
}
