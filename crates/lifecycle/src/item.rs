//! A life-cycle item: a line of a life cycle's name and words.

use crate::name::Name;
use crate::time;
use rota_model::{FieldError, Stamp};
use serde::{Deserialize, Serialize};
use smol_str::{SmolStr, ToSmolStr, format_smolstr};
use std::collections::BTreeSet;
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
        let (mut words, mut events) = (Vec::new(), BTreeSet::new());
        for part in parts {
            let word = Word::parse(part, column, now)?;
            if !events.insert(word.event()) {
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

    /// Whether it is of that life cycle and has that last word, as it is printed.
    pub fn is_event(&self, life_cycle: &str, word: &str) -> bool {
        self.life_cycle.as_str() == life_cycle && self.last.to_smolstr() == word
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

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 261_128_093_000_000;

    fn now() -> Stamp {
        Stamp::parse(NOW).unwrap()
    }

    fn told(text: &str) -> String {
        LifeItem::parse(text).unwrap_err().to_string()
    }

    fn entered(text: &str) -> String {
        match LifeItem::parse_entry(text, now()) {
            Ok(item) => item.to_string(),
            Err(error) => error.to_string(),
        }
    }

    fn due(text: &str) -> u64 {
        let item = LifeItem::parse_entry(text, now()).unwrap();
        match item.last() {
            Word::At { at, .. } => at.as_u64(),
            Word::Mark(_) | Word::Wait { .. } => panic!("{text} has a time"),
        }
    }

    #[test]
    fn an_item_prints_as_its_text() {
        for text in [
            "reminder note@261128093000123",
            "reminder note@2026-11-28T09:30:00.123+02:00",
            "bill reminder?note",
            "key made made.2@2026-11-28T09:30:00Z key?x signed",
            "0 1",
            "a a?a a",
        ] {
            assert_eq!(LifeItem::parse(text).unwrap().to_string(), text);
            let json = serde_json::to_string(&LifeItem::parse(text).unwrap()).unwrap();
            assert_eq!(json, format!("{text:?}"));
            assert_eq!(serde_json::from_str::<LifeItem>(&json).unwrap().to_string(), text);
        }
    }

    #[test]
    fn an_error_names_the_column_what_stands_there_and_what_was_expected() {
        let name = "of 1 to 64 characters a-z A-Z 0-9 _ - ., the first one a letter or digit";
        let at = |column: usize, stands: &str, what: &str| {
            format!("managedState column {column}: {stands} stands there; expected: {what} {name}")
        };
        let word = "a mark NAME, an event NAME@TIME or a wait LIFE_CYCLE?NAME; NAME is a name";
        assert_eq!(told(""), at(1, "nothing", "a life cycle"));
        assert_eq!(told(" a b"), at(1, "nothing", "a life cycle"));
        assert_eq!(told("..  b"), at(1, "'.'", "a life cycle"));
        assert_eq!(told("kä b"), at(2, "'ä'", "a life cycle"));
        assert_eq!(told("key  b"), at(5, "nothing", word));
        assert_eq!(told("key b "), at(7, "nothing", word));
        assert_eq!(told("key b\tc"), at(6, "'\\t'", word));
        assert_eq!(told("key made @2026-11-28T09:30:00Z"), at(10, "nothing", "an event"));
        assert_eq!(told("key ?x"), at(5, "nothing", "a life cycle"));
        assert_eq!(told("key x?"), at(7, "nothing", "an event"));
        assert_eq!(told("key x?y?z"), at(8, "'?'", "an event"));
        let long = "n".repeat(65);
        assert_eq!(told(&format!("key {long}")), at(69, "'n'", word));
    }

    #[test]
    fn an_item_needs_a_word_and_no_name_twice() {
        let end = "managedState column 4: the end stands there; \
                   expected: a space and a word behind the life cycle key";
        assert_eq!(told("key"), end);
        let twice = "managedState column 7: \"a@261128093000000\" stands there; \
                     expected: a name that the item does not have yet";
        assert_eq!(told("key a a@261128093000000"), twice);
        assert!(LifeItem::parse("key a b?a a?b").is_ok(), "a wait is named by its whole word");
        assert!(LifeItem::parse("key b?a x b?a").is_err());
    }

    #[test]
    fn a_wrong_time_is_told_with_its_column() {
        let absolute = "a time as 261128093000000 (YYMMDDhhmmssmmm) or 2026-11-28T09:30:00Z";
        let at = |column: usize, stands: &str, what: &str| {
            format!("managedState column {column}: {stands} stands there; expected: {what}")
        };
        assert_eq!(told("key a@"), at(7, "nothing", absolute));
        for wrong in ["261328093000000", "2026-02-30T00:00:00Z", "2026-11-28T09:30:00", "soon?x"] {
            assert_eq!(told(&format!("key a@{wrong}")), at(7, &format!("{wrong:?}"), absolute));
        }
        assert_eq!(told("key a@+2h"), at(7, "\"+2h\", a time from now on", absolute));
        let century = "a time of the years 2000 to 2099";
        let early = "1999-12-31T23:59:59Z";
        assert_eq!(told(&format!("key a@{early}")), at(7, &format!("{early:?}"), century));
        let early = "0000-12-31T23:59:59Z";
        assert_eq!(told(&format!("key a@{early}")), at(7, &format!("{early:?}"), century));
        let relative = "a time from now on as +2h, +1d12h or +500ms";
        assert_eq!(entered("key a@+"), at(8, "nothing", relative));
        assert_eq!(entered("key a@+h"), at(8, "\"h\"", relative));
        let units = "one of the units d, h, m, s, ms";
        assert_eq!(entered("key a@+1d2M"), at(11, "\"M\"", units));
        assert_eq!(entered("key a@+-2h"), at(8, "\"-\"", units));
        assert_eq!(entered("key a@+99999d"), at(8, "\"99999d\"", century));
        assert!(entered("key a@+99999999999999999999d").starts_with("managedState column 8: "));
        assert!(entered("key a@+5").starts_with("managedState column "));
    }

    #[test]
    fn a_time_from_now_on_becomes_absolute() {
        assert_eq!(entered("key a@+2h"), "key a@2026-11-28T11:30:00.000Z");
        assert_eq!(entered("key a@+1d12h"), "key a@2026-11-29T21:30:00.000Z");
        assert_eq!(
            entered("key a@+2s b@+500ms"),
            "key a@2026-11-28T09:30:02.000Z b@2026-11-28T09:30:00.500Z"
        );
        assert_eq!(due("key a@+1d12h"), 261_129_213_000_000);
        assert_eq!(due("key a@+0s"), NOW);
        let text = entered("key a@+2s");
        assert_eq!(
            LifeItem::parse(&text).unwrap(),
            LifeItem::parse_entry("key a@+2s", now()).unwrap()
        );
    }

    #[test]
    fn offsets_count_and_parts_of_a_millisecond_are_rounded_up() {
        assert_eq!(due("key a@2026-11-28T11:30:00+02:00"), NOW);
        assert_eq!(due("key a@2026-11-28T04:00:00.5-05:30"), NOW + 500);
        assert_eq!(due("key a@2026-11-28T09:30:00.0001Z"), NOW + 1);
        assert_eq!(due("key a@2000-01-01T00:00:00Z"), Stamp::MIN.as_u64());
        assert_eq!(due("key a@991231235959999"), Stamp::MAX.as_u64());
    }

    #[test]
    fn a_life_cycle_that_is_built_in_is_refused_at_entry_and_read_from_the_store() {
        let told = "managedState column 1: the life cycle max_life is built in; \
                    use the option max_life of the class or of the open";
        assert_eq!(entered("max_life end@+2h"), told);
        assert!(
            entered("key a@+2h idle?end")
                .starts_with("managedState column 11: the life cycle idle")
        );
        for name in crate::RESERVED {
            assert!(LifeItem::parse(&format!("{name} end")).is_ok());
            assert!(LifeItem::parse_entry(&format!("{name} end"), now()).is_err());
        }
    }

    #[test]
    fn a_long_text_is_refused_unread_and_a_text_that_gets_long_too() {
        let text = format!("key {}", "\u{0}".repeat(1024 * 1024));
        assert_eq!(told(&text), "managedState is 1048580 bytes long; the limit is 1024");
        let words: Vec<String> = (0..80).map(|it| format!("e{it}@+1s")).collect();
        let text = format!("key {}", words.join(" "));
        assert!(text.len() < ITEM_BYTES_MAX);
        assert!(entered(&text).ends_with(" bytes long; the limit is 1024"), "{}", entered(&text));
    }
}
