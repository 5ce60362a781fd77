//! A pid namespace for one session: whoever is in it sees nobody outside, and all of it ends with its
//! first process.

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::UnshareFlags;
use std::io;

/// From here on, what the calling thread starts is in a pid namespace of its own: the next process as
/// its first one. The thread itself stays outside, and can start no further thread.
pub fn of_next_child() -> io::Result<()> {
    Ok(unshare(UnshareFlags::NEWPID)?)
}

/// In the first process of such a namespace: `/proc` shows it, and mounts made here are seen by nobody
/// else. Those that others make still come here.
pub fn show_only_this() -> io::Result<()> {
    unshare(UnshareFlags::NEWNS)?;
    mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(mount("proc", "/proc", "proc", flags, None)?)
}

/// Called for namespaces of processes and of mounts only: what rustix warns of is another one, that of
/// descriptors, and its own replacement is not safe code.
#[expect(deprecated, reason = "see above")]
fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    rustix::thread::unshare(flags)
}
