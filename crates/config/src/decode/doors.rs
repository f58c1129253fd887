//! `http` and `tls_routes` of a server: the doors for visitors of names.

use crate::BadValue;
use crate::key_table::KeyTable as _;
use crate::model::{Http, Listen, ServerConfig, TlsRoutes};
use crate::section::Section;

/// Decodes both sections, and compares their ports with the other listeners.
pub(super) fn doors(s: &Section<'_>, listen: &[Listen]) -> Option<(Http, TlsRoutes)> {
    let of_http: Option<Http> = s.map_or_empty("http", ServerConfig::map("http"));
    let of_tls: TlsRoutes = s.map_or_empty("tls_routes", ServerConfig::map("tls_routes"))?;
    let of_http = of_http?;
    let (http, tls) = (s.checked("http"), s.checked("tls_routes"));
    let has_mux = listen.iter().any(|listen| listen.mux.is_some());
    let offers = |listen: &Listen| {
        listen.endpoint.scheme.http && (listen.mux.is_none() || listen.endpoint.path.is_some())
    };
    if let Some(http) = &http
        && of_http.browser
        && !listen.iter().any(offers)
    {
        let bad = BadValue::new("no listener offers the page for browsers");
        let hint = "add a listener wss://, mux:// with a path, or ws:// behind a reverse proxy";
        http.bad("browser", bad.hint(hint));
    }
    let has_tls = has_mux || !of_tls.listen.is_empty();
    if let Some(http) = http
        && !has_tls
        && !of_http.browser
        && of_http.listen.is_empty()
        && !http.has("listen")
    {
        let bad = BadValue::new("no port takes visitors of http:// names");
        let hint = "add http: { listen: [\"0.0.0.0:80\"] }, or a mux:// listener";
        s.cx.warn(http.at(), &http.item.path, bad.hint(hint));
    }
    if let Some(tls) = tls
        && !has_tls
        && !tls.has("listen")
    {
        let keys = ["certificates", "min_version", "acme"];
        for key in keys.into_iter().filter(|key| tls.has(key)) {
            let bad = BadValue::new("no port takes visitors of https:// names");
            let hint = "add tls_routes: { listen: [\"0.0.0.0:443\"] }, or a mux:// listener";
            tls.warn(key, bad.hint(hint));
        }
    }
    Some((of_http, of_tls))
}

/// Warns about rights to names that no port serves.
pub(super) fn rights(s: &Section<'_>, has_doors: bool, has_rights: bool) {
    if has_doors || !has_rights {
        return;
    }
    let Some(item) = s.key("clients").or_else(|| s.key("allow_any_client")) else { return };
    let bad = BadValue::new("rights to names (allow.http, allow.tls), and no port for visitors");
    let hint = "add http: { listen: [\"0.0.0.0:80\"] }, tls_routes: { listen: [\"0.0.0.0:443\"] }, \
                or a mux:// listener";
    s.cx.warn(item.at(), &item.path, bad.hint(hint));
}
