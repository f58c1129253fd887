//! The memory of the streams of a visit: data that a service has sent and a tab has not read.

use std::cell::Cell;

use proto::Budget;

/// A budget of this number of bytes. The unused part decides how large windows grow.
#[derive(Debug)]
pub(crate) struct Memory {
    total: u64,
    used: Cell<u64>,
}

impl Memory {
    pub(crate) const fn new(total: u64) -> Self {
        Self { total, used: Cell::new(0) }
    }
}

impl Budget for Memory {
    fn draw(&self, bytes: u64) -> bool {
        let has = bytes <= self.left();
        if has {
            self.charge(bytes);
        }
        has
    }

    fn charge(&self, bytes: u64) {
        self.used.set(self.used.get().saturating_add(bytes));
    }

    fn release(&self, bytes: u64) {
        self.used.set(self.used.get().saturating_sub(bytes));
    }

    fn left(&self) -> u64 {
        self.total.saturating_sub(self.used.get())
    }

    fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_drawn_beyond_the_total_and_what_is_released_is_there_again() {
        let memory = Memory::new(10);
        assert!(memory.draw(6) && !memory.draw(5));
        memory.charge(8);
        assert_eq!((memory.left(), memory.draw(1)), (0, false));
        memory.release(8);
        assert!(memory.draw(4) && !memory.draw(1));
    }
}
