//! The code point of differentiated services, by which routers choose the queue of a packet.

use std::fmt;

/// A code point (DSCP, RFC 2474): six bits in the IP header of each packet, beside the two bits of
/// ECN. The default is 0, best effort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dscp(u8);

/// The names of code points: RFC 2474 (DF, CS), RFC 2597 (AF), RFC 3246 (EF), RFC 5865 (VA), RFC
/// 8622 (LE).
const NAMES: [(&str, u8); 24] = [
    ("DF", 0),
    ("CS0", 0),
    ("LE", 1),
    ("CS1", 8),
    ("AF11", 10),
    ("AF12", 12),
    ("AF13", 14),
    ("CS2", 16),
    ("AF21", 18),
    ("AF22", 20),
    ("AF23", 22),
    ("CS3", 24),
    ("AF31", 26),
    ("AF32", 28),
    ("AF33", 30),
    ("CS4", 32),
    ("AF41", 34),
    ("AF42", 36),
    ("AF43", 38),
    ("CS5", 40),
    ("VA", 44),
    ("EF", 46),
    ("CS6", 48),
    ("CS7", 56),
];

impl Dscp {
    /// The largest number.
    pub const MAX: u8 = 63;

    /// The code point of a number. `None`: the number is more than [`Self::MAX`].
    #[must_use]
    pub const fn new(number: u8) -> Option<Self> {
        if number <= Self::MAX { Some(Self(number)) } else { None }
    }

    /// The code point of a name in any case, such as `EF`.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        let found = NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, number)| Self(*number))
    }

    /// The number, from 0 to [`Self::MAX`].
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Whether this is best effort, the code point of an unmarked packet.
    #[must_use]
    pub const fn is_default(self) -> bool {
        self.0 == 0
    }
}

/// The name, or the number of a code point without a name.
impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_numbers_of_their_documents() {
        // RFC 2597: class 1 to 4 and drop precedence 1 to 3 are `class << 3 | precedence << 1`.
        for class in 1..=4_u8 {
            for precedence in 1..=3_u8 {
                let number = class << 3 | precedence << 1;
                let found = Dscp::of_name(&format!("AF{class}{precedence}"));
                assert_eq!(found, Dscp::new(number));
            }
        }
        // RFC 2474 section 4.2.2: the three bits of the class selector are the upper ones.
        for class in 0..=7_u8 {
            assert_eq!(Dscp::of_name(&format!("cs{class}")), Dscp::new(class << 3));
        }
        for (name, number) in [("EF", 0b10_1110), ("VA", 0b10_1100), ("le", 1), ("DF", 0)] {
            assert_eq!(Dscp::of_name(name), Dscp::new(number));
        }
        for wrong in ["", "EF ", "AF", "AF14", "AF51", "CS8", "46"] {
            assert_eq!(Dscp::of_name(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_code_point_has_six_bits_and_is_shown_by_its_name() {
        assert_eq!(Dscp::new(64), None);
        let shown = |number| Dscp::new(number).unwrap().to_string();
        assert_eq!([shown(0), shown(46), shown(63)], ["DF", "EF", "63"]);
    }
}
