//! Program sessions that an earlier agent of this folder began. What runs of them goes on under its keeper, and what
//! ended meanwhile is told.
//!
//! ```text
//!  folder ── run.json ──▶ Terms ──▶ ports, user, groups are held again
//!         ── pids.json ─▶ keeper: runs ──▶ connect, and go on as with one that was started here
//!         ── news ──────▶         gone ──▶ tell the end that it wrote down; none: end what is left
//! ```

use super::keeper_link::KeeperLink;
use super::running::{Holds, Running, Session, Stage};
use super::terms::Terms;
use super::{Runtime, Task};
use crate::lease::boottime_ms;
use crate::observe::Listed;
use rota_model::{SessionKey, SlotId, Stamp, Token};
use rota_node::NodeInput;
use std::time::Duration;
use tokio::sync::watch;

/// How long a program may take at least to be seen ready once it is adopted: it may have become so when no agent looked,
/// and its keeper repeats that. With less, a busy machine kills what is ready; with more, what never gets ready stays
/// longer.
const SEEN_WITHIN_MS: u64 = 5_000;

/// A program session that an earlier agent of this folder began, as its journal has it.
pub struct AdoptOrder {
    /// Which session.
    pub key: SessionKey,
    /// Which attempt.
    pub token: Token,
    /// Which life.
    pub life: Stamp,
    /// Its slot.
    pub slot: SlotId,
    /// It was told to be ready.
    pub ready: bool,
}

impl Runtime {
    /// Goes on with a session. What is known at once is put into `news`; the rest comes by mailbox. Its folder must
    /// have been spared: by [`crate::leftovers::end_all`], and when this runtime was made.
    pub fn adopt_program(&mut self, order: AdoptOrder, news: &mut Vec<NodeInput>) {
        let AdoptOrder { key, token, life, slot, ready } = order;
        let Some((folder, terms)) = Terms::find(&self.settings.sessions, &key, token) else {
            let detail = "the node's agent ended before it was started".to_owned();
            return news.push(NodeInput::StartFailed { key, token, detail });
        };
        if (terms.life, terms.slot) != (life, slot) {
            tracing::warn!(session = %key, %token, ?terms, "it runs by other terms than were written down");
        }
        self.folders.go_on(&key, token, &folder);
        let listed = Listed {
            life: terms.life,
            class: terms.class.clone(),
            limits: terms.held.limits(),
            folder: folder.clone(),
            root: terms.root.clone(),
            keeper: None,
            groups: terms.held.groups().to_vec(),
            cpu: Duration::ZERO,
        };
        // At once: what starts next must not be given what this one has.
        let holds = Holds::again(&terms);
        let (stop, stopped) = watch::channel(None);
        let (request, task) = (terms.request.clone(), Task { stop, grace_ms: terms.grace_ms });
        let session = Session {
            settings: self.settings.clone(),
            entry: self.settings.listing.begin(key.clone(), token, listed),
            terms,
            folder,
            stop: stopped,
            mailbox: self.mailbox.clone(),
        };
        let stage = if ready { Stage::Ready } else { Stage::Asked };
        self.spawn((key, token), request.as_ref(), task, go_on(session, holds, stage));
    }
}

async fn go_on(mut session: Session, holds: Holds, stage: Stage) {
    let seen_by_ms = boottime_ms().saturating_add(SEEN_WITHIN_MS);
    session.terms.ready_by_ms = session.terms.ready_by_ms.max(seen_by_ms);
    let Session { settings, terms, folder, .. } = &session;
    let link = Box::pin(KeeperLink::again(folder, terms, settings)).await;
    if let Some(keeper) = link.pid() {
        tracing::info!(keeper, "a program of an earlier agent goes on");
    }
    Box::pin(Running::adopted(session, link, holds, stage).run()).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actions::{ActionSettings, Actions};
    use crate::keeper::order::Pids;
    use crate::limits::Limiter;
    use crate::mailbox::{Event, Mailbox};
    use crate::observe::Listing;
    use crate::ports::PortRange;
    use crate::runtime::terms::tests::terms;
    use crate::runtime::{FOLDER_VARIABLE, InUse, Keepers, ProgramSettings};
    use crate::sandbox::Sandboxes;
    use crate::session_folders::of_attempt;
    use clap::Parser;
    use rota_daemon::LogArguments;
    use rota_daemon::processes::{Process, machine_boot};
    use rota_model::{Exit, Reason};
    use rota_node::StopHow;
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs;
    use std::net::Ipv4Addr;
    use std::path::{Path, PathBuf};
    use std::process::Stdio;
    use tempfile::TempDir;
    use tokio::io::AsyncReadExt;
    use tokio::process::{Child, Command};
    use tokio::sync::mpsc::Receiver;

    /// Plays a keeper in its folder: tells what stands there and the end when it is asked to stop.
    const KEEPER: &str = r#"
import socket
listener = socket.socket(socket.AF_UNIX)
listener.bind("keeper.sock")
listener.listen(4)
print("up", flush=True)
with listener.accept()[0].makefile("rw") as agent, open("news", "a+") as news:
    news.seek(0)
    agent.write(news.read())
    agent.flush()
    for line in agent:
        if "stop" in line:
            end = '{"ended":{"exit":{"code":0},"cause":"stop"}}\n'
            news.write(end)
            agent.write(end)
            break
"#;

    /// A data folder with one session, and a runtime that adopts it.
    struct Scene {
        data: TempDir,
        terms: Terms,
        folder: PathBuf,
        runtime: Runtime,
        events: Receiver<Event>,
    }

    fn settings(data: &Path) -> ProgramSettings {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            log: LogArguments,
        }
        ProgramSettings {
            data: data.to_owned(),
            lease: data.join("lease"),
            sessions: data.join("sessions"),
            host: "127.0.0.1".to_owned(),
            ip: Ipv4Addr::LOCALHOST.into(),
            ports: PortRange::parse("30000-30001").unwrap(),
            output_bytes_max: 1_000,
            disk_reserve_bytes: 0,
            lease_grace_ms: 1_000,
            lease_ms_max: 60_000,
            env_pass: Vec::new(),
            sandboxes: Sandboxes::none(),
            open_files: None,
            limiter: Limiter::of_nothing(),
            actions: Actions::new(ActionSettings { classes: None, allowed: true, max: 1 }),
            in_use: InUse::default(),
            outputs: crate::kept_output::Outputs::new().0,
            keepers: Keepers::default(),
            listing: Listing::default(),
            log: Line::parse_from(["x"]).log.check().unwrap(),
        }
    }

    impl Scene {
        fn new() -> Self {
            let data = TempDir::new().unwrap();
            let settings = settings(data.path());
            // Of the node's own user, and without ports that tests of this machine could share.
            let mut terms = terms("s", 4);
            (terms.own, terms.port, terms.ports) = (None, None, BTreeMap::new());
            // It became ready in time, and nobody looked.
            terms.ready_by_ms = 0;
            let folder = of_attempt(&settings.sessions, &terms.key, terms.life, 1);
            fs::create_dir_all(&folder).unwrap();
            terms.write(&folder).unwrap();
            let (mailbox, events) = Mailbox::new();
            let spare = BTreeSet::from([folder.clone()]);
            let (classes, address) = (BTreeMap::new(), "127.0.0.1:1".to_owned());
            let runtime = Runtime::new(classes, settings, (1, &spare), address, mailbox);
            Self { data, terms, folder, runtime, events }
        }

        /// A process in the session's folder that the session's pid file names as its keeper.
        fn keeper(&self, command: &mut Command) -> Child {
            let command = command.current_dir(&self.folder).process_group(0).kill_on_drop(true);
            let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
            let keeper = Process::of(child.id().unwrap().try_into().unwrap()).unwrap();
            let (machine_boot, slot) = (machine_boot(), self.terms.slot);
            let pids = Pids { machine_boot, keeper, program: None, user: None, slot };
            pids.write(&self.folder).unwrap();
            child
        }

        fn told(&self, lines: &[&str]) {
            let text: String = lines.iter().map(|it| format!("{it}\n")).collect();
            fs::write(self.folder.join("news"), text).unwrap();
        }

        fn adopt(&mut self, ready: bool) -> Vec<NodeInput> {
            let Terms { key, token, life, slot, .. } = self.terms.clone();
            let mut news = Vec::new();
            self.runtime.adopt_program(AdoptOrder { key, token, life, slot, ready }, &mut news);
            news
        }

        async fn news(&mut self) -> NodeInput {
            let limit = Duration::from_secs(30);
            let event = tokio::time::timeout(limit, self.events.recv()).await.unwrap().unwrap();
            let Event::Node(input) = event else { panic!("not what is told of a program") };
            input
        }

        /// The end, as it was told; nothing of the session is held any more.
        async fn end(mut self) -> NodeInput {
            let end = self.news().await;
            let Some(Event::ProgramOver { key, token }) = self.events.recv().await else {
                panic!("{end:?} is not the last");
            };
            self.runtime.on_program_over(&key, token);
            assert!(self.runtime.is_empty() && !self.runtime.settings.listing.runs(&self.folder));
            drop(self.data);
            end
        }
    }

    #[tokio::test]
    async fn a_program_whose_keeper_runs_goes_on_and_is_stopped_like_any_other() {
        let mut scene = Scene::new();
        let mut command = Command::new("python3");
        let mut keeper = scene.keeper(command.args(["-c", KEEPER]));
        let pid = keeper.id().unwrap();
        scene.told(&[&format!("{{\"started\":{{\"pid\":{pid}}}}}"), "\"ready_line\""]);
        let mut up = [0; 3];
        keeper.stdout.take().unwrap().read_exact(&mut up).await.unwrap();
        assert!(scene.adopt(false).is_empty());
        let NodeInput::Started { remark, ready: false, .. } = scene.news().await else { panic!() };
        assert_eq!(remark, scene.terms.remark);
        assert!(matches!(scene.news().await, NodeInput::Ready { .. }));
        let listed = scene.runtime.settings.listing.all();
        assert_eq!(listed[0].1.keeper, Some(pid.try_into().unwrap()));
        let (key, token) = (scene.terms.key.clone(), scene.terms.token);
        scene.runtime.stop(key, token, StopHow::Class, &mut Vec::new());
        let end = scene.end().await;
        let NodeInput::Stopped { exit: Some(Exit::Code(0)), .. } = end else { panic!("{end:?}") };
        assert!(keeper.wait().await.unwrap().success(), "it was not killed");
    }

    #[tokio::test]
    async fn an_end_that_came_meanwhile_is_told_from_what_the_keeper_wrote() {
        for (line, ready) in [(r#"{"failed":{"detail":"why"}}"#, false), (ENDED, true)] {
            let mut scene = Scene::new();
            scene.told(&[r#"{"started":{"pid":7}}"#, line]);
            assert!(scene.adopt(ready).is_empty());
            let end = scene.end().await;
            let as_told = match ready {
                false => matches!(&end, NodeInput::StartFailed { detail, .. } if detail == "why"),
                true => matches!(
                    end,
                    NodeInput::Ended { reason: Reason::Exited, exit: Some(Exit::Code(3)), .. }
                ),
            };
            assert!(as_told, "{end:?}");
        }
    }

    const ENDED: &str = r#"{"ended":{"exit":{"code":3},"cause":"own"}}"#;

    #[tokio::test]
    async fn what_a_killed_keeper_left_is_ended_before_it_is_told() {
        let mut scene = Scene::new();
        let mut keeper = scene.keeper(Command::new("sleep").arg("1000"));
        keeper.kill().await.unwrap();
        let mut left = Command::new("sleep");
        let left = left.arg("1000").env(FOLDER_VARIABLE, &scene.folder).process_group(0);
        let left = left.kill_on_drop(true).spawn().unwrap();
        let process = Process::of(left.id().unwrap().try_into().unwrap()).unwrap();
        scene.told(&[r#"{"started":{"pid":7}}"#]);
        assert!(scene.adopt(true).is_empty());
        let end = scene.end().await;
        let NodeInput::Ended { reason: Reason::Internal, exit: None, detail, .. } = end else {
            panic!("{end:?}");
        };
        assert!(detail.starts_with("its keeper was killed"), "{detail}");
        assert!(!process.runs());
    }

    #[tokio::test]
    async fn a_keeper_that_cannot_be_reached_is_killed() {
        let mut scene = Scene::new();
        let keeper = scene.keeper(Command::new("sleep").arg("1000"));
        let process = Process::of(keeper.id().unwrap().try_into().unwrap()).unwrap();
        // Somebody else listens in its place.
        let _socket =
            std::os::unix::net::UnixListener::bind(scene.folder.join("keeper.sock")).unwrap();
        scene.told(&[r#"{"started":{"pid":7}}"#]);
        assert!(scene.adopt(true).is_empty());
        let end = scene.end().await;
        assert!(matches!(end, NodeInput::Ended { reason: Reason::Internal, .. }), "{end:?}");
        assert!(!process.runs());
    }

    #[tokio::test]
    async fn a_session_of_which_nothing_ever_ran_has_not_started() {
        let mut scene = Scene::new();
        assert!(scene.adopt(false).is_empty());
        let end = scene.end().await;
        assert!(matches!(end, NodeInput::StartFailed { .. }), "{end:?}");
        let mut scene = Scene::new();
        fs::remove_dir_all(&scene.folder).unwrap();
        let news = scene.adopt(false);
        assert!(matches!(news[..], [NodeInput::StartFailed { .. }]), "{news:?}");
        assert!(scene.runtime.is_empty());
    }
}
