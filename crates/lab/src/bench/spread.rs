//! Median and range of the rounds of a case. A mean would follow a single round in which the
//! machine was busy with other work.

/// The median of some values, and their range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// The spread of these values, in any order. `None` if there is no finite value; values that
    /// are not finite are ignored.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<_> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        // With an even number of values, the median is the mean of the two middle values.
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self { median: f64::midpoint(low, high), least, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle_whatever_the_order_and_number() {
        let spread = |values: &[f64]| Spread::of(values.iter().copied());
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[f64::NAN, f64::INFINITY]), None);
        assert_eq!(spread(&[4.0]), Some(Spread { median: 4.0, least: 4.0, most: 4.0 }));
        let odd = spread(&[9.0, 1.0, 5.0]);
        assert_eq!(odd, Some(Spread { median: 5.0, least: 1.0, most: 9.0 }));
        let even = spread(&[8.0, 1.0, f64::NAN, 2.0, 4.0]);
        assert_eq!(even, Some(Spread { median: 3.0, least: 1.0, most: 8.0 }));
    }
}
