//! By what a program session runs, in a file of its folder: a later agent goes on with it by this, whatever the
//! class has become.

use super::care::Care;
use crate::keeper::order::{LINE_BYTES_MAX, Own, Stop};
use crate::leftovers::folders_of;
use crate::limits::Held;
use crate::session_folders;
use rota_daemon::processes::machine_boot;
use rota_model::{ClassName, RequestId, SessionKey, SlotId, Stamp, Token};
use rota_node::class::{KeptOutput, ReadyWhen};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file's name.
const TERMS_FILE: &str = "run.json";

/// Version of the file. Another one is not understood, and such a session is ended like any left one.
pub(super) const FORMAT: u32 = 1;

/// Longest file that is read; texts of a class and the whole environment stand in it.
const BYTES_MAX: u64 = LINE_BYTES_MAX as u64;

/// By what a program session runs, from before its keeper is started until its end was told.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Terms {
    pub(super) format: u32,
    /// The boot of the machine and the pid namespace in which it runs.
    pub(super) machine_boot: String,
    /// Which session.
    pub key: SessionKey,
    /// Which attempt.
    pub token: Token,
    /// Which life.
    pub life: Stamp,
    /// Its slot.
    pub slot: SlotId,
    /// The request that caused it, for traces.
    pub request: Option<RequestId>,
    /// The name of its class.
    pub class: ClassName,
    /// The folder of class files that this stands in.
    #[serde(default)]
    pub root: Option<PathBuf>,
    /// The port that is its address.
    pub port: Option<u16>,
    /// Its further ports, by name.
    pub ports: BTreeMap<String, u16>,
    /// What it has of its own; `None`: it is the node's user.
    pub own: Option<Own>,
    /// What holds it to its limits.
    pub held: Held,
    /// How it is asked to end.
    pub stop: Stop,
    /// Between that and KILL, in milliseconds.
    pub grace_ms: u64,
    /// When it counts as ready.
    #[serde(with = "ReadyWritten")]
    pub ready: ReadyWhen,
    /// How long it may take to get ready, in milliseconds.
    pub start_timeout_ms: u64,
    /// Until when that is, on [`crate::lease::boottime_ms`].
    pub ready_by_ms: u64,
    /// What its opener should know.
    pub remark: String,
    /// Its whole environment, which programs beside it get, too.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// How it is looked after once it is READY.
    #[serde(default)]
    pub care: Option<Care>,
    /// How often connections on its port are looked for, in milliseconds, where they count as use.
    #[serde(default)]
    pub use_look_ms: Option<u64>,
    /// What is kept at the ring of what it printed.
    #[serde(default)]
    pub kept_output: Option<KeptOutput>,
    /// The life cycles whose events are only marked.
    #[serde(default)]
    pub marks: BTreeSet<String>,
    /// What each process of an action may have of memory, in MiB: by the life cycles of which its class says so.
    #[serde(default)]
    pub action_memory_mib: BTreeMap<String, u32>,
}

/// [`ReadyWhen`] as it is written down.
#[derive(Serialize, Deserialize)]
#[serde(remote = "ReadyWhen", rename_all = "snake_case")]
enum ReadyWritten {
    Port,
    Line(String),
}

impl Terms {
    /// Puts the file in its place in one step, readable by nobody else.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let fresh = folder.join("run.new");
        let mut options = File::options();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        fs::rename(fresh, folder.join(TERMS_FILE))
    }

    /// Those of a session that runs, or ran, in that folder in this boot of the machine; `None` without any
    /// that are understood.
    pub fn read(folder: &Path) -> Option<Self> {
        // A program of the node's own user could put something else there; it is not waited for.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let file = File::options().read(true).custom_flags(flags).open(folder.join(TERMS_FILE));
        let mut bytes = Vec::new();
        file.ok()?.take(BYTES_MAX).read_to_end(&mut bytes).ok()?;
        let terms: Self = serde_json::from_slice(&bytes).ok()?;
        let is_here = terms.format == FORMAT && terms.machine_boot == machine_boot();
        is_here.then_some(terms)
    }

    /// The folder of that attempt, and its terms.
    pub fn find(sessions: &Path, key: &SessionKey, token: Token) -> Option<(PathBuf, Self)> {
        let folders = session_folders::of_lives(sessions, key).into_iter();
        let mut read = folders.filter_map(|it| Terms::read(&it).map(|terms| (it, terms)));
        read.find(|(_, terms)| (&terms.key, terms.token) == (key, token))
    }
}

/// The folders of program sessions that an earlier agent of this data folder began, and with which a later one can
/// go on or tell how they ended. Those that ended long ago are among them.
///
/// # Errors
/// The folder cannot be read.
pub fn adoptable(data: &Path) -> anyhow::Result<BTreeMap<(SessionKey, Token), PathBuf>> {
    let folders = folders_of(data)?.into_iter();
    let read =
        folders.filter_map(|it| Terms::read(&it).map(|terms| ((terms.key, terms.token), it)));
    Ok(read.collect())
}

/// The control groups of the sessions of those folders.
pub fn groups_in(folders: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let terms = folders.iter().filter_map(|it| Terms::read(it));
    terms.flat_map(|it| it.held.groups().to_vec()).collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::runtime::care::care_by_port;
    use rota_model::{Epoch, LogPos, Namespace, Seq, SessionId};

    /// Terms of that attempt, which is ready by a line.
    pub fn terms(id: &str, seq: u64) -> Terms {
        Terms {
            root: None,
            format: FORMAT,
            machine_boot: machine_boot(),
            key: SessionKey::new(Namespace::default_space(), SessionId::parse(id).unwrap()),
            token: Token(LogPos::new(Epoch(3), Seq(seq))),
            life: Stamp::parse(261_122_152_849_840).unwrap(),
            slot: SlotId(7),
            request: Some(RequestId::parse("r").unwrap()),
            class: ClassName::parse("c").unwrap(),
            port: Some(30_001),
            ports: BTreeMap::from([("admin".to_owned(), 30_002)]),
            own: Some(Own { user: 200_000, pid_namespace: true }),
            held: Held::default(),
            stop: Stop { signal: 2, main_only: true },
            grace_ms: 5_000,
            ready: ReadyWhen::Line("it is \"up\"".to_owned()),
            start_timeout_ms: 10_000,
            ready_by_ms: 123_456,
            remark: "a remark".to_owned(),
            env: BTreeMap::from([("A".to_owned(), "b".to_owned())]),
            care: Some(care_by_port(10, 3)),
            use_look_ms: Some(1_000),
            kept_output: Some(KeptOutput { keep_ms: 60_000, kib: 8 }),
            marks: BTreeSet::from(["note".to_owned()]),
            action_memory_mib: BTreeMap::from([("paper".to_owned(), 64)]),
        }
    }

    #[test]
    fn terms_come_back_as_they_were_written_and_are_the_nodes_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Terms::read(folder.path()), None);
        for ready in [ReadyWhen::Port, ReadyWhen::Line("up".to_owned())] {
            let terms = Terms { ready, ..terms("s", 4) };
            terms.write(folder.path()).unwrap();
            assert_eq!(Terms::read(folder.path()), Some(terms));
        }
        let mode = fs::metadata(folder.path().join(TERMS_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let elsewhere = "another 1".to_owned();
        Terms { machine_boot: elsewhere, ..terms("s", 4) }.write(folder.path()).unwrap();
        assert_eq!(Terms::read(folder.path()), None, "nothing of it runs here");
        Terms { format: FORMAT + 1, ..terms("s", 4) }.write(folder.path()).unwrap();
        assert_eq!(Terms::read(folder.path()), None);
    }

    #[test]
    fn a_session_is_found_by_its_key_and_token_whichever_folder_it_has() {
        let data = tempfile::tempdir().unwrap();
        let sessions = data.path().join("sessions");
        let folder =
            |of: &Terms, attempt| session_folders::of_attempt(&sessions, &of.key, of.life, attempt);
        let mut expected = BTreeMap::new();
        for (attempt, terms) in [(1, terms("s", 4)), (2, terms("s", 5)), (1, terms("t", 6))] {
            let folder = folder(&terms, attempt);
            fs::create_dir_all(&folder).unwrap();
            terms.write(&folder).unwrap();
            expected.insert((terms.key, terms.token), folder);
        }
        fs::create_dir_all(folder(&terms("u", 7), 1)).unwrap();
        assert_eq!(adoptable(data.path()).unwrap(), expected);
        for ((key, token), folder) in &expected {
            assert_eq!(&Terms::find(&sessions, key, *token).unwrap().0, folder);
        }
        assert!(Terms::find(&sessions, &terms("s", 4).key, terms("s", 6).token).is_none());
        assert!(Terms::find(&sessions, &terms("u", 7).key, terms("u", 7).token).is_none());
    }
}
