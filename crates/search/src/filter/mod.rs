//! The filter language: conditions as text.
//!
//! ```text
//! filter    = [ condition { "and" condition } ]
//! condition = field operator value | field "starts" value | field "in" range
//! operator  = "=" | "<" | "<=" | ">" | ">="
//! range     = ( "[" | "(" ) value "," value ( "]" | ")" )
//! ```
//! `[` and `]` include the end of a range, `(` and `)` leave it out. A field or a value is a word of
//! letters, digits and `_ - . : / @ +`, or a text in quotes with `\" \\ \n \r \t \u{...}`.

mod lexer;
mod parse;
mod print;

use crate::fields::Fields;
use crate::value::{Condition, Value};
use rota_model::{FieldError, Stamp};
use std::fmt;

/// Longest text of a filter, in bytes.
pub const FILTER_BYTES_MAX: usize = 4_096;
/// Most conditions of a filter or a query.
pub const CONDITIONS_MAX: usize = 16;

/// Conditions that must all hold. Its text is printed by `Display`, and reads as the same filter.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Filter {
    /// In the order of the text. None: everything is selected.
    pub conditions: Vec<Condition>,
}

/// Whatever a filter can be asked about: a session, a task.
pub trait Values {
    /// Calls `each` with every value of a field; of a field that is not there, never.
    fn values(&self, field: &str, each: &mut dyn FnMut(&Value));
}

impl Filter {
    /// From its text. An error has the field `filter`, and tells the column and what was expected there.
    pub fn parse(text: &str, fields: &Fields) -> Result<Self, FieldError> {
        parse::parse(text, fields)
    }

    /// About how many bytes it holds.
    pub fn bytes(&self) -> usize {
        let texts = |it: &Condition| it.test.values().map(|it| it.heap_bytes()).sum::<usize>();
        self.conditions.iter().map(|it| size_of::<Condition>() + texts(it)).sum()
    }

    /// Whether every condition holds for one value of its field.
    pub fn matches(&self, of: &dyn Values, now: Stamp) -> bool {
        self.conditions.iter().all(|condition| {
            let mut holds = false;
            of.values(&condition.field, &mut |value| {
                holds = holds || condition.test.holds(value, now);
            });
            holds
        })
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print::filter(f, &self.conditions)
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        print::condition(f, self)
    }
}

#[cfg(test)]
mod tests;
