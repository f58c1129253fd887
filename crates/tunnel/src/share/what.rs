//! The shared target and its address: converts the arguments of the command line to a service.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use ops::WrongConfig;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, bind, socket, sockopt};

/// A target in the form of `--publish`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct What {
    pub(super) target: String,
    /// The only file of the directory `target` that is served.
    pub(super) only: Option<String>,
    /// The target as shown to the user.
    pub(super) shown: String,
}

/// Reads a port, an address, a folder or a file.
pub(super) fn what(text: &str) -> Result<What, WrongConfig> {
    let wrong = |why: String| WrongConfig::one(format!("`{text}` {why}"));
    let plain =
        |target: &str| What { target: target.to_owned(), only: None, shown: target.to_owned() };
    if is_number(text) && !matches!(text.parse::<u16>(), Ok(1..)) {
        return Err(wrong("is no port (hint: a port is a number from 1 to 65535)".to_owned()));
    }
    if is_number(text) || text.contains("://") {
        return Ok(plain(text));
    }
    let path = Path::new(text);
    let Ok(facts) = path.metadata() else {
        let is_address = text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if is_address {
            return Ok(plain(text));
        }
        return Err(wrong(
            "is no port, no address, and no file here (hint: 3000, 192.168.1.5:80, ./site)"
                .to_owned(),
        ));
    };
    let whole = path.canonicalize().map_err(|why| wrong(format!("cannot be used: {why}")))?;
    let utf8 = |path: &Path| {
        let text = path.to_str().map(str::to_owned);
        text.ok_or_else(|| wrong("has a name that is no UTF-8".to_owned()))
    };
    if facts.is_dir() {
        let folder = utf8(&whole)?;
        return Ok(What { target: format!("file://{folder}"), only: None, shown: folder });
    }
    if !facts.is_file() {
        return Err(wrong("is neither a file nor a folder".to_owned()));
    }
    let (Some(folder), Some(name)) = (whole.parent(), whole.file_name()) else {
        return Err(wrong("has no folder".to_owned()));
    };
    let (folder, name) = (utf8(folder)?, utf8(Path::new(name))?);
    Ok(What { target: format!("file://{folder}"), only: Some(name), shown: utf8(&whole)? })
}

/// The address of the target on this machine, if no program listens there. `None`: a program
/// listens there, or that cannot be known. The target is not dialled: a program may accept a single
/// connection only.
pub(super) fn deserted(target: &str) -> Option<SocketAddr> {
    let (scheme, rest) = target.split_once("://").unwrap_or(("tcp", target));
    if !["tcp", "http", "https", "h2c"].contains(&scheme) {
        return None;
    }
    let (host, port) = if is_number(rest) { ("localhost", rest) } else { rest.rsplit_once(':')? };
    let port = port.trim_end_matches('/').parse::<u16>().ok()?;
    let (v4, v6): (SocketAddr, SocketAddr) =
        ((Ipv4Addr::LOCALHOST, port).into(), (Ipv6Addr::LOCALHOST, port).into());
    let places = match host {
        "127.0.0.1" => vec![v4],
        "[::1]" => vec![v6],
        "localhost" => vec![v4, v6],
        _ => return None,
    };
    places.iter().all(|place| is_free(*place)).then_some(*places.first()?)
}

/// Whether no program listens at an address of this machine: then a socket that shares the address
/// can be bound there. The socket never listens, so a program that starts in the meantime is not
/// hindered.
fn is_free(place: SocketAddr) -> bool {
    let family = if place.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let Ok(trial) = socket(family, SocketType::STREAM, None) else { return false };
    if sockopt::set_socket_reuseaddr(&trial, true).is_err() {
        return false;
    }
    match bind(&trial, &place) {
        Ok(()) => true,
        // A machine without IPv6 has no such listener.
        Err(why) => why == Errno::ADDRNOTAVAIL,
    }
}

/// The public addresses that are tried one after the other, in the form of `--publish`. `None`
/// stands for a port of the server's choice.
pub(super) fn places(
    at: Option<&str>,
    word: &str,
    is_for_http: bool,
) -> Result<Vec<Option<String>>, WrongConfig> {
    Ok(match at {
        Some(at) if at.contains("://") || is_number(at) => {
            vec![Some(at.to_owned())]
        }
        Some(word) if !is_word(word) => {
            return Err(WrongConfig::one(format!(
                "--at: `{word}` is no word of letters, digits and hyphens (hint: blog, or a whole \
                 address: http://blog.example.com, 10080)"
            )));
        }
        Some(word) => vec![Some(format!("http://{word}-{{name}}"))],
        None if is_for_http => vec![Some(format!("http://{word}-{{name}}"))],
        None => vec![Some(format!("http://{word}-{{name}}")), None],
    })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether the text is allowed before a hyphen in a label.
fn is_word(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    !text.is_empty() && !text.starts_with('-') && text.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_port_where_nobody_listens_is_told_without_a_dial() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let place = listener.local_addr().unwrap();
        let port = place.port();
        let forms = [
            port.to_string(),
            format!("127.0.0.1:{port}"),
            format!("localhost:{port}"),
            format!("http://127.0.0.1:{port}/"),
            format!("https://localhost:{port}"),
        ];
        for text in &forms {
            assert_eq!(deserted(text), None, "{text}");
        }
        assert!(listener.accept().is_err(), "nobody has come");
        drop(listener);
        for text in &forms {
            assert_eq!(deserted(text), Some(place), "{text}");
        }
        // A socket with the address that does not listen hinders no program.
        assert!(TcpListener::bind(place).is_ok());
        // A listener of every address is there as well.
        let all = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        assert_eq!(deserted(&all.local_addr().unwrap().port().to_string()), None);
        // Elsewhere, and what is no port: that cannot be known.
        for text in ["192.0.2.1:80", "box:8080", "file:///x", "unix:///x", "udp://127.0.0.1:53"] {
            assert_eq!(deserted(text), None, "{text}");
        }
    }

    #[test]
    fn ports_addresses_folders_and_files_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let root = root.to_str().unwrap();
        fs::write(dir.path().join("a b.pdf"), "x").unwrap();
        for text in ["3000", "192.168.1.5:80", "[::1]:80", "box:8080", "https://127.0.0.1:8443"] {
            assert_eq!(what(text).unwrap().target, text);
        }
        let folder = what(root).unwrap();
        assert_eq!((folder.target, folder.only), (format!("file://{root}"), None));
        let file = what(&format!("{root}/a b.pdf")).unwrap();
        assert_eq!(
            (file.target, file.only.as_deref()),
            (format!("file://{root}"), Some("a b.pdf"))
        );
        for bad in ["", "0", "65536", "absent.txt", "box", "box:http", "/dev/null"] {
            let why = what(bad).unwrap_err().to_string();
            assert!(why.contains(&format!("`{bad}` ")), "{why}");
        }
    }

    #[test]
    fn a_name_is_tried_before_a_port_unless_the_address_is_given() {
        let own = Some("http://brisk-fox-{name}".to_owned());
        assert_eq!(places(None, "brisk-fox", false).unwrap(), [own.clone(), None]);
        assert_eq!(places(None, "brisk-fox", true).unwrap(), [own]);
        assert_eq!(
            places(Some("blog"), "x", false).unwrap(),
            [Some("http://blog-{name}".to_owned())]
        );
        for at in ["http://a.example.com", "10080"] {
            assert_eq!(places(Some(at), "x", false).unwrap(), [Some(at.to_owned())]);
        }
        for bad in ["", "a/b", "-a", "a.b", "a b"] {
            assert!(places(Some(bad), "x", false).is_err(), "{bad}");
        }
    }
}
