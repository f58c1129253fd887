//! Values that are one of a few words.

/// Declares an enum whose values are words of the file: `name` is the word of a value, `ALL` has
/// the values in order, and `FromStr` reads a word. The text after the name is the kind of word
/// in the error for another word; a second text follows the word there.
///
/// ```text
/// words! {
///     /// The format of a log line.
///     pub enum LogFormat: "format" {
///         /// Readable text.
///         #[default]
///         Text = "text",
///     }
/// }
/// ```
macro_rules! words {
    ($(#[$outer:meta])* pub enum $name:ident: $what:literal $($of:literal)? {
        $($(#[$inner:meta])* $variant:ident = $word:literal,)+
    }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$inner])* $variant,)+
        }

        impl $name {
            /// All values.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The word in the file.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::BadValue;

            fn from_str(text: &str) -> Result<Self, $crate::BadValue> {
                Self::ALL.iter().copied().find(|one| one.name() == text).ok_or_else(|| {
                    let what = format!(concat!($what, " `{}`" $(, " ", $of)?), text);
                    $crate::problem::unknown(&what, text, &[$($word),+])
                })
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}
pub(crate) use words;
