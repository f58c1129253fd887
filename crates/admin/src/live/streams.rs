//! The lines of the busiest streams. The list of a reader depends on the number that it requests,
//! so each reader takes its own samples.

use std::collections::HashMap;

use ops::command::PATIENCE;
use ops::status::Stream;
use ops::{BusyStream, Cursor, Traffic};
use serde::Serialize;
use tokio::time::timeout;

use super::rows::{Changes, List, Rated, line};
use super::unix_millis;

/// The lines that a reader has received.
#[derive(Debug, Default)]
pub(super) struct StreamsTold {
    seen: Cursor,
    /// The number of the last line; 0: none yet.
    revision: u64,
    /// The figures of the streams of the last line.
    rows: HashMap<String, Figures>,
}

/// The figures of a row that change.
#[derive(Clone, Debug, PartialEq)]
struct Figures {
    socket: String,
    bytes: (u64, u64),
    rate: (f64, f64),
}

#[derive(Debug, Serialize)]
struct StreamRow<'a> {
    #[serde(flatten)]
    stream: &'a Stream,
    #[serde(flatten)]
    rate: Rated,
}

impl StreamsTold {
    /// The line with at most `most` streams; with `changes`, those that have changed since the last
    /// line.
    pub(super) async fn line(
        &mut self,
        traffic: &dyn Traffic,
        most: usize,
        changes: bool,
    ) -> Option<String> {
        let found = timeout(PATIENCE, traffic.busiest(&mut self.seen, most)).await.ok()?;
        let row = |one: &'_ BusyStream| Rated::from(one.rate);
        let (changes, list) = if changes {
            let mut before = std::mem::take(&mut self.rows);
            let (after, whole) = (self.revision, self.revision == 0);
            self.revision += 1;
            let mut listed = Vec::new();
            for one in &found.list {
                let BusyStream { stream, rate } = one;
                let (socket, bytes) = (stream.socket.clone(), (stream.bytes_in, stream.bytes_out));
                let figures = Figures { socket, bytes, rate: *rate };
                if before.remove(&stream.id).as_ref() != Some(&figures) {
                    listed.push(StreamRow { stream, rate: row(one) });
                }
                self.rows.insert(stream.id.clone(), figures);
            }
            let gone = before.into_keys().map(Into::into).collect();
            let (revision, after) = (self.revision, (!whole).then_some(after));
            (Some(Changes { whole, revision, after, gone }), listed)
        } else {
            let all = found.list.iter();
            (None, all.map(|one| StreamRow { stream: &one.stream, rate: row(one) }).collect())
        };
        let total = usize::try_from(found.total).unwrap_or(usize::MAX);
        let (topic, unix_millis) = ("streams", unix_millis());
        line(&List { topic, unix_millis, total, changes, list })
    }
}
