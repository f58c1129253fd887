//! frp's INI files become the tree of its later formats.

use crate::tree::{Entry, Kind, Node};

/// The names in `[common]`, and the current names. Other names are unchanged.
const COMMON: &[(&str, &str)] = &[
    ("authentication_method", "auth.method"),
    ("token", "auth.token"),
    ("oidc_client_id", "auth.oidc.clientID"),
    ("oidc_client_secret", "auth.oidc.clientSecret"),
    ("oidc_audience", "auth.oidc.audience"),
    ("oidc_issuer", "auth.oidc.issuer"),
    ("oidc_token_endpoint_url", "auth.oidc.tokenEndpointURL"),
    ("log_file", "log.to"),
    ("log_level", "log.level"),
    ("log_max_days", "log.maxDays"),
    ("disable_log_color", "log.disablePrintColor"),
    ("admin_addr", "webServer.addr"),
    ("admin_port", "webServer.port"),
    ("admin_user", "webServer.user"),
    ("admin_pwd", "webServer.password"),
    ("dashboard_addr", "webServer.addr"),
    ("dashboard_port", "webServer.port"),
    ("dashboard_user", "webServer.user"),
    ("dashboard_pwd", "webServer.password"),
    ("dashboard_tls_cert_file", "webServer.tls.certFile"),
    ("dashboard_tls_key_file", "webServer.tls.keyFile"),
    ("assets_dir", "webServer.assetsDir"),
    ("pprof_enable", "webServer.pprofEnable"),
    ("protocol", "transport.protocol"),
    ("pool_count", "transport.poolCount"),
    ("max_pool_count", "transport.maxPoolCount"),
    ("tcp_mux", "transport.tcpMux"),
    ("tcp_mux_keepalive_interval", "transport.tcpMuxKeepaliveInterval"),
    ("tcp_keepalive", "transport.tcpKeepalive"),
    ("http_proxy", "transport.proxyURL"),
    ("tls_enable", "transport.tls.enable"),
    ("tls_only", "transport.tls.force"),
    ("tls_cert_file", "transport.tls.certFile"),
    ("tls_key_file", "transport.tls.keyFile"),
    ("tls_trusted_ca_file", "transport.tls.trustedCaFile"),
    ("tls_server_name", "transport.tls.serverName"),
    ("disable_custom_tls_first_byte", "transport.tls.disableCustomTLSFirstByte"),
    ("dial_server_timeout", "transport.dialServerTimeout"),
    ("dial_server_keepalive", "transport.dialServerKeepalive"),
    ("connect_server_local_ip", "transport.connectServerLocalIP"),
    ("heartbeat_interval", "transport.heartbeatInterval"),
    ("heartbeat_timeout", "transport.heartbeatTimeout"),
    ("quic_keepalive_period", "transport.quic.keepalivePeriod"),
    ("quic_max_idle_timeout", "transport.quic.maxIdleTimeout"),
    ("quic_max_incoming_streams", "transport.quic.maxIncomingStreams"),
    ("vhost_http_port", "vhostHTTPPort"),
    ("vhost_https_port", "vhostHTTPSPort"),
    ("vhost_http_timeout", "vhostHTTPTimeout"),
    ("tcpmux_httpconnect_port", "tcpmuxHTTPConnectPort"),
    ("subdomain_host", "subDomainHost"),
    ("custom_404_page", "custom404Page"),
    ("nat_hole_stun_server", "natHoleStunServer"),
];

/// The names of a proxy or a visitor.
const ENTRY: &[(&str, &str)] = &[
    ("sk", "secretKey"),
    ("local_ip", "localIP"),
    ("http_user", "httpUser"),
    ("http_pwd", "httpPassword"),
    ("use_encryption", "transport.useEncryption"),
    ("use_compression", "transport.useCompression"),
    ("bandwidth_limit", "transport.bandwidthLimit"),
    ("bandwidth_limit_mode", "transport.bandwidthLimitMode"),
    ("proxy_protocol_version", "transport.proxyProtocolVersion"),
    ("group", "loadBalancer.group"),
    ("group_key", "loadBalancer.groupKey"),
    ("health_check_type", "healthCheck.type"),
    ("health_check_url", "healthCheck.path"),
    ("health_check_timeout_s", "healthCheck.timeoutSeconds"),
    ("health_check_interval_s", "healthCheck.intervalSeconds"),
    ("health_check_max_failed", "healthCheck.maxFailed"),
    ("route_by_http_user", "routeByHTTPUser"),
    ("fallback_timeout_ms", "fallbackTimeoutMs"),
    ("plugin", "plugin.type"),
    ("plugin_user", "plugin.username"),
    ("plugin_passwd", "plugin.password"),
    ("plugin_http_user", "plugin.httpUser"),
    ("plugin_http_passwd", "plugin.httpPassword"),
    ("plugin_crt_path", "plugin.crtPath"),
    ("plugin_key_path", "plugin.keyPath"),
    ("plugin_host_header_rewrite", "plugin.hostHeaderRewrite"),
    ("plugin_local_addr", "plugin.localAddr"),
    ("plugin_local_path", "plugin.localPath"),
    ("plugin_strip_prefix", "plugin.stripPrefix"),
    ("plugin_unix_path", "plugin.unixPath"),
];

/// Whether a tree has the sections of an INI file.
pub(super) fn is_legacy(root: &Node) -> bool {
    let Kind::Map(entries) = &root.kind else { return false };
    let common = root.entry("common").is_some_and(|entry| matches!(entry.node.kind, Kind::Map(_)));
    let proxy = |entry: &Entry| {
        let has = |key| entry.node.entry(key).is_some();
        has("type") && (has("local_port") || has("plugin") || has("server_name"))
    };
    let sections = entries.iter().all(|entry| matches!(entry.node.kind, Kind::Map(_)));
    common || (sections && entries.iter().any(proxy))
}

/// Converts the tree to a current format. Values keep their lines.
pub(super) fn converted(root: Node) -> Node {
    let Kind::Map(sections) = root.kind else { return root };
    let mut top = Node::new(root.line, Kind::Map(Vec::new()));
    let (mut proxies, mut visitors) = (Vec::new(), Vec::new());
    for Entry { key: name, line, node } in sections {
        let Kind::Map(entries) = node.kind else { continue };
        if name.eq_ignore_ascii_case("common") {
            for entry in entries {
                let path = renamed(&entry.key, COMMON, "meta_", "metadatas.");
                let node = match path.as_str() {
                    "allowPorts" => ports(&entry.node),
                    _ => entry.node,
                };
                put(&mut top, &path, entry.line, node);
            }
            continue;
        }
        let is_visitor = entries.iter().any(|entry| {
            entry.key.eq_ignore_ascii_case("role") && entry.node.as_text() == Some("visitor")
        });
        let mut item = Node::new(line, Kind::Map(Vec::new()));
        let (is_range, name) = match name.strip_prefix("range:") {
            Some(name) => (true, name),
            None => (false, name.as_str()),
        };
        put(&mut item, "name", line, Node::text(line, name));
        for entry in entries {
            let key = entry.key.to_ascii_lowercase();
            let path = match key.as_str() {
                "role" => continue,
                "local_port" | "remote_port" if is_range => format!("{}s", camel(&key)),
                _ => match key.strip_prefix("plugin_header_") {
                    Some(name) => format!("plugin.requestHeaders.set.{}", name.replace('.', "-")),
                    None => match key.strip_prefix("header_") {
                        Some(name) => format!("requestHeaders.set.{}", name.replace('.', "-")),
                        None => renamed(&key, ENTRY, "meta_", "metadatas."),
                    },
                },
            };
            put(&mut item, &path, entry.line, entry.node);
        }
        if is_visitor { visitors.push(item) } else { proxies.push(item) }
    }
    for (key, items) in [("proxies", proxies), ("visitors", visitors)] {
        if let Some(first) = items.first() {
            let line = first.line;
            put(&mut top, key, line, Node::new(line, Kind::List(items)));
        }
    }
    top
}

fn renamed(key: &str, names: &[(&str, &str)], prefix: &str, below: &str) -> String {
    let key = key.to_ascii_lowercase();
    if let Some((_, today)) = names.iter().find(|(name, _)| *name == key) {
        return (*today).to_owned();
    }
    match key.strip_prefix(prefix) {
        Some(name) => format!("{below}{}", name.replace('.', "-")),
        None => camel(&key),
    }
}

/// `local_port` as `localPort`.
fn camel(key: &str) -> String {
    let mut words = key.split('_');
    let mut out = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut chars = word.chars();
        out.extend(chars.next().map(|c| c.to_ascii_uppercase()));
        out.push_str(chars.as_str());
    }
    out
}

/// `2000-3000,3001` as the list of current versions.
fn ports(node: &Node) -> Node {
    let text = node.as_text().unwrap_or_default();
    let item = |part: &str| {
        let mut item = Node::new(node.line, Kind::Map(Vec::new()));
        match part.trim().split_once('-') {
            Some((start, end)) => {
                put(&mut item, "start", node.line, Node::text(node.line, start));
                put(&mut item, "end", node.line, Node::text(node.line, end));
            }
            None => put(&mut item, "single", node.line, Node::text(node.line, part.trim())),
        }
        item
    };
    Node::new(node.line, Kind::List(text.split(',').map(item).collect()))
}

/// Sets the value of a path in a tree of maps.
fn put(node: &mut Node, path: &str, line: usize, value: Node) {
    let Kind::Map(entries) = &mut node.kind else { return };
    let Some((first, rest)) = path.split_once('.') else {
        entries.push(Entry { key: path.to_owned(), line, node: value });
        return;
    };
    let n = match entries.iter().position(|entry| entry.key == first) {
        Some(n) => n,
        None => {
            let inner = Node::new(line, Kind::Map(Vec::new()));
            entries.push(Entry { key: first.to_owned(), line, node: inner });
            entries.len() - 1
        }
    };
    put(&mut entries[n].node, rest, line, value);
}
