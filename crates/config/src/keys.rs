//! The keys of each section: the keys of this build, and the keys that are reserved for a later
//! build. A later key is not a typing error, so it gets its own message. A test compares
//! REFERENCE.md with these tables.

/// The keys of one map of the file.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Path of the map in REFERENCE.md: the role, a colon and the path, such as
    /// `server:clients[].allow`. For the top level of the file, nothing follows the colon.
    pub path: &'static str,
    /// Keys of this build.
    pub keys: &'static [&'static str],
    /// Keys of a later build.
    pub later: &'static [&'static str],
}

const fn table(
    path: &'static str,
    keys: &'static [&'static str],
    later: &'static [&'static str],
) -> Table {
    Table { path, keys, later }
}

#[rustfmt::skip]
mod tables {
    use super::{Table, table};

    /// The timeouts of a connected stream. A forward has these alone, because the server dials its
    /// target and sets the limits of flows.
    pub(crate) const STREAM_TIMES: &[&str] = &["idle", "idle_up", "idle_down", "half_close", "total", "flush"];

    pub(crate) const SERVER: Table = table("server:", &[
        "listen", "tls", "clients", "public_bind", "public_url", "state_dir", "workers", "memory_budget", "window",
        "keepalive", "resume_timeout", "drain_timeout", "log", "control", "trusted_proxies",
        "watch", "admin", "allow_any_client", "auth", "otlp", "quic", "kcp", "http", "tls_routes",
        "stun", "p2p", "accept_proxy", "limits", "upgrade", "type",
    ], &[]);
    pub(crate) const ALL_LIMITS: Table = table("server:limits", &["streams", "new_per_second", "up", "down", "source", "stream"], &[]);
    pub(crate) const ALL_SOURCE_LIMITS: Table = table("server:limits.source", &["streams", "new_per_second", "up", "down"], &[]);
    pub(crate) const ALL_STREAM_LIMITS: Table = table("server:limits.stream", &["up", "down"], &[]);
    pub(crate) const ACCEPT_PROXY: Table = table("server:accept_proxy", &["tcp", "udp"], &[]);
    pub(crate) const LISTEN: Table = table("server:listen[]", &["url", "client_ca", "dscp", "default", "silence", "timeouts", "accept_proxy"], &[]);
    pub(crate) const LISTEN_TIMEOUTS: Table = table("server:listen[].timeouts", &["dial", "idle", "idle_up", "idle_down", "half_close", "total", "flush"], &[]);
    pub(crate) const HTTP: Table = table("server:http", &["listen", "domain", "route_header", "redirect", "pages", "remember", "idle", "browser", "accept_proxy"], &[]);
    pub(crate) const PAGES: Table = table("server:http.pages", &["not_found", "unavailable"], &[]);
    pub(crate) const TLS_ROUTES: Table = table("server:tls_routes",
        &["listen", "certificates", "min_version", "acme", "accept_proxy"], &[]);
    pub(crate) const CERTIFICATE: Table = table("server:tls_routes.certificates[]", &["cert", "key"], &[]);
    pub(crate) const ACME: Table = table("server:tls_routes.acme",
        &["accept_terms", "email", "directory", "ca", "names", "account", "eab", "dns", "on_demand"], &[]);
    pub(crate) const ACME_EAB: Table = table("server:tls_routes.acme.eab", &["kid", "hmac_file"], &[]);
    pub(crate) const ACME_DNS: Table = table("server:tls_routes.acme.dns",
        &["exec", "timeout", "wait", "resolvers"], &[]);
    pub(crate) const SERVER_TLS: Table = table("server:tls", &["cert", "key", "client_ca"], &[]);
    pub(crate) const CLIENT_ENTRY: Table = table("server:clients[]", &["name", "token", "token_file", "allow", "limits"], &[]);
    pub(crate) const ANY_CLIENT: Table = table("server:allow_any_client", &["allow", "limits"], &[]);
    pub(crate) const AUTH: Table = table("server:auth", &["http"], &[]);
    pub(crate) const AUTH_HTTP: Table = table("server:auth.http", &["url", "tls", "headers", "timeout", "cache"], &["proxy"]);
    pub(crate) const AUTH_TLS: Table = table("server:auth.http.tls", &["pin", "ca", "cert", "key", "min_version"], &[]);
    pub(crate) const ALLOW: Table = table("server:clients[].allow", 
        &["tcp", "udp", "http", "tls", "pass_through", "forward", "visit", "shared", "dscp", "invite", "speedtest"], &[]);
    pub(crate) const LIMITS: Table = table("server:clients[].limits",
        &["streams", "new_per_second", "ports", "hosts", "flows", "up", "down", "source", "stream"], &[]);
    pub(crate) const SOURCE_LIMITS: Table = table("server:clients[].limits.source", &["flows", "streams", "new_per_second", "up", "down"], &[]);
    pub(crate) const STREAM_LIMITS: Table = table("server:clients[].limits.stream", &["up", "down"], &[]);
    pub(crate) const ANY_STREAM_LIMITS: Table = Table { path: "server:allow_any_client.limits.stream", ..STREAM_LIMITS };
    pub(crate) const ANY_ALLOW: Table = Table { path: "server:allow_any_client.allow", ..ALLOW };
    pub(crate) const ANY_LIMITS: Table = Table { path: "server:allow_any_client.limits", ..LIMITS };
    pub(crate) const ANY_SOURCE_LIMITS: Table = Table { path: "server:allow_any_client.limits.source", ..SOURCE_LIMITS };

    pub(crate) const CLIENT: Table = table("client:", &[
        "servers", "name", "token", "token_file", "tls", "connections", "services", "forwards", "retry",
        "state_dir", "workers", "memory_budget", "window", "keepalive", "resume_timeout", "drain_timeout",
        "log", "control", "headers", "proxy", "watch", "id_prefix", "introduce", "admin", "otlp", "quic",
        "kcp", "allow_from", "deny_from", "visits", "p2p", "trusted_proxies", "limits", "upgrade", "type",
    ], &["sni"]);
    pub(crate) const CLIENT_LIMITS: Table = Table { path: "client:limits", ..ALL_LIMITS };
    pub(crate) const CLIENT_SOURCE_LIMITS: Table = Table { path: "client:limits.source", ..ALL_SOURCE_LIMITS };
    pub(crate) const CLIENT_STREAM_LIMITS: Table = Table { path: "client:limits.stream", ..ALL_STREAM_LIMITS };
    pub(crate) const FORWARD_LIMITS: Table = Table { path: "client:forwards[].limits", ..ALL_LIMITS };
    pub(crate) const FORWARD_SOURCE_LIMITS: Table = Table { path: "client:forwards[].limits.source", ..ALL_SOURCE_LIMITS };
    pub(crate) const FORWARD_STREAM_LIMITS: Table = Table { path: "client:forwards[].limits.stream", ..ALL_STREAM_LIMITS };
    pub(crate) const KEPT: Table = table("kept:", &["services", "forwards", "without"], &[]);
    pub(crate) const PATH: Table = table("client:servers[]", &["url", "tls", "sni", "headers", "proxy", "dscp"], &["name", "paths"]);
    pub(crate) const CLIENT_TLS: Table = table("client:tls", &["pin", "ca", "cert", "key", "min_version"], &[]);
    pub(crate) const PATH_TLS: Table = table("client:servers[].tls", &["pin", "ca", "cert", "key", "min_version"], &[]);
    pub(crate) const SERVICE: Table = table("client:services[]",
        &["name", "target", "target_tls", "public", "priority", "timeouts", "tcp_keepalive", "dscp", "health", "allow_from", "deny_from", "proxy_protocol",
          "basic_auth", "basic_auth_file", "host_rewrite", "headers", "response_headers", "forwarded", "path", "strip_prefix", "redirect", "hsts", "preflight", "compress", "pass_through", "requests", "remember", "until",
          "list", "try_files", "allow", "limits", "visitors", "visitor_tls", "browser", "balance", "shared", "sticky", "broadcast"],
        &["resume"]);
    pub(crate) const SERVICE_TARGET: Table = table("client:services[].target[]", &["url", "weight"], &[]);
    pub(crate) const TARGET_TLS: Table = table("client:services[].target_tls", &["pin", "ca", "server_name", "insecure"], &[]);
    pub(crate) const SERVICE_LIMITS: Table = table("client:services[].limits", &["flows", "streams", "new_per_second", "up", "down", "source", "stream"], &[]);
    pub(crate) const SERVICE_STREAM_LIMITS: Table = Table { path: "client:services[].limits.stream", ..STREAM_LIMITS };
    pub(crate) const SERVICE_SOURCE_LIMITS: Table = Table { path: "client:services[].limits.source", ..SOURCE_LIMITS };
    pub(crate) const REQUEST_HEADERS: Table = table("client:services[].headers", &["set", "remove"], &[]);
    pub(crate) const RESPONSE_HEADERS: Table = Table { path: "client:services[].response_headers", ..REQUEST_HEADERS };
    pub(crate) const HEALTH: Table = table("client:services[].health", &["interval", "timeout", "path", "udp"], &[]);
    pub(crate) const HEALTH_UDP: Table = table("client:services[].health.udp", &["send", "expect"], &[]);
    pub(crate) const TIMEOUTS: Table = table("client:services[].timeouts", &["dial", "idle", "idle_up", "idle_down", "half_close", "total", "flush", "flow", "flow_unanswered"], &[]);
    pub(crate) const VISITOR: Table = table("client:services[].visitors[]", &["name", "token", "token_file"], &[]);
    pub(crate) const VISITOR_TLS: Table = table("client:services[].visitor_tls", &["ca", "cert", "key"], &[]);
    pub(crate) const FORWARD_TLS: Table = table("client:forwards[].tls", &["ca", "cert", "key"], &[]);
    pub(crate) const VISIT_TLS: Table = table("client:visits[].tls", &["ca", "cert", "key"], &[]);
    pub(crate) const P2P: Table = table("client:p2p", &["stun", "ports", "candidates", "webrtc"], &[]);
    pub(crate) const SERVER_P2P: Table = table("server:p2p", &["webrtc"], &["stun", "ports"]);
    pub(crate) const SERVER_WEBRTC: Table = table("server:p2p.webrtc", &["path"], &["peers", "idle"]);
    pub(crate) const P2P_WEBRTC: Table = table("client:p2p.webrtc", &["peers", "idle"], &[]);
    pub(crate) const VISIT: Table = table("client:visits[]", &["service", "token", "token_file", "tls", "p2p"], &[]);
    pub(crate) const FORWARD: Table = table("client:forwards[]", &["listen", "target", "mode", "basic_auth", "timeouts", "token", "token_file", "tls", "p2p", "accept_proxy", "limits"], &["name"]);
    pub(crate) const FORWARD_TIMEOUTS: Table = table("client:forwards[].timeouts", STREAM_TIMES, &[]);
    pub(crate) const RETRY: Table = table("client:retry", &["min", "max"], &[]);

    pub(crate) const PROXY: Table = table("proxy:", &[
        "proxies", "state_dir", "workers", "memory_budget", "drain_timeout", "log", "control", "watch", "admin", "otlp",
        "trusted_proxies", "upgrade", "type",
    ], &[]);
    pub(crate) const BALANCER: Table = table("proxy:proxies[]",
        &["name", "listen", "mode", "tls", "target", "target_tls", "balance", "health", "limits", "timeouts", "tcp_keepalive",
          "dscp", "broadcast", "proxy_protocol", "accept_proxy", "allow_from", "deny_from"], &["sticky"]);
    pub(crate) const BALANCER_TARGET: Table = Table { path: "proxy:proxies[].target[]", ..SERVICE_TARGET };
    pub(crate) const BALANCER_TARGET_TLS: Table = Table { path: "proxy:proxies[].target_tls", ..TARGET_TLS };
    pub(crate) const BALANCER_TLS: Table = table("proxy:proxies[].tls", &["cert", "key"], &[]);
    pub(crate) const BALANCER_HEALTH: Table = Table { path: "proxy:proxies[].health", ..HEALTH };
    pub(crate) const BALANCER_HEALTH_UDP: Table = Table { path: "proxy:proxies[].health.udp", ..HEALTH_UDP };
    pub(crate) const BALANCER_LIMITS: Table = table("proxy:proxies[].limits", &["connections", "flows", "new_per_second", "up", "down", "source", "stream"], &[]);
    pub(crate) const BALANCER_STREAM_LIMITS: Table = Table { path: "proxy:proxies[].limits.stream", ..STREAM_LIMITS };
    pub(crate) const BALANCER_SOURCE_LIMITS: Table = Table { path: "proxy:proxies[].limits.source", ..SOURCE_LIMITS };
    pub(crate) const BALANCER_TIMEOUTS: Table = Table { path: "proxy:proxies[].timeouts", ..TIMEOUTS };

    pub(crate) const WINDOW: Table = table("both:window", &["initial", "max"], &[]);
    pub(crate) const LOG: Table = table("both:log", &["level", "format", "file", "rotate", "access"], &[]);
    /// The keys of `log` that only a server has.
    pub(crate) const SERVER_LOG: Table = table("server:log", &["requests"], &[]);
    /// All keys of `log` of a server.
    pub(crate) const LOG_OF_SERVER: Table = table("server:log", &["level", "format", "file", "rotate", "access", "requests"], &[]);
    pub(crate) const REQUESTS: Table = table("server:log.requests", &["file", "format", "query", "user"], &[]);
    pub(crate) const ADMIN: Table = table("both:admin",
        &["listen", "token", "token_file", "read_token", "read_token_file", "hosts", "origin"], &[]);
    pub(crate) const UPGRADE: Table = table("both:upgrade", &["former_max", "former_for"], &[]);
    pub(crate) const OTLP: Table = table("both:otlp", &["endpoint", "interval", "headers"], &[]);
    pub(crate) const QUIC: Table = table("both:quic", &["congestion", "mtu", "receive_buffer", "send_buffer"], &[]);
    pub(crate) const KCP: Table = table("both:kcp",
        &["preset", "congestion", "rate", "fec", "send_window", "receive_window", "ack_delay", "least_timeout",
          "mtu", "receive_buffer", "send_buffer"], &[]);
    pub(crate) const ROTATE: Table = table("both:log.rotate", &["size", "keep"], &[]);
}
pub(crate) use tables::*;

/// All sections. The editor and the test of REFERENCE.md use them.
pub const TABLES: &[Table] = &[
    SERVER,
    ALL_LIMITS,
    ALL_SOURCE_LIMITS,
    ALL_STREAM_LIMITS,
    STREAM_LIMITS,
    ANY_STREAM_LIMITS,
    CLIENT_LIMITS,
    CLIENT_SOURCE_LIMITS,
    CLIENT_STREAM_LIMITS,
    FORWARD_LIMITS,
    FORWARD_SOURCE_LIMITS,
    FORWARD_STREAM_LIMITS,
    SERVICE_STREAM_LIMITS,
    BALANCER_STREAM_LIMITS,
    ACCEPT_PROXY,
    LISTEN,
    LISTEN_TIMEOUTS,
    HTTP,
    PAGES,
    TLS_ROUTES,
    CERTIFICATE,
    ACME,
    ACME_EAB,
    ACME_DNS,
    SERVER_TLS,
    CLIENT_ENTRY,
    ANY_CLIENT,
    ANY_ALLOW,
    ANY_LIMITS,
    ANY_SOURCE_LIMITS,
    AUTH,
    AUTH_HTTP,
    AUTH_TLS,
    ALLOW,
    LIMITS,
    SOURCE_LIMITS,
    CLIENT,
    PATH,
    CLIENT_TLS,
    PATH_TLS,
    SERVICE,
    SERVICE_TARGET,
    TARGET_TLS,
    REQUEST_HEADERS,
    RESPONSE_HEADERS,
    TIMEOUTS,
    SERVICE_LIMITS,
    SERVICE_SOURCE_LIMITS,
    HEALTH,
    HEALTH_UDP,
    P2P,
    P2P_WEBRTC,
    SERVER_P2P,
    SERVER_WEBRTC,
    VISITOR,
    VISITOR_TLS,
    VISIT,
    VISIT_TLS,
    FORWARD,
    FORWARD_TLS,
    FORWARD_TIMEOUTS,
    RETRY,
    PROXY,
    BALANCER,
    BALANCER_TARGET,
    BALANCER_TARGET_TLS,
    BALANCER_TLS,
    BALANCER_HEALTH,
    BALANCER_HEALTH_UDP,
    BALANCER_LIMITS,
    BALANCER_SOURCE_LIMITS,
    BALANCER_TIMEOUTS,
    WINDOW,
    LOG,
    SERVER_LOG,
    ROTATE,
    REQUESTS,
    ADMIN,
    OTLP,
    UPGRADE,
    QUIC,
    KCP,
];
