//! The file of the known names: a line for each name and path of a client.
//!
//! ```text
//!   client seconds url [path]      home 1764150000 https://app.example.com /api
//! ```
//!
//! The seconds since 1970 are the time when the client left. A hyphen stands for a name that was
//! published when the file was written.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use proto::greeting::Name;

use node::names::Host;

/// The file in the state directory.
pub(super) const FILE: &str = "names";

/// The maximum size of a file that is read, in bytes: twice the maximum that is written.
pub(super) const LARGEST: u64 = 8 << 20;

const HEAD: &str = "# The names that the server knows while their clients are away: client, seconds \
                    since 1970 or -, name, path.\n";

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) client: Arc<str>,
    pub(super) since: Option<u64>,
    pub(super) host: Host,
    pub(super) path: Option<Arc<str>>,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, since, host, path } = self;
        match since {
            Some(since) => write!(f, "{client} {since} {host}")?,
            None => write!(f, "{client} - {host}")?,
        }
        path.iter().try_for_each(|path| write!(f, " {path}"))
    }
}

impl FromStr for Line {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.splitn(4, ' ');
        let mut word = || words.next().ok_or(());
        let client = Name::new(word()?).map_err(drop)?.as_str().into();
        let since = match word()? {
            "-" => None,
            seconds => Some(seconds.parse().map_err(drop)?),
        };
        let host = word()?.parse()?;
        let path = words.next().map(|path| path.starts_with('/').then(|| path.into()).ok_or(()));
        Ok(Self { client, since, host, path: path.transpose()? })
    }
}

/// The file with these lines.
pub(super) fn text(lines: &[Line]) -> String {
    let mut text = HEAD.to_owned();
    for line in lines {
        text.push_str(&line.to_string());
        text.push('\n');
    }
    text
}

/// The lines of a file, and the number of invalid lines.
pub(super) fn parse(text: &str) -> (Vec<Line>, usize) {
    // A complete line ends with a newline.
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    let content = whole.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let (mut lines, mut bad) = (Vec::new(), usize::from(whole.len() < text.len()));
    for line in content {
        match line.parse() {
            Ok(line) => lines.push(line),
            Err(()) => bad += 1,
        }
    }
    (lines, bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_read_back_and_others_are_counted() {
        let lines = [
            "home - http://a.example",
            "home 7 https://*.a.example /a b",
            "office 1764150000 tls://*",
        ];
        let parsed: Vec<Line> = lines.iter().map(|line| line.parse().unwrap()).collect();
        assert_eq!(parse(&text(&parsed)), (parsed, 0));
        for bad in [
            "home",
            "home - a.example",
            "home x http://a.example",
            "home -1 http://a.example",
            "ho/me - http://a.example",
            "home - http://a.example path",
            "home - http://a..example",
        ] {
            assert_eq!(bad.parse::<Line>(), Err(()), "{bad}");
            assert_eq!(parse(&format!("{bad}\n")).1, 1);
        }
        assert_eq!(parse("home - http://a.exam"), (vec![], 1));
    }
}
