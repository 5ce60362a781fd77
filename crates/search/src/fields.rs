//! The names that a filter may use, each with its type.

use crate::value::{Number, Test, Value};
use rota_docstore::FieldType;
use rota_model::{FieldError, Stamp};
use smol_str::SmolStr;
use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

/// The name of the condition on a document's id.
pub const DOCID: &str = "docid";
/// The name of the field that is the key of an item, where keys are indexed.
pub const KEY: &str = "key";
/// The longest age that a filter may name, in milliseconds: a century, as stamps have.
pub const AGE_MS_MAX: u64 = 36_525 * 86_400_000;
/// So many names an error lists.
const LISTED_MAX: usize = 20;

/// The type of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Any text.
    Text,
    /// One of these words. In a filter, upper and lower case are alike.
    Word(&'static [&'static str]),
    /// An integer of 64 bits.
    Integer,
    /// A number.
    Number,
    /// A moment.
    Time,
    /// How long ago a moment was. Ascending order begins with the youngest.
    Age,
}

impl Kind {
    /// What a value of it looks like, for messages.
    pub fn expected(self) -> String {
        match self {
            Self::Text => "a text, in quotes if it has spaces".into(),
            Self::Word(words) => format!("one of {}", words.join(", ")),
            Self::Integer => "an integer".into(),
            Self::Number => "a number".into(),
            Self::Time => "a time such as 2026-11-27T19:30:00Z".into(),
            Self::Age => "a length of time such as 10m".into(),
        }
    }

    /// A value of it from a text. `None`: it is none.
    pub(crate) fn read(self, text: &str) -> Option<Value> {
        match self {
            Self::Text => Some(Value::text(text)),
            Self::Word(words) => {
                let found = words.iter().find(|it| it.eq_ignore_ascii_case(text));
                found.map(|it| Value::text(it))
            }
            Self::Integer => text.parse().ok().map(Value::Integer),
            Self::Number => text.parse().ok().and_then(Number::new).map(Value::Number),
            Self::Time => {
                let time = humantime::parse_rfc3339(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
                // Stamps have milliseconds: a finer time could not be told from them.
                let ms = whole_ms(time)?;
                Stamp::try_from_epoch_ms(ms).ok().map(Value::Time)
            }
            Self::Age => {
                let ms = whole_ms(humantime::parse_duration(text).ok()?)?;
                (ms <= AGE_MS_MAX).then_some(Value::Age(ms))
            }
        }
    }

    /// Whether values of it are of this sort.
    fn fits(self, value: &Value) -> bool {
        match (self, value) {
            (Self::Text, Value::Text(_))
            | (Self::Integer, Value::Integer(_))
            | (Self::Number, Value::Number(_))
            | (Self::Time, Value::Time(_))
            | (Self::Age, Value::Age(_)) => true,
            (Self::Word(words), Value::Text(text)) => words.contains(&text.as_str()),
            (
                Self::Text | Self::Word(_) | Self::Integer | Self::Number | Self::Time | Self::Age,
                _,
            ) => false,
        }
    }

    /// Refuses a test that compares with a value of another type: the error names the field.
    pub fn check(self, field: &str, test: &Test) -> Result<(), FieldError> {
        let wrong = |problem| Err(FieldError::new(field, problem));
        if matches!(test, Test::Starts(_)) && !self.is_text() {
            return wrong("is no text: only texts start with something".to_owned());
        }
        if !matches!(test, Test::Starts(_)) && !test.values().all(|it| self.fits(&it)) {
            return wrong(format!("must be compared with {}", self.expected()));
        }
        test.check().map_err(|it| FieldError::new(field, it.problem))
    }

    /// Whether it has texts that start with something.
    pub(crate) fn is_text(self) -> bool {
        match self {
            Self::Text => true,
            Self::Word(_) | Self::Integer | Self::Number | Self::Time | Self::Age => false,
        }
    }
}

fn whole_ms(time: Duration) -> Option<u64> {
    let ms = u64::try_from(time.as_millis()).ok()?;
    (Duration::from_millis(ms) == time).then_some(ms)
}

impl From<FieldType> for Kind {
    fn from(is: FieldType) -> Self {
        match is {
            FieldType::String | FieldType::Strings => Self::Text,
            FieldType::Int | FieldType::Long | FieldType::Ints | FieldType::Longs => Self::Integer,
            FieldType::Double | FieldType::Doubles => Self::Number,
        }
    }
}

/// All names that a filter may use.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fields {
    names: BTreeMap<SmolStr, Kind>,
    /// Names that begin so have any rest: `attr.`.
    families: BTreeMap<SmolStr, Kind>,
}

impl Fields {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a name.
    #[must_use]
    pub fn with(mut self, name: &str, kind: Kind) -> Self {
        self.names.insert(name.into(), kind);
        self
    }

    /// Adds all names that begin so and go on: `attr.` for `attr.user`.
    #[must_use]
    pub fn with_family(mut self, begin: &str, kind: Kind) -> Self {
        self.families.insert(begin.into(), kind);
        self
    }

    /// The type of a field, if there is one of that name.
    pub fn kind(&self, name: &str) -> Option<Kind> {
        let family = || {
            let is_of = |begin: &str| name.len() > begin.len() && name.starts_with(begin);
            self.families.iter().find(|it| is_of(it.0)).map(|it| *it.1)
        };
        self.names.get(name).copied().or_else(family)
    }

    /// The type of a field. An error has that name and lists those that there are.
    pub fn check(&self, name: &str) -> Result<Kind, FieldError> {
        self.kind(name).ok_or_else(|| FieldError::new(name, self.unknown()))
    }

    /// What is wrong with a name that is not there.
    pub(crate) fn unknown(&self) -> String {
        format!("is no known field; there are {}", self.listed())
    }

    /// The names, for messages.
    pub(crate) fn listed(&self) -> String {
        let families = self.families.keys().map(|it| format!("{it}NAME"));
        let all: Vec<String> =
            self.names.keys().map(ToString::to_string).chain(families).take(LISTED_MAX).collect();
        all.join(", ")
    }
}
