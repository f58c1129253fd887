//! Characters that no text of the protocol contains, because text of a peer reaches log files and
//! terminals: a line break forges a log line, ESC starts a terminal escape sequence, and an
//! override of the writing direction displays a text that differs from the bytes.

use std::borrow::Cow;

/// Whether the character is forbidden: a control character of C0 or C1, DEL, a line or paragraph
/// separator (U+2028, U+2029), or a formatting character of the bidirectional algorithm (Unicode
/// Standard Annex #9, section 2).
#[must_use]
pub fn is_forbidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        )
}

/// The text with each forbidden character as an escape: `\n`, `\u{1b}`. A text without such
/// characters is returned as it is.
#[must_use]
pub fn escaped(text: &str) -> Cow<'_, str> {
    escaped_but(text, &[])
}

/// As [`escaped`], but the characters of `kept` are not escaped.
#[must_use]
pub fn escaped_but<'a>(text: &'a str, kept: &[char]) -> Cow<'a, str> {
    let is_bad = |c: char| is_forbidden(c) && !kept.contains(&c);
    if !text.contains(is_bad) {
        return Cow::Borrowed(text);
    }
    let mut clean = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_bad(c) {
            // Short forms for the characters that are commonly known by them.
            match c {
                '\n' | '\r' | '\t' => clean.extend(c.escape_default()),
                _ => clean.extend(c.escape_unicode()),
            }
        } else {
            clean.push(c);
        }
    }
    Cow::Owned(clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_or_a_log_would_obey_is_escaped_and_nothing_else() {
        let plain = "größe 日本 🚇 \u{a0}x";
        assert!(matches!(escaped(plain), Cow::Borrowed(text) if text == plain));
        for (text, shown) in [
            ("a\nb\r\tc", "a\\nb\\r\\tc"),
            ("\u{1b}[31m", "\\u{1b}[31m"),
            ("\u{9b}2J", "\\u{9b}2J"),
            ("\u{7f}\0", "\\u{7f}\\u{0}"),
            ("a\u{2028}b\u{2029}", "a\\u{2028}b\\u{2029}"),
            ("\u{202e}exe.\u{2066}", "\\u{202e}exe.\\u{2066}"),
            ("\u{200f}", "\\u{200f}"),
        ] {
            assert_eq!(escaped(text), shown);
        }
        assert_eq!(escaped_but("a\n\u{1b}", &['\n']), "a\n\\u{1b}");
    }
}
