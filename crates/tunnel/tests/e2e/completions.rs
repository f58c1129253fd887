//! What a person is offered by bash, zsh and fish: commands, flags, and the names of a running
//! daemon.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Origin, Scheme, Setup, binary, program, run, tunnel};

const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

/// A folder with the program and the script of each shell.
fn installed(dir: &Path) -> PathBuf {
    let bin = dir.join("bin");
    fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(binary(), bin.join("tunnel")).unwrap();
    for shell in SHELLS {
        let made = run(&mut tunnel(&["generate", "completions", shell]));
        assert!(made.status.success(), "{made:?}");
        fs::write(bin.join(shell), made.stdout).unwrap();
    }
    bin
}

/// What the shell offers for the last of the words, without descriptions.
fn offered(shell: &str, bin: &Path, words: &[&str]) -> Vec<String> {
    let script = match shell {
        "bash" => {
            "source \"$0\"; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1))\n\
             _tunnel_complete tunnel \"${COMP_WORDS[COMP_CWORD]}\"\n\
             printf '%s\\n' \"${COMPREPLY[@]}\""
        }
        // The line editor needs a terminal: the test takes the place of its last function.
        "zsh" => {
            "compdef() {}; _describe() { print -rl -- \"${(@P)3}\" }; source \"$0\"\n\
             words=(\"$@\"); CURRENT=$#; _clap_dynamic_completer_tunnel"
        }
        _ => "source $argv[1]; complete -C (string join ' ' -- $argv[2..])",
    };
    let mut command = Command::new(program(shell));
    match shell {
        "bash" => command.args(["--norc", "--noprofile"]),
        "zsh" => command.arg("-f"),
        _ => command.arg("--no-config"),
    };
    command.arg("-c").arg(script).arg(bin.join(shell)).args(words);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", bin.display())).env("HOME", bin);
    let output = run(&mut command);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.stderr.is_empty(), "{shell}: {}", String::from_utf8_lossy(&output.stderr));
    let value = |line: &str| {
        let line = line.trim_end_matches('\u{b}').split('\t').next().unwrap_or_default();
        let line = line.replace("\\:", "\u{0}");
        let line = if shell == "zsh" { line.split(':').next().unwrap_or_default() } else { &line };
        line.replace('\u{0}', ":").trim().to_owned()
    };
    // bash gets one text for all.
    text.split(['\n', '\u{b}']).map(value).filter(|line| !line.is_empty()).collect()
}

#[test]
fn shells_complete_commands_flags_and_the_names_of_the_running_daemon() {
    let (origin, other) = (Origin::echo(), Origin::echo());
    let setup = Setup::new(Scheme::TLS)
        .service("web-shop", origin.port())
        .service("web-mail", origin.port())
        .service("ssh", origin.port())
        .forward(other.port());
    let running = setup.start();
    let bin = installed(running.dir());
    let [client, server] = ["client", "server"]
        .map(|side| running.file(&format!("{side}.sock")).display().to_string());
    let listener = format!("tcp://127.0.0.1:{}", running.local());
    for shell in SHELLS {
        let offered = |words: &[&str]| offered(shell, &bin, words);
        assert_eq!(offered(&["tunnel", "unpub"]), ["unpublish"], "{shell}");
        assert_eq!(offered(&["tunnel", "client", "--publ"]), ["--publish"], "{shell}");
        let at = ["tunnel", "unpublish", "--control", &client];
        assert_eq!(offered(&[&at[..], &["web-"]].concat()), ["web-mail", "web-shop"], "{shell}");
        let all = offered(&[&at[..], &[""]].concat());
        for name in ["ssh", "web-mail", "web-shop", &listener] {
            assert!(all.iter().any(|one| one == name), "{shell}: {name} in {all:?}");
        }
        let words = ["tunnel", "drain", "--control", &client, "web-"];
        assert_eq!(offered(&words), ["web-mail", "web-shop"], "{shell}");
        let words = ["tunnel", "streams", "--control", &server, "--service", "ss"];
        assert_eq!(offered(&words), ["ssh"], "{shell}");
        let words = ["tunnel", "clients", "show", "--control", &server, "ho"];
        assert_eq!(offered(&words), ["home"], "{shell}");
        // Without a daemon there are no names, and no complaint.
        let words = ["tunnel", "clients", "show", "--control", "/no/such.sock", "ho"];
        assert_eq!(offered(&words), [""; 0], "{shell}");
    }
}

/// Types the beginning of a line and a tab at a bash of its own, and writes the words of the line
/// that bash makes of it.
const TYPED: &str = r#"
import os, pty, re, sys
script, typed = sys.argv[1:]
pid, terminal = pty.fork()
if pid == 0:
    os.environ.update(TERM='dumb', INPUTRC='/dev/null')
    os.execvp('bash', ['bash', '--norc', '--noprofile', '-i'])
said = b''
def read_until(mark):
    global said
    while not re.search(mark, said):
        said += os.read(terminal, 65536)
os.write(terminal, b'source %s; echo re""ady\n' % script.encode())
read_until(rb'\nready')
# At the begin of the completed line stands a command that writes its words.
os.write(terminal, typed.encode() + b"\t\x01printf 'got<%s>' \x05'' e''nd\n")
read_until(rb'got<end>')
os.write(terminal, b'exit\n')
words = re.findall(rb'got<([^%>]*)>', said)
print('\n'.join(word.decode() for word in words[:-1] if word))
"#;

#[test]
fn bash_completes_a_name_with_colons_to_its_end() {
    let (origin, other) = (Origin::echo(), Origin::echo());
    let setup = Setup::new(Scheme::TLS).service("web", origin.port()).forward(other.port());
    let running = setup.start();
    let bin = installed(running.dir());
    let control = running.file("client.sock").display().to_string();
    let listener = format!("tcp://127.0.0.1:{}", running.local());
    let path = std::env::var("PATH").unwrap_or_default();
    let completed = |typed: &str| {
        let mut python = Command::new(program("python3"));
        python.args(["-c", TYPED]).arg(bin.join("bash")).arg(typed);
        python.env("PATH", format!("{}:{path}", bin.display())).env("HOME", &bin);
        let output = run(&mut python);
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().last().unwrap().to_owned()
    };
    let unpublish = format!("tunnel unpublish --control {control} ");
    for begin in ["t", "tcp:", "tcp://", "tcp://127.0.0.1:", &listener[..listener.len() - 1]] {
        assert_eq!(completed(&format!("{unpublish}{begin}")), listener, "{begin}");
    }
    // The colons of other words change nothing, and `=` ends no word either.
    assert_eq!(completed(&format!("{unpublish}tcp://x:1 w")), "web");
    let streams = format!("tunnel streams --control {control} ");
    assert_eq!(completed(&format!("{streams}--service=w")), "--service=web");
    assert_eq!(completed(&format!("{streams}--service w")), "web");
}
