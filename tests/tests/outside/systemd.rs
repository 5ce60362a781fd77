//! The units that ship, under a real systemd: what their restarts, crashes, stops and the end of the machine do to
//! what runs.

use rota_tests::programs::session_folder;
use rota_tests::{Booted, ControlGroups, PATIENCE, checkout, eventually, skipped};
use serde_json::Value;

const AGENT: &str = "rota-node-agent";

/// Told to end, it takes longer than anybody waits by default, saves, and ends well.
const SAVE: &str = r#"
name = "save"
kind = "program"
argv = ["sh", "-c", "trap 'sleep 4; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.1; done"]
ready = { line = "ready" }
grace = "20s"
"#;

const COUNTER: &str = include_str!("../../../deploy/classes/counter.toml");

const STORE_OPTIONS: &str = "ROTA_CONFIG_STORE_OPTIONS=\"--listen 127.0.0.1:7390\"\n";

const MANAGER_OPTIONS: &str = "ROTA_MANAGER_OPTIONS=\"--cluster rota --number 0 --ring 0=one --id one \
    --replicas 0 --grpc 127.0.0.1:7400 --config-store 127.0.0.1:7390\"\n";

const NODE_OPTIONS: &str =
    "ROTA_NODE_OPTIONS=\"--managers 127.0.0.1:7400 --classes /etc/rota/classes\"\n";

/// The first systemd that knows `DelegateSubgroup=`.
const KNOWS_SUBGROUP: u32 = 254;

/// The version of the machine's systemd.
async fn version(system: &Booted) -> u32 {
    let told = system.run(&["systemctl", "--version"]).await.expect_success().stdout;
    let version = told.split_whitespace().nth(1).and_then(|it| it.parse().ok());
    version.unwrap_or_else(|| panic!("no version: {told}"))
}

/// A system with a config store, a manager and a node.
struct Services {
    system: Booted,
}

impl Services {
    /// Starts one, and waits until its node is there.
    async fn start(groups: ControlGroups) -> Self {
        let shipped = |file: &str| {
            let path = checkout().join("deploy/systemd").join(file);
            std::fs::read_to_string(path).expect("it ships")
        };
        let names = ["rota-config-store", "rota-manager", AGENT];
        let [store, manager, agent] = names.map(|it| shipped(&format!("{it}.service")));
        let files = [
            ("etc/systemd/system/rota-config-store.service", store.as_str()),
            ("etc/systemd/system/rota-manager.service", &manager),
            ("etc/systemd/system/rota-node-agent.service", &agent),
            ("etc/sysusers.d/rota.conf", &shipped("rota.conf")),
            ("etc/rota/config-store", STORE_OPTIONS),
            ("etc/rota/manager", MANAGER_OPTIONS),
            ("etc/rota/node-agent", NODE_OPTIONS),
            ("etc/rota/classes/save.toml", SAVE),
            ("etc/rota/classes/counter.toml", COUNTER),
        ];
        let programs = [&names[..], &["ringctl"]].concat();
        let services = Self { system: Booted::start(groups, &files, &programs, &names).await };
        services.as_the_page_says().await;
        services.is_ready("first", "save").await;
        services
    }

    /// With control groups of version 2 an older systemd must not be told to delegate them (docs/production.md).
    async fn as_the_page_says(&self) {
        let whole = ["test", "-e", "/sys/fs/cgroup/cgroup.procs"];
        let has_version_2 = self.system.run(&whole).await.code == 0;
        if !has_version_2 || version(&self.system).await >= KNOWS_SUBGROUP {
            return;
        }
        let unit = self.system.at("etc/systemd/system/rota-node-agent.service");
        let text = std::fs::read_to_string(&unit).expect("it was written");
        let kept = text.lines().filter(|it| !it.starts_with("Delegate"));
        let kept: String = kept.map(|it| format!("{it}\n")).collect();
        std::fs::write(&unit, kept).expect("it is the test's own");
        self.systemctl(&["daemon-reload"]).await;
        self.systemctl(&["stop", AGENT]).await;
        self.systemctl(&["start", AGENT]).await;
    }

    async fn systemctl(&self, arguments: &[&str]) -> String {
        let ran = self.system.run(&[&["systemctl"], arguments].concat()).await;
        ran.expect_success().stdout
    }

    async fn ringctl(&self, arguments: &[&str]) -> Value {
        let line = [&["ringctl"], arguments, &["-o", "json"]].concat();
        self.system.run(&line).await.json()
    }

    /// What systemd says of the agent's unit.
    async fn told(&self, property: &str) -> String {
        let line = ["show", "--property", property, "--value", AGENT];
        self.systemctl(&line).await.trim().to_owned()
    }

    /// Opens a session as soon as the node is there, and waits until it is READY. Gives its life.
    async fn is_ready(&self, id: &str, class: &str) -> u64 {
        eventually(&format!("{id} is READY"), PATIENCE, async || {
            let open = ["ringctl", "session", "open", id, "--class", class, "--timeout", "2s"];
            let opened = self.system.run(&open).await;
            let get = ["ringctl", "session", "get", id, "-o", "json"];
            let ran = self.system.run(&get).await;
            if ran.code != 0 {
                return Err(format!("{opened:?}, {ran:?}"));
            }
            let session = ran.json();
            let states = (&session["state"], &session["node"]["state"]);
            if states == (&"READY".into(), &"READY".into()) {
                Ok(session["life"].as_u64().expect("a session has a life"))
            } else {
                Err(session.to_string())
            }
        })
        .await
    }

    fn output(&self, id: &str) -> String {
        let folder = session_folder(&self.system.at("var/lib/rota/node"), id);
        std::fs::read_to_string(folder.join("stdout.log")).expect("a program has an output")
    }

    /// How many sessions each agent took over that was ready, by the first line that it says.
    async fn adopted(&self) -> Vec<u64> {
        // What was printed a moment ago may not be in its files yet.
        self.system.run(&["journalctl", "--sync"]).await.expect_success();
        let line = ["journalctl", "--unit", AGENT, "--output", "cat", "--no-pager"];
        let told = self.system.run(&line).await.expect_success().stdout;
        let ready = told.lines().filter_map(|it| serde_json::from_str::<Value>(it).ok());
        ready.filter_map(|it| it["adopts"].as_u64()).collect()
    }

    /// Waits until the agent's unit has a process that is not this one, and gives it.
    async fn next_agent(&self, pid: &str) -> String {
        eventually("the next agent runs", PATIENCE, async || {
            let now = self.told("MainPID").await;
            let is_next = now != "0" && now != pid;
            if is_next { Ok(now) } else { Err(now) }
        })
        .await
    }

    /// Sessions are closed, and their programs had the time that they needed.
    async fn has_saved(&self, id: &str) {
        assert_eq!(self.output(id).lines().collect::<Vec<_>>(), ["ready", "saved"], "{id}");
        let session = self.ringctl(&["session", "get", id]).await;
        let told = (&session["state"], &session["reason"]);
        assert_eq!(told, (&"CLOSED".into(), &"DRAINED".into()), "{session}");
    }
}

/// Sessions that run, and what must not change of them.
struct Running {
    programs: [(&'static str, u64); 2],
    counter: u64,
    sent: u64,
}

impl Running {
    async fn start(services: &Services) -> Self {
        let first = services.is_ready("first", "save").await;
        let second = services.is_ready("second", "save").await;
        let counter = services.is_ready("light", "counter").await;
        Self { programs: [("first", first), ("second", second)], counter, sent: 0 }
    }

    /// They live the same lives, none was told anything, and the machine goes on from its last state.
    async fn goes_on(&mut self, services: &Services) {
        for (id, life) in self.programs {
            assert_eq!(services.is_ready(id, "save").await, life, "{id}");
            assert_eq!(services.output(id), "ready\n", "{id}");
        }
        assert_eq!(services.is_ready("light", "counter").await, self.counter);
        let moved = services.ringctl(&["session", "send", "light", "increment"]).await;
        self.sent += 1;
        assert_eq!(moved["changes"], self.sent, "{moved}");
    }
}

async fn what_runs_goes_on(groups: ControlGroups) {
    let mut services = Services::start(groups).await;
    let mut running = Running::start(&services).await;
    running.goes_on(&services).await;
    let before = services.adopted().await.len();

    let first = services.told("MainPID").await;
    services.systemctl(&["restart", AGENT]).await;
    let second = services.next_agent(&first).await;
    running.goes_on(&services).await;

    services.system.run(&["kill", "-KILL", &second]).await.expect_success();
    let third = services.next_agent(&second).await;
    running.goes_on(&services).await;
    assert_eq!(services.told("NRestarts").await, "1");

    // A mistake in its options: systemd tries nothing again, and what runs waits for who mends it.
    let options = services.system.at("etc/rota/node-agent");
    std::fs::write(&options, "ROTA_NODE_OPTIONS=--mistake\n").expect("it is the test's own");
    services.systemctl(&["restart", AGENT]).await;
    eventually("the unit has failed", PATIENCE, async || {
        let state = services.told("ActiveState").await;
        if state == "failed" { Ok(()) } else { Err(state) }
    })
    .await;
    assert_eq!(services.told("ExecMainStatus").await, "2");
    std::fs::write(&options, NODE_OPTIONS).expect("it is the test's own");
    services.systemctl(&["start", AGENT]).await;
    services.next_agent(&third).await;
    running.goes_on(&services).await;
    assert_eq!(services.adopted().await[before..], [3, 3, 3]);

    services.systemctl(&["poweroff"]).await;
    services.system.is_down().await;
}

#[tokio::test]
async fn what_runs_goes_on_when_systemd_restarts_the_agent_and_when_it_crashes() {
    if let Some(why) = Booted::impossible() {
        return skipped(
            "what_runs_goes_on_when_systemd_restarts_the_agent_and_when_it_crashes",
            &why,
        );
    }
    what_runs_goes_on(ControlGroups::OfMachine).await;
}

#[tokio::test]
async fn what_runs_goes_on_under_a_systemd_that_has_control_groups_of_version_2() {
    if let Some(why) = Booted::impossible() {
        return skipped(
            "what_runs_goes_on_under_a_systemd_that_has_control_groups_of_version_2",
            &why,
        );
    }
    what_runs_goes_on(ControlGroups::Version2).await;
}

#[tokio::test]
async fn programs_have_their_grace_when_systemd_stops_the_agent_tells_all_or_shuts_the_machine_down()
 {
    if let Some(why) = Booted::impossible() {
        return skipped(
            "programs_have_their_grace_when_systemd_stops_the_agent_tells_all_or_shuts_the_machine_down",
            &why,
        );
    }
    let mut services = Services::start(ControlGroups::OfMachine).await;
    let life = services.is_ready("first", "save").await;
    let other = COUNTER.replace("name = \"counter\"", "name = \"later\"");
    std::fs::write(services.system.at("etc/rota/classes/later.toml"), other)
        .expect("it is the test's own");
    services.systemctl(&["reload", AGENT]).await;
    services.is_ready("later", "later").await;
    assert_eq!(services.is_ready("first", "save").await, life, "a reload ends nothing");

    services.systemctl(&["stop", AGENT]).await;
    services.has_saved("first").await;
    let ended = (services.told("ActiveState").await, services.told("Result").await);
    assert_eq!(ended, ("inactive".to_owned(), "success".to_owned()));

    services.systemctl(&["start", AGENT]).await;
    services.is_ready("all", "save").await;
    services.systemctl(&["kill", "--signal=TERM", AGENT]).await;
    eventually("the unit has ended", PATIENCE, async || {
        let state = services.told("ActiveState").await;
        if state == "inactive" { Ok(()) } else { Err(state) }
    })
    .await;
    services.has_saved("all").await;

    services.systemctl(&["start", AGENT]).await;
    services.is_ready("down", "save").await;
    services.systemctl(&["poweroff"]).await;
    services.system.is_down().await;
    assert_eq!(services.output("down"), "ready\nsaved\n");
}
