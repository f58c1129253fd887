//! The harnesses of the fuzz targets, which the replay of their corpora uses as well.

mod segments;

pub use segments::segments;
