//! What node-agents call: registration, renewals, reports.

use crate::mailbox::Mailbox;
use crate::rpc::deadline::deadline_of;
use rota_model::{ClusterName, Refusal, RefusalKind};
use rota_proto::{node, refusal, v1};
use rota_protocol::{Op, OpResult};
use tonic::{Request, Response, Status};

/// The service of node-agents.
pub struct NodesService {
    /// Nodes of other clusters are refused.
    pub cluster: ClusterName,
    /// Where requests go.
    pub mailbox: Mailbox,
}

fn status(refused: impl Into<Refusal>) -> Status {
    refusal::status(&refused.into())
}

/// Whether an item of a report need not come again: it is committed, or nobody will ever want it.
fn is_settled(result: &OpResult) -> bool {
    match result {
        Ok(_) => true,
        Err(refused) => matches!(
            refused.kind,
            RefusalKind::NotFound | RefusalKind::UnknownNode | RefusalKind::InvalidArgument
        ),
    }
}

#[tonic::async_trait]
impl v1::nodes_server::Nodes for NodesService {
    async fn register(
        &self,
        request: Request<v1::RegisterRequest>,
    ) -> Result<Response<v1::RegisterResponse>, Status> {
        let register = node::register(&self.cluster, request.into_inner()).map_err(status)?;
        let registered = self.mailbox.register(register).await.map_err(status)?;
        Ok(Response::new(registered.into()))
    }

    async fn renew(
        &self,
        request: Request<v1::RenewRequest>,
    ) -> Result<Response<v1::RenewResponse>, Status> {
        let renew = node::renew(&self.cluster, request.into_inner()).map_err(status)?;
        let renewed = self.mailbox.renew(renew).await.map_err(status)?;
        Ok(Response::new(renewed.into()))
    }

    async fn report(
        &self,
        request: Request<v1::ReportRequest>,
    ) -> Result<Response<v1::ReportResponse>, Status> {
        let deadline = deadline_of(request.metadata());
        // Refused one by one, they would come again only after a while, and not to another manager.
        self.mailbox.takes_calls().map_err(status)?;
        let items = node::report_items(&self.cluster, request.into_inner());
        let items = items.map_err(status)?;
        // All at once: items of one owner then share its commit.
        let begun: Vec<_> =
            items.into_iter().map(|it| self.mailbox.begin(Op::Report(it), deadline)).collect();
        let mut acknowledged = Vec::with_capacity(begun.len());
        for begun in begun {
            let result = begun.answer().await;
            if let Err(refused) = &result {
                tracing::debug!(%refused, "an item of a report was refused");
            }
            acknowledged.push(is_settled(&result));
        }
        Ok(Response::new(v1::ReportResponse { acknowledged }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::Retry;
    use rota_protocol::Answer;

    #[test]
    fn a_report_comes_again_unless_it_is_committed_or_nobody_will_ever_want_it() {
        assert!(is_settled(&Ok(Answer::Reported)));
        for (kind, settled) in [
            (RefusalKind::NotFound, true),
            (RefusalKind::UnknownNode, true),
            (RefusalKind::NotServing, false),
            (RefusalKind::DeadlineExceeded, false),
            (RefusalKind::Internal, false),
        ] {
            assert_eq!(is_settled(&Err(Refusal::new(kind, Retry::Never, ""))), settled, "{kind}");
        }
    }
}
