//! Tasks for operators: lists and backlogs of all partitions together. What changes a task is an operation on documents.

use super::owners::{Failure, mixed_up};
use super::{Shared, no_view, status};
use rota_model::SlotId;
use rota_proto::{tasks, v1};
use rota_protocol::{Answer, DocumentCursor, Op, TasksOp, TasksPage};
use std::sync::Arc;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

/// The service of tasks.
pub struct TasksService {
    /// What the services share.
    pub shared: Arc<Shared>,
}

fn page_of(answer: Answer) -> Result<TasksPage, Failure> {
    if let Answer::Tasks(page) = answer { Ok(page) } else { Err(mixed_up(&answer)) }
}

impl TasksService {
    /// A page, from one owner after the other.
    async fn gather(&self, op: TasksOp, deadline: Instant) -> Result<TasksPage, Failure> {
        let TasksOp { from, limit, filter } = op;
        let mut gathered = TasksPage {
            tasks: Vec::new(),
            next: Some(from),
            queues: Vec::new(),
            counts: Vec::new(),
        };
        while let Some(from) = gathered.next.clone() {
            let found = u32::try_from(gathered.tasks.len()).unwrap_or(u32::MAX);
            let left = limit.saturating_sub(found);
            if left == 0 {
                break;
            }
            let op = Op::Tasks(TasksOp { from, limit: left, filter: filter.clone() });
            let asked = self.shared.mailbox.call(op, deadline).await;
            match asked.map_err(Failure::from).and_then(page_of) {
                Ok(page) => {
                    gathered.tasks.extend(page.tasks);
                    gathered.next = page.next;
                }
                Err(failure) if gathered.tasks.is_empty() => return Err(failure),
                // What was gathered is a shorter page.
                Err(_) => break,
            }
        }
        Ok(gathered)
    }

    /// What the queues of every partition have.
    async fn backlog(&self, deadline: Instant) -> Result<Vec<TasksPage>, Failure> {
        let view = self.shared.seen.borrow().view.clone();
        let view = view.ok_or_else(|| Failure::Refused(no_view()))?;
        let ask = |slot| {
            let from = DocumentCursor { slot, after: None };
            let op = TasksOp { from, limit: 0, filter: rota_protocol::TaskFilter::default() };
            self.shared.mailbox.begin(Op::Tasks(op), deadline)
        };
        let begun: Vec<_> = view.parts.keys().map(|it| ask(SlotId(it.0))).collect();
        let mut pages = Vec::with_capacity(begun.len());
        for begun in begun {
            pages.push(page_of(begun.answer().await?)?);
        }
        Ok(pages)
    }
}

#[tonic::async_trait]
impl v1::tasks_server::Tasks for TasksService {
    async fn list_tasks(
        &self,
        request: Request<v1::ListTasksRequest>,
    ) -> Result<Response<v1::ListTasksResponse>, Status> {
        let (_, deadline) = self.shared.admitted(request.metadata())?;
        let op = tasks::list_tasks(request.into_inner()).map_err(status)?;
        let filter = op.filter.clone();
        let page = self.gather(op, deadline).await?;
        Ok(Response::new(tasks::list_response(&page, &filter)))
    }

    async fn get_task_backlog(
        &self,
        request: Request<v1::GetTaskBacklogRequest>,
    ) -> Result<Response<v1::GetTaskBacklogResponse>, Status> {
        let (_, deadline) = self.shared.admitted(request.metadata())?;
        let pages = self.backlog(deadline).await?;
        Ok(Response::new(tasks::backlog_response(&pages)))
    }
}
