//! A configuration for each key that may hold a secret.

/// A file with a secret under one key.
#[derive(Clone, Debug)]
pub struct Example {
    /// The role and the map of the key: `client:services[]`; `both:` where the key is the same in
    /// files of servers and of clients.
    pub section: &'static str,
    /// The key.
    pub key: &'static str,
    /// The file.
    pub text: String,
}

impl Example {
    /// Whether the file belongs to a server.
    #[must_use]
    pub fn is_server(&self) -> bool {
        self.text.starts_with("listen:")
    }
}

/// A node of a cluster.
const NODE: &str = "cluster: { name: c, secret: SECRET, peers: { listen: \"tls://127.0.0.1:1\", \
                    ca: /dev/null, cert: /dev/null, key: /dev/null }, \
                    directory: { etcd: \"http://127.0.0.1:1\" } }";

/// A valid file for each key that may hold a secret; the value of the key is `secret`, which must
/// be a token. All tests of code that reads, shows or writes a configuration use these files; a
/// test compares them with the keys of the decoder.
#[must_use]
pub fn examples(secret: &str) -> Vec<Example> {
    let server = |section, key, rest: &str| {
        let text = format!("listen: \"tls://[::]:7000\"\n{rest}\n").replace("SECRET", secret);
        Example { section, key, text }
    };
    let client = |section, key, rest: &str| {
        let (servers, token) = ("servers: wss://a.example/t\n", "token_file: a.token\n");
        let servers = if rest.starts_with("servers") { "" } else { servers };
        let token = if rest.starts_with("token:") { "" } else { token };
        let text = format!("{servers}name: a\n{token}{rest}\n").replace("SECRET", secret);
        Example { section, key, text }
    };
    let service = |key, rest: &str| {
        let rest = format!("services: [{{ name: s, {rest} }}]");
        client("client:services[]", key, &rest)
    };
    let web = "target: \"tcp://127.0.0.1:80\", public: \"http://s.example\"";
    let admin = "admin: { listen: \"127.0.0.1:1\"";
    vec![
        server("server:clients[]", "token", "clients: [{ name: a, token: SECRET }]"),
        server("both:admin", "token", &format!("{admin}, token: SECRET }}")),
        server(
            "both:admin",
            "read_token",
            &format!("{admin}, token_file: a.token, read_token: SECRET }}"),
        ),
        server(
            "server:auth.http",
            "headers",
            "auth: { http: { url: \"https://a.example/\", headers: { X-Api-Key: SECRET } } }",
        ),
        server("server:cluster", "secret", NODE),
        server(
            "both:otlp",
            "headers",
            "otlp: { endpoint: \"http://c:4318\", headers: { Authorization: \"Bearer SECRET\" } }",
        ),
        client("client:", "token", "token: SECRET"),
        client("client:", "headers", "headers: { Cookie: sid=SECRET }"),
        client("client:", "proxy", "proxy: \"http://me:SECRET@p.example:1\""),
        client("client:", "servers", "servers: \"wss://a.example/t?access_token=SECRET\""),
        client("client:", "servers_from", "servers_from: \"https://a.example/servers?key=SECRET\""),
        client(
            "client:servers[]",
            "url",
            "servers: [{ url: \"wss://a.example/t?x=1&key=SECRET\" }]",
        ),
        client(
            "client:servers[]",
            "headers",
            "servers: [{ url: \"wss://a.example/t\", headers: { X-Auth: SECRET } }]",
        ),
        client(
            "client:servers[]",
            "proxy",
            "servers: [{ url: \"tls://a.example:1\", proxy: \"socks5://SECRET@p.example:1\" }]",
        ),
        client(
            "client:servers[]",
            "paths",
            "servers: [{ name: a, paths: [\"wss://a.example/t?key=SECRET\"] }]",
        ),
        client(
            "client:servers[]",
            "token",
            "servers: [{ name: a, url: \"tls://a.example:1\", token: SECRET }]",
        ),
        service("basic_auth", &format!("{web}, basic_auth: \"ann:SECRET\"")),
        service(
            "basic_auth",
            "target: socks5, public: \"tcp://:1080\", basic_auth: [\"ann:SECRET\"]",
        ),
        service(
            "headers",
            &format!("{web}, headers: {{ set: {{ Authorization: \"Basic SECRET\" }} }}"),
        ),
        service(
            "response_headers",
            &format!("{web}, response_headers: {{ set: {{ Set-Cookie: sid=SECRET }} }}"),
        ),
        client(
            "client:forwards[]",
            "basic_auth",
            "forwards: [{ listen: \"socks5://127.0.0.1:1\", basic_auth: \"ann:SECRET\" }]",
        ),
        client(
            "client:forwards[]",
            "token",
            "forwards: [{ listen: \"1\", target: \"service://b/ssh\", token: SECRET }]",
        ),
        client("client:visits[]", "token", "visits: [{ service: b/ssh, token: SECRET }]"),
        client(
            "client:services[].visitors[]",
            "token",
            "services: [{ name: s, target: \"22\", public: private, \
             visitors: [{ name: b, token: SECRET }] }]",
        ),
    ]
}
