//! The admission of a request to its service: route, password, verdict.

use std::{mem, rc::Rc};

use hyper::{Request, body::Body as _};

use super::{Connection, denied::Denied};
use crate::{
    Asked, Checked, Found, Refusal, Rules, Service, Verdict, body::VisitorBody, fields, path,
    recording::Recording, rules::Admission,
};

impl Connection {
    /// Whether the request is a preflight that the service admits without a password.
    pub(super) fn is_preflight(&self, rules: &Rules, request: &Request<VisitorBody>) -> bool {
        let has_body = !request.body().is_end_stream();
        rules.preflight && fields::is_preflight(request.method(), request.headers(), has_body)
    }

    /// The service of a request, if the request is admitted.
    pub(super) async fn admitted(
        &self,
        request: &Request<VisitorBody>,
        asked: &Asked<'_>,
        recording: Option<&Recording>,
    ) -> Result<Rc<dyn Service>, Denied> {
        let mut service = self.find(asked, request).await?;
        let mut is_counted = false;
        loop {
            if let Some(recording) = recording {
                recording.found(&service);
            }
            let rules = service.rules();
            let hsts = rules.hsts.clone().filter(|_| asked.is_secure);
            let denied = |refusal: Refusal| Denied { hsts: hsts.clone(), ..refusal.into() };
            if !mem::replace(&mut is_counted, true)
                && let Some(retry_after) = service.excess()
            {
                let reason = "Too many requests came from your address: try again in a moment.";
                let retry_after = Some(retry_after);
                return Err(Denied { retry_after, ..denied(Refusal::new(429, reason)) });
            }
            if rules.path().is_some() && path::is_ambiguous(request.uri().path()) {
                return Err(denied(Refusal::new(400, "The path of the request is ambiguous.")));
            }
            if self.is_preflight(rules, request) {
                return Ok(service);
            }
            let mut has_waited = false;
            let (is_given, is_right) = match rules.admit(request.headers()) {
                Admission::Missing => (false, false),
                Admission::Wrong => (true, false),
                Admission::Admitted => (true, true),
                Admission::Hashed(candidate) => match service.check(candidate) {
                    Checked::Now(is_right) => (true, is_right),
                    Checked::Later(later) => {
                        has_waited = true;
                        (true, later.await?)
                    }
                },
            };
            let waits =
                if rules.have_password() && is_given { service.judge(is_right) } else { None };
            has_waited |= waits.is_some();
            if let Some(verdict) = waits
                && verdict.await == Verdict::Busy
            {
                let reason =
                    "Too many wrong passwords came from your address: try again in a moment.";
                return Err(denied(Refusal::new(429, reason)));
            }
            if !is_right {
                let refusal = Refusal::new(401, "The service asks for a user and a password.");
                return Err(Denied { realm: Some(asked.host.into()), ..denied(refusal) });
            }
            if !has_waited {
                return Ok(service);
            }
            // The rules may have changed while the request waited.
            let now = self.find(asked, request).await?;
            if let Some(recording) = recording {
                recording.found(&now);
            }
            if now.identity() == service.identity() {
                return Ok(now);
            }
            service = now;
        }
    }

    async fn find(
        &self,
        asked: &Asked<'_>,
        request: &Request<VisitorBody>,
    ) -> Result<Rc<dyn Service>, Denied> {
        let mut found = self.services.find(asked);
        loop {
            match found {
                Found::Service(service) => return Ok(service),
                Found::Unknown => {
                    let reason = format!("No service has the name {}.", asked.host);
                    return Err(Refusal { status: 404, reason: reason.into() }.into());
                }
                Found::Redirect(to) => return Err(Denied::redirect(&to, asked, request.uri())),
                Found::Answer(bytes) => {
                    let refusal = Refusal::new(200, "");
                    return Err(Denied { bytes: Some(bytes), ..refusal.into() });
                }
                Found::Refused(refusal) => return Err(refusal.into()),
                Found::Unavailable(why) => return Err(why.into()),
                Found::Later(later) => found = later.await,
            }
        }
    }
}
