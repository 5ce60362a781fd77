//! From tokens to conditions.

use super::lexer::{Token, mistake, tokens};
use super::{CONDITIONS_MAX, FILTER_BYTES_MAX, Filter};
use crate::fields::{Fields, Kind};
use crate::value::{Condition, Test, Value};
use rota_model::FieldError;
use smol_str::SmolStr;
use std::ops::Bound;

struct Parser<'a> {
    tokens: std::vec::IntoIter<(usize, Token)>,
    fields: &'a Fields,
}

pub(super) fn parse(text: &str, fields: &Fields) -> Result<Filter, FieldError> {
    if text.len() > FILTER_BYTES_MAX {
        let problem = format!("is {} bytes long; the limit is {FILTER_BYTES_MAX}", text.len());
        return Err(FieldError::new("filter", problem));
    }
    let mut parser = Parser { tokens: tokens(text)?.into_iter(), fields };
    let mut conditions = Vec::new();
    let (mut column, mut token) = parser.next();
    while conditions.is_empty() && token != Token::End || !conditions.is_empty() {
        if conditions.len() == CONDITIONS_MAX {
            let problem = format!("there are more than {CONDITIONS_MAX} conditions");
            return Err(mistake(column, &problem));
        }
        conditions.push(parser.condition(column, token)?);
        match parser.next() {
            (_, Token::End) => break,
            (_, Token::Word(word)) if word.eq_ignore_ascii_case("and") => {}
            (column, other) => {
                let problem =
                    format!("{} cannot stand here; expected `and` or the end", other.shown());
                return Err(mistake(column, &problem));
            }
        }
        (column, token) = parser.next();
    }
    Ok(Filter { conditions })
}

impl Parser<'_> {
    fn next(&mut self) -> (usize, Token) {
        self.tokens.next().unwrap_or((0, Token::End))
    }

    fn condition(&mut self, column: usize, token: Token) -> Result<Condition, FieldError> {
        let field: SmolStr = match token {
            Token::Word(text) | Token::Quoted(text) => text.into(),
            Token::Mark(_) | Token::End => {
                let (shown, names) = (token.shown(), self.fields.listed());
                let problem = format!("{shown} cannot stand here; expected a field: {names}");
                return Err(mistake(column, &problem));
            }
        };
        let Some(kind) = self.fields.kind(&field) else {
            return Err(mistake(column, &format!("{field:?} {}", self.fields.unknown())));
        };
        let test = self.test(&field, kind)?;
        Ok(Condition { field, test })
    }

    fn test(&mut self, field: &str, kind: Kind) -> Result<Test, FieldError> {
        let (column, token) = self.next();
        let operator = match &token {
            Token::Word(word) => word.to_ascii_lowercase(),
            Token::Mark(mark) => (*mark).to_owned(),
            Token::Quoted(_) | Token::End => String::new(),
        };
        Ok(match operator.as_str() {
            "=" => Test::Eq(self.value(field, kind)?),
            "<" => Test::Within(Bound::Unbounded, Bound::Excluded(self.value(field, kind)?)),
            "<=" => Test::Within(Bound::Unbounded, Bound::Included(self.value(field, kind)?)),
            ">" => Test::Within(Bound::Excluded(self.value(field, kind)?), Bound::Unbounded),
            ">=" => Test::Within(Bound::Included(self.value(field, kind)?), Bound::Unbounded),
            "in" => self.range(field, kind)?,
            "starts" if kind.is_text() => match self.value(field, kind)? {
                Value::Text(text) => Test::Starts(text),
                Value::Integer(_) | Value::Number(_) | Value::Time(_) | Value::Age(_) => {
                    unreachable!("a text reads as a text")
                }
            },
            "starts" => {
                let expected = kind.expected();
                let problem = format!(
                    "`starts` is for texts, and {field} is {expected}; expected one of = < <= > >= in"
                );
                return Err(mistake(column, &problem));
            }
            _ => {
                let shown = token.shown();
                let problem =
                    format!("{shown} is no operator; expected one of = < <= > >= starts in");
                return Err(mistake(column, &problem));
            }
        })
    }

    fn value(&mut self, field: &str, kind: Kind) -> Result<Value, FieldError> {
        let (column, token) = self.next();
        let text = match &token {
            Token::Word(text) | Token::Quoted(text) => Some(text),
            Token::Mark(_) | Token::End => None,
        };
        text.and_then(|it| kind.read(it)).ok_or_else(|| {
            let (shown, expected) = (token.shown(), kind.expected());
            mistake(column, &format!("{shown} is no value of {field}; expected {expected}"))
        })
    }

    fn mark(&mut self, marks: [&'static str; 2]) -> Result<&'static str, FieldError> {
        let (column, token) = self.next();
        match token {
            Token::Mark(mark) if marks.contains(&mark) => Ok(mark),
            Token::Mark(_) | Token::Word(_) | Token::Quoted(_) | Token::End => {
                let (shown, [one, two]) = (token.shown(), marks);
                let wanted =
                    if one == two { format!("`{one}`") } else { format!("`{one}` or `{two}`") };
                Err(mistake(column, &format!("{shown} cannot stand here; expected {wanted}")))
            }
        }
    }

    fn range(&mut self, field: &str, kind: Kind) -> Result<Test, FieldError> {
        let column = self.tokens.as_slice().first().map_or(0, |it| it.0);
        let bound = |value, is_in: bool| {
            if is_in { Bound::Included(value) } else { Bound::Excluded(value) }
        };
        let begin = self.mark(["[", "("])?;
        let low = self.value(field, kind)?;
        self.mark([",", ","])?;
        let high = self.value(field, kind)?;
        let end = self.mark(["]", ")"])?;
        let test = Test::Within(bound(low, begin == "["), bound(high, end == "]"));
        test.check().map_err(|it| mistake(column, &format!("{field} {}", it.problem)))?;
        Ok(test)
    }
}
