//! The kinds and values of figures.

/// The kind of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The value may rise and fall.
    Gauge,
    /// The value only rises, from 0 at the start of the process.
    Counter,
    /// A histogram: numbers of events by a value of each event. They only rise.
    Histogram,
}

impl Kind {
    /// The word for the kind in the text format of Prometheus and in the manual.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Histogram => "histogram",
        }
    }
}

/// The current value of one series.
#[derive(Debug)]
pub struct Sample<'a> {
    /// The labels in the order of their declaration.
    pub labels: Vec<Label<'a>>,
    /// The value.
    pub value: Value,
}

/// The name and the value of a label.
pub type Label<'a> = (&'static str, &'a str);

/// The value of a series.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A count.
    Whole(u64),
    /// A measured value.
    Real(f64),
    /// A histogram.
    Buckets(Buckets),
}

/// The value of a histogram.
#[derive(Clone, Debug, PartialEq)]
pub struct Buckets {
    /// The upper bounds, in rising order.
    pub bounds: Vec<f64>,
    /// The number of events in each bucket; one element more than there are bounds.
    pub counts: Vec<u64>,
    /// The sum of the values of all events.
    pub sum: f64,
}

/// What a row of the table may read of its subject. `None`: the subject has no such value.
pub(super) trait Readable {
    fn value(self) -> Option<Value>;
}

impl Readable for u64 {
    fn value(self) -> Option<Value> {
        Some(Value::Whole(self))
    }
}

impl Readable for bool {
    fn value(self) -> Option<Value> {
        u64::from(self).value()
    }
}

impl Readable for f64 {
    fn value(self) -> Option<Value> {
        Some(Value::Real(self))
    }
}

impl Readable for Buckets {
    fn value(self) -> Option<Value> {
        Some(Value::Buckets(self))
    }
}

impl<R: Readable> Readable for Option<R> {
    fn value(self) -> Option<Value> {
        self.and_then(Readable::value)
    }
}
