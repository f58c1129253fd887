//! One question to the API: a GET over a new connection.

use std::fmt;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use config::{FOUND_MAX, ServersFrom};
use families::Way;
use families::http::TooLarge;
use http_body_util::Full;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response, StatusCode};
use transport::CarrierError;

use super::trouble::Trouble;

/// The time limit of a question: name, connection, TLS, request and answer.
const LIMIT: Duration = Duration::from_secs(10);

/// The largest part of another place that a message repeats, in characters.
const PLACE_SHOWN: usize = 200;

/// The API, as dialled.
pub(super) struct Api {
    way: Way,
    place: String,
    fields: Vec<(HeaderName, HeaderValue)>,
}

impl fmt::Debug for Api {
    /// Shows the host only: the fields and the query of the URL may be credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Api({})", self.way.host())
    }
}

impl Api {
    /// Reads the certificates that the settings name.
    pub(super) fn new(from: &ServersFrom) -> anyhow::Result<Self> {
        let way = Way::of_http(&from.path).context("servers_from")?;
        let mut fields = families::http::fields(&from.path).context("servers_from.headers")?;
        if let Some(token) = &from.token {
            let text = format!("Bearer {}", token.secret.reveal());
            let mut value = HeaderValue::from_str(&text).context("servers_from.token")?;
            value.set_sensitive(true);
            fields.push((header::AUTHORIZATION, value));
        }
        let place = from.path.endpoint.path.clone().unwrap_or_else(|| "/".to_owned());
        Ok(Self { way, place, fields })
    }

    /// The text of the answer.
    pub(super) async fn ask(&self) -> Result<String, Trouble> {
        let request = self.request().map_err(Trouble::Unreachable)?;
        let exchange = async {
            let carrier = link::dial(&self.way.path()).await.map_err(of_dial)?;
            let answer = families::http::ask(carrier.lane, request, FOUND_MAX).await;
            answer.map_err(|why| match why.downcast::<TooLarge>() {
                Ok(TooLarge(most)) => Trouble::TooLarge(most),
                Err(why) => Trouble::Unreachable(why),
            })
        };
        let answer = tokio::time::timeout(LIMIT, exchange).await;
        text_of(answer.map_err(|_| Trouble::Silent(LIMIT.as_secs()))??)
    }

    fn request(&self) -> anyhow::Result<Request<Full<Bytes>>> {
        let mut request = Request::get(self.place.as_str())
            .header(header::ACCEPT, "application/json")
            .header(header::CONNECTION, "close");
        for (name, value) in &self.fields {
            request = request.header(name, value);
        }
        Ok(request.body(Full::default())?)
    }
}

fn of_dial(error: CarrierError) -> Trouble {
    let is_certificate =
        matches!(error, CarrierError::PinMismatch { .. } | CarrierError::Certificate(_));
    let error = anyhow::Error::new(error);
    if is_certificate { Trouble::Certificate(error) } else { Trouble::Unreachable(error) }
}

fn text_of(answer: Response<Bytes>) -> Result<String, Trouble> {
    match answer.status() {
        StatusCode::OK => String::from_utf8(answer.into_body().into()).map_err(|_| Trouble::NoText),
        status if status.is_redirection() => {
            Err(Trouble::Redirect(status, location(answer.headers())))
        }
        status => Err(Trouble::Status(status)),
    }
}

/// The other place of a redirect, fit for a line of the log, without its query.
fn location(fields: &HeaderMap) -> Option<String> {
    let place = fields.get(header::LOCATION)?.to_str().ok()?;
    let place = place.split(['?', '#']).next().unwrap_or_default();
    Some(place.chars().take(PLACE_SHOWN).collect())
}
