//! Characters that must not stand in names, and that texts of strangers are shown without.

/// Whether a character makes a text look like another one, or does something to whatever shows it:
/// control characters, and those that turn the direction of writing.
pub fn misleads(it: char) -> bool {
    let turns = matches!(it, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}');
    turns || it.is_control()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_controls_or_turns_a_text_misleads_and_other_writing_does_not() {
        for it in ['\0', '\n', '\u{7f}', '\u{9b}', '\u{200f}', '\u{202e}', '\u{2066}', '\u{2069}'] {
            assert!(misleads(it), "{it:?}");
        }
        // A joiner is part of words, and of emoji.
        assert!("Zoë, שלום, سلام, 世界, \u{200d}".chars().all(|it| !misleads(it)));
    }
}
