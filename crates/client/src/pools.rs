//! Pools of nodes, for operators.

use crate::attempt::{Call, calls_of_no_slot};
use crate::documents::call::{Keyed, admin_key};
use crate::documents::unreadable;
use crate::error::CallError;
use crate::session::Client;
use rota_model::{FieldError, PoolName};
pub use rota_proto::pool::{CreatePool, PoolLoad, PoolState, SetPool};
use rota_proto::v1;
use rota_proto::v1::pools_client::PoolsClient;
use std::time::Duration;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

fn pools(channel: Channel) -> PoolsClient<Channel> {
    PoolsClient::new(channel)
}

calls_of_no_slot! {
    may_change: false;
    ListPoolsRequest, ListPoolsResponse, "list pools", pools.list_pools;
    GetPoolRequest, PoolInfo, "get pool", pools.get_pool;
}

calls_of_no_slot! {
    may_change: true;
    CreatePoolRequest, PoolInfo, "create pool", pools.create_pool;
    SetPoolRequest, PoolInfo, "set pool", pools.set_pool;
    DeletePoolRequest, DeletePoolResponse, "delete pool", pools.delete_pool;
}

/// A client of the pools of one cluster: a view of a [`Client`].
#[derive(Clone, Debug)]
pub struct Pools {
    client: Client,
    /// Marked as sensitive: it is not printed.
    admin_key: Option<AsciiMetadataValue>,
}

impl Client {
    /// Its pools, for operators.
    pub fn pools(&self) -> Pools {
        Pools { client: self.clone(), admin_key: None }
    }
}

impl Pools {
    /// The same with the administrator's key; an empty one is none. Field `admin_key`: it has
    /// visible ASCII characters only.
    pub fn with_admin_key(self, key: &str) -> Result<Self, FieldError> {
        Ok(Self { admin_key: admin_key(key)?, ..self })
    }

    fn keyed<C>(&self, call: C) -> Keyed<C> {
        Keyed { call, key: self.admin_key.clone() }
    }

    async fn one<C>(&self, call: C, wait: Duration) -> Result<PoolState, CallError>
    where
        C: Call<Answer = v1::PoolInfo>,
    {
        let answered = self.client.call(self.keyed(call), wait).await?;
        PoolState::try_from(answered.answer).map_err(|it| unreadable(&it, &answered.endpoint))
    }

    /// Describes a pool. One that is described in the very same way is given again.
    pub async fn create(
        &self,
        create: &CreatePool,
        wait: Duration,
    ) -> Result<PoolState, CallError> {
        self.one(v1::CreatePoolRequest::from(create), wait).await
    }

    /// One pool.
    pub async fn get(&self, name: &PoolName, wait: Duration) -> Result<PoolState, CallError> {
        self.one(v1::GetPoolRequest { name: name.as_str().into() }, wait).await
    }

    /// Changes what is named of a pool's settings.
    pub async fn set(&self, set: &SetPool, wait: Duration) -> Result<PoolState, CallError> {
        self.one(v1::SetPoolRequest::from(set), wait).await
    }

    /// All pools, by name. Those that do not fit into one answer are asked for after it, each within `wait`.
    pub async fn list(&self, wait: Duration) -> Result<Vec<PoolState>, CallError> {
        let (mut states, mut after) = (Vec::<PoolState>::new(), String::new());
        loop {
            let answered =
                self.client.call(self.keyed(v1::ListPoolsRequest { after }), wait).await?;
            let v1::ListPoolsResponse { pools, more } = answered.answer;
            let goes_on = more && !pools.is_empty();
            let here: Result<Vec<_>, _> = pools.into_iter().map(PoolState::try_from).collect();
            states.extend(here.map_err(|it| unreadable(&it, &answered.endpoint))?);
            match states.last() {
                Some(last) if goes_on => after = last.name.as_str().to_owned(),
                Some(_) | None => return Ok(states),
            }
        }
    }

    /// Takes the description of a pool away, which must have no nodes. Says whether there was one.
    pub async fn delete(&self, name: &PoolName, wait: Duration) -> Result<bool, CallError> {
        let call = v1::DeletePoolRequest { name: name.as_str().into() };
        Ok(self.client.call(self.keyed(call), wait).await?.answer.existed)
    }
}
