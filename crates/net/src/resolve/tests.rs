use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::sync::{Condvar, mpsc};

use super::*;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A system whose lookups hang until the test ends them. It counts and names them.
#[derive(Clone, Default)]
struct Silent(Arc<(Mutex<Known>, Condvar)>);

#[derive(Default)]
struct Known {
    begun: Vec<String>,
    ended: HashSet<String>,
}

impl Silent {
    fn resolver(&self, bounds: Bounds) -> Resolver {
        let silent = self.clone();
        Resolver::with(bounds, move |host| {
            let (known, changed) = &*silent.0;
            let mut known = known.lock().unwrap();
            known.begun.push(host.to_owned());
            changed.notify_all();
            while !known.ended.contains(host) && !known.ended.contains("*") {
                known = changed.wait(known).unwrap();
            }
            Ok(vec![HERE])
        })
    }

    fn end(&self, host: &str) {
        self.0.0.lock().unwrap().ended.insert(host.to_owned());
        self.0.1.notify_all();
    }

    /// Waits until this number of lookups has begun, and returns their names.
    fn begun(&self, count: usize) -> Vec<String> {
        let known = self.0.0.lock().unwrap();
        self.0.1.wait_while(known, |known| known.begun.len() < count).unwrap().begun.clone()
    }
}

const BOUNDS: Bounds = Bounds { under_way: 4, at_once: 2, queued: 5 };

fn ask(resolver: &Resolver, account: &str, host: &str) -> tokio::task::JoinHandle<io::Result<()>> {
    let (resolver, account, host) = (resolver.clone(), account.to_owned(), host.to_owned());
    tokio::spawn(async move { resolver.look_up(&account, &host).await.map(|_| ()) })
}

/// Lets all tasks run that can.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_account_with_a_silent_name_server_leaves_places_to_others_and_they_take_turns() {
    let silent = Silent::default();
    let resolver = silent.resolver(BOUNDS);
    let greedy: Vec<_> =
        ["g1", "g2", "g3", "g4", "g5"].map(|host| ask(&resolver, "greedy", host)).into();
    settle().await;
    silent.begun(2);
    assert_eq!(resolver.under_way(), 2, "an account has at most two lookups under way");
    let honest = ask(&resolver, "honest", "h1");
    settle().await;
    assert_eq!(silent.begun(3)[2], "h1", "the honest account does not wait for the greedy one");
    silent.end("h1");
    honest.await.unwrap().unwrap();

    // Three accounts fill all places: whoever comes then waits for one place, not for the queue.
    let third = ask(&resolver, "third", "t1");
    let fourth = ask(&resolver, "fourth", "f1");
    settle().await;
    silent.begun(5);
    let late = ask(&resolver, "late", "l1");
    settle().await;
    silent.end("g1");
    assert_eq!(silent.begun(6)[5], "l1", "the greedy account has three more names, and waits");
    silent.end("*");
    for one in greedy.into_iter().chain([third, fourth, late]) {
        one.await.unwrap().unwrap();
    }
    assert_eq!(resolver.under_way(), 0);
}

#[tokio::test]
async fn whoever_gives_up_frees_its_place_in_the_queue_and_is_not_looked_up() {
    let silent = Silent::default();
    let resolver = silent.resolver(Bounds { queued: 3, ..BOUNDS });
    let running: Vec<_> = ["a", "b"].map(|host| ask(&resolver, "one", host)).into();
    settle().await;
    silent.begun(2);
    let waiting: Vec<_> = ["c", "d", "e"].map(|host| ask(&resolver, "one", host)).into();
    settle().await;
    let refused = resolver.look_up("one", "f").await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::QuotaExceeded);
    for one in &waiting {
        one.abort();
    }
    for one in waiting {
        assert!(one.await.unwrap_err().is_cancelled());
    }
    // Abandoned lookups that are under way count until the system answers.
    running.iter().for_each(tokio::task::JoinHandle::abort);
    assert_eq!(resolver.under_way(), 2);
    let last = ask(&resolver, "one", "f");
    settle().await;
    silent.end("*");
    last.await.unwrap().unwrap();
    assert_eq!(silent.begun(3)[2..], ["f"], "what nobody waits for is not looked up");
}

#[tokio::test]
async fn callers_of_one_name_share_a_lookup_and_no_answer_is_kept() {
    let silent = Silent::default();
    let resolver = silent.resolver(BOUNDS);
    let both = [ask(&resolver, "one", "a"), ask(&resolver, "one", "a")];
    settle().await;
    silent.begun(1);
    let third = ask(&resolver, "one", "a");
    settle().await;
    silent.end("*");
    for one in both.into_iter().chain([third]) {
        one.await.unwrap().unwrap();
    }
    assert_eq!(silent.begun(1).len(), 1);
    resolver.look_up("one", "a").await.unwrap();
    assert_eq!(silent.begun(2).len(), 2);
}

#[tokio::test]
async fn an_error_keeps_its_number_and_no_address_is_an_error() {
    let number = rustix::io::Errno::MFILE.raw_os_error();
    let resolver = Resolver::with(BOUNDS, move |host| match host {
        "none" => Ok(Vec::new()),
        _ => Err(io::Error::from_raw_os_error(number)),
    });
    let error = resolver.look_up("one", "x").await.unwrap_err();
    assert_eq!(error.raw_os_error(), Some(number));
    let error = resolver.look_up("one", "none").await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

#[tokio::test]
async fn a_panic_of_a_lookup_is_an_error_of_that_lookup_only() {
    let (tell, permit) = mpsc::channel();
    let permit = Mutex::new(permit);
    let resolver = Resolver::with(Bounds { under_way: 1, ..BOUNDS }, move |host| {
        assert_ne!(host, "bad", "made to fail");
        permit.lock().unwrap().recv().map(|()| vec![HERE]).map_err(io::Error::other)
    });
    assert!(resolver.look_up("one", "bad").await.is_err());
    tell.send(()).unwrap();
    assert_eq!(resolver.look_up("one", "good").await.unwrap(), [HERE]);
    assert_eq!(resolver.under_way(), 0);
}

#[tokio::test]
async fn an_address_needs_no_lookup() {
    let lookups = Lookups::on(&Resolver::with(BOUNDS, |_| unreachable!()), "one");
    assert_eq!(lookups.resolve("127.0.0.1").await.unwrap(), [HERE]);
    assert_eq!(lookups.resolve("::1").await.unwrap(), ["::1".parse::<IpAddr>().unwrap()]);
}

#[test]
fn the_bounds_follow_the_descriptors_that_are_kept() {
    for (reserve, under_way, at_once) in [(0, 4, 1), (64, 8, 2), (128, 16, 4), (1024, 64, 8)] {
        let bounds = Bounds::of_clients(reserve);
        assert_eq!((bounds.under_way, bounds.at_once), (under_way, at_once), "{reserve}");
    }
}

#[tokio::test]
async fn localhost_is_both_loopback_addresses_without_a_lookup() {
    let resolver = Resolver::with(BOUNDS, |host| panic!("{host} was looked up"));
    let lookups = Lookups::on(&resolver, "home");
    let both = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
    for name in ["localhost", "LocalHost", "localhost.", "app.localhost"] {
        assert_eq!(lookups.resolve(name).await.unwrap(), both, "{name}");
    }
}

#[tokio::test]
async fn a_resolver_of_a_function_knows_no_services() {
    let resolver = Resolver::with(BOUNDS, |_| Ok(vec![HERE]));
    let error = resolver.services("_tunnel._tcp.test").await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Unsupported);
}
