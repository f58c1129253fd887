//! Resolves names to addresses. Visitors that ask for the same name at the same time share one
//! lookup. The resolver blocks a thread, and a worker has few threads for it. A name server that
//! does not answer must therefore delay only its own name.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::net::lookup_host;
use tokio::sync::watch;

use super::DialError;

/// The result of a lookup in a form that can be cloned for each visitor.
type Answer = Result<Vec<IpAddr>, Failure>;

#[derive(Clone, Debug)]
struct Failure {
    errno: Option<i32>,
    kind: io::ErrorKind,
    text: String,
}

thread_local! {
    /// The lookups under way on this worker, by name. No answer is cached here, because only the
    /// resolver knows how long an answer is valid.
    static ASKED: RefCell<HashMap<String, watch::Receiver<Option<Answer>>>> = RefCell::default();
}

/// Resolves `host` to at least one address.
pub(super) async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, DialError> {
    if let Ok(ip) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let failed = |source| DialError::Resolve { host: host.to_owned(), source };
    let found = shared(host, async |host| {
        Ok(lookup_host((host, 0)).await?.map(|address| address.ip()).collect())
    });
    let found = found.await.map_err(failed)?;
    if found.is_empty() {
        return Err(failed(io::Error::from(io::ErrorKind::NotFound)));
    }
    Ok(found.into_iter().map(|ip| SocketAddr::new(ip, port)).collect())
}

/// Joins the lookup of `host` that is under way, or starts `look_up`. The lookup is a task of its
/// own and ends with the resolver, because a visitor that leaves does not free the resolver's
/// thread.
async fn shared<F>(host: &str, look_up: F) -> io::Result<Vec<IpAddr>>
where
    F: AsyncFnOnce(&str) -> io::Result<Vec<IpAddr>> + 'static,
{
    let known = ASKED.with_borrow(|asked| asked.get(host).cloned());
    let mut answer = known.unwrap_or_else(|| ask(host.to_owned(), look_up));
    let gone = || io::Error::other("the resolver gave no answer");
    let told = answer.wait_for(Option::is_some).await.map_err(|_| gone())?.clone();
    told.unwrap_or_else(|| Ok(Vec::new())).map_err(Failure::again)
}

fn ask<F>(host: String, look_up: F) -> watch::Receiver<Option<Answer>>
where
    F: AsyncFnOnce(&str) -> io::Result<Vec<IpAddr>> + 'static,
{
    let (tell, answer) = watch::channel(None);
    ASKED.with_borrow_mut(|asked| asked.insert(host.clone(), answer.clone()));
    tokio::task::spawn_local(async move {
        // The guard also runs when this task panics or dies with its runtime.
        let _forget = Forget(&host);
        let found = look_up(&host).await;
        tell.send_replace(Some(found.map_err(Failure::new)));
    });
    answer
}

struct Forget<'a>(&'a str);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        // The thread may have destroyed this thread-local already.
        let _ = ASKED.try_with(|asked| asked.borrow_mut().remove(self.0));
    }
}

impl Failure {
    fn new(error: io::Error) -> Self {
        Self { errno: error.raw_os_error(), kind: error.kind(), text: error.to_string() }
    }

    /// Rebuilds the error with its error number, from which the reset code is derived.
    fn again(self) -> io::Error {
        match self.errno {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::new(self.kind, self.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::Ipv4Addr;
    use std::rc::Rc;
    use std::time::Duration;

    use tokio::task::{LocalSet, spawn_local};
    use tokio::time::{Instant, sleep, timeout};

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[tokio::test(start_paused = true)]
    async fn who_asks_for_a_name_that_hangs_waits_with_the_others_for_one_answer() {
        let lookups = Rc::new(Cell::new(0));
        let ask = |patience| {
            let lookups = Rc::clone(&lookups);
            let look_up = async move |_: &str| {
                lookups.set(lookups.get() + 1);
                sleep(Duration::from_secs(60)).await;
                Ok(vec![HERE])
            };
            spawn_local(timeout(patience, shared("slow.example", look_up)))
        };
        let begin = Instant::now();
        LocalSet::new()
            .run_until(async {
                // A visitor that has left causes no second lookup.
                let impatient: Vec<_> = (0..40).map(|_| ask(Duration::from_secs(10))).collect();
                for one in impatient {
                    assert!(one.await.unwrap().is_err());
                }
                let patient = [ask(Duration::MAX), ask(Duration::MAX)];
                for one in patient {
                    assert_eq!(one.await.unwrap().unwrap().unwrap(), [HERE]);
                }
                assert_eq!((lookups.get(), begin.elapsed().as_secs()), (1, 60));
                // No answer is cached: the next visitor starts a new lookup.
                assert!(ask(Duration::MAX).await.unwrap().is_ok());
                assert_eq!((lookups.get(), begin.elapsed().as_secs()), (2, 120));
            })
            .await;
    }

    #[tokio::test]
    async fn an_error_keeps_its_number() {
        let fails = async |_: &str| Err(rustix::io::Errno::MFILE.into());
        let error = LocalSet::new().run_until(shared("x.example", fails)).await.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::MFILE.raw_os_error()));
    }
}
