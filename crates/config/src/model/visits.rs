//! Visits of a client: of its private services by others, and of the services of others by it.

use crate::model::client::ClientConfig;
use crate::model::credentials::{KeyPair, Token};
use crate::model::forward::Forward;
use crate::model::private::{PeerTls, Proof, Visit};
use crate::{PrivateService, Target};

impl ClientConfig {
    /// The settings for a visit of a service. The token or the certificate of a forward to the
    /// service applies to all visits of this service.
    #[must_use]
    pub fn visit_of(&self, service: &PrivateService) -> Option<Visit> {
        let of_forward = self.forwards.iter().find_map(|forward| match &forward.target {
            Some(Target::Private(target)) if target == service => forward.visit(),
            Some(_) | None => None,
        });
        of_forward.or_else(|| self.visits.iter().find(|visit| visit.service == *service).cloned())
    }

    /// The private services of other clients that the file names.
    pub fn private_services(&self) -> impl Iterator<Item = &PrivateService> {
        let visits = self.visits.iter().map(|visit| &visit.service);
        self.forwards.iter().filter_map(Forward::private).chain(visits)
    }

    /// The tokens of visits: tokens for visitors of this client, and tokens of this client as a
    /// visitor.
    pub fn visit_tokens(&self) -> impl Iterator<Item = &Token> {
        let private = self.services.iter().filter_map(|service| service.private.as_ref());
        let of_visitors = private.flat_map(|private| &private.visitors);
        let own = self.forwards.iter().filter_map(|forward| forward.token.as_ref());
        let own = own.chain(self.visits.iter().filter_map(|visit| match &visit.proof {
            Proof::Token(token) => Some(token),
            Proof::Certificate(_) => None,
        }));
        of_visitors.flat_map(|visitor| &visitor.tokens).chain(own)
    }

    /// The certificate of this client for `tls`: a separate one, or that of the log-in at the
    /// server.
    #[must_use]
    pub fn identity_of<'a>(&'a self, tls: &'a PeerTls) -> Option<&'a KeyPair> {
        let of_log_in = || self.paths().find_map(|path| path.identity.as_ref());
        tls.identity.as_ref().or_else(of_log_in)
    }

    /// The certificates of visits: for the private services of this client, and for this client as
    /// a visitor. Each with its key path in the configuration.
    pub fn peer_tls(&self) -> impl Iterator<Item = (String, &PeerTls)> {
        let services = self.services.iter().enumerate().filter_map(|(n, service)| {
            let tls = service.private.as_ref()?.tls.as_ref()?;
            Some((format!("services[{n}].visitor_tls"), tls))
        });
        let forwards =
            self.forwards.iter().enumerate().filter_map(|(n, forward)| {
                Some((format!("forwards[{n}].tls"), forward.tls.as_ref()?))
            });
        let visits = self.visits.iter().enumerate().filter_map(|(n, visit)| match &visit.proof {
            Proof::Certificate(tls) => Some((format!("visits[{n}].tls"), tls)),
            Proof::Token(_) => None,
        });
        services.chain(forwards).chain(visits)
    }

    /// The same, mutable.
    pub fn peer_tls_mut(&mut self) -> impl Iterator<Item = &mut PeerTls> {
        let services = self.services.iter_mut();
        let services = services.filter_map(|service| service.private.as_mut()?.tls.as_mut());
        let forwards = self.forwards.iter_mut().filter_map(|forward| forward.tls.as_mut());
        let visits = self.visits.iter_mut().filter_map(|visit| match &mut visit.proof {
            Proof::Certificate(tls) => Some(tls),
            Proof::Token(_) => None,
        });
        services.chain(forwards).chain(visits)
    }
}

#[cfg(test)]
mod tests {
    use super::super::private::Demand;
    use super::*;
    use crate::{ClientFlags, Sources, Text, load_client};

    const TOKEN: &str = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ";

    fn config(lines: &str) -> ClientConfig {
        let sources = Sources { env: &|_| None, read: &|_| Err(String::new()) };
        let text = format!("servers: tls://a\nname: a\ntoken: {TOKEN}\n{lines}");
        let text = Some(Text { name: "client.yaml", text: &text });
        load_client(text, &ClientFlags::default(), &sources).unwrap().config
    }

    fn demand(visitors: &str, more: &str, name: &str) -> &'static str {
        let config = config(&format!(
            "services: [{{ name: s, target: 22, public: private, visitors: [{visitors}]{more} }}]\n"
        ));
        match config.services[0].private.as_ref().unwrap().demand(name) {
            Demand::Tokens(_) => "token",
            Demand::Certificate(_) => "certificate",
            Demand::Nothing => "nothing",
        }
    }

    #[test]
    fn a_visitor_without_a_token_shows_a_certificate_where_the_service_has_an_authority() {
        let tls = ", visitor_tls: { ca: x, cert: y, key: z }";
        let (one, all) = ("one".to_owned(), format!("one, {{ name: '*', token: {TOKEN} }}"));
        for (visitors, more, name, expected) in [
            (&one, "", "one", "nothing"),
            (&one, tls, "one", "certificate"),
            (&one, tls, "two", "nothing"),
            // Without an authority the token of all counts for each.
            (&all, "", "one", "token"),
            (&all, tls, "one", "certificate"),
            (&all, tls, "two", "token"),
        ] {
            assert_eq!(demand(visitors, more, name), expected, "{visitors} {more} {name}");
        }
    }

    #[test]
    fn the_certificate_of_a_visit_is_that_of_the_log_in_unless_it_has_one() {
        let config = config(
            "tls: { cert: own.crt, key: own.key }\n\
             visits: [{ service: b/c, tls: { ca: x } }, \
             { service: b/d, tls: { ca: x, cert: y, key: z } }]\n",
        );
        let shown = config.peer_tls().map(|(key, tls)| {
            let pair = config.identity_of(tls).unwrap();
            format!("{key} {} {}", pair.cert.display(), pair.key.display())
        });
        let shown: Vec<_> = shown.collect();
        assert_eq!(shown, ["visits[0].tls own.crt own.key", "visits[1].tls y z"]);
    }
}
