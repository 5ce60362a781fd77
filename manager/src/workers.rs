//! Where operations of applications work: each in a thread of its own for that time, so that the decisions
//! go on. The decisions bound how many there are at once, and throw away what comes too late; a thread that
//! never returns ends with the process.

use crate::mailbox::Mailbox;
use rota_protocol::Input;
use rota_protocol::operate::Job;
use std::sync::Arc;
use tracing::error;

/// The workers of one manager.
pub struct Workers {
    mailbox: Mailbox,
}

impl Workers {
    /// Workers that give to this mailbox what they come to.
    pub fn new(mailbox: Mailbox) -> Self {
        Self { mailbox }
    }

    /// Lets an operation work, and does not wait for it.
    pub fn begin(&self, work: u64, job: Box<Job>) {
        let mailbox = self.mailbox.clone();
        tokio::spawn(async move {
            let job: Arc<Job> = Arc::from(job);
            let at_work = Arc::clone(&job);
            let worked = tokio::task::spawn_blocking(move || at_work.run()).await;
            let worked = worked.unwrap_or_else(|problem| {
                error!(operation = job.operation(), %problem, "an operation's worker failed");
                job.failed()
            });
            // Nobody takes it any more when the process stops.
            let _ = mailbox.input(Input::Worked { work, worked }).await;
        });
    }
}
