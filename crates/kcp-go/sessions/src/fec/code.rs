//! The Reed-Solomon code of kcp-go without a matrix inversion.
//!
//! The code has the systematic form of a Vandermonde matrix: row `r` is `1, r, r^2, …` over
//! GF(2^8), multiplied by the inverse of the top square, so that the first rows are the identity.
//! This is equivalent to the following: the data shards are the values of a polynomial at the
//! points `0..data`, and the parity shards are its values at the points `data..data + parity`. Any
//! `data` values fix the polynomial, and any other value follows by Lagrange's formula. So the
//! coefficients of both directions are products of differences of points, and cost `O(data)` each.

use gf256::{inverse, multiply};

/// The numbers of data shards and of parity shards in a group. Both are at least 1, and the field
/// limits their sum to 256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ratio {
    pub(super) data: u8,
    pub(super) parity: u8,
}

impl Ratio {
    /// `None` if a number is 0, or the sum is above 256.
    #[must_use]
    pub fn new(data: usize, parity: usize) -> Option<Self> {
        let (data, parity) = (u8::try_from(data).ok()?, u8::try_from(parity).ok()?);
        let fits = u16::from(data) + u16::from(parity) <= 256;
        (data > 0 && parity > 0 && fits).then_some(Self { data, parity })
    }

    /// The data shards of a group: 1 to 255.
    #[must_use]
    pub fn data(self) -> usize {
        self.data.into()
    }

    /// The parity shards of a group: 1 to 255.
    #[must_use]
    pub fn parity(self) -> usize {
        self.parity.into()
    }

    /// All shards of a group: 2 to 256.
    #[must_use]
    pub fn shards(self) -> usize {
        self.data() + self.parity()
    }
}

/// The factor of each data shard in each parity shard.
#[derive(Clone, Debug)]
pub(super) struct Code {
    ratio: Ratio,
    /// The coefficients of all data shards, one after the other. Each data shard has one
    /// coefficient per parity shard.
    columns: Vec<u8>,
}

impl Code {
    pub(super) fn new(ratio: Ratio) -> Self {
        let data: Vec<u8> = (0..ratio.data).collect();
        let parity: Vec<u8> = (ratio.data..=u8::MAX).take(ratio.parity()).collect();
        let mut columns = Vec::new();
        interpolate(&data, &parity, &mut columns);
        Self { ratio, columns }
    }

    /// The coefficients of the data shard at `position`, one per parity shard.
    pub(super) fn column(&self, position: usize) -> &[u8] {
        self.columns.chunks_exact(self.ratio.parity()).nth(position).unwrap_or_default()
    }
}

/// The coefficients that compute the values at the points `wanted` from the values at the points
/// `known`. No point is in both lists. The coefficients are written to `columns`: first the
/// coefficients of the first known point, one per wanted point, then those of the second known
/// point, and so on.
pub(super) fn interpolate(known: &[u8], wanted: &[u8], columns: &mut Vec<u8>) {
    columns.clear();
    columns.resize(known.len() * wanted.len(), 0);
    for (w, &point) in wanted.iter().enumerate() {
        // The product over all known points. The factor of a single point is divided out below.
        let all = known.iter().fold(1, |product, &k| multiply(product, k ^ point));
        for (column, &k) in columns.chunks_exact_mut(wanted.len()).zip(known) {
            column[w] = multiply(all, inverse(k ^ point).unwrap_or_default());
        }
    }
    for (column, &k) in columns.chunks_exact_mut(wanted.len().max(1)).zip(known) {
        let others = known.iter().filter(|other| **other != k);
        let divisor = others.fold(1, |product, other| multiply(product, k ^ other));
        let factor = inverse(divisor).unwrap_or_default();
        for coefficient in column {
            *coefficient = multiply(*coefficient, factor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_data_and_parity_and_fits_into_the_field() {
        for (data, parity) in [(0, 1), (1, 0), (129, 128), (255, 2), (256, 1), (usize::MAX, 1)] {
            assert_eq!(Ratio::new(data, parity), None, "{data}/{parity}");
        }
        for (data, parity) in [(1, 1), (128, 128), (255, 1), (1, 255)] {
            assert_eq!(Ratio::new(data, parity).map(Ratio::shards), Some(data + parity));
        }
    }

    #[test]
    fn known_points_keep_their_meaning_in_any_order() {
        let (mut one, mut other) = (Vec::new(), Vec::new());
        interpolate(&[3, 0, 7], &[1, 5], &mut one);
        interpolate(&[7, 3, 0], &[1, 5], &mut other);
        assert_eq!(one[..2], other[2..4]);
        assert_eq!(one[2..4], other[4..]);
        assert_eq!(one[4..], other[..2]);
    }
}
