//! Whether a listener of this machine takes the address of a visitor from the PROXY protocol header
//! of a load balancer (`accept_proxy`). The lists of visitors are in `model/entry.rs`.

use crate::section::{Cx, Section};
use crate::yaml::At;
use crate::{BadValue, Local, values};

/// Decodes `accept_proxy` of a listener of this machine.
pub(super) fn accept_proxy(s: &Section<'_>, listen: Option<&Local>) -> bool {
    let accepts = s.value("accept_proxy", values::switch) == Some(true);
    if accepts && let Some(listen @ Local::Unix { .. }) = listen {
        let bad =
            BadValue::new(format!("the visitors of {listen} have no address to be trusted by"));
        s.bad("accept_proxy", bad.hint("remove the key, or listen on tcp://127.0.0.1:port"));
    }
    accepts
}

/// Reports that the list of load balancers whose headers a listener accepts is empty.
pub(super) fn nobody_announces(cx: &Cx<'_>, at: At) {
    let bad = BadValue::new("`accept_proxy` has no effect without `trusted_proxies`");
    let hint = "name the load balancers: trusted_proxies: [10.0.0.5]";
    cx.problem(at, "trusted_proxies", bad.hint(hint));
}
