//! A memory limit around a process: a control group only for this process, version 1 or 2.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A control group with a memory limit. Dropping it removes the group; the group's processes must
/// have ended.
#[derive(Debug)]
pub struct Fence {
    dir: PathBuf,
    peak: &'static str,
    events: &'static str,
}

impl Fence {
    /// A group that allows `limit` bytes.
    ///
    /// # Errors
    /// The reason why this user cannot make a control group on this machine.
    pub fn new(limit: u64) -> Result<Self, String> {
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|e| e.to_string())?;
        let mut reasons = Vec::new();
        for line in own.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
            let path = path.trim_start_matches('/');
            let made = if controllers == "memory" {
                let root = Path::new("/sys/fs/cgroup/memory").join(path);
                Self::make(
                    &root,
                    limit,
                    "memory.limit_in_bytes",
                    ["memory.max_usage_in_bytes", "memory.oom_control"],
                )
            } else if controllers.is_empty() {
                let root = Path::new("/sys/fs/cgroup").join(path);
                Self::make(&root, limit, "memory.max", ["memory.peak", "memory.events"])
            } else {
                continue;
            };
            match made {
                Ok(fence) => return Ok(fence),
                Err(reason) => reasons.push(reason),
            }
        }
        Err(format!("no control group with a memory limit: {}", reasons.join("; ")))
    }

    fn make(
        root: &Path,
        limit: u64,
        file: &str,
        [peak, events]: [&'static str; 2],
    ) -> Result<Self, String> {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = root.join(format!("tunnel-test-{}-{number}", std::process::id()));
        let failed = |e: std::io::Error| format!("{}: {e}", dir.display());
        fs::create_dir(&dir).map_err(failed)?;
        let fence = Self { dir: dir.clone(), peak, events };
        fs::write(dir.join(file), limit.to_string()).map_err(failed)?;
        Ok(fence)
    }

    /// The words before a command that start it inside the group.
    #[must_use]
    pub fn starter(&self) -> Vec<OsString> {
        let script = format!("echo $$ > '{}/cgroup.procs' && exec \"$@\"", self.dir.display());
        ["sh".into(), "-c".into(), script.into(), "sh".into()].to_vec()
    }

    /// The highest memory use so far, file cache included.
    pub fn peak(&self) -> Option<u64> {
        fs::read_to_string(self.dir.join(self.peak)).ok()?.trim().parse().ok()
    }

    /// The number of processes that the system killed for lack of memory.
    pub fn kills(&self) -> Option<u64> {
        let events = fs::read_to_string(self.dir.join(self.events)).ok()?;
        events.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        // The kernel needs a moment after the last process; a leftover group costs nothing.
        for _ in 0..100 {
            if fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
