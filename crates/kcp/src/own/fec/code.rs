//! The matrix of the code, and its inversion.

use gf256::{inverse, multiply};

/// Maximum number of data shards of a group.
pub const DATA_MAX: usize = 64;

/// Maximum number of parity shards of a group.
pub const PARITY_MAX: usize = 48;

/// The first point of parity shards. The points of data shards are before it.
const PARITY_POINT: u8 = 128;

/// The factor of data shard `data` (below [`DATA_MAX`]) in parity shard `parity` (below
/// [`PARITY_MAX`]): `1 / (data - point of parity)`. This is the element of a Cauchy matrix over
/// GF(2^8) with polynomial 0x11D. Each square part of such a matrix can be inverted.
#[must_use]
pub fn coefficient(data: u8, parity: u8) -> u8 {
    inverse(data ^ PARITY_POINT.wrapping_add(parity)).unwrap_or_default()
}

/// The equations of a group. The memory is reused for the next group.
#[derive(Debug, Default)]
pub(super) struct Matrix {
    /// The rows of the matrix. Each row has the coefficients and then a row of the unit matrix,
    /// which becomes the inverse.
    bytes: Vec<u8>,
    pivot: Vec<u8>,
    columns: usize,
    width: usize,
}

impl Matrix {
    /// The factor of the parity shard with index `row` in the missing data shard with index
    /// `wanted`.
    pub(super) fn factor(&self, wanted: usize, row: usize) -> u8 {
        self.bytes.get(wanted * self.width + self.columns + row).copied().unwrap_or(0)
    }

    /// Finds the factor of each parity shard in each missing data shard. Parity shards are given as
    /// `(index, k)`, and the known data shards are already subtracted from them. `None` if the
    /// parity shards do not suffice.
    pub(super) fn solve(&mut self, wanted: &[u8], parity: &[(u8, u8)]) -> Option<()> {
        let (columns, rows) = (wanted.len(), parity.len());
        let width = columns + rows;
        (self.columns, self.width) = (columns, width);
        self.bytes.clear();
        self.bytes.resize(rows * width, 0);
        for (row, &(index, k)) in parity.iter().enumerate() {
            let line = self.bytes.get_mut(row * width..(row + 1) * width)?;
            for (value, &data) in line.iter_mut().zip(wanted) {
                *value = if data < k { coefficient(data, index) } else { 0 };
            }
            *line.get_mut(columns + row)? = 1;
        }
        for column in 0..columns {
            let at = |row: usize| row * width + column;
            let pivot = (column..rows).find(|&row| self.bytes[at(row)] != 0)?;
            if pivot != column {
                let (above, below) = self.bytes.split_at_mut(pivot * width);
                above[column * width..][..width].swap_with_slice(&mut below[..width]);
            }
            let by = inverse(self.bytes[at(column)])?;
            self.pivot.clear();
            for value in &mut self.bytes[column * width..][..width] {
                *value = multiply(*value, by);
                self.pivot.push(*value);
            }
            for (row, other) in self.bytes.chunks_exact_mut(width).enumerate() {
                let by = other[column];
                if row != column && by != 0 {
                    let pairs = other.iter_mut().zip(&self.pivot);
                    pairs.for_each(|(value, &pivot)| *value ^= multiply(by, pivot));
                }
            }
        }
        Some(())
    }
}
