//! From letters to tokens.

use rota_model::FieldError;

/// A piece of a filter's text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Token {
    /// A word without quotes.
    Word(String),
    /// A text in quotes, without them.
    Quoted(String),
    /// An operator or a bracket.
    Mark(&'static str),
    End,
}

impl Token {
    /// As it is shown in messages.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Word(text) => format!("`{text}`"),
            Self::Quoted(text) => format!("{text:?}"),
            Self::Mark(mark) => format!("`{mark}`"),
            Self::End => "the end".into(),
        }
    }
}

/// Longer ones first.
const MARKS: [&str; 10] = ["<=", ">=", "=", "<", ">", "[", "]", "(", ")", ","];

/// Whether a letter may stand in a word without quotes.
pub(super) fn is_of_word(letter: char) -> bool {
    letter.is_alphanumeric() || "_-.:/@+".contains(letter)
}

/// A mistake at a column, counted in letters from 1.
pub(super) fn mistake(column: usize, problem: &str) -> FieldError {
    FieldError::new("filter", format!("column {column}: {problem}"))
}

/// All tokens with their columns; the last one is the end.
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, FieldError> {
    let letters: Vec<char> = text.chars().collect();
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(letter) = letters.get(at) {
        let column = at + 1;
        if letter.is_whitespace() {
            at += 1;
        } else if *letter == '"' {
            let (text, next) = quoted(&letters, at)?;
            found.push((column, Token::Quoted(text)));
            at = next;
        } else if is_of_word(*letter) {
            let word: String = letters[at..].iter().take_while(|it| is_of_word(**it)).collect();
            at += word.chars().count();
            found.push((column, Token::Word(word)));
        } else {
            let is_here =
                |mark: &&str| mark.chars().eq(letters[at..].iter().copied().take(mark.len()));
            let Some(mark) = MARKS.into_iter().find(is_here) else {
                let letter = letter.escape_debug();
                let problem = format!(
                    "`{letter}` has no meaning here; expected a word, a text in quotes, or one of = < <= > >="
                );
                return Err(mistake(column, &problem));
            };
            at += mark.len();
            found.push((column, Token::Mark(mark)));
        }
    }
    found.push((letters.len() + 1, Token::End));
    Ok(found)
}

/// A text in quotes that begins at a letter, and where it goes on behind it.
fn quoted(letters: &[char], begin: usize) -> Result<(String, usize), FieldError> {
    let (mut text, mut at) = (String::new(), begin + 1);
    loop {
        match letters.get(at) {
            None => {
                return Err(mistake(begin + 1, "the text does not end; expected a closing quote"));
            }
            Some('"') => return Ok((text, at + 1)),
            Some('\\') => {
                let (letter, next) = escaped(letters, at)?;
                text.push(letter);
                at = next;
            }
            Some(letter) => {
                text.push(*letter);
                at += 1;
            }
        }
    }
}

/// The letter that a backslash stands for, and where the text goes on.
fn escaped(letters: &[char], at: usize) -> Result<(char, usize), FieldError> {
    let wrong = || mistake(at + 1, r#"expected one of \" \\ \n \r \t \u{...}"#);
    let simple = match letters.get(at + 1) {
        Some('"') => '"',
        Some('\\') => '\\',
        Some('n') => '\n',
        Some('r') => '\r',
        Some('t') => '\t',
        Some('u') if letters.get(at + 2) == Some(&'{') => {
            let digits: String =
                letters[at + 3..].iter().take(6).take_while(|it| **it != '}').collect();
            let end = at + 3 + digits.chars().count();
            let is_hex = digits.chars().all(|it| it.is_ascii_hexdigit());
            let code = if is_hex { u32::from_str_radix(&digits, 16).ok() } else { None };
            let letter = code.and_then(char::from_u32).ok_or_else(wrong)?;
            return if letters.get(end) == Some(&'}') {
                Ok((letter, end + 1))
            } else {
                Err(wrong())
            };
        }
        _ => return Err(wrong()),
    };
    Ok((simple, at + 2))
}
