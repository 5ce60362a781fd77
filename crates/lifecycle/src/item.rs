//! A life-cycle item: a line of a life cycle's name and words.

use crate::name::Name;
use crate::time;
use rota_model::{FieldError, Stamp};
use serde::{Deserialize, Serialize};
use smol_str::{SmolStr, format_smolstr};
use std::fmt;
use std::str::FromStr;

/// Longest text of an item, in bytes. Longer texts are refused unread.
pub const ITEM_BYTES_MAX: usize = 1_024;

/// The field that errors name.
pub(crate) const FIELD: &str = "managedState";

/// A mistake in that column of an item.
pub(crate) fn wrong(column: usize, stands: &str, expected: &str) -> FieldError {
    FieldError::new(FIELD, format!("column {column}: {stands} stands there; expected: {expected}"))
}

/// A word of an item behind the name of its life cycle.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Word {
    /// `NAME`: a mark that the life cycle has reached.
    Mark(Name),
    /// `EV@TS`: an event at a time.
    At {
        /// The event.
        event: Name,
        /// When it is due.
        at: Stamp,
        /// The time as it was written.
        text: SmolStr,
    },
    /// `LC?EV`: waits for an event of a life cycle.
    Wait {
        /// The life cycle whose event is awaited.
        life_cycle: Name,
        /// The awaited event or mark.
        event: Name,
    },
}

impl Word {
    fn parse(text: &str, column: usize, now: Option<Stamp>) -> Result<Self, FieldError> {
        let behind = |byte: usize| column + text[..byte].chars().count() + 1;
        match text.find(['@', '?']) {
            None => {
                let what =
                    "a mark NAME, an event NAME@TIME or a wait LIFE_CYCLE?NAME; NAME is a name";
                Ok(Word::Mark(Name::parse_at(text, column, what)?))
            }
            Some(byte) if text.as_bytes()[byte] == b'@' => {
                let event = Name::parse_at(&text[..byte], column, "an event")?;
                let time = time::parse(&text[byte + 1..], behind(byte), now)?;
                Ok(Word::At { event, at: time.at, text: time.text })
            }
            Some(byte) => {
                let life_cycle = Name::parse_at(&text[..byte], column, "a life cycle")?;
                let event = Name::parse_at(&text[byte + 1..], behind(byte), "an event")?;
                Ok(Word::Wait { life_cycle, event })
            }
        }
    }

    /// What is unique within the life cycle: the name of a mark or timed event, the whole word of a wait.
    pub fn event(&self) -> SmolStr {
        match self {
            Word::Mark(name) | Word::At { event: name, .. } => SmolStr::new(name.as_str()),
            Word::Wait { .. } => format_smolstr!("{self}"),
        }
    }

    /// Whether it has that name, as a mark or a timed event. A wait has none.
    pub(crate) fn is_named(&self, name: &Name) -> bool {
        match self {
            Word::Mark(own) | Word::At { event: own, .. } => own == name,
            Word::Wait { .. } => false,
        }
    }

    /// Whether something is to fire: it is no mark.
    pub fn can_fire(&self) -> bool {
        match self {
            Word::Mark(_) => false,
            Word::At { .. } | Word::Wait { .. } => true,
        }
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Word::Mark(name) => name.fmt(f),
            Word::At { event, text, .. } => write!(f, "{event}@{text}"),
            Word::Wait { life_cycle, event } => write!(f, "{life_cycle}?{event}"),
        }
    }
}

/// A checked item. Prints as the text that it was read from.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LifeItem {
    life_cycle: Name,
    /// Behind the first ones, what matters.
    earlier: Vec<Word>,
    last: Word,
}

impl LifeItem {
    /// Reads a stored text, whose times are absolute. The error names the column and what was expected.
    pub fn parse(text: &str) -> Result<Self, FieldError> {
        Self::read(text, None)
    }

    /// Reads a text as people enter it: times from `now` on are allowed and become absolute, and life cycles that
    /// are built in are refused.
    pub fn parse_entry(text: &str, now: Stamp) -> Result<Self, FieldError> {
        let item = Self::read(text, Some(now))?;
        let refuse = |name: &Name, column: usize| {
            let problem = format!(
                "column {column}: the life cycle {name} is built in; use the option {name} of the class or of the open"
            );
            Err(FieldError::new(FIELD, problem))
        };
        if item.life_cycle.is_reserved() {
            return refuse(&item.life_cycle, 1);
        }
        // Columns are those of the text that was entered.
        let mut column = item.life_cycle.as_str().len() + 2;
        for (word, entered) in item.words().zip(text.split(' ').skip(1)) {
            if let Word::Wait { life_cycle, .. } = word
                && life_cycle.is_reserved()
            {
                return refuse(life_cycle, column);
            }
            column += entered.len() + 1;
        }
        Ok(item)
    }

    fn read(text: &str, now: Option<Stamp>) -> Result<Self, FieldError> {
        let long = |length: usize| {
            let problem = format!("is {length} bytes long; the limit is {ITEM_BYTES_MAX}");
            FieldError::new(FIELD, problem)
        };
        if text.len() > ITEM_BYTES_MAX {
            return Err(long(text.len()));
        }
        let mut parts = text.split(' ');
        let first = parts.next().unwrap_or_default();
        let life_cycle = Name::parse_at(first, 1, "a life cycle")?;
        // All characters so far are ASCII, or there was an error.
        let mut column = first.len() + 2;
        let mut words: Vec<Word> = Vec::new();
        for part in parts {
            let word = Word::parse(part, column, now)?;
            if words.iter().any(|it| it.event() == word.event()) {
                let expected = "a name that the item does not have yet";
                return Err(wrong(column, &format!("{part:?}"), expected));
            }
            words.push(word);
            column += part.len() + 1;
        }
        let Some(last) = words.pop() else {
            let expected = format!("a space and a word behind the life cycle {life_cycle}");
            return Err(wrong(column - 1, "the end", &expected));
        };
        let item = Self { life_cycle, earlier: words, last };
        // Times from now on get longer.
        match item.to_string().len() {
            fits if fits <= ITEM_BYTES_MAX => Ok(item),
            length => Err(long(length)),
        }
    }

    /// The life cycle that it belongs to.
    pub fn life_cycle(&self) -> &Name {
        &self.life_cycle
    }

    /// Its words in their order; the last one is what matters next.
    pub fn words(&self) -> impl Iterator<Item = &Word> {
        self.earlier.iter().chain([&self.last])
    }

    /// What has happened: the words ahead of the last one.
    pub fn earlier(&self) -> &[Word] {
        &self.earlier
    }

    /// What matters next.
    pub fn last(&self) -> &Word {
        &self.last
    }
}

impl FromStr for LifeItem {
    type Err = FieldError;
    fn from_str(text: &str) -> Result<Self, FieldError> {
        Self::parse(text)
    }
}

impl TryFrom<String> for LifeItem {
    type Error = FieldError;
    fn try_from(text: String) -> Result<Self, FieldError> {
        Self::parse(&text)
    }
}

impl From<LifeItem> for String {
    fn from(item: LifeItem) -> String {
        item.to_string()
    }
}

impl fmt::Display for LifeItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.life_cycle.fmt(f)?;
        self.words().try_for_each(|word| write!(f, " {word}"))
    }
}

impl fmt::Debug for LifeItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}
