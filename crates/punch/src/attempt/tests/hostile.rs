//! A peer, and third parties, that violate the rules.

use super::*;
use crate::testing::epoch;
use crate::{Offer, signal::Credentials};

const CREDENTIALS: (&str, &str) = ("peer", "secretsecretsecretsecret");

fn attempt(now: Instant, role: Role) -> Attempt {
    let hosts = ["192.0.2.9:6000".parse::<SocketAddr>().unwrap().into()];
    let addresses: (&[OwnAddress], &[SocketAddr], bool) = (&hosts, &[], false);
    Attempt::new(now, (role, 1), Settings::default(), addresses, &mut |bytes| bytes.fill(7))
}

fn offer(addresses: impl IntoIterator<Item = SocketAddr>) -> Vec<u8> {
    let candidates = addresses.into_iter().enumerate();
    offer_of(candidates.map(|(n, at)| Candidate::new(Kind::Host, at, n)).collect())
}

pub(super) fn offer_of(candidates: Vec<Candidate>) -> Vec<u8> {
    let (ufrag, password) = (CREDENTIALS.0.into(), CREDENTIALS.1.into());
    let credentials = Credentials { ufrag, password };
    let offer = Offer { credentials, candidates, nat: Nat::default(), more: true, opened: None };
    Signal { round: 1, body: Body::Offer(offer) }.encode()
}

/// Everything that an attempt sends until its end.
fn sent(attempt: &mut Attempt, mut now: Instant) -> Vec<(Instant, Datagram)> {
    let mut all = Vec::new();
    loop {
        while let Some(datagram) = attempt.poll_datagram() {
            all.push((now, datagram));
        }
        let Some(next) = attempt.poll_timeout() else { return all };
        now = now.max(next);
        attempt.handle_timeout(now);
    }
}

#[test]
fn nothing_is_sent_to_addresses_that_a_stranger_must_not_name() {
    let bad = [
        "127.0.0.1:7000",
        "169.254.169.254:80",
        "224.0.0.251:5353",
        "255.255.255.255:9",
        "0.0.0.0:9",
        "100.100.100.200:80",
        "192.0.2.1:0",
        "[::1]:7000",
        "[fe80::1]:7000",
        "[ff02::fb]:5353",
        "[fd00:ec2::254]:80",
        "[64:ff9b::a9fe:a9fe]:80",
    ];
    let good = "198.51.100.7:9".parse().unwrap();
    let now = epoch();
    let mut attempt = attempt(now, Role::Visitor);
    let all = bad.iter().map(|one| one.parse().unwrap()).chain([good]);
    attempt.handle_signal(now, &offer(all)).unwrap();
    let sent = sent(&mut attempt, now);
    assert!(!sent.is_empty() && sent.iter().all(|(_, datagram)| datagram.to == good));
}

#[test]
fn a_peer_that_names_ever_new_addresses_gets_checks_to_sixteen_of_them_at_one_per_50_ms() {
    let now = epoch();
    let mut attempt = attempt(now, Role::Visitor);
    for round in 0..100_u8 {
        let named = (0..16).map(|n| SocketAddr::from(([198, 51, 100, round], 9_000 + n)));
        attempt.handle_signal(now, &offer(named)).unwrap();
    }
    let sent = sent(&mut attempt, now);
    let mut to: Vec<_> = sent.iter().map(|(_, datagram)| datagram.to).collect();
    to.sort();
    to.dedup();
    assert_eq!(to.len(), CANDIDATES);
    assert!(sent.windows(2).all(|two| two[1].0 - two[0].0 >= PACE));
    let last = sent.last().unwrap().0;
    assert!(last <= now + LIMIT);
}

/// A check as the peer sends it.
fn check(ufrag: &str, password: &str) -> Vec<u8> {
    let user = format!("{ufrag}:{}", CREDENTIALS.0);
    let id = is::stun::TransId::new();
    signed(&is::stun::StunMessage::binding_request(&user, id, true, 1, 1, false), password)
}

fn signed(message: &is::stun::StunMessage<'_>, password: &str) -> Vec<u8> {
    let mut bytes = vec![0; 200];
    let length = {
        use is::Sha1HmacProvider as _;
        let mac = |key: &[u8], parts: &[&[u8]]| is::DefaultSha1HmacProvider.sha1_hmac(key, parts);
        message.to_bytes(Some(password.as_bytes()), &mut bytes, mac).unwrap()
    };
    bytes.truncate(length);
    bytes
}

#[test]
fn only_the_right_password_opens_the_port_for_more_than_stun() {
    let now = epoch();
    let mut attempt = attempt(now, Role::Publisher);
    attempt.handle_signal(now, &offer(["198.51.100.7:9".parse().unwrap()])).unwrap();
    let Credentials { ufrag, password } = attempt.credentials.clone();
    let stranger: SocketAddr = "198.51.100.66:9".parse().unwrap();
    let plain = stun::request([1; 12]);
    for bytes in
        [&check(&ufrag, "wrongwrongwrongwrongwrong"), &check("other", &password), &plain[..]]
    {
        attempt.handle_datagram(now, (stranger, None), bytes);
        assert!(!attempt.is_proven(stranger));
    }
    let sent = std::iter::from_fn(|| attempt.poll_datagram()).all(|one| one.to != stranger);
    assert!(sent, "a stranger gets no answer");
    attempt.handle_datagram(now, (stranger, None), &check(&ufrag, &password));
    assert!(attempt.is_proven(stranger));
    assert!(std::iter::from_fn(|| attempt.poll_datagram()).any(|one| one.to == stranger));
}

#[test]
fn a_path_is_not_in_use_towards_an_address_that_a_stranger_must_not_name() {
    let now = epoch();
    let mut attempt = attempt(now, Role::Publisher);
    for bad in ["127.0.0.1:9", "169.254.169.254:80", "[::ffff:169.254.169.254]:80"] {
        attempt.adopt(now, bad.parse().unwrap());
        assert_eq!(attempt.pair(), None, "{bad}");
    }
    attempt.adopt(now, "198.51.100.7:9".parse().unwrap());
    assert!(attempt.pair().is_some());
}

#[test]
fn checks_from_ever_new_addresses_are_bounded() {
    let now = epoch();
    let mut attempt = attempt(now, Role::Publisher);
    attempt.handle_signal(now, &offer([])).unwrap();
    let Credentials { ufrag, password } = attempt.credentials.clone();
    for port in 1..2_000 {
        let from = SocketAddr::from(([198, 51, 100, 7], port));
        attempt.handle_datagram(now, (from, None), &check(&ufrag, &password));
    }
    for bad in ["127.0.0.1:9", "169.254.169.254:80"] {
        let bad = bad.parse().unwrap();
        attempt.handle_datagram(now, (bad, None), &check(&ufrag, &password));
        assert!(!attempt.is_proven(bad), "a source is judged as a candidate is");
    }
    let mut to: Vec<_> = sent(&mut attempt, now).into_iter().map(|(_, one)| one.to).collect();
    to.sort();
    to.dedup();
    assert!(to.len() <= PAIRS, "{}", to.len());
}

#[test]
fn answers_to_one_check_that_name_ever_new_addresses_of_ours_are_bounded() {
    let now = epoch();
    let mut attempt = attempt(now, Role::Visitor);
    let peer = "198.51.100.7:9".parse().unwrap();
    attempt.handle_signal(now, &offer([peer])).unwrap();
    let (at, question) = sent_first(&mut attempt, now);
    let id = is::stun::StunMessage::parse(&question.bytes).unwrap().trans_id();
    for port in 1..=2_000 {
        let named = SocketAddr::from(([203, 0, 113, 1], port));
        let answer = is::stun::StunMessage::binding_reply(id, named);
        attempt.handle_datagram(at, (peer, None), &signed(&answer, CREDENTIALS.1));
    }
    let kept = attempt.agent.local_candidates().count();
    assert!((3..=40).contains(&kept), "{kept}");
    assert!(attempt.peers.seen_as(peer).is_some(), "the first answers count");
}

/// The first datagram that an attempt sends, with its time.
pub(super) fn sent_first(attempt: &mut Attempt, mut now: Instant) -> (Instant, Datagram) {
    loop {
        if let Some(datagram) = attempt.poll_datagram() {
            return (now, datagram);
        }
        now = now.max(attempt.poll_timeout().unwrap());
        attempt.handle_timeout(now);
    }
}

#[test]
fn the_word_of_a_peer_that_it_is_behind_our_address_opens_no_private_network() {
    let now = epoch();
    let kinds = Kinds { host: false, ..Kinds::default() };
    let settings = Settings { kinds, ..Settings::default() };
    let server: SocketAddr = "198.51.100.1:3478".parse().unwrap();
    let hosts: [OwnAddress; 1] = ["10.0.0.2:6000".parse::<SocketAddr>().unwrap().into()];
    let addresses: (&[OwnAddress], &[SocketAddr], bool) = (&hosts, &[server], false);
    let mut attempt =
        Attempt::new(now, (Role::Visitor, 1), settings, addresses, &mut |bytes| bytes.fill(7));
    let question = attempt.poll_datagram().unwrap();
    let answer = stun::answer(&question.bytes, "203.0.113.1:9".parse().unwrap()).unwrap();
    attempt.handle_datagram(now, (server, None), answer.bytes());
    let (ours, inner) = ("203.0.113.1:10".parse().unwrap(), "10.0.0.1:53".parse().unwrap());
    let candidates =
        vec![Candidate::new(Kind::Reflexive, ours, 0), Candidate::new(Kind::Host, inner, 0)];
    let (ufrag, password) = (CREDENTIALS.0.into(), CREDENTIALS.1.into());
    let credentials = Credentials { ufrag, password };
    let offer = Offer { credentials, candidates, nat: Nat::default(), more: false, opened: None };
    attempt.handle_signal(now, &Signal { round: 1, body: Body::Offer(offer) }.encode()).unwrap();
    let (at, check) = sent_first(&mut attempt, now);
    assert_eq!(check.to, ours);
    // A third party may respond, but not from that address, and does not know the transaction id.
    let id = is::stun::StunMessage::parse(&check.bytes).unwrap().trans_id();
    let other = is::stun::TransId::new();
    for (from, id) in [("198.51.100.7:9".parse().unwrap(), id), (ours, other)] {
        let answer = is::stun::StunMessage::binding_reply(id, "203.0.113.1:9".parse().unwrap());
        attempt.handle_datagram(at, (from, None), &signed(&answer, CREDENTIALS.1));
    }
    let sent = sent(&mut attempt, at);
    assert!(!sent.is_empty() && sent.iter().all(|(_, one)| one.to != inner), "{sent:?}");
}

#[test]
fn an_answer_of_stun_counts_from_the_server_that_was_asked() {
    let now = epoch();
    let server: SocketAddr = "198.51.100.1:3478".parse().unwrap();
    let hosts: [OwnAddress; 1] = ["10.0.0.2:6000".parse::<SocketAddr>().unwrap().into()];
    let addresses: (&[OwnAddress], &[SocketAddr], bool) = (&hosts, &[server], false);
    let settings = Settings::default();
    let mut attempt =
        Attempt::new(now, (Role::Visitor, 1), settings, addresses, &mut |bytes| bytes.fill(7));
    let question = attempt.poll_datagram().unwrap();
    let answer = stun::answer(&question.bytes, "203.0.113.1:9".parse().unwrap()).unwrap();
    let forged = stun::answer(&stun::request([8; 12]), "203.0.113.1:9".parse().unwrap()).unwrap();
    attempt.handle_datagram(now, ("198.51.100.2:3478".parse().unwrap(), None), answer.bytes());
    attempt.handle_datagram(now, (server, None), forged.bytes());
    assert_eq!(attempt.candidates().len(), 1);
    let named = stun::answer(&question.bytes, "127.0.0.1:22".parse().unwrap()).unwrap();
    attempt.handle_datagram(now, (server, None), named.bytes());
    assert_eq!(attempt.candidates().len(), 1, "a server names no loopback address");
    attempt.handle_datagram(now, (server, None), answer.bytes());
    assert_eq!(attempt.candidates().len(), 2);
}

#[test]
fn broken_signals_change_nothing() {
    let now = epoch();
    let mut attempt = attempt(now, Role::Visitor);
    let good = offer(["198.51.100.7:9".parse().unwrap()]);
    for end in 0..good.len() {
        assert!(attempt.handle_signal(now, &good[..end]).is_err());
    }
    attempt.handle_signal(now, &good).unwrap();
    // Another password in the same attempt.
    let mut other = offer(["198.51.100.8:9".parse().unwrap()]);
    let at = other.windows(6).position(|part| part == b"secret").unwrap();
    other[at] = b'S';
    attempt.handle_signal(now, &other).unwrap();
    assert!(sent(&mut attempt, now).iter().all(|(_, one)| one.to.ip().to_string().ends_with(".7")));
}
