//! A small ring with one node, for programs of the tests.

use rota_client::{Client, v1};
use rota_tests::processes::{self, Process};
use rota_tests::programs::session_folder;
use rota_tests::sessions::{CALL, close, open};
use rota_tests::{Launched, PATIENCE, TestFolder, binary, eventually, http_get, skipped};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// Times in which a node is lost soon, and not on a machine that is merely busy: as managers are told.
const MANAGER_TIMES: [&str; 8] = [
    "--renew-ms",
    "500",
    "--lease-term-ms",
    "4000",
    "--lease-kill-ms",
    "5000",
    "--node-lost-ms",
    "7000",
];

/// The same as a node is told them.
const NODE_TIMES: [&str; 6] = ["--renew", "500ms", "--lease-term", "4s", "--lease-kill", "5s"];

/// Which sandbox a test is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    None,
    Basic,
    /// Basic on a node that may not make namespaces.
    BasicAlone,
}

impl Kind {
    pub fn text(self) -> &'static str {
        match self {
            Kind::None => "none",
            Kind::Basic | Kind::BasicAlone => "basic",
        }
    }
}

/// True, and noted, when programs cannot get users of their own here.
pub fn cannot(kind: Kind, test: &str) -> bool {
    if kind == Kind::None || rustix::process::getuid().is_root() {
        return false;
    }
    skipped(test, "programs get users of their own only from root");
    true
}

/// A config store and one manager, and the folder of the test, through which users may pass.
pub struct Ring {
    pub folder: TestFolder,
    store: Launched,
    pub manager: Launched,
    pub client: Client,
}

impl Ring {
    pub async fn start() -> Self {
        let folder = TestFolder::new();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o711)).unwrap();
        let line = ["--data", &folder.at("store"), "--cluster", "small"];
        let store = Launched::start(&folder, "store", "rota-config-store", &line).await;
        let data = folder.at("manager");
        let line = ["--data", &data, "--number", "100", "--id", "a", "--ring", "100=a"];
        let shape = ["--replicas", "0", "--cluster", "small", "--config-store"];
        let line = [&line[..], &shape, &[store.told("address")], &MANAGER_TIMES].concat();
        let manager = Launched::start(&folder, "manager", "rota-manager", &line).await;
        eventually("the manager holds its number", PATIENCE, async || {
            let page = http_get(manager.told("http"), "/healthz").await?;
            if page.body.contains("\"claimed\":true") { Ok(()) } else { Err(page.body) }
        })
        .await;
        let client = Client::connect(manager.told("grpc")).expect("the address is good");
        Self { folder, store, manager, client }
    }

    /// Writes a class that runs that Python program, with the attribute `say` as its argument.
    pub fn class(&self, name: &str, kind: Kind, program: &str) {
        let (script, sandbox) = (self.folder.at(&format!("{name}.py")), kind.text());
        fs::write(&script, program).unwrap();
        fs::set_permissions(&script, Permissions::from_mode(0o644)).unwrap();
        let ready = if program.contains("\"up\"") { "up" } else { "{" };
        let text = format!(
            "name = {name:?}\nkind = \"program\"\nargv = [\"python3\", {script:?}, \"{{attr.say}}\"]\n\
             port = true\nready = {{ line = {ready:?} }}\nsandbox = {sandbox:?}\ngrace = \"300ms\"\n\
             env = {{ OF_CLASS = \"{{session}}\" }}\n"
        );
        fs::create_dir_all(self.folder.at("classes")).unwrap();
        fs::write(self.folder.at(&format!("classes/{name}.toml")), text).unwrap();
    }

    /// The command line of an agent in the folder `data`.
    pub fn agent(&self, data: &str, more: &[&str]) -> Vec<String> {
        let program = binary("rota-node-agent").display().to_string();
        let (data, classes) = (self.folder.at(data), self.folder.at("classes"));
        let line = [&program, "run", "--id", "n1", "--data", &data, "--cluster", "small"];
        let more_of_all = ["--managers", self.manager.told("grpc"), "--classes", &classes];
        let line = [&line[..], &more_of_all, &NODE_TIMES, more].concat();
        line.into_iter().map(str::to_owned).collect()
    }

    /// A node for programs of that kind.
    pub async fn node(&self, kind: Kind, more: &[&str]) -> Launched {
        let mut line = Vec::new();
        if kind == Kind::BasicAlone {
            line.extend(["setpriv", "--bounding-set=-sys_admin"].map(str::to_owned));
        }
        line.extend(self.agent("n1", more));
        let node = Launched::again(&self.folder, "n1", &line).await;
        if kind == Kind::BasicAlone {
            let log = fs::read_to_string(&node.log).unwrap();
            assert!(log.contains("pid_namespace=false"), "{log}");
        }
        node
    }

    /// Opens a session as soon as the node takes it; `say` is given to its program.
    pub async fn opened(&self, id: &str, class: &str, say: &str) -> v1::Session {
        let attributes = [("say".to_owned(), say.to_owned())].into();
        let request = v1::OpenRequest { attributes, ..open(id, class) };
        eventually("a node takes a session", PATIENCE, async || {
            let answer = self.client.open(request.clone(), CALL).await;
            let answer = answer.map_err(|error| format!("{error:?}"))?;
            answer.session.ok_or_else(|| "no session".to_owned())
        })
        .await
    }

    /// The folder of a session of the node in the folder `n1`.
    pub fn session(&self, id: &str) -> PathBuf {
        session_folder(&self.folder.path().join("n1"), id)
    }

    /// Lets a program go on, and waits until it has tried what it wants to try; gives what it printed.
    pub async fn tries(&self, id: &str) -> String {
        let folder = self.session(id);
        fs::write(folder.join("work/go"), "").unwrap();
        eventually("the program has tried", PATIENCE, async || {
            let said = fs::read_to_string(folder.join("stdout.log")).unwrap_or_default();
            if said.contains("tried") { Ok(said) } else { Err(said) }
        })
        .await
    }

    /// Processes that run and have that text in their command line.
    pub fn with_mark(&self, mark: &str) -> Vec<Process> {
        let mut all = processes::of_folder(self.folder.path());
        all.retain(|it| it.line.iter().any(|word| word == mark));
        all
    }

    pub async fn closed(&self, id: &str) {
        let answer = self.client.close(close(id), CALL).await.unwrap();
        assert!(answer.finished, "{answer:?}");
    }

    pub async fn end(self) {
        assert_eq!(self.manager.end().await, Some(0));
        assert_eq!(self.store.end().await, Some(0));
        // A guardian ends after its agent.
        eventually("no process is left", PATIENCE, async || {
            let left = processes::of_folder(self.folder.path());
            if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
        })
        .await;
    }
}
