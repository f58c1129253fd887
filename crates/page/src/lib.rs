//! The page by which a browser visits a private service: the files of `browser/page` and the crate
//! `browser` as wasm, compressed at build time (`build.rs`). Without the wasm32 target of Rust, the
//! list is empty.

/// A file of the page.
#[derive(Clone, Copy, Debug)]
pub struct Asset {
    /// Its name, like `app.js`.
    pub name: &'static str,
    /// Its content, compressed by gzip.
    pub gzip: &'static [u8],
}

impl Asset {
    /// The file with this name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        ASSETS.iter().find(|asset| asset.name == name)
    }

    /// The media type of its content.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self.name.rsplit('.').next() {
            Some("html") => "text/html; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("wasm") => "application/wasm",
            Some(_) | None => "application/octet-stream",
        }
    }
}

/// Whether this build includes the page.
#[must_use]
pub const fn is_there() -> bool {
    !ASSETS.is_empty()
}

static ASSETS: &[Asset] = include!(concat!(env!("OUT_DIR"), "/assets.rs"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_stays_under_its_bound() {
        let bytes: usize = ASSETS.iter().map(|asset| asset.gzip.len()).sum();
        // What a browser loads; without compression it is below a megabyte as well.
        assert!(bytes < 200_000, "{bytes} bytes");
        assert_eq!(Asset::find("index.html").is_some(), is_there());
    }
}
