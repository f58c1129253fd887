//! The embedded files: one line for each file of the folder `console`, in the order of the paths. A
//! test compares the list with the folder.

macro_rules! files {
    ($($path:literal)*) => {
        &[$(($path, include_bytes!(concat!("../../console/", $path)))),*]
    };
}

/// The files by their paths in the folder.
pub(super) const FILES: &[(&str, &[u8])] = files![
    "index.html"
];
