//! Limits of a class, each reached by a program.

use rota_client::v1::{Session, SessionState};
use rota_tests::sessions::{CALL, becomes, close, opened};
use rota_tests::{Cluster, PATIENCE, TestFolder, classes_of, eventually, skipped};
use std::fs;
use std::path::{Path, PathBuf};

/// Says that it is ready, and then wants more and more of something.
fn greedy(name: &str, then: &str, limits: &str) -> String {
    format!(
        "name = {name:?}\nkind = \"program\"\nargv = [\"sh\", \"-c\", \"echo ready; {then}\"]\n\
         ready = {{ line = \"ready\" }}\ngrace = \"1s\"\n[limits]\n{limits}\n"
    )
}

/// By what a node holds each limit, as it says at its start.
fn held(cluster: &Cluster) -> String {
    let log = cluster.log("n1");
    let line = log.lines().find(|it| it.contains("limits of classes"));
    line.unwrap_or_else(|| panic!("the node says what it can do: {log}")).to_owned()
}

async fn ended(cluster: &Cluster, id: &str) -> Session {
    becomes(&cluster.client(), id, SessionState::Failed).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_is_held_to_its_limits_and_the_end_says_which_it_came_up_against() {
    let test = "a_program_is_held_to_its_limits_and_the_end_says_which_it_came_up_against";
    let folder = TestFolder::new();
    let many = "for i in 1 2 3 4 5 6 7 8 9; do sleep 1000 & done; wait";
    let classes = [
        ("eats", greedy("eats", "exec tail /dev/zero", "memory_mib = 48")),
        ("forks", greedy("forks", many, "processes = 5")),
        ("spins", greedy("spins", "while :; do :; done", "cpu_millis = 50")),
    ];
    let classes = classes.each_ref().map(|(name, text)| (*name, text.as_str()));
    let classes = classes_of(&folder, &classes);
    let cluster = Cluster::start(&folder, &["--nodes", "1", "--classes", &classes]).await;
    let (client, held) = (cluster.client(), held(&cluster));

    opened(&client, "a", "eats").await;
    let session = ended(&cluster, "a").await;
    if held.contains("memory_mib by control groups") {
        let text = "it went beyond its limit of memory (48 MiB)";
        assert!(session.detail.contains(text), "{}", session.detail);
    }

    if held.contains("processes by RLIMIT_NPROC") && !rustix::process::getuid().is_root() {
        skipped(test, "nothing here holds the number of processes");
    } else {
        opened(&client, "b", "forks").await;
        let session = ended(&cluster, "b").await;
        assert!(session.detail.contains("fork"), "{}", session.detail);
        if held.contains("processes by control groups") {
            let text = "it had reached its limit of processes (5)";
            assert!(session.detail.contains(text), "{}", session.detail);
        }
    }

    let session = opened(&client, "c", "spins").await;
    if held.contains("cpu_millis by nothing") {
        assert_eq!(session.detail, "this node cannot hold it to limits.cpu_millis");
        skipped(test, "nothing here holds the use of processors");
    } else {
        let pid = spinning();
        eventually("the program is throttled", PATIENCE, async || {
            let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
            let stat =
                group_of(&groups).and_then(|it| fs::read_to_string(it.join("cpu.stat")).ok());
            let stat = stat.unwrap_or_default();
            if throttled(&stat) > 0 { Ok(()) } else { Err(format!("{groups}: {stat}")) }
        })
        .await;
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("it runs");
        let group = group_of(&groups).expect("it has a group");
        let name = group.file_name().and_then(|it| it.to_str()).unwrap_or_default();
        assert!(name.starts_with("rota-"), "a group of its own: {group:?}");
        client.close(close("c"), CALL).await.expect("it is closed");
        assert!(!group.exists(), "{group:?} went with its session");
    }
    cluster.end().await;
}

/// The program of class `spins`: its parent shows another command line.
fn spinning() -> u32 {
    let pids = fs::read_dir("/proc").expect("there is /proc").flatten();
    let pids = pids.filter_map(|it| it.file_name().to_str()?.parse().ok());
    let is_it = |pid: &u32| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line == "sh\0-c\0echo ready; while :; do :; done\0"
    };
    pids.into_iter().find(is_it).expect("the program runs")
}

/// The folder of the group that counts the CPU of a process.
fn group_of(groups: &str) -> Option<PathBuf> {
    let found = groups.lines().find_map(|line| {
        let (names, path) = line.split_once(':')?.1.split_once(":/")?;
        names.split(',').any(|it| it == "cpu").then(|| format!("{names}/{path}"))
    });
    let all = || groups.lines().find_map(|it| it.strip_prefix("0::/")).map(str::to_owned);
    Some(Path::new("/sys/fs/cgroup").join(found.or_else(all)?))
}

fn throttled(stat: &str) -> u64 {
    let number = |line: &str| line.strip_prefix("nr_throttled ")?.parse().ok();
    stat.lines().find_map(number).unwrap_or(0)
}
