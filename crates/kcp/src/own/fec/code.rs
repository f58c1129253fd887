//! The matrix of the code, and its inversion.

use gf256::{inverse, multiply};

/// The most data shards of a group.
pub const DATA_MAX: usize = 64;

/// The most parity shards of a group.
pub const PARITY_MAX: usize = 48;

/// Where the points of parity begin. Those of data are before it.
const PARITY_POINT: u8 = 128;

/// By what data shard `data` (below [`DATA_MAX`]) is multiplied for parity shard `parity` (below
/// [`PARITY_MAX`]): `1 / (data - point of parity)`, the element of a Cauchy matrix over GF(2^8) with
/// polynomial 0x11D. Each square part of such a matrix can be inverted.
#[must_use]
pub fn coefficient(data: u8, parity: u8) -> u8 {
    inverse(data ^ PARITY_POINT.wrapping_add(parity)).unwrap_or_default()
}

/// For each wanted data shard by what each of the parity shards (given as `(index, k)`), freed of
/// what is known, has to be multiplied. `None` where they do not suffice.
pub(super) fn solve(wanted: &[u8], parity: &[(u8, u8)]) -> Option<Vec<Vec<u8>>> {
    let (columns, rows) = (wanted.len(), parity.len());
    // The matrix, and behind it the unit matrix that becomes the inverse.
    let mut matrix: Vec<Vec<u8>> = Vec::with_capacity(rows);
    for (row, &(index, k)) in parity.iter().enumerate() {
        let coefficients =
            wanted.iter().map(|&data| if data < k { coefficient(data, index) } else { 0 });
        let mut line: Vec<u8> = coefficients.collect();
        line.resize(columns + rows, 0);
        *line.get_mut(columns + row)? = 1;
        matrix.push(line);
    }
    for column in 0..columns {
        let pivot = (column..rows).find(|&row| matrix[row][column] != 0)?;
        matrix.swap(column, pivot);
        let by = inverse(matrix[column][column])?;
        matrix[column].iter_mut().for_each(|value| *value = multiply(*value, by));
        let line = matrix[column].clone();
        for (row, other) in matrix.iter_mut().enumerate() {
            let by = other[column];
            if row != column && by != 0 {
                let pairs = other.iter_mut().zip(&line);
                pairs.for_each(|(value, &pivot)| *value ^= multiply(by, pivot));
            }
        }
    }
    matrix.truncate(columns);
    for line in &mut matrix {
        line.drain(..columns);
    }
    Some(matrix)
}
