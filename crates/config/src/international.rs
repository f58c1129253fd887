//! Host names with letters beyond ASCII in the form that DNS, certificates and requests use: `xn--`
//! (RFC 5891), mapped and checked as browsers do it (UTS 46, without the transitional mapping).

use std::borrow::Cow;

use idna::AsciiDenyList;
use idna::uts46::{DnsLength, Hyphens, Uts46};

use crate::BadValue;

/// The ASCII form of a name: `bücher.example` is `xn--bcher-kva.example`. A name in ASCII is
/// returned unchanged; the caller checks its characters and its length.
///
/// # Errors
/// The name has a character that is not allowed in host names, or mixes writing directions.
pub(crate) fn ascii(name: &str) -> Result<Cow<'_, str>, BadValue> {
    if name.is_ascii() {
        return Ok(Cow::Borrowed(name));
    }
    let mapped = Uts46::new().to_ascii(
        name.as_bytes(),
        AsciiDenyList::EMPTY,
        Hyphens::CheckFirstLast,
        DnsLength::Ignore,
    );
    mapped.map_err(|_| {
        BadValue::new(format!("`{name}` is not an international host name (IDNA)"))
            .hint("write the name as DNS has it: xn--…")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_has_the_form_that_browsers_ask_for() {
        for (name, wanted) in [
            ("bücher.example.com", "xn--bcher-kva.example.com"),
            ("BÜCHER.Example.com.", "xn--bcher-kva.example.com."),
            // The letter u and a combining diaeresis.
            ("bu\u{308}cher.example", "xn--bcher-kva.example"),
            ("faß.example", "xn--fa-hia.example"),
            ("例え。テスト", "xn--r8jz45g.xn--zckzah"),
            ("_dmarc.bücher.example", "_dmarc.xn--bcher-kva.example"),
            ("App.Example.com", "App.Example.com"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ] {
            assert_eq!(ascii(name).as_deref(), Ok(wanted), "{name}");
        }
        // Hebrew and Latin in one label; an unassigned character; a hyphen at the begin.
        for bad in ["\u{5d0}a.example", "a\u{378}.example", "-ü.example", "ü-.example"] {
            let why = ascii(bad).unwrap_err();
            assert!(why.hint.is_some_and(|hint| hint.contains("xn--")), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn the_result_is_ascii_and_stays_the_same(name in "\\PC{0,40}") {
            if let Ok(once) = ascii(&name) {
                prop_assert!(once.is_ascii());
                let twice = ascii(&once);
                prop_assert_eq!(twice.as_deref(), Ok(&*once));
            }
        }
    }
}
