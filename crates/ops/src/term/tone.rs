//! The colours of states on a terminal.

/// What a state means for a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// All is well: green.
    Good,
    /// Nothing serves now, and this may change by itself: yellow.
    Waits,
    /// Somebody has to act: red.
    Bad,
}

impl Tone {
    /// The text in the colour of the tone (ECMA-48: SGR).
    pub(super) fn paint(self, text: &str) -> String {
        let colour = match self {
            Self::Good => 32,
            Self::Waits => 33,
            Self::Bad => 31,
        };
        if text.is_empty() { String::new() } else { format!("\x1b[{colour}m{text}\x1b[0m") }
    }
}
