//! The part of the helpers that knows the binary under test. All other helpers are in `testkit`,
//! which the chaos and soak tests share.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

pub(crate) use testkit::stage::{
    Clock, Fence, Iperf3, LONG, Nginx, Origin, Over, SOON, Scheme, Setup, binary, bytes, connect,
    free_port, is_listening, program, run, start_sshd, try_connect, wait, wait_listening,
};
pub(crate) use testkit::wire::reset_on_drop;

/// Runs a story over all schemes at the same time. It is for stories that mostly wait. A panic of a
/// story is a panic of the test.
pub(crate) fn side_by_side(schemes: &[Scheme], story: impl Fn(Scheme) + Sync) {
    std::thread::scope(|scope| {
        let story = &story;
        for &scheme in schemes {
            scope.spawn(move || story(scheme));
        }
    });
}

/// `tunnel` with these arguments, and nothing of this machine's configuration.
pub(crate) fn tunnel<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Command {
    testkit::stage::tunnel(&binary(), args)
}

/// A browser without a window. A drop ends it with its helpers: the program may be a script that
/// starts the browser.
pub(crate) struct Browser(Child);

impl Browser {
    pub(crate) fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.process_group(0).spawn().unwrap())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        kill_process_group(Pid::from_child(&self.0), Signal::KILL).unwrap();
        self.0.wait().unwrap();
    }
}
