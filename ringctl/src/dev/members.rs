//! Managers of a cluster that runs: killed, started again, replaced, or new.

use super::cluster::{Cluster, LEFT, LOOK_EVERY, LOOK_WAIT, Starting, text};
use super::document::ManagerProcess;
use super::launch::{self, Member};
use super::ports::loopback;
use super::readiness;
use crate::inspect;
use anyhow::{Context, bail};
use rota_client::Client;
use std::time::Duration;
use tokio::time::{Instant, sleep};

impl Cluster {
    /// What is known of the process of a number.
    pub fn manager(&self, number: u32) -> anyhow::Result<&ManagerProcess> {
        let mut all = self.document().managers.iter();
        all.find(|it| it.number == number).with_context(|| format!("no manager has {number}"))
    }

    /// The id of a number that was reserved from the start.
    fn id_of(&self, number: u32) -> anyhow::Result<String> {
        let mut seats = self.folder.layout.managers.iter();
        let seat = seats.find(|it| it.number == number);
        Ok(seat.with_context(|| format!("no manager has {number}"))?.id.clone())
    }

    /// Kills a manager, and waits until it is gone.
    pub async fn kill_manager(&self, number: u32) -> anyhow::Result<()> {
        self.family.kill(self.manager(number)?.pid).await;
        Ok(())
    }

    /// Starts a manager that was killed again, from its folder and with its command line. Resolves
    /// when it has its number.
    pub async fn restart_manager(&mut self, number: u32) -> anyhow::Result<()> {
        let id = self.id_of(number)?;
        let it = self.manager(number)?;
        let listen = [it.grpc.parse()?, it.http.parse()?];
        let again = self.start_member(&Member { id: &id, number: Some(number), listen }).await?;
        self.seat(again);
        Ok(())
    }

    /// Starts a manager that waits outside of the ring, on an empty folder. `number` of what is given
    /// is 0: it has none.
    pub async fn newcomer(&self, id: &str) -> anyhow::Result<ManagerProcess> {
        self.start_member(&Member { id, number: None, listen: [loopback(0); 2] }).await
    }

    /// Starts one under the id of a manager that was killed, and without what that one's disk held.
    pub async fn replacement(&self, number: u32) -> anyhow::Result<ManagerProcess> {
        let id = self.id_of(number)?;
        let data = launch::data_of(&self.folder, &id);
        std::fs::remove_dir_all(&data).with_context(|| data.display().to_string())?;
        self.newcomer(&id).await
    }

    /// From here on that process counts as the manager of its number.
    pub fn seat(&mut self, process: ManagerProcess) {
        self.unseat(process.number);
        self.document.managers.push(process);
        self.document.managers.sort_by_key(|it| it.number);
    }

    /// From here on the number has no process.
    pub fn unseat(&mut self, number: u32) {
        self.document.managers.retain(|it| it.number != number);
    }

    /// Waits until all managers of the document answer, every partition is where it is at rest, with
    /// every copy that is wanted in sync, nobody joins or leaves, and every node is READY.
    pub async fn whole(&self, wait: Duration) -> anyhow::Result<()> {
        let client = Client::connect(&self.document.endpoints())?;
        let own: Vec<u32> = self.document.managers.iter().map(|it| it.number).collect();
        let nodes: Vec<String> = self.document.nodes.iter().map(|it| it.id.clone()).collect();
        let until = Instant::now() + wait;
        loop {
            let missing = match inspect::ask(&client, LOOK_WAIT).await {
                Ok(answers) => readiness::missing(&answers, &own, &nodes)
                    .or_else(|| readiness::not_at_rest(&answers, &own)),
                Err(error) => Some(error.to_string()),
            };
            let Some(missing) = missing else { return Ok(()) };
            if let Some((name, ending)) = self.family.first_ended(LEFT) {
                bail!("{name} ended {ending}, and nobody told it to");
            }
            if Instant::now() >= until {
                bail!("the ring is not whole within {wait:?}: {missing}");
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Starts the agent of a node again, which has ended, from its folder and with its command line. Resolves when it
    /// listens.
    pub async fn restart_node(&mut self, id: &str) -> anyhow::Result<()> {
        let ids = &self.folder.layout.nodes;
        let at = ids.iter().position(|it| it == id).with_context(|| format!("no node is {id}"))?;
        let listen = self.document.nodes[at].address.parse()?;
        let launch = launch::node(&self.folder, &self.ports, &self.programs, id, listen);
        let starting = Starting::new(&self.family, &self.folder.path, 1);
        let process = starting.start(launch)?;
        self.document.nodes[at].pid = process.pid;
        starting.ready(process).await?;
        Ok(())
    }

    async fn start_member(&self, member: &Member<'_>) -> anyhow::Result<ManagerProcess> {
        let launch = launch::manager(&self.folder, &self.ports, &self.programs, member);
        let starting = Starting::new(&self.family, &self.folder.path, 1);
        let process = starting.start(launch)?;
        let pid = process.pid;
        let told = starting.ready(process).await?;
        let [grpc, http] = [text(&told, "grpc", member.id)?, text(&told, "http", member.id)?];
        let (number, id) = (member.number.unwrap_or(0), member.id.to_owned());
        Ok(ManagerProcess { number, id, grpc, http, pid })
    }
}
