//! The public suites for names, h2spec, testssl.sh and Autobahn: the programs that
//! `crates/tunnel/tests/e2e/doors/conformance.rs` starts, and the step that runs these cases.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use xtask::child::{capture, find};
use xtask::site::Site;
use xtask::verdict::Verdict;
use xtask::{go, packages, python};

use super::end_to_end::{CONFORMANCE, end_to_end, suites};

/// Autobahn's own server and client are the reference, and the last release of the suite is for
/// Python 2.7.
const AUTOBAHN: &str = "autobahntestsuite==0.8.2";
const WEB_SOCKETS: &str = "websockets==15.0.1";

/// The interpreter for Autobahn, where `python2.7` is another program or none.
const PYTHON2: &str = "TUNNEL_PYTHON2";

pub(super) fn check(site: &Site) -> Result<Verdict> {
    let tools = suites(site);
    fs::create_dir_all(&tools)?;
    let source = site.root.join("crates/tunnel/tests/h2spec");
    if let Some(reason) = go::build(&source, &tools.join("h2spec"))? {
        return Ok(Verdict::Skipped(reason));
    }
    if find("testssl").is_none()
        && let Some(reason) = packages::add(&["testssl.sh"])?
    {
        return Ok(Verdict::Skipped(reason));
    }
    if python::with(&tools.join("websockets"), &[WEB_SOCKETS])?.is_none() {
        return Ok(Verdict::Skipped("the package websockets cannot be installed".to_owned()));
    }
    let wanted: fn(&str) -> bool = match autobahn(&tools)? {
        None => |name| name.starts_with(CONFORMANCE),
        Some(reason) => {
            println!("without Autobahn: {reason}");
            |name| name.starts_with(CONFORMANCE) && !name.contains("autobahn")
        }
    };
    end_to_end(site, &site.daemon()?, 1, wanted)
}

/// Installs Autobahn. `Some`: the reason why it cannot be had.
fn autobahn(tools: &Path) -> Result<Option<String>> {
    let named = std::env::var_os(PYTHON2).map(PathBuf::from);
    let Some(python) = named.or_else(|| find("python2.7")) else {
        return Ok(Some(format!("there is no python2.7, and {PYTHON2} names none")));
    };
    let marker = tools.join(AUTOBAHN);
    if !marker.exists() {
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--target"]).arg(tools.join("autobahn"));
        let (good, said) = capture(pip.arg(AUTOBAHN))?;
        if !good {
            return Ok(Some(format!("{}: {}", python.display(), said.trim())));
        }
        fs::write(marker, "")?;
    }
    let link = tools.join("python2");
    let _ = fs::remove_file(&link);
    std::os::unix::fs::symlink(&python, &link)?;
    Ok(None)
}
