//! Doubly linked lists of table entries, by index: moving an entry to the end takes constant time.

/// The index that stands for "no entry".
const NIL: u32 = u32::MAX;

/// The neighbours of one entry.
#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    after: u32,
}

/// The links of all entries for one kind of list. An entry is in one list of each kind.
#[derive(Debug, Default)]
pub(super) struct Links(Vec<Link>);

/// A list, from the least recently used entry to the most recently used one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct List {
    first: u32,
    last: u32,
}

impl Default for List {
    fn default() -> Self {
        Self { first: NIL, last: NIL }
    }
}

impl List {
    pub(super) const fn first(self) -> Option<u32> {
        if self.first == NIL { None } else { Some(self.first) }
    }

    pub(super) fn push(&mut self, links: &mut Links, index: u32) {
        links.set(index, Link { before: self.last, after: NIL });
        match links.0.get_mut(self.last as usize) {
            Some(last) => last.after = index,
            None => self.first = index,
        }
        self.last = index;
    }

    pub(super) fn remove(&mut self, links: &mut Links, index: u32) {
        let Some(&Link { before, after }) = links.0.get(index as usize) else { return };
        match links.0.get_mut(before as usize) {
            Some(link) => link.after = after,
            None => self.first = after,
        }
        match links.0.get_mut(after as usize) {
            Some(link) => link.before = before,
            None => self.last = before,
        }
    }

    /// Moves an entry of the list to its end.
    pub(super) fn renew(&mut self, links: &mut Links, index: u32) {
        if self.last != index {
            self.remove(links, index);
            self.push(links, index);
        }
    }
}

impl Links {
    fn set(&mut self, index: u32, link: Link) {
        let at = index as usize;
        if at >= self.0.len() {
            self.0.resize(at + 1, Link { before: NIL, after: NIL });
        }
        self.0[at] = link;
    }
}
