//! The managers of an assembled cluster: those of its ring, and those that come into it.

use super::{Assembled, Leases, NUMBERS, Places, owned, program};
use crate::folder::TestFolder;
use crate::launched::Launched;
use std::net::Ipv4Addr;

/// A manager, and how it was started.
#[derive(Debug)]
pub struct Member {
    pub(super) id: String,
    pub(super) line: Vec<String>,
    pub(super) grpc: String,
    pub(super) http: String,
    pub(super) runs: Option<Launched>,
}

impl Member {
    /// One that asks that server of Consul, as far as there are so many, with that seat in the ring.
    fn new(
        folder: &TestFolder,
        places: &Places,
        server: usize,
        id: String,
        (ip, port): (Ipv4Addr, u16),
        seat: &[&str],
    ) -> Self {
        let server = places.servers.get(server).unwrap_or(&places.servers[0]);
        let (grpc, http) = (format!("{ip}:{port}"), format!("{ip}:{}", port + 1));
        let mut line = vec![program("rota-manager")];
        line.extend(owned(&["--data", &folder.at(&id), "--id", &id, "--cluster", "c"]));
        line.extend(owned(seat));
        line.extend(owned(&["--grpc", &grpc, "--http", &http, "--insecure-bind"]));
        line.extend(owned(&["--config-store", &format!("consul://{server}:8500/rota")]));
        if let Leases::Short = places.leases {
            line.extend(owned(&["--renew-ms", "1000", "--lease-term-ms", "4000"]));
            line.extend(owned(&["--lease-kill-ms", "6000", "--node-lost-ms", "9000"]));
        }
        Self { id, line, grpc, http, runs: None }
    }

    /// One of the ring's.
    pub(super) fn of_ring(folder: &TestFolder, places: &Places, at: usize) -> Self {
        let ring: Vec<String> =
            NUMBERS.iter().zip(1..).map(|(number, name)| format!("{number}=m{name}")).collect();
        let seat = ["--number", &NUMBERS[at].to_string(), "--ring", &ring.join(",")];
        let (id, address) = (format!("m{}", at + 1), (places.managers[at], 7400));
        let mut member = Self::new(folder, places, at, id, address, &seat);
        member.line.splice(0..0, places.through[at].iter().cloned());
        member
    }

    /// Where it takes requests.
    pub fn grpc(&self) -> &str {
        &self.grpc
    }

    /// Whether there is anything in its folder.
    pub fn has_begun(&self) -> bool {
        let at = self.line.iter().skip_while(|it| *it != "--data").nth(1).expect("it has a folder");
        std::fs::read_dir(at).is_ok_and(|mut it| it.next().is_some())
    }

    /// Starts it with its own command line, so with its own folder; waits until it is ready.
    pub async fn start(&mut self, folder: &TestFolder) {
        self.runs = Some(Launched::again(folder, &self.id, &self.line).await);
    }

    fn take(&mut self) -> Launched {
        self.runs.take().expect("it runs")
    }

    /// Kills it and waits until it is gone.
    pub async fn kill(&mut self) {
        self.take().kill().await;
    }

    /// Waits until it has ended by itself, and gives its exit code.
    pub async fn ended(&mut self) -> Option<i32> {
        self.take().ended().await
    }
}

impl Assembled {
    /// Starts one more manager, which waits outside. Each has a number of its own from 0 on.
    pub async fn newcomer(&self, count: u16) -> Member {
        let (id, address) = (format!("newcomer-{count}"), (self.places.nodes, 7500 + 2 * count));
        let mut newcomer = Member::new(&self.folder, &self.places, 0, id, address, &["--join"]);
        newcomer.start(&self.folder).await;
        newcomer
    }
}
