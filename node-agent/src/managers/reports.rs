//! Sending reports. What is not acknowledged is not kept here: the decisions give it again.

use super::Channels;
use crate::mailbox::{Event, Mailbox};
use rota_model::BootId;
use rota_model::node_msg::ReportItem;
use rota_node::ReportId;
use rota_proto::node::{REPORT_ITEMS_MAX, report_request};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::timeout;

/// Reports that wait to be sent: twice what the decisions have under way at most, so that only
/// repetitions for a silent cluster are ever dropped.
const WAITING_MAX: usize = 2_048;

/// Requests under way at a time: while the managers commit one batch the next ones travel.
const REQUESTS_MAX: usize = 4;

/// A report waits for a commit at its owner. A manager that takes longer is hung, or its owner is
/// being replaced: another one is asked, and whatever is taken twice changes something once.
const TRY_TIMEOUT: Duration = Duration::from_secs(1);

/// For how long a manager that failed is asked after all others. A new View names those that are
/// up, but a node hears of it with its next sign of life only, which is seconds later.
const AVOID: Duration = Duration::from_secs(3);

/// A report to send.
#[derive(Debug)]
pub struct Report {
    /// The boot that tells it.
    pub boot: BootId,
    /// Its name for the acknowledgement.
    pub id: ReportId,
    /// The report.
    pub item: ReportItem,
    /// Counts repetitions; each goes to another manager.
    pub attempt: u32,
}

/// The sending task's mailbox.
pub struct Reporter(mpsc::Sender<Report>);

impl Reporter {
    /// Starts the sending task. `managers` always shows the addresses that are known.
    pub fn start(
        channels: Channels,
        managers: watch::Receiver<Vec<String>>,
        mailbox: Mailbox,
    ) -> Self {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        tokio::spawn(run(receiver, channels, managers, mailbox));
        Self(sender)
    }

    /// Sends a report, or drops it when too many wait.
    pub fn send(&self, report: Report) {
        if let Err(error) = self.0.try_send(report) {
            tracing::debug!(%error, "a report waits for its repetition");
        }
    }
}

/// Managers that failed, and when last.
#[derive(Clone, Default)]
struct Failed {
    /// A lock because several requests are under way; it is held for a look-up only.
    at: Arc<Mutex<BTreeMap<String, Instant>>>,
}

impl Failed {
    fn add(&self, address: &str) {
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        at.retain(|_, since| since.elapsed() < AVOID);
        at.insert(address.to_owned(), Instant::now());
    }

    /// All addresses, the one of that turn first, those that failed lately last.
    fn order(&self, addresses: &[String], turn: usize) -> Vec<String> {
        let at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        let has_failed = |it: &String| at.get(it).is_some_and(|since| since.elapsed() < AVOID);
        let mut order = addresses.to_vec();
        order.rotate_left(turn % addresses.len().max(1));
        order.sort_by_key(has_failed);
        order
    }
}

async fn run(
    mut receiver: mpsc::Receiver<Report>,
    channels: Channels,
    managers: watch::Receiver<Vec<String>>,
    mailbox: Mailbox,
) {
    let slots = Arc::new(Semaphore::new(REQUESTS_MAX));
    let failed = Failed::default();
    let mut batch = Vec::with_capacity(REPORT_ITEMS_MAX);
    let mut turn = 0_usize;
    while let Ok(slot) = slots.clone().acquire_owned().await {
        if receiver.recv_many(&mut batch, REPORT_ITEMS_MAX).await == 0 {
            return;
        }
        let addresses = managers.borrow().clone();
        if addresses.is_empty() {
            batch.clear();
            continue;
        }
        // First tries take turns, and a repetition goes on from there.
        turn = turn.wrapping_add(1);
        let attempts = batch.iter().map(|it| it.attempt).max().unwrap_or(0);
        let attempts = usize::try_from(attempts).unwrap_or(0);
        let order = failed.order(&addresses, turn.wrapping_add(attempts));
        let reports = std::mem::take(&mut batch);
        let (channels, mailbox, failed) = (channels.clone(), mailbox.clone(), failed.clone());
        tokio::spawn(async move {
            if let Some(acknowledged) = send_to_any(&channels, &failed, &order, &reports).await {
                acked(&mailbox, &reports, &acknowledged).await;
            }
            drop(slot);
        });
    }
}

/// Goes from manager to manager until one answers. To leave it at the first would leave what every
/// client reads behind by the time of a repetition, for one report in three, when one of three
/// managers has just died.
async fn send_to_any(
    channels: &Channels,
    failed: &Failed,
    order: &[String],
    reports: &[Report],
) -> Option<Vec<bool>> {
    for address in order {
        match timeout(TRY_TIMEOUT, send(channels, address, reports)).await {
            Ok(Ok(acknowledged)) => return Some(acknowledged),
            Ok(Err(error)) => tracing::debug!(address, %error, "reports not taken"),
            Err(_) => tracing::debug!(address, "reports not answered"),
        }
        failed.add(address);
    }
    None
}

async fn send(channels: &Channels, address: &str, reports: &[Report]) -> anyhow::Result<Vec<bool>> {
    let items = reports.iter().map(|it| it.item.clone());
    let request = report_request(channels.cluster(), items);
    let response = channels.to(address)?.report(request).await?;
    Ok(response.into_inner().acknowledged)
}

/// All reports of a batch are of one boot, or of several when a boot followed another at once.
async fn acked(mailbox: &Mailbox, reports: &[Report], acknowledged: &[bool]) {
    let taken = reports.iter().zip(acknowledged).filter(|(_, taken)| **taken);
    let taken: Vec<&Report> = taken.map(|(report, _)| report).collect();
    for of_boot in taken.chunk_by(|one, next| one.boot == next.boot) {
        let ids = of_boot.iter().map(|it| it.id).collect();
        mailbox.give(Event::Acked { boot: of_boot[0].boot, ids }).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::node_msg::ReportEvent;
    use rota_model::{
        ClusterName, Epoch, LogPos, Namespace, NodeId, Seq, SessionId, SessionKey, Token,
    };
    use rota_proto::v1;
    use rota_proto::v1::nodes_server::{Nodes, NodesServer};
    use std::collections::BTreeSet;
    use tokio::net::TcpListener;
    use tonic::transport::server::TcpIncoming;
    use tonic::{Request, Response, Status};

    /// Far above what a busy machine needs.
    const LIMIT: Duration = Duration::from_secs(30);

    fn cluster() -> ClusterName {
        ClusterName::parse("c").unwrap()
    }

    /// A manager that takes every report.
    struct Taking;

    #[tonic::async_trait]
    impl Nodes for Taking {
        async fn register(
            &self,
            _: Request<v1::RegisterRequest>,
        ) -> Result<Response<v1::RegisterResponse>, Status> {
            Err(Status::unimplemented("it takes reports only"))
        }

        async fn renew(
            &self,
            _: Request<v1::RenewRequest>,
        ) -> Result<Response<v1::RenewResponse>, Status> {
            Err(Status::unimplemented("it takes reports only"))
        }

        async fn report(
            &self,
            request: Request<v1::ReportRequest>,
        ) -> Result<Response<v1::ReportResponse>, Status> {
            let items = rota_proto::node::report_items(&cluster(), request.into_inner()).unwrap();
            let acknowledged = vec![true; items.len()];
            Ok(Response::new(v1::ReportResponse { acknowledged }))
        }
    }

    fn report(number: u64) -> Report {
        let id = SessionId::parse(&format!("s{number}")).unwrap();
        let event = ReportEvent::MachineState { state: "red".to_owned(), change: 1 };
        let (boot, attempt) = (BootId(1), 0);
        let item = ReportItem {
            key: SessionKey::new(Namespace::default_space(), id),
            node: NodeId::parse("n1").unwrap(),
            boot,
            token: Token(LogPos::new(Epoch(1), Seq(number))),
            event,
        };
        Report { boot, id: ReportId(number), item, attempt }
    }

    #[tokio::test]
    async fn every_first_report_is_taken_while_one_of_three_managers_is_gone() {
        let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut addresses = vec![gone.local_addr().unwrap().to_string()];
        for _ in 0..2 {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            addresses.push(listener.local_addr().unwrap().to_string());
            let server = tonic::transport::Server::builder().add_service(NodesServer::new(Taking));
            tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
        }
        drop(gone);
        let (mailbox, mut events) = Mailbox::new();
        let (_known, managers) = watch::channel(addresses);
        let reporter = Reporter::start(Channels::new(cluster()), managers, mailbox);
        let mut left: BTreeSet<ReportId> = (1..=9).map(ReportId).collect();
        for number in 1..=9 {
            // One after the other, so that each is a request of its own and all managers have turns.
            reporter.send(report(number));
            let event = timeout(LIMIT, events.recv()).await.expect("nobody repeats it").unwrap();
            let Event::Acked { ids, .. } = event else { panic!("only reports are under way") };
            left.retain(|it| !ids.contains(it));
        }
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn managers_take_turns_and_one_that_failed_comes_last() {
        let [a, b, c] = ["a", "b", "c"].map(str::to_owned);
        let all = [a.clone(), b.clone(), c.clone()];
        let failed = Failed::default();
        assert_eq!(failed.order(&all, 4), [b.clone(), c.clone(), a.clone()]);
        failed.add("b");
        assert_eq!(failed.order(&all, 4), [c.clone(), a.clone(), b.clone()]);
        failed.add("elsewhere");
        assert_eq!(failed.order(&all, 3), [a, c, b]);
        assert!(failed.order(&[], 3).is_empty());
    }
}
