//! The client's side of a renewal: exchanges a code for a new token, and puts the token in the place
//! of the old one. Everything else of the configuration stays as it is.

use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use config::edit::{Action, Operation, Value};
use ops::enrol::Code;
use ops::state::write_like;
use ops::{WrongConfig, term};
use proto::greeting::{Name, Token};

use super::exchange::{exchange, start_with, ways};
use super::extend::extend;
use crate::cli::ClientArgs;
use crate::config_file::ConfigFile;
use crate::load::{self, Either};
use crate::runtime::slow_runtime;

/// Sends the code to the server, and writes the new token to the configuration at `path`, or to the
/// file that its `token_file` names. Returns the arguments of a client that starts with this
/// configuration.
pub(super) fn renew(path: &Path, code: &Code, args: &ClientArgs) -> anyhow::Result<ClientArgs> {
    let file = ConfigFile(path.to_owned());
    let token_file = match load::file(path)? {
        Either::Client(loaded) => loaded.config.token.and_then(|token| token.file),
        Either::Server(_) => None,
    };
    // The code must not be used before it is certain that its result can be written.
    let place = match &token_file {
        Some(named) => {
            let folder = path.parent().unwrap_or(path);
            ConfigFile(std::path::absolute(folder)?.join(named))
        }
        None => file.clone(),
    };
    place.writable()?;
    extend(path, args)?;
    let ways = ways(code, args)?;
    let name = Name::new(&code.name).map_err(|why| WrongConfig::one(format!("--enroll: {why}")))?;
    let secret = Token::new(&code.secret)
        .map_err(|_| WrongConfig::one("--enroll: the code is damaged".to_owned()))?;
    let (token, _) = slow_runtime()?.block_on(exchange(&ways, &name, &secret))?;
    write(&file, token_file.is_some().then_some(&place.0), token.reveal()).context(
        "the new token is lost, and the old token is still valid: ask for another code with \
         `tunnel enroll --renew`",
    )?;
    let at = path.display();
    term::err(format_args!(
        "client `{name}` has a new token in {at}; a client that runs already takes it by: \
         tunnel reload --config {at}"
    ));
    Ok(start_with(args, path.to_owned(), false))
}

/// Writes the token to `token_file`, or to the key `token` of the configuration without one.
fn write(file: &ConfigFile, token_file: Option<&Path>, token: &str) -> anyhow::Result<()> {
    let Some(path) = token_file else {
        let before = file.read()?;
        let action = Action::Add(Value::Text(token.replace("${", "$${")));
        let after = file.edit(&before, &[Operation { path: "/token".to_owned(), action }])?;
        return file.replace(&before, &after);
    };
    let target = fs::canonicalize(path)?;
    let (Some(folder), Some(name)) = (target.parent(), target.file_name()) else {
        bail!("{} is no file", target.display());
    };
    let (like, line) = (fs::metadata(&target)?, format!("{token}\n"));
    write_like(folder, &name.to_string_lossy(), line.as_bytes(), Some(&like))
        .with_context(|| format!("{} cannot be written", target.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_token_is_replaced_where_it_stands_and_everything_else_stays() {
        let dir = tempfile::tempdir().unwrap();
        let [config, secret] = ["client.yaml", "t"].map(|name| dir.path().join(name));
        let text = "# Mine.\nservers: tls://a:1 # there\nname: home\ntoken: \"old\" # his\n";
        fs::write(&config, text).unwrap();
        fs::set_permissions(&config, fs::Permissions::from_mode(0o640)).unwrap();
        let file = ConfigFile(config.clone());
        write(&file, None, "new-1").unwrap();
        assert_eq!(fs::read_to_string(&config).unwrap(), text.replace("\"old\"", "new-1"));
        assert_eq!(fs::metadata(&config).unwrap().permissions().mode() & 0o777, 0o640);

        fs::write(&secret, "old\n").unwrap();
        write(&file, Some(&secret), "new-2").unwrap();
        assert_eq!(fs::read_to_string(&secret).unwrap(), "new-2\n");
        assert!(!fs::read_to_string(&config).unwrap().contains("new-2"));
    }
}
