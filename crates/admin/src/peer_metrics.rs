//! The metrics of links between clients. Their labels are paths and reasons, never the names of
//! clients: a client may visit many services, and have many visitors.

use ops::Role;
use ops::status::{Link, PathState, Status};

use crate::metrics::Kind::{Counter, Gauge};
use crate::metrics::{Label, List};

const PATHS: [(&str, PathState); 2] =
    [("relayed", PathState::Relayed), ("direct", PathState::Direct)];

pub(crate) fn peers<'a>(list: &mut List<'a>, status: &'a Status) {
    match status.role {
        Role::Client => of_client(list, status),
        Role::Server => of_server(list, status),
        Role::Proxy | Role::Run => {}
    }
}

fn of_client<'a>(list: &mut List<'a>, status: &'a Status) {
    let sessions = status.sessions.iter().filter(|session| session.private);
    let links: Vec<&Link> = sessions.flat_map(|session| &session.links).collect();
    let on = |path: PathState| {
        links.iter().filter(move |link| link.path.as_ref().is_some_and(|own| own.state == path))
    };
    let name = "tunnel_peer_links";
    list.metric(name, Gauge, "Links with other clients, by path.");
    for (path, state) in PATHS {
        list.value(name, &[("path", path)], on(state).count() as u64);
    }
    let name = "tunnel_peer_rtt_seconds";
    list.metric(
        name,
        Gauge,
        "Least round trip time of the present links with other clients, by path.",
    );
    for (path, state) in PATHS {
        let of_link = |link: &&Link| {
            let of_pair = link.path.as_ref().and_then(|path| path.rtt_micros);
            let of_carriers = link.carriers.iter().filter_map(|carrier| carrier.rtt_micros);
            of_carriers.chain(of_pair).min()
        };
        if let Some(micros) = on(state).filter_map(of_link).min() {
            list.value(name, &[("path", path)], micros as f64 / 1e6);
        }
    }
    let counts = &status.peers;
    let name = "tunnel_peer_programs";
    list.metric(name, Gauge, "Programs without a tunnel that visit by WebRTC.");
    list.value(name, &[], counts.programs);
    let name = "tunnel_peer_trials_total";
    list.metric(name, Counter, "Trials of direct paths that have ended, by outcome.");
    for (outcome, count) in &counts.trials {
        list.value(name, &[("outcome", outcome)], *count);
    }
    let names = ["tunnel_peer_received_bytes_total", "tunnel_peer_sent_bytes_total"];
    list.metric(
        names[0],
        Counter,
        "Payload bytes that came over links with other clients, by path.",
    );
    for (path, bytes) in &counts.bytes {
        list.value(names[0], &[("path", path)], bytes.received);
    }
    list.metric(
        names[1],
        Counter,
        "Payload bytes that went over links with other clients, by path.",
    );
    for (path, bytes) in &counts.bytes {
        list.value(names[1], &[("path", path)], bytes.sent);
    }
}

fn of_server<'a>(list: &mut List<'a>, status: &'a Status) {
    let name = "tunnel_private_streams_total";
    list.metric(name, Counter, "Streams to private services, by outcome: joined, or why not.");
    for (outcome, count) in &status.peers.streams {
        let labels: [Label<'a>; 1] = [("outcome", outcome)];
        list.value(name, &labels, *count);
    }
    let name = "tunnel_stun_requests_total";
    list.metric(name, Counter, "Requests of STUN by outcome; dropped: too many of one source.");
    for (outcome, count) in &status.peers.stun {
        list.value(name, &[("outcome", outcome)], *count);
    }
}
