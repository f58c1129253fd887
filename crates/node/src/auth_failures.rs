//! The brake on password guessing. The process has a single brake, because a source counts as the
//! same for all services, workers and configurations.

use std::sync::{Arc, OnceLock};

use logging::AUDIT;
use net::brake::{Brake, Report};
use ops::term;

/// The brake of this process.
pub fn brake() -> &'static Arc<Brake> {
    static BRAKE: OnceLock<Arc<Brake>> = OnceLock::new();
    BRAKE.get_or_init(|| Brake::new(tell))
}

fn tell(report: Report<'_>) {
    let Report { service, source, wrong, refused } = report;
    let guesses = term::count(wrong, "wrong password");
    let more = match refused {
        0 => String::new(),
        _ => format!(", and {} more unjudged", term::count(refused, "request")),
    };
    tracing::warn!(
        target: AUDIT, service, %source, wrong, refused,
        "{service}: {guesses} from {source}{more}; the answers to this source are slowed down"
    );
}
