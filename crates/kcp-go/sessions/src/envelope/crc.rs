//! CRC-32 of IEEE 802.3, eight bytes at a time.

/// The reflected polynomial.
const POLYNOMIAL: u32 = 0xedb8_8320;

const WIDTH: usize = 8;

/// Entry `b` of table `n` is the CRC of byte `b` followed by `n` zero bytes.
static TABLES: [[u32; 256]; WIDTH] = {
    let mut tables = [[0; 256]; WIDTH];
    let (mut byte, mut seed) = (0, 0);
    while byte < 256 {
        let (mut rest, mut bit) = (seed, 0);
        while bit < 8 {
            rest = if rest & 1 == 1 { rest >> 1 ^ POLYNOMIAL } else { rest >> 1 };
            bit += 1;
        }
        tables[0][byte] = rest;
        byte += 1;
        seed += 1;
    }
    let mut n = 1;
    while n < WIDTH {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[n - 1][byte];
            tables[n][byte] = before >> 8 ^ tables[0][before.to_le_bytes()[0] as usize];
            byte += 1;
        }
        n += 1;
    }
    tables
};

/// The check sum of `bytes`.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<WIDTH>();
    let sum = words.iter().fold(u32::MAX, |sum, word| {
        let mut word = *word;
        for (byte, sum) in word.iter_mut().zip(sum.to_le_bytes()) {
            *byte ^= sum;
        }
        let entries = word.iter().zip(TABLES.iter().rev());
        entries.fold(0, |sum, (byte, table)| sum ^ table[usize::from(*byte)])
    });
    let sum = rest.iter().fold(sum, |sum, byte| {
        let [low, ..] = sum.to_le_bytes();
        sum >> 8 ^ TABLES[0][usize::from(low ^ byte)]
    });
    !sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_sum_is_that_of_the_definition() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926, "the check value of the catalogue");
        let bytes: Vec<u8> = (0..200_u8).map(|n| n.wrapping_mul(37)).collect();
        for length in 0..bytes.len() {
            let mut sum = u32::MAX;
            for byte in &bytes[..length] {
                sum ^= u32::from(*byte);
                for _ in 0..8 {
                    sum = if sum & 1 == 1 { sum >> 1 ^ POLYNOMIAL } else { sum >> 1 };
                }
            }
            assert_eq!(crc32(&bytes[..length]), !sum, "{length} bytes");
        }
    }
}
