//! Axes with round numbers at their marks.

/// The approximate number of marks on an axis.
const MARKS: f64 = 5.0;

/// A scale from 0 to the first round number that covers all values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    pub(super) step: f64,
    pub(super) end: f64,
}

impl Scale {
    /// A scale for values up to `most`.
    pub(super) fn up_to(most: f64) -> Self {
        if !most.is_finite() || most <= 0.0 {
            return Self { step: 1.0, end: 1.0 };
        }
        let rough = most / MARKS;
        let power = 10_f64.powf(rough.log10().floor());
        let nice = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
        let step = nice.into_iter().find(|step| *step >= rough).unwrap_or(10.0 * power);
        Self { step, end: (most / step).ceil() * step }
    }

    /// A scale with the same marks and an exact end: a time axis needs no space after the last
    /// moment.
    pub(super) fn exactly_to(most: f64) -> Self {
        let round = Self::up_to(most);
        Self { end: if most.is_finite() && most > 0.0 { most } else { round.end }, ..round }
    }

    /// The values of the marks.
    pub(super) fn marks(self) -> impl Iterator<Item = f64> {
        // A little more, because the end of a round scale is a mark whatever the division's
        // rounding.
        let count = (self.end / self.step + 1e-9).floor() as u32;
        (0..=count).map(move |n| f64::from(n) * self.step)
    }

    /// The position of a value, from 0 to 1.
    pub(super) fn place(self, value: f64) -> f64 {
        (value / self.end).clamp(0.0, 1.0)
    }

    /// The label of a value, as short as the step allows.
    pub(super) fn label(self, value: f64) -> String {
        let digits = (-self.step.log10().floor()).max(0.0) as usize;
        format!("{value:.digits$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_hold_everything() {
        for (most, labels) in [
            (7.0, vec!["0", "2", "4", "6", "8"]),
            (0.9, vec!["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
            (1200.0, vec!["0", "500", "1000", "1500"]),
            (0.0, vec!["0", "1"]),
            (f64::NAN, vec!["0", "1"]),
        ] {
            let scale = Scale::up_to(most);
            let marks: Vec<_> = scale.marks().map(|mark| scale.label(mark)).collect();
            assert_eq!(marks, labels, "{most}");
        }
        let exact = Scale::exactly_to(61.5);
        assert_eq!(exact.marks().map(|mark| exact.label(mark)).last().as_deref(), Some("60"));
        assert_eq!(exact.place(61.5), 1.0);
    }
}
