//! The rules of life cycles on texts, without thinking of speed.

use std::collections::BTreeSet;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Line {
    pub text: String,
    pub fired: bool,
    pub failed: bool,
    pub ready: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Naive {
    pub lines: Vec<Line>,
    /// Chain of lives, text, whether it fired.
    pub history: Vec<(u64, String, bool)>,
    pub origin: u64,
    pub ended: bool,
}

/// Due event: time (0 for a wait), life cycle, word.
pub type DueLine = (u64, String, String);

fn life_cycle(text: &str) -> &str {
    text.split(' ').next().expect("a split has a first part")
}

fn words(text: &str) -> Vec<&str> {
    text.split(' ').skip(1).collect()
}

fn last(text: &str) -> &str {
    text.split(' ').next_back().expect("a split has a last part")
}

fn name(word: &str) -> &str {
    word.split('@').next().expect("a split has a first part")
}

fn earlier(text: &str) -> Vec<&str> {
    let mut words = words(text);
    words.pop();
    words
}

impl Naive {
    fn exists(&self, of: &str) -> bool {
        self.lines.iter().any(|it| life_cycle(&it.text) == of)
    }

    fn reached(&self, of: &str, event: &str) -> bool {
        self.lines.iter().filter(|it| life_cycle(&it.text) == of).any(|line| {
            let last = last(&line.text);
            let last_happened = name(last) == event && (line.fired || !last.contains('@'));
            earlier(&line.text).iter().any(|word| name(word) == event) || last_happened
        })
    }

    fn note(&mut self, absent_counts: bool) {
        let before = self.clone();
        for line in &mut self.lines {
            if let Some((of, event)) = last(&line.text).split_once('?') {
                let absent = absent_counts && !before.exists(of);
                line.ready |= !line.fired && (absent || before.reached(of, event));
            }
        }
    }

    pub fn due(&self, now: u64) -> Vec<DueLine> {
        let mut due = Vec::new();
        for line in self.lines.iter().filter(|it| !it.fired && !it.failed) {
            let word = last(&line.text);
            let since = if let Some((of, event)) = word.split_once('?') {
                let is_ready = line.ready || !self.exists(of) || self.reached(of, event);
                is_ready.then_some(0)
            } else {
                word.split_once('@')
                    .map(|(_, at)| at.parse().expect("times here are stamps"))
                    .filter(|at| *at <= now)
            };
            due.extend(since.map(|at| (at, life_cycle(&line.text).to_owned(), word.to_owned())));
        }
        due.sort();
        due
    }

    fn unfired(&mut self, text: &str) -> Option<&mut Line> {
        let (of, word) = text.split_once(' ').expect("a line has a word");
        let fits =
            |it: &&mut Line| life_cycle(&it.text) == of && last(&it.text) == word && !it.fired;
        self.lines.iter_mut().find(fits).filter(|_| word.contains(['@', '?']))
    }

    pub fn fire(&mut self, text: &str) -> bool {
        let Some(line) = self.unfired(text) else { return false };
        (line.fired, line.failed, line.ready) = (true, false, false);
        self.note(false);
        true
    }

    pub fn fail(&mut self, text: &str) -> bool {
        self.unfired(text).map(|line| line.failed = true).is_some()
    }

    pub fn retry(&mut self, text: &str) -> bool {
        self.unfired(text).is_some_and(|line| std::mem::take(&mut line.failed))
    }

    fn move_where(&mut self, goes: impl Fn(&Line) -> bool) {
        let (gone, kept) = self.lines.drain(..).partition(|it| goes(it));
        self.lines = kept;
        self.history.extend(gone.into_iter().map(|it: Line| (self.origin, it.text, it.fired)));
    }

    pub fn settle(&mut self) {
        self.note(true);
        let open: BTreeSet<String> = self
            .lines
            .iter()
            .filter(|it| !it.fired)
            .map(|it| life_cycle(&it.text).to_owned())
            .collect();
        self.move_where(|it| !open.contains(life_cycle(&it.text)));
        self.note(true);
    }

    pub fn fire_marks(&mut self, now: u64, marks: &str) -> Vec<DueLine> {
        let mut all = Vec::new();
        loop {
            self.settle();
            let due: Vec<DueLine> =
                self.due(now).into_iter().filter(|it| marks.contains(&it.1)).collect();
            if due.is_empty() {
                return all;
            }
            for it in &due {
                assert!(self.fire(&format!("{} {}", it.1, it.2)));
            }
            all.extend(due);
        }
    }

    pub fn end(&mut self) {
        self.move_where(|_| true);
        self.ended = true;
    }

    /// Whether this chain of lives had a name of the text.
    fn had(&self, text: &str) -> bool {
        self.history.iter().filter(|it| it.0 == self.origin).any(|(_, past, _)| {
            let names: BTreeSet<&str> = words(past).into_iter().map(name).collect();
            life_cycle(past) == life_cycle(text)
                && words(text).into_iter().any(|word| names.contains(name(word)))
        })
    }

    pub fn begin(&mut self, origin: u64, add: &[String]) -> bool {
        let mut next = self.clone();
        let mut add = add.to_vec();
        if origin != next.origin {
            next.end();
            (next.origin, next.ended) = (origin, false);
            add.retain(|text| !next.had(text));
        }
        let taken = next.edit(&add, &[], None, None);
        if taken {
            *self = next;
        }
        taken
    }

    pub fn edit(
        &mut self,
        add: &[String],
        remove: &[String],
        replace: Option<&[String]>,
        finish: Option<&str>,
    ) -> bool {
        let adds: BTreeSet<&String> = add.iter().chain(replace.into_iter().flatten()).collect();
        if self.ended && !adds.is_empty() {
            return false;
        }
        let mut next = self.clone();
        for line in std::mem::take(&mut next.lines) {
            let text = &line.text;
            let stays = replace.is_none_or(|it| it.contains(text)) && !remove.contains(text);
            let goes_on = adds.iter().any(|added| {
                let is_same = life_cycle(added) == life_cycle(text);
                is_same && earlier(added).iter().any(|word| name(word) == name(last(text)))
            });
            if stays {
                next.lines.push(line);
            } else if line.fired && !goes_on {
                next.history.push((next.origin, line.text, true));
            }
        }
        for text in adds {
            let mut past = next.history.iter().filter(|it| it.0 == next.origin);
            let has_fired = past.clone().any(|it| it.1 == *text && it.2);
            if has_fired || next.lines.iter().any(|it| it.text == *text) {
                continue;
            }
            let past = past.by_ref().map(|it| &it.1);
            let others = next.lines.iter().map(|it| &it.text).chain(past);
            let mut others = others.filter(|it| life_cycle(it) == life_cycle(text));
            let is_used =
                |word: &str, other: &str| words(other).iter().any(|it| name(it) == name(word));
            if others.any(|other| words(text).iter().any(|word| is_used(word, other))) {
                return false;
            }
            next.lines.push(Line { text: text.clone(), fired: false, failed: false, ready: false });
        }
        if let Some(of) = finish {
            next.move_where(|it| life_cycle(&it.text) == of);
        }
        *self = next;
        true
    }
}
