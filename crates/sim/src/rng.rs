//! The only source of randomness: one seeded stream.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A seeded stream of decisions.
#[derive(Clone, Debug)]
pub struct SeededRng(ChaCha8Rng);

impl SeededRng {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// The stream of links to nodes. It is one of its own, so that links shift no other draw.
    pub fn of_links(seed: u64) -> Self {
        Self::new(seed ^ 0x006c_696e_6b73)
    }

    /// A stream of its own, so that what one part draws does not shift the others.
    pub fn fork(&mut self) -> Self {
        Self::new(self.word())
    }

    /// Any number.
    pub fn word(&mut self) -> u64 {
        self.0.random()
    }

    /// A number in `[low, high]`.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        if low >= high { low } else { self.0.random_range(low..=high) }
    }

    /// An index below `count`, which must not be 0.
    pub fn index(&mut self, count: usize) -> usize {
        self.0.random_range(0..count)
    }

    /// True `permille` times in a thousand.
    pub fn permille(&mut self, permille: u64) -> bool {
        permille > 0 && self.0.random_range(0..1000) < permille
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.index(choices.len())]
    }

    /// A length of time that is mostly near `low` and seldom near `high`.
    pub fn skewed(&mut self, low: u64, high: u64) -> u64 {
        let span = high.saturating_sub(low);
        let draw = self.within(0, 1000) * self.within(0, 1000) * self.within(0, 1000);
        low + span * (draw / 1_000_000) / 1000
    }
}
