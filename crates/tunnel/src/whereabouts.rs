//! The location of a daemon's control socket: by its configuration, or by its configuration file.

use std::path::{Path, PathBuf};

use config::Common;
use control::{Instance, SocketPath};
use ops::Role;
use ops::state::Places;

use crate::input::{absolute, read};
use crate::load::{self, Either};

/// The location of the control socket of a daemon that was started with this file. If the file has
/// become invalid since then, the location still follows from the keys that determine it.
pub(crate) fn control_of(path: &Path) -> anyhow::Result<SocketPath> {
    let places = Places::of_process();
    match load::file(path) {
        Ok(Either::Server(loaded)) => control(&loaded.config.common, Role::Server.name(), &places),
        Ok(Either::Proxy(loaded)) => control(&loaded.config.common, Role::Proxy.name(), &places),
        Ok(Either::Client(loaded)) => {
            let config = loaded.config;
            control(&config.common, &client_instance(&config.name), &places)
        }
        Err(wrong) => match whereabouts(path) {
            Some(Whereabouts { control, state_dir, instance }) => {
                let (control, state_dir) = (control.as_deref(), state_dir.as_deref());
                let place = SocketPath::choose(control, state_dir, &instance, &places)?;
                // The daemon runs, and reports the problems of the file itself.
                if Instance::connect(&place.path).is_ok() { Ok(place) } else { Err(wrong.into()) }
            }
            None => Err(wrong.into()),
        },
    }
}

/// The keys that determine the path of a daemon's control socket.
#[derive(Debug)]
struct Whereabouts {
    control: Option<PathBuf>,
    state_dir: Option<PathBuf>,
    instance: String,
}

/// The location for a file that may have problems. `None` if it cannot be determined.
fn whereabouts(path: &Path) -> Option<Whereabouts> {
    let text = read(path).ok()?;
    let folder = absolute(path).ok()?.parent()?.to_owned();
    let place = |key| -> Option<Option<PathBuf>> {
        let Some(value) = config::scalar(&text, key) else { return Some(None) };
        // The environment of the daemon is not known here.
        (!value.contains("${")).then(|| Some(folder.join(value)))
    };
    let instance = match config::Role::of(&text)? {
        config::Role::Server => Role::Server.name().to_owned(),
        config::Role::Proxy => Role::Proxy.name().to_owned(),
        config::Role::Client => client_instance(&config::scalar(&text, "name")?),
    };
    Some(Whereabouts { control: place("control")?, state_dir: place("state_dir")?, instance })
}

pub(crate) fn control(
    common: &Common,
    instance: &str,
    places: &Places,
) -> anyhow::Result<SocketPath> {
    let (control, state_dir) = (common.control.as_deref(), common.state_dir.as_deref());
    Ok(SocketPath::choose(control, state_dir, instance, places)?)
}

/// The name of a client's daemon among the daemons of this machine.
pub(crate) fn client_instance(name: &str) -> String {
    format!("{}-{name}", Role::Client)
}
