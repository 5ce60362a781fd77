//! Names of folders that a person finds: a text as one name of a file system, whatever the text is.

use sha2::{Digest, Sha256};
use std::fmt::Write;

/// Longest name. File systems take 255 bytes; programs may add the path of a socket of theirs, of which the kernel
/// takes some hundred.
pub const NAME_BYTES_MAX: usize = 120;

/// Digits of the digest that ends the name of a long text: 160 bits, so that nobody finds two texts with one name.
const DIGEST_DIGITS: usize = 40;

/// Between the beginning of a long text and its digest. It stands in no other name.
const CUT: char = '~';

/// The name of the empty text. No other text has it: a `%` has two digits behind it.
const EMPTY: &str = "%";

/// The text with every byte as `%XX` that is none of the letters and digits of ASCII, `-`, `_`, `.`, `@`, `+`, `,` and `=`, and with
/// `.` and `-` as `%XX` at the beginning: no name is `.` or `..`, is hidden or looks like an option.
///
/// Different texts have different names. A name of more than [`NAME_BYTES_MAX`] bytes keeps its beginning and gets
/// `~` and a digest of the text.
pub fn folder_name(text: &str) -> String {
    if text.is_empty() {
        return EMPTY.to_owned();
    }
    let mut name = String::with_capacity(text.len());
    // Where a long name may be cut: before the last unit that does not fit beside the digest.
    let mut cut = 0;
    for (at, byte) in text.bytes().enumerate() {
        let plain = byte.is_ascii_alphanumeric()
            || b"_@+,=".contains(&byte)
            || (at > 0 && b".-".contains(&byte));
        if plain {
            name.push(char::from(byte));
        } else {
            write!(name, "%{byte:02X}").expect("a text takes all");
        }
        if name.len() + 1 + DIGEST_DIGITS <= NAME_BYTES_MAX {
            cut = name.len();
        }
    }
    if name.len() <= NAME_BYTES_MAX {
        return name;
    }
    name.truncate(cut);
    name.push(CUT);
    for byte in &Sha256::digest(text.as_bytes())[..DIGEST_DIGITS / 2] {
        write!(name, "{byte:02x}").expect("a text takes all");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The text of a name that is not cut.
    fn text_of(name: &str) -> Option<String> {
        if name == EMPTY {
            return Some(String::new());
        }
        let (mut bytes, mut rest) = (Vec::new(), name.as_bytes());
        while let Some((first, more)) = rest.split_first() {
            let (byte, more) = match first {
                b'%' => {
                    let (digits, more) = more.split_at_checked(2)?;
                    (u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?, more)
                }
                _ => (*first, more),
            };
            bytes.push(byte);
            rest = more;
        }
        String::from_utf8(bytes).ok()
    }

    #[test]
    fn names_are_such_as_a_person_expects() {
        for (text, name) in [
            ("demo", "demo"),
            ("user.42@example.com", "user.42@example.com"),
            ("../x y", "%2E.%2Fx%20y"),
            (".", "%2E"),
            ("..", "%2E."),
            ("-rf *", "%2Drf%20%2A"),
            ("a/b~c%", "a%2Fb%7Ec%25"),
            ("é", "%C3%A9"),
            ("", "%"),
        ] {
            assert_eq!(folder_name(text), name);
        }
        let long = folder_name(&"/".repeat(255));
        assert_eq!(long.len(), 78 + 1 + 40, "{long}");
        assert!(long.starts_with("%2F%2F") && long.as_bytes()[78] == b'~', "{long}");
    }

    proptest! {
        #[test]
        fn a_name_is_one_that_every_file_system_takes(text in any::<String>()) {
            let name = folder_name(&text);
            prop_assert!(!name.is_empty() && name.len() <= NAME_BYTES_MAX);
            prop_assert!(!name.starts_with(['.', '-']));
            prop_assert!(name.bytes().all(|it| it.is_ascii_graphic() && it != b'/'));
        }

        #[test]
        fn a_short_name_leads_back_to_its_text(text in any::<String>()) {
            let name = folder_name(&text);
            if !name.contains(CUT) {
                prop_assert_eq!(text_of(&name), Some(text));
            }
        }

        #[test]
        fn texts_that_differ_have_names_that_differ(
            head in "[a./%~é-]{0,300}", one in "[a./%~é-]{0,3}", other in "[a./%~é-]{0,3}"
        ) {
            let (one, other) = (format!("{head}{one}"), format!("{head}{other}"));
            prop_assert_eq!(one == other, folder_name(&one) == folder_name(&other));
        }
    }
}
