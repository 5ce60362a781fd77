//! Values of fields, and what conditions ask of them.

use rota_docstore::FieldValue;
use rota_model::{FieldError, Stamp};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::ops::Bound;

/// So many letters of a text an index keeps and orders by. The rest is compared in the document. Letters
/// and not bytes: what is cut must stand in the same order as the whole.
pub const LETTERS_KEPT: usize = 64;

/// A number that is finite, ordered by size.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Number(f64);

impl Number {
    /// From a finite number. Both zeros are one.
    pub fn new(number: f64) -> Option<Self> {
        number.is_finite().then_some(Self(if number == 0.0 { 0.0 } else { number }))
    }

    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Number {
    type Error = &'static str;
    fn try_from(number: f64) -> Result<Self, &'static str> {
        Self::new(number).ok_or("the number is not finite")
    }
}

impl From<Number> for f64 {
    fn from(number: Number) -> f64 {
        number.0
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Number {}

/// As they are equal: by their bits, of which one zero has one form.
impl Hash for Number {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

/// A value of a field, or what a condition compares it with.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Value {
    /// A text; ordered by its bytes.
    Text(SmolStr),
    /// An integer.
    Integer(i64),
    /// A number with a fraction.
    Number(Number),
    /// A moment.
    Time(Stamp),
    /// Milliseconds since a moment. Only conditions have it; the field has the moment.
    Age(u64),
}

impl Value {
    /// A text.
    pub fn text(text: &str) -> Self {
        Self::Text(text.into())
    }

    /// As an index keeps it.
    pub(crate) fn kept(self) -> Self {
        match self {
            Self::Text(text) if text.len() > LETTERS_KEPT => Self::text(cut(&text)),
            Self::Text(_) | Self::Integer(_) | Self::Number(_) | Self::Time(_) | Self::Age(_) => {
                self
            }
        }
    }

    /// Bytes that it takes beside itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        match self {
            // A shared text has two counters before it.
            Self::Text(text) if text.is_heap_allocated() => text.len() + 16,
            Self::Text(_) | Self::Integer(_) | Self::Number(_) | Self::Time(_) | Self::Age(_) => 0,
        }
    }

    /// Whether an index may keep another, longer value under this one.
    fn may_be_cut(&self) -> bool {
        match self {
            Self::Text(text) => text.chars().count() >= LETTERS_KEPT,
            Self::Integer(_) | Self::Number(_) | Self::Time(_) | Self::Age(_) => false,
        }
    }
}

fn cut(text: &str) -> &str {
    let end = text.char_indices().nth(LETTERS_KEPT).map_or(text.len(), |it| it.0);
    &text[..end]
}

impl TryFrom<FieldValue> for Value {
    type Error = ();
    fn try_from(value: FieldValue) -> Result<Self, ()> {
        match value {
            FieldValue::String(text) => Ok(Self::Text(text.into())),
            FieldValue::Long(number) => Ok(Self::Integer(number)),
            FieldValue::Double(number) => Number::new(number).map(Self::Number).ok_or(()),
        }
    }
}

/// The nine conditions of the source text, by its names. Of ranges the first half tells of the lower
/// bound and the second of the upper one: `LTGE` is `low < value and high >= value`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs, reason = "each has the name that the source text explains")]
pub enum Comparison {
    Eq,
    Sw,
    Lt,
    Le,
    Ge,
    Gt,
    LtGe,
    LtGt,
    LeGe,
    LeGt,
}

impl Comparison {
    /// All, with their names.
    pub const ALL: [(&'static str, Self); 10] = [
        ("EQ", Self::Eq),
        ("SW", Self::Sw),
        ("LT", Self::Lt),
        ("LE", Self::Le),
        ("GE", Self::Ge),
        ("GT", Self::Gt),
        ("LTGE", Self::LtGe),
        ("LTGT", Self::LtGt),
        ("LEGE", Self::LeGe),
        ("LEGT", Self::LeGt),
    ];

    /// By its name. An error names the field `comparison` and lists all.
    pub fn parse(name: &str) -> Result<Self, FieldError> {
        let found = Self::ALL.into_iter().find(|it| it.0 == name);
        found.map(|it| it.1).ok_or_else(|| {
            let all = Self::ALL.map(|it| it.0).join(", ");
            FieldError::new("comparison", format!("{name:?} is unknown; expected one of {all}"))
        })
    }
}

/// What a condition asks of one value.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Test {
    /// Equal.
    Eq(Value),
    /// A text that begins so.
    Starts(SmolStr),
    /// Between two bounds, of which one may be missing.
    Within(Bound<Value>, Bound<Value>),
}

impl Test {
    /// From the source text's names: the four ranges have two values, all others have one. Field: `value`.
    pub fn new(
        comparison: Comparison,
        value: Value,
        second: Option<Value>,
    ) -> Result<Self, FieldError> {
        use Bound::{Excluded, Included, Unbounded};
        use Comparison::{Eq, Ge, Gt, Le, LeGe, LeGt, Lt, LtGe, LtGt, Sw};
        let wrong = |problem: &str| Err(FieldError::new("value", problem));
        let test = match (comparison, second) {
            (Eq, None) => Self::Eq(value),
            (Sw, None) => match value {
                Value::Text(text) => Self::Starts(text),
                Value::Integer(_) | Value::Number(_) | Value::Time(_) | Value::Age(_) => {
                    return wrong("must be a text: only texts start with something");
                }
            },
            (Lt, None) => Self::Within(Unbounded, Excluded(value)),
            (Le, None) => Self::Within(Unbounded, Included(value)),
            (Ge, None) => Self::Within(Included(value), Unbounded),
            (Gt, None) => Self::Within(Excluded(value), Unbounded),
            (LtGe, Some(high)) => Self::Within(Excluded(value), Included(high)),
            (LtGt, Some(high)) => Self::Within(Excluded(value), Excluded(high)),
            (LeGe, Some(high)) => Self::Within(Included(value), Included(high)),
            (LeGt, Some(high)) => Self::Within(Included(value), Excluded(high)),
            (Eq | Sw | Lt | Le | Ge | Gt, Some(_)) => return wrong("must be one, and is two"),
            (LtGe | LtGt | LeGe | LeGt, None) => return wrong("must be two, and is one"),
        };
        test.check()?;
        Ok(test)
    }

    /// Refuses a range without an end, with ends of two types, or the wrong way round: field `value`.
    pub(crate) fn check(&self) -> Result<(), FieldError> {
        let Self::Within(low, high) = self else { return Ok(()) };
        if end_of(low).is_none() && end_of(high).is_none() {
            return Err(FieldError::new("value", "must be there: the range has no end"));
        }
        let (Some(low), Some(high)) = (end_of(low), end_of(high)) else { return Ok(()) };
        if std::mem::discriminant(low) != std::mem::discriminant(high) {
            return Err(FieldError::new("value", "must be two of one type"));
        }
        if low > high {
            return Err(FieldError::new("value", "must be a range from low to high"));
        }
        Ok(())
    }

    /// The values that it names.
    pub fn values(&self) -> impl Iterator<Item = Value> {
        let [one, two] = match self {
            Self::Eq(value) => [Some(value.clone()), None],
            Self::Starts(text) => [Some(Value::Text(text.clone())), None],
            Self::Within(low, high) => [low, high].map(|it| end_of(it).cloned()),
        };
        one.into_iter().chain(two)
    }

    /// Whether a value is as asked. An age is compared with how long ago a moment was; of one that is
    /// still to come that is 0.
    pub fn holds(&self, value: &Value, now: Stamp) -> bool {
        let compare = |with: &Value| match (value, with) {
            (Value::Time(since), Value::Age(age)) => {
                Some(now.ms_since(*since).unwrap_or(0).cmp(age))
            }
            (Value::Text(one), Value::Text(two)) => Some(one.cmp(two)),
            (Value::Integer(one), Value::Integer(two)) => Some(one.cmp(two)),
            (Value::Number(one), Value::Number(two)) => Some(one.cmp(two)),
            (Value::Time(one), Value::Time(two)) => Some(one.cmp(two)),
            (
                Value::Text(_)
                | Value::Integer(_)
                | Value::Number(_)
                | Value::Time(_)
                | Value::Age(_),
                _,
            ) => None,
        };
        match self {
            Self::Eq(with) => compare(with).is_some_and(Ordering::is_eq),
            Self::Starts(begin) => match value {
                Value::Text(text) => text.starts_with(begin.as_str()),
                Value::Integer(_) | Value::Number(_) | Value::Time(_) | Value::Age(_) => false,
            },
            Self::Within(low, high) => {
                let above = match low {
                    Bound::Unbounded => true,
                    Bound::Included(low) => compare(low).is_some_and(Ordering::is_ge),
                    Bound::Excluded(low) => compare(low).is_some_and(Ordering::is_gt),
                };
                above
                    && match high {
                        Bound::Unbounded => true,
                        Bound::Included(high) => compare(high).is_some_and(Ordering::is_le),
                        Bound::Excluded(high) => compare(high).is_some_and(Ordering::is_lt),
                    }
            }
        }
    }

    /// Where in an index all values lie that are as asked; others may lie there, too.
    pub(crate) fn range(&self, now: Stamp) -> (Bound<Value>, Bound<Value>) {
        match self {
            Self::Eq(Value::Age(age)) => {
                let at = Bound::Included(Value::Age(*age));
                aged(&at, &at, now)
            }
            Self::Eq(value) => {
                let value = value.clone().kept();
                (Bound::Included(value.clone()), Bound::Included(value))
            }
            Self::Starts(begin) => {
                let begin = cut(begin);
                let high = after_prefix(begin).map(|it| Bound::Excluded(Value::Text(it.into())));
                (Bound::Included(Value::text(begin)), high.unwrap_or(Bound::Unbounded))
            }
            Self::Within(low, high) => match (end_of(low), end_of(high)) {
                (Some(Value::Age(_)), _) | (_, Some(Value::Age(_))) => aged(low, high, now),
                _ => (outer(low), outer(high)),
            },
        }
    }

    /// Whether all that an index has in its range is one key.
    pub(crate) fn is_one_key(&self) -> bool {
        match self {
            Self::Eq(Value::Age(_)) | Self::Starts(_) | Self::Within(..) => false,
            Self::Eq(_) => true,
        }
    }
}

pub(crate) fn end_of<T>(bound: &Bound<T>) -> Option<&T> {
    match bound {
        Bound::Included(it) | Bound::Excluded(it) => Some(it),
        Bound::Unbounded => None,
    }
}

/// A bound among values as an index keeps them.
fn outer(bound: &Bound<Value>) -> Bound<Value> {
    match bound {
        Bound::Excluded(it) if it.may_be_cut() => Bound::Included(it.clone().kept()),
        Bound::Excluded(it) => Bound::Excluded(it.clone()),
        Bound::Included(it) => Bound::Included(it.clone().kept()),
        Bound::Unbounded => Bound::Unbounded,
    }
}

/// Moments whose age lies between two bounds.
fn aged(low: &Bound<Value>, high: &Bound<Value>, now: Stamp) -> (Bound<Value>, Bound<Value>) {
    let ago = |bound: &Bound<Value>| match end_of(bound) {
        Some(Value::Age(0)) | None => Bound::Unbounded,
        Some(Value::Age(age)) => Bound::Included(Value::Time(now.minus_ms(*age))),
        Some(Value::Text(_) | Value::Integer(_) | Value::Number(_) | Value::Time(_)) => {
            Bound::Unbounded
        }
    };
    // Age 0 is that of all moments to come as well; a high bound of 0 leaves only those.
    let oldest = match end_of(high) {
        Some(Value::Age(0)) => Bound::Included(Value::Time(now)),
        _ => ago(high),
    };
    (oldest, ago(low))
}

/// The least text above all that begin so.
fn after_prefix(begin: &str) -> Option<String> {
    let mut letters: Vec<char> = begin.chars().collect();
    while let Some(last) = letters.pop() {
        if let Some(next) = (last..=char::MAX).nth(1) {
            letters.push(next);
            return Some(letters.into_iter().collect());
        }
    }
    None
}

/// A condition on a field.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Condition {
    /// The field's name.
    pub field: SmolStr,
    /// What is asked of it.
    pub test: Test,
}
