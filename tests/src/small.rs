//! The smallest ring, for what is refused and for what must stand still; and the ring as a document.

use crate::condition::{PATIENCE, eventually};
use crate::folder::TestFolder;
use crate::launched::Launched;
use crate::processes;
use crate::ringctl::{Ran, ringctl};
use serde_json::Value;

/// Tells a waiting manager its number.
pub async fn join(target: &Launched, number: &str, contact: &str, more: &[&str]) -> Ran {
    join_at(target.told("grpc"), number, contact, more).await
}

/// The same for the manager at that address.
pub async fn join_at(target: &str, number: &str, contact: &str, more: &[&str]) -> Ran {
    let line = ["join", "--target", target, "--number", number, "--contact", contact, "-o", "json"];
    ringctl("", &[&line, more].concat()).await
}

/// The ring as one of these managers sees it.
pub async fn ring(endpoints: &str) -> Result<Value, String> {
    let ran = ringctl(endpoints, &["inspect", "-o", "json"]).await;
    serde_json::from_str(&ran.stdout).map_err(|_| ran.stderr)
}

/// The manager of a ring with that number.
pub fn manager(ring: &Value, number: u64) -> Value {
    let managers = ring["managers"].as_array().cloned().unwrap_or_default();
    managers.into_iter().find(|it| it["number"] == number).unwrap_or_default()
}

/// Waits until each partition, of which there are three at least, has three copies in its in-sync set.
pub async fn every_copy_is_in_sync(endpoints: &str) {
    eventually("every partition has three copies in sync", PATIENCE, async || {
        let ring = ring(endpoints).await?;
        let partitions = ring["partitions"].as_array().cloned().unwrap_or_default();
        let in_sync = |partition: &Value| {
            let copies = partition["copies"].as_array().cloned().unwrap_or_default();
            copies.iter().filter(|it| it["in_sync"] == true).count()
        };
        let whole = partitions.len() >= 3 && partitions.iter().all(|it| in_sync(it) == 3);
        if whole { Ok(()) } else { Err(ring["partitions"].to_string()) }
    })
    .await;
}

fn owned(line: &[&str]) -> Vec<String> {
    line.iter().map(|it| (*it).to_owned()).collect()
}

/// A config store, and one manager `a` with number 100 in a ring without copies.
pub struct Small {
    /// The test's folder.
    pub folder: TestFolder,
    /// The config store.
    pub store: Launched,
    /// The first manager.
    pub first: Launched,
    more: Vec<String>,
}

impl Small {
    /// Starts both, in a ring for three managers.
    pub async fn start() -> Self {
        Self::for_managers(3).await
    }

    /// Starts both, in a ring for so many managers.
    pub async fn for_managers(managers_max: u32) -> Self {
        Self::with(&["--managers-max", &managers_max.to_string()]).await
    }

    /// Starts both; these options are the same at all managers.
    pub async fn with(more: &[&str]) -> Self {
        let folder = TestFolder::new();
        let line = owned(&["--data", &folder.at("store"), "--cluster", "c"]);
        let store = Launched::start(&folder, "store", "rota-config-store", &line).await;
        let line = ["--number", "100", "--ring", "100=a"];
        let line = Self::line(&folder, &store, "a", &[&line, more].concat());
        let first = Launched::start(&folder, "a", "rota-manager", &line).await;
        // It listens before it has seen a View.
        eventually("the first manager shows the ring", PATIENCE, async || {
            ring(first.told("grpc")).await.map(drop)
        })
        .await;
        Self { folder, store, first, more: owned(more) }
    }

    fn line(folder: &TestFolder, store: &Launched, id: &str, more: &[&str]) -> Vec<String> {
        let mut line = owned(&["--data", &folder.at(id), "--id", id]);
        line.extend(owned(&["--config-store", store.told("address"), "--cluster", "c"]));
        // A newcomer that is stopped by the test stays in the View.
        line.extend(owned(&["--replicas", "0", "--suspect-ms", "60000"]));
        line.extend(owned(&["--repair-ms", "120000", "--recover-after-ms", "120000"]));
        line.extend(owned(&["--lease-term-ms", "130000", "--lease-kill-ms", "200000"]));
        line.extend(owned(&["--node-lost-ms", "260000"]));
        line.extend(owned(more));
        line
    }

    /// A manager that waits outside; later options win.
    pub async fn waiting(&self, id: &str, more: &[&str]) -> Launched {
        let same: Vec<&str> = self.more.iter().map(String::as_str).collect();
        let more = [&["--join"], &same[..], more].concat();
        let line = Self::line(&self.folder, &self.store, id, &more);
        Launched::start(&self.folder, id, "rota-manager", &line).await
    }

    /// Tells a waiting manager its number.
    pub async fn join(&self, target: &Launched, number: &str) -> Ran {
        join(target, number, self.first.told("grpc"), &[]).await
    }

    /// Ends everything; fails unless all of it ends well.
    pub async fn end(self, more: Vec<Launched>) {
        for launched in more.into_iter().chain([self.first, self.store]) {
            assert_eq!(launched.end().await, Some(0));
        }
        assert_eq!(processes::of_folder(self.folder.path()), vec![], "processes are left");
    }
}

/// Fails unless the command was refused with all of this in its reason.
pub fn refused(ran: Ran, parts: &[&str]) {
    let error = ran.error().to_string();
    for part in parts {
        assert!(error.contains(part), "{part:?} is not in {error}");
    }
}
