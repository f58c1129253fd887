//! What may be logged: a level, or directives by part of the program.

const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

/// A level, or directives. A word alone that is no level is a directive, too: for the part of that
/// name, which silences all others. Nobody means that.
pub fn levels(text: &str) -> Result<String, String> {
    for directive in text.split(',') {
        let (part, level) = directive.rsplit_once('=').unwrap_or(("_", directive));
        // Its own parser takes numbers, and nothing at all for `error`.
        if !LEVELS.contains(&level) {
            return Err(format!("`{level}` is no level: {}", LEVELS.join(", ")));
        }
        let is_path = |c: char| c.is_ascii_alphanumeric() || "_:".contains(c);
        if part.is_empty()
            || part.starts_with(|c: char| c.is_ascii_digit() || c == ':')
            || !part.chars().all(is_path)
        {
            return Err(format!("`{part}` is no part of this program, like link or relay::dial"));
        }
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_a_word_of_six_and_may_be_for_a_part() {
        for good in ["info", "off", "info,link=debug", "relay::dial=trace,warn"] {
            assert_eq!(levels(good).as_deref(), Ok(good));
        }
        for bad in
            ["", "INFO", "3", "loud", "link", "info,", "=info", "a b=info", "1=info", "a=b=info"]
        {
            assert!(levels(bad).is_err(), "{bad}");
        }
    }
}
