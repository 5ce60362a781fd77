//! What operators see of this manager.

use super::{Shared, status};
use rota_model::{ManagerNumber, Refusal, RefusalKind, Retry};
use rota_proto::{operator, v1};
use std::sync::Arc;
use tonic::{Request, Response, Status};

/// Advice to an operator who asks before the first View has come, in milliseconds.
const NO_VIEW_RETRY_MS: u64 = 200;

/// The service of operators.
pub struct OperatorService {
    /// What the services share.
    pub shared: Arc<Shared>,
    /// This manager.
    pub number: ManagerNumber,
}

#[tonic::async_trait]
impl v1::operator_server::Operator for OperatorService {
    async fn inspect(
        &self,
        _request: Request<v1::InspectRequest>,
    ) -> Result<Response<v1::InspectResponse>, Status> {
        let stats = self.shared.mailbox.stats().await.map_err(status)?;
        let Some(view) = self.shared.seen.borrow().view.clone() else {
            let retry = Retry::AfterMs(NO_VIEW_RETRY_MS);
            let text = "this manager has not seen a View yet";
            return Err(status(Refusal::new(RefusalKind::NotServing, retry, text)));
        };
        Ok(Response::new(operator::inspect_response(self.number, &view, &stats)))
    }
}
