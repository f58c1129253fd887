//! The colours of states on a terminal.

/// The severity of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Healthy: green.
    Good,
    /// Not serving now, but this may change by itself: yellow.
    Waits,
    /// The user must act: red.
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
