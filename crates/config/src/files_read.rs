//! The files that a load has read. Each file is read once: so all entries that name a file have the
//! same text of it, and the memory for all of them has a bound.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use proto::Networks;

use crate::Secret;

/// The largest file that is read of those that a configuration names, in bytes.
pub const READ_MAX: usize = 64 << 20;

/// The largest size of all files of one configuration, in bytes.
const TEXTS_MAX: usize = 2 * READ_MAX;

/// The largest number of networks of all lists with files. A list of all networks with their
/// countries has about a million.
pub(crate) const LISTED_MAX: usize = 4 << 20;

#[derive(Default)]
pub(crate) struct FilesRead {
    /// What reading each file gave. A file may hold a secret.
    texts: RefCell<BTreeMap<PathBuf, Result<Rc<Secret>, String>>>,
    /// The lists of networks with files, by their items as written.
    lists: RefCell<BTreeMap<Vec<String>, Networks>>,
    /// The number of networks of these lists.
    listed: Cell<usize>,
}

impl FilesRead {
    /// The text of a file, which is read the first time.
    pub(crate) fn text(
        &self,
        path: &Path,
        read: impl FnOnce(&Path) -> Result<String, String>,
    ) -> Result<Rc<Secret>, String> {
        let mut texts = self.texts.borrow_mut();
        if let Some(known) = texts.get(path) {
            return known.clone();
        }
        let text = read(path).map(Secret::new).and_then(|text| {
            let before: usize = texts.values().flatten().map(|text| text.reveal().len()).sum();
            if before + text.reveal().len() > TEXTS_MAX {
                return Err(format!(
                    "the files of one configuration may have at most {TEXTS_MAX} bytes together"
                ));
            }
            Ok(Rc::new(text))
        });
        texts.insert(path.to_owned(), text.clone());
        text
    }

    /// The list that was read from these items before.
    pub(crate) fn list(&self, items: &[String]) -> Option<Networks> {
        self.lists.borrow().get(items).cloned()
    }

    /// The number of networks that further lists may have.
    pub(crate) fn room(&self) -> usize {
        LISTED_MAX.saturating_sub(self.listed.get())
    }

    #[cfg(test)]
    pub(crate) fn with_room(room: usize) -> Self {
        Self { listed: Cell::new(LISTED_MAX - room), ..Self::default() }
    }

    /// Keeps the list that was read from these items.
    pub(crate) fn keep(&self, items: Vec<String>, list: &Networks) {
        self.listed.set(self.listed.get() + list.len());
        self.lists.borrow_mut().insert(items, list.clone());
    }
}
