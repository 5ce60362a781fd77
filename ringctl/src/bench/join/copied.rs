//! What managers sent of the state of partitions, by their own metrics.

use super::Who;
use crate::dev::{Cluster, ManagerProcess};
use crate::http;
use anyhow::{Context, bail};
use std::ops::{AddAssign, Sub};
use std::time::Duration;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

/// How long one manager may take to show its metrics.
const PAGE_WAIT: Duration = Duration::from_secs(10);

/// Between two looks at a manager that is about to end. What it sends after the last look is not counted, and a
/// small ring is left within some 40 ms.
const ASK_EVERY: Duration = Duration::from_millis(1);

/// Sums over managers, since their starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Copied {
    pub documents: u64,
    pub document_bytes: u64,
    pub message_bytes: u64,
}

impl AddAssign for Copied {
    fn add_assign(&mut self, other: Self) {
        self.documents += other.documents;
        self.document_bytes += other.document_bytes;
        self.message_bytes += other.message_bytes;
    }
}

impl Sub for Copied {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            documents: self.documents.saturating_sub(before.documents),
            document_bytes: self.document_bytes.saturating_sub(before.document_bytes),
            message_bytes: self.message_bytes.saturating_sub(before.message_bytes),
        }
    }
}

impl Copied {
    /// Asks all of these managers at their HTTP.
    pub async fn ask(https: impl IntoIterator<Item = String>) -> anyhow::Result<Self> {
        let mut asked = JoinSet::new();
        for http in https {
            asked.spawn(async move {
                let page = timeout(PAGE_WAIT, http::get(&http, "/metrics")).await;
                let page = page.map_err(anyhow::Error::from).and_then(|it| Ok(it?));
                Self::read(&page?)
            });
        }
        let mut all = Self::default();
        while let Some(one) = asked.join_next().await {
            all += one?.context("the metrics of a manager")?;
        }
        Ok(all)
    }

    fn read(page: &str) -> anyhow::Result<Self> {
        let counter = |name: &str| {
            let mut lines = page.lines().filter_map(|it| it.split_once(' '));
            let value = lines.find(|(left, _)| *left == name).map(|(_, value)| value);
            match value.map(str::parse::<u64>) {
                Some(Ok(value)) => Ok(value),
                Some(Err(_)) | None => bail!("{name} is missing, or is no whole number"),
            }
        };
        Ok(Self {
            documents: counter("rota_copied_documents_total")?,
            document_bytes: counter("rota_copied_document_bytes_total")?,
            message_bytes: counter("rota_copied_message_bytes_total")?,
        })
    }

    /// Bytes of so many documents, of the same kind as those that were sent.
    pub fn bytes_of(&self, documents: u64) -> u64 {
        let bytes = u128::from(self.document_bytes) * u128::from(documents);
        let each = bytes.checked_div(u128::from(self.documents)).unwrap_or(0);
        u64::try_from(each).unwrap_or(u64::MAX)
    }
}

/// What all managers send from a moment on.
pub struct Sent {
    before: Copied,
    /// Who is asked at the end.
    https: Vec<String>,
    /// Whose process ends meanwhile: it is asked until then.
    leaver: Option<JoinHandle<Copied>>,
}

impl Sent {
    /// From now on.
    pub async fn before(cluster: &Cluster, who: Who<'_>) -> anyhow::Result<Self> {
        let http = |it: &ManagerProcess| it.http.clone();
        let mut https: Vec<String> = cluster.document().managers.iter().map(http).collect();
        let before = Copied::ask(https.clone()).await?;
        let leaver = match who {
            Who::Comes(newcomer) => {
                https.push(http(newcomer));
                None
            }
            Who::Goes(leaver) => {
                https.retain(|it| *it != leaver.http);
                Some(tokio::spawn(last_words(leaver.http.clone())))
            }
        };
        Ok(Self { before, https, leaver })
    }

    /// What that came to.
    pub async fn since(self) -> anyhow::Result<Copied> {
        let mut after = Copied::ask(self.https).await?;
        if let Some(leaver) = self.leaver {
            after += leaver.await?;
        }
        Ok(after - self.before)
    }
}

/// What a manager says last of what it sent.
async fn last_words(http: String) -> Copied {
    let mut last = Copied::default();
    while let Ok(copied) = Copied::ask([http.clone()]).await {
        last = copied;
        tokio::time::sleep(ASK_EVERY).await;
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_among_the_other_lines_of_a_page() {
        let page = "# HELP rota_copied_documents_total Documents.\n\
                    # TYPE rota_copied_documents_total counter\n\
                    rota_copied_documents_total 4\n\n\
                    rota_copied_document_bytes_total 400\n\
                    rota_copied_message_bytes_total 480\n\
                    rota_sessions{part=\"1\"} 7\n";
        let it = Copied::read(page).unwrap();
        assert_eq!((it.documents, it.document_bytes, it.message_bytes), (4, 400, 480));
        assert_eq!((it.bytes_of(10), Copied::default().bytes_of(10)), (1000, 0));
        let error = Copied::read("rota_copied_documents_total x\n").unwrap_err().to_string();
        assert!(error.contains("rota_copied_documents_total"), "{error}");
    }
}
