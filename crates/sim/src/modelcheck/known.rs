//! What a search computed once and looks up from then on, and what came about in it.

use super::flying::Out;
use super::left::Left;
use super::seen::Seen;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What one process did with one input.
#[derive(Clone)]
pub struct Stepped {
    /// The process since.
    pub host: u32,
    /// What it sent.
    pub out: Arc<[Out]>,
    /// What came about in it, by name.
    pub came: Arc<[&'static str]>,
}

/// Steps of processes, and answers to questions about them, each by the hash of what it depends on.
#[derive(Default)]
pub struct Known {
    answers: Seen,
    steps: Vec<Stepped>,
}

impl Known {
    /// How many steps.
    pub fn steps(&self) -> usize {
        self.steps.len()
    }

    /// A step that was computed.
    pub fn step(&self, key: u128) -> Option<Stepped> {
        let number = self.answers.get(key)?;
        Some(self.steps[number as usize].clone())
    }

    /// Keeps a step.
    pub fn keep_step(&mut self, key: u128, step: Stepped) {
        let number = u32::try_from(self.steps.len()).expect("fewer steps than states");
        self.answers.insert(key, number);
        self.steps.push(step);
    }

    /// An answer that was found.
    pub fn answer(&self, key: u128) -> Option<u32> {
        self.answers.get(key)
    }

    /// Keeps an answer.
    pub fn keep_answer(&mut self, key: u128, answer: u32) {
        self.answers.insert(key, answer);
    }
}

/// What came about in a search, by name.
#[derive(Default)]
pub struct Came {
    /// In any state.
    pub ever: BTreeSet<&'static str>,
    /// After all crashes, suspicions and beginnings of joins that may happen.
    pub after: BTreeSet<&'static str>,
}

impl Came {
    /// Takes down what came about where this may still happen.
    pub fn note(&mut self, left: &Left, came: &[&'static str]) {
        self.ever.extend(came);
        if (left.managers.crashes, left.managers.suspicions, left.operators.joins) == (0, 0, 0) {
            self.after.extend(came);
        }
    }
}
