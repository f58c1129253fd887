//! Completes a plan with data that the sources do not contain: tokens, the certificate, ports with
//! several uses.

use std::collections::BTreeMap;
use std::net::IpAddr;

use config::edit::Value;
use proto::greeting::Token;

use super::{Admitted, DOMAIN, LATER, PORT, Path, Plan, UNKNOWN, set};
use crate::address::{at, host_port, is_name, url};
use crate::section::Book;
use crate::{Failure, Material, Options};

impl Plan {
    pub(crate) fn complete(
        &mut self,
        options: &Options,
        material: &mut dyn Material,
        book: &Book,
    ) -> Result<(), Failure> {
        if let Some(server) = &options.server {
            self.lead_to(server)?;
        }
        self.place_server(book);
        self.open_doors(book);
        self.join_ports();
        self.certify(material, book)?;
        self.give_tokens(material)
    }

    /// Every client dials this server: a URL, or a host that replaces the source's.
    fn lead_to(&mut self, server: &str) -> Result<(), Failure> {
        let wrong = || Failure::Option(format!("`{server}` is no URL and no host of a server"));
        let parts = url(server).filter(|parts| !parts.host.is_empty()).ok_or_else(wrong)?;
        let scheme = match parts.scheme {
            "" => None,
            other => Some(super::SCHEMES.into_iter().find(|s| *s == other).ok_or_else(wrong)?),
        };
        for client in &mut self.clients {
            if client.servers.is_empty() || scheme.is_some() {
                let scheme = scheme.unwrap_or("tls");
                let port = parts.port.unwrap_or(if scheme == "wss" { 443 } else { PORT });
                client.servers = vec![Path::new(scheme, parts.host.clone(), port)];
                client.servers[0].path = parts.path.to_owned();
                continue;
            }
            for path in &mut client.servers {
                path.host.clone_from(&parts.host);
                path.port = parts.port.unwrap_or(path.port);
            }
        }
        Ok(())
    }

    /// The addresses of the server: those of its own source, or those that the clients dial.
    fn place_server(&mut self, book: &Book) {
        for client in &mut self.clients {
            let is_unknown = client.servers.iter().all(|path| path.host == UNKNOWN);
            if client.servers.is_empty() {
                client.servers.push(Path::new("tls", UNKNOWN, PORT));
            }
            if is_unknown {
                let source = client.sources.first().map(String::as_str).unwrap_or_default();
                let why = "the address of your own server is not in it";
                book.add(source, 0, "servers", why, "`--server example.com`, or edit `servers`");
            }
        }
        if !self.server.listen.is_empty() {
            return;
        }
        for path in self.clients.iter().flat_map(|client| &client.servers) {
            let listen = Path { host: "::".to_owned(), ..path.clone() }.url();
            super::add(&mut self.server.listen, listen);
        }
        if self.server.listen.is_empty() {
            self.server.listen.push(format!("tls://[::]:{PORT}"));
        }
    }

    /// Host names need doors.
    fn open_doors(&mut self, book: &Book) {
        let services = || self.clients.iter().flat_map(|client| &client.services);
        let of = |schemes: &[&str]| {
            let is = |public: &String| schemes.iter().any(|scheme| public.starts_with(scheme));
            services().any(|service| service.public.iter().any(is))
        };
        let has_mux = self.server.listen.iter().any(|url| url.starts_with("mux://"));
        let (http, tls) = (of(&["http://"]), of(&["https://", "tls://"]));
        let has_own = self.server.keys.iter().any(|(key, _)| key == "certificates");
        if of(&["https://"]) && !has_own {
            let source = self.clients.first().and_then(|client| client.sources.first());
            let source = source.map(String::as_str).unwrap_or_default();
            let why = "https:// names need a certificate on the server, which is not in the source";
            let nearest = "`tls_routes.certificates` or `tls_routes.acme` of server.yaml";
            book.add(source, 0, "https", why, nearest);
        }
        if http && self.server.http.is_empty() && !has_mux {
            self.server.http.push("[::]:80".to_owned());
        }
        if tls && self.server.tls_routes.is_empty() && !has_mux {
            self.server.tls_routes.push("[::]:443".to_owned());
        }
    }

    /// A TCP port with several uses becomes a `mux://` listener, which distinguishes them.
    fn join_ports(&mut self) {
        let mut users: BTreeMap<u16, usize> = BTreeMap::new();
        let carrier = |listen: &String| {
            let parts = url(listen)?;
            let over_tcp = !matches!(parts.scheme, "quic" | "kcp");
            parts.port.filter(|_| over_tcp)
        };
        let doors = || self.server.http.iter().chain(&self.server.tls_routes);
        let of_doors = doors().filter_map(|door| host_port(door).map(|(_, port)| port));
        for port in self.server.listen.iter().filter_map(carrier).chain(of_doors) {
            *users.entry(port).or_default() += 1;
        }
        let shared = |port: u16| users.get(&port).is_some_and(|users| *users > 1);
        let mut listen: Vec<String> = Vec::new();
        for old in &self.server.listen {
            let new = match (carrier(old), url(old)) {
                (Some(port), Some(parts)) if shared(port) => {
                    format!("mux://{}{}", at(&parts.host, port), parts.path)
                }
                _ => old.clone(),
            };
            // Two carriers at one port become one listener; the path of a WebSocket is kept.
            let place = |url: &str| {
                url.split("://")
                    .nth(1)
                    .map(|place| place.split('/').next().unwrap_or_default().to_owned())
            };
            let same = |other: &&mut String| {
                new.starts_with("mux://")
                    && other.starts_with("mux://")
                    && place(other) == place(&new)
            };
            match listen.iter_mut().find(same) {
                Some(other) if other.len() < new.len() => *other = new,
                Some(_) => {}
                None => super::add(&mut listen, new),
            }
        }
        let muxes: Vec<u16> =
            listen.iter().filter(|url| url.starts_with("mux://")).filter_map(carrier).collect();
        // Two doors at one port without a carrier require that carriers of clients also connect
        // there.
        let twice: Vec<u16> = users.keys().copied().filter(|port| shared(*port)).collect();
        for port in twice.into_iter().filter(|port| !muxes.contains(port)) {
            listen.push(format!("mux://[::]:{port}"));
        }
        self.server.listen = listen;
        let keep = |door: &String| host_port(door).is_none_or(|(_, port)| !shared(port));
        self.server.http.retain(keep);
        self.server.tls_routes.retain(keep);
    }

    /// A certificate for a server without one, if a client could otherwise not verify the server.
    fn certify(&mut self, material: &mut dyn Material, book: &Book) -> Result<(), Failure> {
        if self.server.identity.is_some() {
            for client in self.clients.iter().filter(|client| client.ca.is_none()) {
                let source = client.sources.first().map(String::as_str).unwrap_or_default();
                let why = "the source names no authority for the server's certificate; those of \
                           the system are asked here";
                book.add(source, 0, "tls", why, "`tls.ca` or `tls.pin` of the client");
            }
            return Ok(());
        }
        if self.clients.is_empty() {
            return Ok(());
        }
        let mut hosts: Vec<String> = Vec::new();
        for path in self.clients.iter().flat_map(|client| &client.servers) {
            // Clients pin the key; the names only describe the certificate.
            if is_name(&path.host) || path.host.parse::<IpAddr>().is_ok() {
                super::add(&mut hosts, path.host.clone());
            }
        }
        let made = material.certificate(&hosts).map_err(Failure::Material)?;
        self.certificate = Some(made);
        for client in &mut self.clients {
            let Some(_) = client.ca.take() else { continue };
            let source = client.sources.first().map(String::as_str).unwrap_or_default();
            let why = "the new server has a certificate of its own, whose key the client pins";
            book.add(
                source,
                0,
                "tls",
                why,
                "`tls.ca`, with `tls.cert` of that authority on the server",
            );
        }
        Ok(())
    }

    fn give_tokens(&mut self, material: &mut dyn Material) -> Result<(), Failure> {
        let mut token = || material.token().map_err(Failure::Material);
        for client in &mut self.clients {
            client.token = token()?;
            if client.admin.is_some() {
                let file = format!("{}-admin.token", client.name);
                set(&mut client.keys, "admin.token_file", Value::Text(file.clone()));
                self.tokens.push((file, token()?));
            }
        }
        let mut made = Vec::new();
        for _ in &self.weak {
            made.push(token()?);
        }
        let replace = |text: &mut Option<String>| {
            let n = text.as_ref().and_then(|text| text.strip_prefix(LATER)?.parse::<usize>().ok());
            if let Some(token) = n.and_then(|n| made.get(n)) {
                *text = Some(token.clone());
            }
        };
        for client in &mut self.clients {
            let visitors = client.services.iter_mut().filter_map(|s| s.visitors.as_mut()).flatten();
            visitors.for_each(|visitor| replace(&mut visitor.token));
            client.forwards.iter_mut().for_each(|forward| replace(&mut forward.token));
        }
        if self.server.admin.is_some() {
            self.tokens.push(("admin.token".to_owned(), token()?));
        }
        Ok(())
    }
}

impl Plan {
    /// The entries of the clients on the server, with the rights that the final files of the
    /// clients need.
    pub(crate) fn admit(&mut self) -> Result<(), Failure> {
        for client in &self.clients {
            let mut rights = client.needs();
            // A user of the source may have more rights than the file of its client uses.
            let known = self.server.known.iter().find(|(name, _)| *name == client.name);
            if let Some((_, known)) = known {
                known.tcp.iter().for_each(|ports| super::add(&mut rights.tcp, ports));
                known.http.iter().for_each(|host| super::add(&mut rights.http, host));
            }
            let limits = self.server.limits.iter();
            for (key, value) in limits.chain(known.iter().flat_map(|(_, known)| &known.limits)) {
                set(&mut rights.limits, key, value.clone());
            }
            let stored = stored(&client.token)?;
            let name = client.name.clone();
            self.server.clients.push(Admitted { name, stored, rights });
        }
        Ok(())
    }
}

/// The form of a token that a server stores.
fn stored(token: &str) -> Result<String, Failure> {
    let token = Token::new(token).map_err(|why| Failure::Material(why.to_string()))?;
    Ok(token.stored().text().to_string())
}

/// The domain to which a single label belongs.
pub(crate) fn domain(options: &Options) -> &str {
    options.domain.as_deref().unwrap_or(DOMAIN)
}
