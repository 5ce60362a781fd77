//! Sending reports. What is not acknowledged is not kept here: the decisions give it again.

use super::Channels;
use crate::mailbox::{Event, Mailbox};
use rota_model::BootId;
use rota_model::node_msg::ReportItem;
use rota_node::ReportId;
use rota_proto::node::{REPORT_ITEMS_MAX, report_request};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::timeout;

/// Reports that wait to be sent: twice what the decisions have under way at most, so that only
/// repetitions for a silent cluster are ever dropped.
const WAITING_MAX: usize = 2_048;

/// Requests under way at a time: while the managers commit one batch the next ones travel.
const REQUESTS_MAX: usize = 4;

/// A report waits for a commit at its owner. Repetitions come after 1 s and more.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

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

async fn run(
    mut receiver: mpsc::Receiver<Report>,
    channels: Channels,
    managers: watch::Receiver<Vec<String>>,
    mailbox: Mailbox,
) {
    let slots = Arc::new(Semaphore::new(REQUESTS_MAX));
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
        let address = addresses[turn.wrapping_add(attempts) % addresses.len()].clone();
        let reports = std::mem::take(&mut batch);
        let (channels, mailbox) = (channels.clone(), mailbox.clone());
        tokio::spawn(async move {
            match timeout(ANSWER_TIMEOUT, send(&channels, &address, &reports)).await {
                Ok(Ok(acknowledged)) => acked(&mailbox, &reports, &acknowledged).await,
                Ok(Err(error)) => tracing::debug!(address, %error, "reports not taken"),
                Err(_) => tracing::debug!(address, "reports not answered"),
            }
            drop(slot);
        });
    }
}

async fn send(channels: &Channels, address: &str, reports: &[Report]) -> anyhow::Result<Vec<bool>> {
    let request = report_request(reports.iter().map(|it| it.item.clone()));
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
