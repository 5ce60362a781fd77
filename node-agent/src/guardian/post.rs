//! Who guards a data folder. Each guardian writes itself down when it starts; one whose agent is gone leaves when it
//! sees that another one has taken its place. So what a later agent goes on with always has a guardian, and no two
//! stay.

use rota_daemon::processes::{Process, machine_boot};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::Path;

/// The file in a data folder that names its guardian.
const POST_FILE: &str = "guardian.pid";

/// Its content.
#[derive(Serialize, Deserialize)]
struct Post {
    /// The boot of the machine and the pid namespace in which that pid means something.
    machine_boot: String,
    guardian: Process,
}

/// This process guards from here on.
pub fn take(data: &Path) -> io::Result<()> {
    let pid = std::process::id();
    let guardian = i32::try_from(pid).ok().and_then(Process::of);
    let guardian = guardian.ok_or_else(|| io::Error::other("cannot read /proc"))?;
    write(data, &Post { machine_boot: machine_boot(), guardian })
}

fn write(data: &Path, post: &Post) -> io::Result<()> {
    // Two guardians may start at the same time.
    let fresh = data.join(format!("{POST_FILE}.{}", std::process::id()));
    fs::write(&fresh, serde_json::to_vec(post)?)?;
    fs::rename(&fresh, data.join(POST_FILE))
}

/// Whether another process is written down, and runs.
pub fn is_anothers(data: &Path) -> bool {
    let me = i32::try_from(std::process::id()).ok();
    let bytes = fs::read(data.join(POST_FILE)).unwrap_or_default();
    serde_json::from_slice::<Post>(&bytes).is_ok_and(|post| {
        let is_here = post.machine_boot == machine_boot();
        is_here && Some(post.guardian.pid) != me && post.guardian.runs()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::getppid;

    #[test]
    fn a_post_is_anothers_while_that_one_runs() {
        let data = tempfile::tempdir().unwrap();
        assert!(!is_anothers(data.path()));
        take(data.path()).unwrap();
        assert!(!is_anothers(data.path()), "it is this one's");
        let parent = Process::of(getppid().unwrap().as_raw_pid()).unwrap();
        let post = |guardian, boot: String| Post { machine_boot: boot, guardian };
        write(data.path(), &post(parent, machine_boot())).unwrap();
        assert!(is_anothers(data.path()));
        write(data.path(), &post(parent, "another 1".to_owned())).unwrap();
        assert!(!is_anothers(data.path()), "that pid means nothing here");
        let earlier = Process { start_ticks: parent.start_ticks + 1, ..parent };
        write(data.path(), &post(earlier, machine_boot())).unwrap();
        assert!(!is_anothers(data.path()), "that one is gone");
        take(data.path()).unwrap();
        let names = fs::read_dir(data.path()).unwrap().count();
        assert_eq!(names, 1, "nothing is left beside it");
    }
}
