//! The task that measures the servers sleeps while there is nothing to choose.

use std::cell::Cell;

use config::Policy;

use super::*;
use crate::links::{Links, Plan};
use crate::uplink::{Uplink, Uplinks};
use ops::events::Events;

/// The uplinks of a client of these servers.
fn uplinks(servers: &str) -> Vec<Arc<Uplink>> {
    let text = format!("servers: {servers}\nname: home\ntoken: {TOKEN}\n");
    let text = Text { name: "client.yaml", text: &text };
    let config = loaded(config::load_client(Some(text), &ClientFlags::default(), &sources()));
    let link = memory::link_config(&config.common);
    let uplink = |server| {
        let plan = Plan::new(&config, server, link, 1).unwrap();
        Uplink::new(server, &Links::of(plan, 1), &Events::default(), 1)
    };
    config.servers.iter().map(uplink).collect()
}

#[tokio::test(start_paused = true)]
async fn a_client_without_a_choice_looks_at_its_servers_once_until_the_list_changes() {
    let mut all = uplinks("['a=tcp://127.0.0.1:1', 'b=tcp://127.0.0.1:2']");
    let second = all.pop().unwrap();
    let first = all.pop().unwrap();
    let uplinks = Uplinks::of(Arc::clone(&first), Vec::new());
    let (policy, looks) = (Cell::new(Policy::All), Cell::new(0));
    let asked = || {
        looks.set(looks.get() + 1);
        policy.get()
    };
    let mut choosing = Box::pin(uplinks.choose(asked));
    let an_hour = Duration::from_secs(3_600);
    assert!(timeout(an_hour, &mut choosing).await.is_err());
    assert_eq!(looks.get(), 0, "one server needs no policy");
    uplinks.set(vec![Arc::clone(&first), Arc::clone(&second)]);
    assert!(timeout(an_hour, &mut choosing).await.is_err());
    assert_eq!(looks.get(), 1, "a look for the change, and none later");
    // A reload that changes the policy alone sets the list as well.
    policy.set(Policy::Nearest);
    uplinks.set(vec![first, second]);
    choosing.await;
}
