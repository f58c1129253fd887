//! Sockets of the service manager: descriptors from 3 on at the start (socket activation,
//! sd_listen_fds(3)), and the store in which it keeps sockets across a crash (`FDSTORE=1`).

use std::os::fd::{OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{env, process};

use net::handover;
use net::inherited::{self, Inherited, Place};

use crate::notify;

/// The variables of socket activation, which apply to one process but not to its children.
pub(crate) const VARIABLES: [&str; 3] = [PID, FDS, NAMES];

const PID: &str = "LISTEN_PID";
const FDS: &str = "LISTEN_FDS";
const NAMES: &str = "LISTEN_FDNAMES";

/// The number of sockets that the service manager stores for the unit. systemd sets it since
/// version
/// 254.
pub(crate) const STORE: &str = "FDSTORE";

/// The first descriptor (`SD_LISTEN_FDS_START`).
const FIRST: RawFd = 3;

/// The interval of checks for closed listeners.
const LOOK: Duration = Duration::from_secs(1);

/// The descriptors of this process that are not offered yet, and messages about others.
static TAKEN: Mutex<Taken> = Mutex::new(Taken { sockets: Vec::new(), problems: Vec::new() });

#[derive(Debug)]
struct Taken {
    /// Name, number at the start, and descriptor.
    sockets: Vec<(String, RawFd, OwnedFd)>,
    problems: Vec<String>,
}

/// Takes the descriptors with which this process was started. Must be called before anything opens
/// a descriptor.
pub(crate) fn take() {
    let variable = |name| env::var(name).unwrap_or_default();
    let Some(count) = count(&variable(PID), &variable(FDS), process::id()) else { return };
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let count = match count {
        Ok(count) => count,
        Err(why) => return taken.problems.push(why),
    };
    let names = variable(NAMES);
    let mut names = names.split(':');
    match inherited::take_numbers(FIRST..FIRST.saturating_add(count)) {
        Ok(all) => {
            for (number, descriptor) in all {
                let name = names.next().unwrap_or_default().to_owned();
                match descriptor {
                    Some(descriptor) => taken.sockets.push((name, number, descriptor)),
                    None => taken.problems.push(format!("descriptor {number} is not open")),
                }
            }
        }
        Err(why) => taken.problems.push(format!("{FDS}={count}: {why}")),
    }
}

/// The number of descriptors. `None`: they are meant for another process.
fn count(pid: &str, fds: &str, own: u32) -> Option<Result<RawFd, String>> {
    if pid.parse() != Ok(own) {
        return None;
    }
    let count = fds.parse().ok().filter(|count| *count >= 0);
    Some(count.ok_or_else(|| format!("{FDS}={fds:?} is no number of descriptors")))
}

/// Offers the sockets to each bind of this process, and starts to store listeners, if the service
/// manager supports it.
pub(crate) fn offer() {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let sockets = std::mem::take(&mut taken.sockets);
    let (sockets, more) = Inherited::of_manager(sockets);
    for problem in taken.problems.drain(..).chain(more) {
        tracing::error!("of the service manager: {problem}");
    }
    sockets.offer();
    let limit = env::var(STORE).ok().and_then(|text| text.parse().ok());
    if let Some(limit) = limit.filter(|_| notify::has_manager()) {
        inherited::keep_stored(limit);
    }
}

/// Closes the sockets, for a process that has no listeners of its own.
pub(crate) fn refuse(what: &str) {
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let sockets = std::mem::take(&mut taken.sockets);
    let problems = std::mem::take(&mut taken.problems);
    drop(taken);
    let count = sockets.len();
    if count > 0 || !problems.is_empty() {
        tracing::error!(
            count,
            "{what} has no listeners, and the {count} sockets of the service manager are closed"
        );
    }
}

/// Closes the sockets of the service manager that no listener uses or will use, with a line for
/// each address.
pub(crate) fn close_unwanted(will_want: impl Fn(&Place) -> bool) {
    let (places, names) = inherited::close_unwanted(will_want);
    for place in places {
        tracing::error!(
            "the socket {place} of the service manager is no listener of the configuration, and is \
             closed (hint: the address has to be the same in the socket unit and in the file)"
        );
    }
    forget(&names);
}

/// Reports which sockets of socket units are unused when another error has ended the start: an
/// occupied port may belong to one of them.
pub(crate) fn tell_unused() {
    for place in inherited::unused() {
        tracing::error!(
            "the socket {place} of the service manager has no listener here (hint: the address has to \
             be the same in the socket unit and in the file)"
        );
    }
}

/// Passes new listeners to the service manager.
pub(crate) fn store() {
    for group in inherited::take_unstored() {
        notify::store(&group);
    }
}

/// Reports each opened and closed listener to the service manager. Never ready.
pub(crate) async fn follow() {
    loop {
        tokio::time::sleep(LOOK).await;
        if handover::is_handed_over() {
            return std::future::pending().await;
        }
        retire();
        store();
    }
}

/// Removes closed listeners from the service manager.
pub(crate) fn retire() {
    forget(&inherited::retire());
}

fn forget(names: &[String]) {
    names.iter().for_each(|name| notify::forget(name));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_for_the_process_that_the_variable_names() {
        assert_eq!(count("7", "2", 7), Some(Ok(2)));
        assert_eq!(count("7", "0", 7), Some(Ok(0)));
        for (pid, fds) in [("8", "2"), ("", "2"), ("x", "2"), ("-7", "2")] {
            assert_eq!(count(pid, fds, 7), None, "{pid}");
        }
        for fds in ["", "-1", "x", "99999999999"] {
            assert!(matches!(count("7", fds, 7), Some(Err(_))), "{fds}");
        }
    }
}
