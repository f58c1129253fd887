//! Single elements, and the tables that the kernels read. All tables are computed at compile time.

/// x^8 + x^4 + x^3 + x^2 + 1 without its highest term, which a byte has no room for.
pub(crate) const POLYNOMIAL: u8 = 0x1d;

/// The order of the multiplicative group.
const ORDER: usize = 255;

/// Powers of the generator, twice in a row: the sum of two logarithms needs no reduction.
const EXP: [u8; 2 * ORDER] = {
    let mut table = [0; 2 * ORDER];
    let (mut power, mut n) = (1, 0);
    while n < ORDER {
        table[n] = power;
        table[n + ORDER] = power;
        power = double(power);
        n += 1;
    }
    table
};

/// Logarithms to the base 2. Zero has none; its entry is not used.
const LOG: [u8; 256] = {
    let mut table = [0; 256];
    let mut n = 0;
    while n < ORDER {
        table[EXP[n] as usize] = n as u8;
        n += 1;
    }
    table
};

/// The products of each element with the 16 low nibbles, then with the 16 high nibbles.
#[cfg(target_arch = "x86_64")]
pub(crate) static NIBBLES: [[u8; 32]; 256] = {
    let mut table = [[0; 32]; 256];
    let mut a = 0;
    while a < 256 {
        let mut n = 0;
        while n < 16 {
            table[a][n] = multiply(a as u8, n as u8);
            table[a][16 + n] = multiply(a as u8, (n as u8) << 4);
            n += 1;
        }
        a += 1;
    }
    table
};

/// The multiplication with each element as a matrix of bits, in the layout of `GF2P8AFFINEQB`: byte
/// `7 - i` is the row of bit `i` of the product, bit `j` of a row stands for bit `j` of the factor.
#[cfg(target_arch = "x86_64")]
pub(crate) static MATRICES: [u64; 256] = {
    let mut table = [0; 256];
    let mut a = 0;
    while a < 256 {
        let mut j = 0;
        while j < 8 {
            let product = multiply(a as u8, 1 << j);
            let mut i = 0;
            while i < 8 {
                if product >> i & 1 == 1 {
                    table[a] |= 1 << (8 * (7 - i) + j);
                }
                i += 1;
            }
            j += 1;
        }
        a += 1;
    }
    table
};

/// The product with the generator.
pub(crate) const fn double(a: u8) -> u8 {
    (a << 1) ^ if a & 0x80 == 0 { 0 } else { POLYNOMIAL }
}

/// The product of two elements. Their sum is `a ^ b`.
#[must_use]
pub const fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    EXP[LOG[a as usize] as usize + LOG[b as usize] as usize]
}

/// The element whose product with `a` is 1; `None` for zero.
#[must_use]
pub const fn inverse(a: u8) -> Option<u8> {
    if a == 0 { None } else { Some(EXP[ORDER - LOG[a as usize] as usize]) }
}

/// `a` to the power `n`. `power(0, 0)` is 1, as Vandermonde matrices have it.
#[must_use]
pub const fn power(a: u8, n: usize) -> u8 {
    if n == 0 {
        return 1;
    }
    if a == 0 {
        return 0;
    }
    EXP[LOG[a as usize] as usize * (n % ORDER) % ORDER]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Multiplication as the definition has it: shift and reduce.
    fn slowly(mut a: u8, mut b: u8) -> u8 {
        let mut sum = 0;
        while b != 0 {
            if b & 1 == 1 {
                sum ^= a;
            }
            a = double(a);
            b >>= 1;
        }
        sum
    }

    #[test]
    fn all_products_are_those_of_the_definition() {
        for a in (0..=255).step_by(if cfg!(miri) { 15 } else { 1 }) {
            for b in 0..=255 {
                assert_eq!(multiply(a, b), slowly(a, b), "{a} * {b}");
            }
        }
    }

    #[test]
    fn each_element_but_zero_has_an_inverse() {
        assert_eq!(inverse(0), None);
        for a in 1..=255 {
            assert_eq!(inverse(a).map(|inverse| multiply(a, inverse)), Some(1), "{a}");
        }
    }

    #[test]
    fn powers_are_repeated_products() {
        // Miri takes its time.
        for a in (0..=255).step_by(if cfg!(miri) { 15 } else { 1 }) {
            let mut product = 1;
            for n in 0..600 {
                assert_eq!(power(a, n), product, "{a} to the power {n}");
                product = multiply(product, a);
            }
        }
    }
}
