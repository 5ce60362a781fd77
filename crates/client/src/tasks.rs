//! Tasks, for operators: lists and backlogs, and orders, which are operations on documents.

use crate::attempt::{Call, calls_of_no_slot};
use crate::documents::call::{Keyed, admin_key};
use crate::documents::unreadable;
use crate::error::CallError;
use crate::session::Client;
use rota_docstore::{
    Answer, Caller, Credentials, DocName, Exception, JsonText, Request as Asked, Singleton,
    SyncRequest, apply, codes,
};
use rota_model::{Changed, FieldError, Namespace, RequestId, Stamp};
use rota_proto::documents::ANSWER_BYTES_MAX;
use rota_proto::documents::request::{Operate, Sync};
pub use rota_proto::tasks::TASKS_PAGE_MAX;
use rota_proto::v1;
use rota_proto::v1::tasks_client::TasksClient;
pub use rota_tasks::{Cron, Filter, Param, Progress, TASK_CLASS, Task, TaskState};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

fn tasks(channel: Channel) -> TasksClient<Channel> {
    TasksClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX)
}

calls_of_no_slot! {
    may_change: false;
    ListTasksRequest, ListTasksResponse, "list tasks", tasks.list_tasks;
    GetTaskBacklogRequest, GetTaskBacklogResponse, "get task backlog", tasks.get_task_backlog;
}

/// The item of a task's document.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct TaskItem(Task);

impl Singleton for TaskItem {
    const CLASS: &'static str = "task";
}

/// A client of the tasks of one cluster: a view of a [`Client`].
#[derive(Clone, Debug)]
pub struct Tasks {
    client: Client,
    /// Marked as sensitive: it is not printed.
    admin_key: Option<AsciiMetadataValue>,
    /// Of orders. `Credentials` print no key.
    who: Credentials,
}

/// A page of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TasksListed {
    /// The tasks, by slot, and by id within a slot.
    pub tasks: Vec<Task>,
    /// Continues the list of the same filter; empty: it is complete.
    pub next_page_token: String,
}

/// An order about a task, or about queues.
#[derive(Clone, PartialEq, Debug)]
pub struct Order {
    /// The namespace that it runs in.
    pub space: Namespace,
    /// The id of a document in its slot.
    pub docid: String,
    /// Its operation, as `task.retry`.
    pub operation: String,
    /// Its parameters.
    pub parameters: JsonText,
    /// By both of these a repetition is known as one, for 10 minutes.
    pub operation_time: Stamp,
    /// The name of this very order.
    pub request_id: RequestId,
}

impl Client {
    /// Its tasks, for operators.
    pub fn tasks(&self) -> Tasks {
        Tasks { client: self.clone(), admin_key: None, who: Credentials::default() }
    }
}

impl Tasks {
    /// The same with the administrator's key; an empty one is none. Field `admin_key`: it has
    /// visible ASCII characters only.
    pub fn with_admin_key(self, key: &str) -> Result<Self, FieldError> {
        let who = Credentials { admin: key.to_owned(), ..Credentials::default() };
        Ok(Self { admin_key: admin_key(key)?, who, ..self })
    }

    fn keyed<C>(&self, call: C) -> Keyed<C> {
        Keyed { call, key: self.admin_key.clone() }
    }

    /// One page of the tasks that a filter selects, ring-wide; at most [`TASKS_PAGE_MAX`]. It may be empty although more
    /// follow.
    pub async fn list(
        &self,
        filter: &Filter,
        page_size: u32,
        page_token: String,
        wait: Duration,
    ) -> Result<TasksListed, CallError> {
        let filter = Some(v1::TaskFilter::from(filter));
        let call = v1::ListTasksRequest { filter, page_size, page_token };
        let answered = self.client.call(self.keyed(call), wait).await?;
        let v1::ListTasksResponse { tasks, next_page_token } = answered.answer;
        let tasks: Result<Vec<_>, _> = tasks.into_iter().map(Task::try_from).collect();
        let tasks = tasks.map_err(|it| unreadable(&it, &answered.endpoint))?;
        Ok(TasksListed { tasks, next_page_token })
    }

    /// One task; N-TASK if it is not there.
    pub async fn get(
        &self,
        space: &Namespace,
        docid: &str,
        wait: Duration,
    ) -> Result<Task, CallError> {
        let told = |code, text| {
            let exception = Box::new(Exception::new(code, text));
            // It was answered, and nobody else has said it.
            let (endpoint, changed) = (String::new(), Changed::No);
            CallError::Raised { exception, endpoint, attempts: 0, changed }
        };
        let name = DocName::new(space, TASK_CLASS, docid)
            .map_err(|it| told(codes::INVALID, it.to_string()))?;
        let documents = vec![SyncRequest { name: name.clone(), held: None }];
        let caller = Caller { build: None, who: self.who.clone() };
        let sync = Sync { space: space.clone(), documents, stale_ok: false, caller };
        let updates = self.client.documents().sync(&sync, wait).await?;
        let document = updates.first().and_then(|(_, update)| apply(&name, None, update).ok()?);
        let item = document.filter(|it| !it.is_deleted()).map(|it| it.one::<TaskItem>());
        match item {
            Some(Ok(Some(TaskItem(task)))) => Ok(task),
            Some(Err(exception)) => Err(told(codes::INVALID, exception.to_string())),
            Some(Ok(None)) | None => {
                let text = format!("task {docid} is not there: it ended, or was deleted");
                Err(told(codes::TASK, text))
            }
        }
    }

    /// What the queues of all partitions have.
    pub async fn backlog(&self, wait: Duration) -> Result<v1::GetTaskBacklogResponse, CallError> {
        let call = self.keyed(v1::GetTaskBacklogRequest {});
        Ok(self.client.call(call, wait).await?.answer)
    }

    /// Carries an order out, once however often it is sent.
    pub async fn order(&self, order: &Order, wait: Duration) -> Result<Answer, CallError> {
        let request = Asked {
            parameters: Some(order.parameters.clone()),
            operation_time: Some(order.operation_time),
            request_id: Some(order.request_id.clone()),
            who: self.who.clone(),
            ..Asked::new(order.space.clone(), &order.operation)
        };
        let operate = Operate { request, docid: order.docid.clone() };
        self.client.documents().operate(&operate, wait).await
    }
}
