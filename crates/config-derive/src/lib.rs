//! `#[derive(KeyTable)]`: a struct of `config` declares a map of the configuration file. Each
//! field is a key, and its attributes are the row of the key. From the struct come the table of
//! keys (and with it REFERENCE.md, the check of unknown keys, the classes of secrets), the reading
//! of the values, and the comparison of two configurations.
//!
//! ```text
//! /// The limits of the former processes.                                the struct of the model
//! #[derive(KeyTable)]
//! #[keys(compare = "upgrade")]
//! pub struct Former {
//!     /// The largest number of former processes.                        the sentence of the key
//!     #[key("number, 0-100", default = "14", live, read = number)]
//!     pub former_max: usize,
//! }
//! ```
//!
//! | attribute of a field | meaning |
//! |---|---|
//! | a text, `is = CONST` | what the value is, as in REFERENCE.md; not for `map` and `list` |
//! | `default = "60s"` | the value of an absent key, as text that the key itself could have |
//! | `none`, `none = "standard error"` | an absent key has no value; the note is for readers |
//! | `required`, `required = "hint"` | an absent key is a problem; without a hint, `with` reports it |
//! | `absent = "text"` | as `none`, where REFERENCE.md has another word for it |
//! | `note = "text"` | text in brackets behind the default |
//! | `live`, `reconnect`, `restart` | when a changed value takes effect; without it as the map |
//! | `read = f` | `f(&str) -> Result<T, BadValue>`; without it `FromStr` |
//! | `each` | the value is one text or a list of texts: a `Vec` |
//! | `with = f` | `f(&Section, key) -> Option<T>`, or `T` of an `Option` or `Vec`, reads everything |
//! | `map` | the value is a map, whose keys the type of the field declares |
//! | `flat` | the keys of the type of the field are keys of this map |
//! | `list` | the value is a list of such maps, or one of them; `with` reads it |
//! | `keys = Type` | the type that declares the keys of the map, where the field has another type |
//! | `of = "of the client"` | replaces `{of}` in the sentences of the map |
//! | `at = Name` | the place of a map whose keys depend on its place |
//! | `only(Name, …)` | the places of the map at which the key exists |
//! | `holds = Token` | the class of the content, `secrets::Holds` |
//! | `unit = "streams"` | the unit, where the text of the type does not say it |
//! | `name = "type"` | the key, where it is not the name of the field |
//! | `since = "0.2.0"` | the first version with the key |
//! | `part = "log.level"` | the field is the value of a key that another type declares |
//! | `from = window.max` | the value is this part of the value of `first` |
//! | `rank = 2` | in error messages the key stands behind keys of a lower rank |
//! | `compare` | the parts of the map are compared one by one |
//! | `differs = f` | `f(&Self) -> impl PartialEq` makes what is compared |
//!
//! `#[row(key: …)]` at the struct, or behind the attribute of a field, declares a key that has no
//! field of its own, with `text = "…"` as its sentence.
//!
//! | attribute `keys` of the struct | meaning |
//! |---|---|
//! | `read = f` | `f(&Section) -> Option<Self>` reads the map in the place of generated code |
//! | `first = f` | `f(&Section) -> Option<T>` reads what fields take with `from` |
//! | `check = f` | `f(&Section, Self) -> Option<Self>` checks the values together |
//! | `rows` | only the keys are declared: other code reads the map |
//! | `compare`, `compare = "log"` | makes `compare` and `keep_running` for two values, at this path |
//! | `later("a", "b")` | keys of a later version |

mod parse;
mod write;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Declares the keys of a map; see the documentation of this crate.
#[proc_macro_derive(KeyTable, attributes(key, keys, row))]
pub fn key_table(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    let made = parse::section(&input).and_then(|section| write::section(&section));
    made.unwrap_or_else(syn::Error::into_compile_error).into()
}
