//! Connections of programs that name a private service themselves: `tunnel connect`, and programs
//! of a SOCKS5 or HTTP proxy that request `SERVICE.CLIENT.service.tunnel`.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ::link::Link;
use config::{ClientConfig, PrivateService};
use proto::greeting::Name;
use proto::{Open, Target};
use relay::Connectors;
use tokio::time::{Instant, sleep, sleep_until};
use transport::{Connector, Inlet, OpenError, Outlet};

use super::Peer;
use node::session::Worker;

/// The suffix of a name of a private service.
const DOMAIN: &str = ".service.tunnel";

/// The poll interval for a link.
const LOOK: Duration = Duration::from_millis(200);

/// The private service of a target `tcp://SERVICE.CLIENT.service.tunnel:PORT`, among those that the
/// configuration knows. `None`: the target is of another kind. The error states why the name
/// matches no service.
pub fn named<'a>(
    config: &'a ClientConfig,
    target: &str,
) -> Option<Result<&'a PrivateService, String>> {
    let (host, _) = target.strip_prefix("tcp://")?.rsplit_once(':')?;
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let names = host.strip_suffix(DOMAIN)?;
    let mut found = config.private_services().filter(|known| known.asked_name() == names);
    let Some(first) = found.next() else {
        return Some(Err(format!(
            "{names}{DOMAIN}, which no forward and no entry of `visits` names"
        )));
    };
    // A token for one of them must not be shown to the other.
    Some(match found.find(|other| *other != first) {
        None => Ok(first),
        Some(other) => Err(format!("{names}{DOMAIN}, which stands for {first} and for {other}")),
    })
}

impl Peer {
    /// A live link on this worker. Waits for it up to `patience`.
    ///
    /// # Errors
    /// Why there is no link.
    pub async fn link_here(
        self: &Arc<Self>,
        worker: &Rc<Worker>,
        patience: Duration,
    ) -> Result<Link, String> {
        let (session, until) = (&self.session, Instant::now() + patience);
        let refusals = session.refusals();
        loop {
            let revived = session.revived.notified();
            if let Some(link) = worker.state.live_link(session) {
                return Ok(link);
            }
            if session.refusals() != refusals {
                return Err(self.trouble().unwrap_or_default());
            }
            if Instant::now() >= until {
                let late = || "no answer in time; is this client connected to its server?";
                return Err(self.trouble().unwrap_or_else(|| late().to_owned()));
            }
            self.demand_here(worker.index);
            tokio::select! {
                () = revived => {}
                () = sleep_until(until) => {}
                () = sleep(LOOK) => {}
            }
        }
    }
}

/// Opens streams to the service of a link, independent of the target that they name.
#[derive(Debug)]
pub struct PeerConnector {
    link: Link,
    service: Name,
}

impl PeerConnector {
    /// The connectors of a link for streams and flows. The far end does not report: a refusal is a
    /// reset.
    pub fn connectors(link: &Link, service: &Name) -> Connectors {
        let streams = Rc::new(Self { link: link.clone(), service: service.clone() });
        Connectors { streams, flows: Rc::new(link.clone()), reports: false }
    }
}

impl Connector for PeerConnector {
    fn open(&self, open: Open, outlet: Rc<dyn Outlet>) -> Result<Box<dyn Inlet>, OpenError> {
        let target = Target::Service(self.service.as_str().to_owned());
        self.link.open(Open { target, ..open }, outlet)
    }
}

#[cfg(test)]
mod tests {
    use config::{ClientFlags, Sources, Text, load_client};

    use super::*;

    #[test]
    fn a_name_below_the_domain_is_a_service_that_the_configuration_knows() {
        let text = "servers: tls://a\nname: a\ntoken: q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ\n\
                    forwards: [{ listen: 1, target: 'service://Home/web.a', token_file: t }]\n\
                    visits: [{ service: my.home/ssh, token_file: t }]\n";
        let token = "q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi".to_owned();
        let sources = Sources { env: &|_| None, read: &|_| Ok(token.clone()) };
        let file = Some(Text { name: "client.yaml", text });
        let config = load_client(file, &ClientFlags::default(), &sources).unwrap().config;
        let shown =
            |target: &str| named(&config, target).map(|found| found.map(ToString::to_string));
        let is = |text: &str| Some(Ok(text.to_owned()));
        assert_eq!(shown("tcp://web.a.home.service.tunnel:22"), is("Home/web.a"));
        assert_eq!(shown("tcp://SSH.my.home.Service.tunnel.:22"), is("my.home/ssh"));
        for unknown in ["ssh.home", "home", "ssh"] {
            let target = format!("tcp://{unknown}.service.tunnel:22");
            let why = shown(&target).unwrap().unwrap_err();
            assert!(why.starts_with(&format!("{unknown}.service.tunnel, which no ")), "{why}");
        }
        let two = text.replace("Home/web.a'", "a.home/web'");
        let two = two
            .replace("forwards: [", "forwards: [{ listen: 2, target: 'service://Home/web.a' }, ");
        let text = Some(Text { name: "client.yaml", text: &two });
        let both = load_client(text, &ClientFlags::default(), &sources).unwrap().config;
        let why = named(&both, "tcp://web.a.home.service.tunnel:22").unwrap().unwrap_err();
        assert!(why.ends_with("stands for Home/web.a and for a.home/web"), "{why}");
        for other in ["tcp://service.tunnel:22", "tcp://10.0.0.1:22", "unix:///run/a", "tcp://a:1"]
        {
            assert_eq!(shown(other), None, "{other}");
        }
    }
}
