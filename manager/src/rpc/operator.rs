//! What operators ask of this manager: what it knows, suspicions, and orders about managers and nodes.

use super::deadline::deadline_of;
use super::{Shared, events, no_view, status};
use rota_model::{ClusterName, FieldError, ManagerNumber, Refusal, RefusalKind, Retry};
use rota_proto::{mend, numbers, operator, running, v1};
use rota_protocol::{Input, Op, Order};
use rota_ring::View;
use std::sync::Arc;
use tonic::{Request, Response, Status};

/// The service of operators.
pub struct OperatorService {
    /// What the services share.
    pub shared: Arc<Shared>,
    /// The cluster.
    pub cluster: ClusterName,
    /// This manager.
    pub number: ManagerNumber,
}

impl OperatorService {
    fn view(&self) -> Result<Arc<View>, Status> {
        self.shared.seen.borrow().view.clone().ok_or_else(|| status(no_view()))
    }
}

#[tonic::async_trait]
impl v1::operator_server::Operator for OperatorService {
    type EventsStream = events::Events;

    async fn events(
        &self,
        request: Request<v1::EventsRequest>,
    ) -> Result<Response<Self::EventsStream>, Status> {
        events::tell(&self.shared, request.into_inner()).map(Response::new)
    }

    async fn inspect(
        &self,
        _request: Request<v1::InspectRequest>,
    ) -> Result<Response<v1::InspectResponse>, Status> {
        let stats = self.shared.mailbox.stats().await.map_err(status)?;
        let view = self.view()?;
        let away = self.shared.config_store_error();
        Ok(Response::new(operator::inspect_response(self.number, &view, &stats, away)))
    }

    async fn signal(
        &self,
        request: Request<v1::SignalRequest>,
    ) -> Result<Response<v1::SignalResponse>, Status> {
        let signal = operator::signal(request.into_inner()).map_err(status)?;
        if signal.cluster != self.cluster {
            let problem = format!("is {:?}; this is {:?}", signal.cluster, self.cluster);
            return Err(status(FieldError::new("cluster", problem).into()));
        }
        let view = self.view()?;
        let mut suspected = 0;
        for member in signal.gone.into_iter().filter(|it| view.may_run(*it)) {
            tracing::info!(%member, "looks gone to somebody outside");
            let told = self.shared.mailbox.input(Input::Signal { member }).await;
            told.map_err(|it| status(it.into()))?;
            suspected += 1;
        }
        Ok(Response::new(v1::SignalResponse { suspected }))
    }

    async fn join(
        &self,
        request: Request<v1::JoinRequest>,
    ) -> Result<Response<v1::JoinResponse>, Status> {
        operator::join(request.into_inner()).map_err(status)?;
        let view = self.view()?;
        let id = view.managers.get(&self.number).map_or("", |it| it.id.as_str());
        let text = format!("this manager is {id:?}, number {} of the ring already", self.number);
        Err(status(Refusal::new(RefusalKind::InvalidArgument, Retry::Never, text)))
    }
    async fn leave(
        &self,
        request: Request<v1::LeaveRequest>,
    ) -> Result<Response<v1::LeaveResponse>, Status> {
        let number = ManagerNumber(request.into_inner().number);
        let ordered = self.shared.mailbox.order(Order::Leave(number)).await.map_err(status)?;
        Ok(Response::new(operator::leave_response(&ordered)))
    }

    async fn cancel(
        &self,
        request: Request<v1::CancelRequest>,
    ) -> Result<Response<v1::CancelResponse>, Status> {
        let number = request.into_inner().number.map(ManagerNumber);
        let ordered = self.shared.mailbox.order(Order::Cancel(number)).await.map_err(status)?;
        Ok(Response::new(operator::cancel_response(&ordered)))
    }

    async fn order_node(
        &self,
        request: Request<v1::OrderNodeRequest>,
    ) -> Result<Response<v1::OrderNodeResponse>, Status> {
        let (node, order) = operator::order_node(request.into_inner()).map_err(status)?;
        let ordered = self.shared.mailbox.node_order(node, order).await.map_err(status)?;
        Ok(Response::new(operator::order_node_response(&ordered)))
    }

    async fn placements(
        &self,
        request: Request<v1::PlacementsRequest>,
    ) -> Result<Response<v1::PlacementsResponse>, Status> {
        let ask = running::placements(request.into_inner()).map_err(status)?;
        let part = ask.part;
        let found = self.shared.mailbox.placements(ask).await.map_err(status)?;
        let epoch = self.view()?.epoch;
        let found = found.ok_or_else(|| {
            let text = format!("this manager does not serve partition {part}");
            status(Refusal::new(RefusalKind::NotOwner, Retry::AtOwner(epoch), text))
        })?;
        Ok(Response::new(running::placements_response(&found)))
    }

    async fn mend(
        &self,
        request: Request<v1::MendRequest>,
    ) -> Result<Response<v1::MendResponse>, Status> {
        let deadline = deadline_of(request.metadata());
        let op = mend::mend(request.get_ref()).map_err(status)?;
        let (session, node, dry_run) = (op.key.clone(), op.node.clone(), op.dry_run);
        let answer = self.shared.mailbox.call(Op::Mend(op), deadline).await.map_err(status)?;
        let response = mend::mend_response(answer).map_err(status)?;
        if !dry_run {
            let (step, text) = (&response.step, &response.text);
            tracing::info!(%session, %node, step, text, "an operator had it mended");
        }
        Ok(Response::new(response))
    }

    async fn session_numbers(
        &self,
        request: Request<v1::SessionNumbersRequest>,
    ) -> Result<Response<v1::SessionNumbersResponse>, Status> {
        let deadline = deadline_of(request.metadata());
        let op = numbers::session_numbers(request.get_ref()).map_err(status)?;
        let answer = self.shared.mailbox.call(Op::Numbers(op), deadline).await.map_err(status)?;
        numbers::session_numbers_response(answer).map(Response::new).map_err(status)
    }
}
