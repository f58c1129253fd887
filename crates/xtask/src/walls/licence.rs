//! Licence expressions (SPDX 2.3 annex D): `MIT OR (Apache-2.0 WITH LLVM-exception AND ISC)`, and
//! the old form `MIT/Apache-2.0`.

/// Whether allowed licences alone satisfy the expression. An expression that does not parse is not
/// satisfied.
pub(super) fn satisfied(expression: &str, allowed: &[&str]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<_> = spaced.split_whitespace().collect();
    let mut parser = Parser { words: &words, allowed };
    parser.any_of() == Some(true) && parser.words.is_empty()
}

struct Parser<'a> {
    words: &'a [&'a str],
    allowed: &'a [&'a str],
}

impl<'a> Parser<'a> {
    fn any_of(&mut self) -> Option<bool> {
        let mut good = self.all_of()?;
        while self.take("OR") {
            good |= self.all_of()?;
        }
        Some(good)
    }

    /// AND binds tighter than OR.
    fn all_of(&mut self) -> Option<bool> {
        let mut good = self.one()?;
        while self.take("AND") {
            good &= self.one()?;
        }
        Some(good)
    }

    fn one(&mut self) -> Option<bool> {
        if self.take("(") {
            let good = self.any_of()?;
            return self.take(")").then_some(good);
        }
        let name = self.next()?;
        if self.take("WITH") {
            let with_exception = format!("{name} WITH {}", self.next()?);
            return Some(self.allowed.contains(&with_exception.as_str()));
        }
        Some(self.allowed.contains(&name))
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.words.first() == Some(&word);
        if found {
            self.words = &self.words[1..];
        }
        found
    }

    fn next(&mut self) -> Option<&'a str> {
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::satisfied;

    #[test]
    fn expressions_are_fulfilled_by_allowed_licences_only() {
        let allowed = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"];
        for (expression, expected) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("GPL-3.0 OR MIT", true),
            ("MIT/Apache-2.0", true),
            ("MIT AND GPL-3.0", false),
            ("ISC AND (Apache-2.0 OR ISC)", true),
            ("MIT OR GPL-3.0 AND BSD", true),
            ("(MIT OR GPL-3.0) AND BSD", false),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("Apache-2.0 WITH other", false),
            ("Apache-2.0", false),
            ("", false),
            ("(MIT", false),
            ("MIT ISC", false),
            ("MIT OR", false),
        ] {
            assert_eq!(satisfied(expression, &allowed), expected, "{expression}");
        }
    }
}
