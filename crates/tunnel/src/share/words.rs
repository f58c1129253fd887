//! The words of addresses: short, easy to spell, and free of ambiguity.

use anyhow::Context as _;

/// 64 adjectives and 64 nouns: 4,096 pairs. An address is not secret.
const FIRST: &[&str] = &[
    "amber", "bold", "brave", "brisk", "bright", "calm", "clear", "clever", "cool", "coral",
    "cosy", "crisp", "deep", "eager", "early", "easy", "fair", "fast", "fine", "firm", "fresh",
    "gentle", "glad", "golden", "good", "grand", "green", "happy", "high", "keen", "kind", "large",
    "light", "lively", "long", "lucky", "mellow", "mild", "misty", "neat", "new", "nimble",
    "noble", "plain", "proud", "quick", "quiet", "rapid", "red", "royal", "sharp", "silver",
    "slow", "smart", "smooth", "solid", "still", "sunny", "swift", "tall", "tidy", "warm", "wide",
    "young",
];

const SECOND: &[&str] = &[
    "acorn", "anchor", "apple", "badger", "beach", "bird", "boat", "breeze", "bridge", "brook",
    "cedar", "cherry", "cloud", "comet", "creek", "daisy", "dolphin", "eagle", "elm", "falcon",
    "fern", "field", "finch", "forest", "fox", "garden", "hare", "harbor", "hazel", "heron",
    "hill", "island", "ivy", "jay", "lake", "lark", "leaf", "lemon", "lily", "lynx", "maple",
    "meadow", "moon", "oak", "olive", "otter", "owl", "pebble", "pine", "plum", "pond", "raven",
    "reef", "river", "robin", "rose", "sail", "seal", "shell", "sky", "spruce", "stone", "tulip",
    "willow",
];

/// A random pair: `brisk-otter`.
pub(super) fn pair() -> anyhow::Result<String> {
    let mut random = [0; 2];
    getrandom::fill(&mut random).context("the system gives no randomness")?;
    let [first, second] = random.map(usize::from);
    let word = |all: &[&'static str], at: usize| all.get(at % all.len()).copied().unwrap_or("one");
    Ok(format!("{}-{}", word(FIRST, first), word(SECOND, second)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_as_likely_and_fits_a_label() {
        for words in [FIRST, SECOND] {
            assert_eq!(words.len(), 64, "a divisor of 256: no word is preferred");
            let mut unique = words.to_vec();
            unique.sort_unstable();
            unique.dedup();
            assert_eq!(unique.len(), words.len());
            let is_plain =
                |word: &&str| word.len() <= 8 && word.bytes().all(|b| b.is_ascii_lowercase());
            assert!(words.iter().all(is_plain));
        }
        assert_eq!(pair().unwrap().split('-').count(), 2);
    }
}
