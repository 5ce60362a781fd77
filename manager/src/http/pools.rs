//! `/v1/pools`.

use super::call::{Asked, Call, segments};
use super::error::Failed;
use super::links::is_number;
use super::paging::Paging;
use super::shown::Pool;
use super::tags::tagged;
use super::tree::{Answer, Tree, missing};
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use rota_model::PoolName;
use rota_proto::v1;
use rota_proto::v1::pools_server::Pools as _;
use rota_protocol::stable_numbers::of_pool;
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;
use tonic::Code;

/// A page of them.
#[derive(Serialize)]
struct Pools {
    pools: Vec<Pool>,
    next_page_token: String,
    links: Value,
}

/// Most answers of the service for one page: each has some 3 MiB of pools.
const ANSWERS_MAX: usize = 16;

/// The name of the pool that a part of a path means: its stable number, or the name itself. A list is made for a
/// number, so whoever has a place of one asks before.
pub async fn name_of(tree: &Tree, part: &str, asked: &Asked) -> Result<String, Failed> {
    if !is_number(part) {
        return Ok(part.to_owned());
    }
    let found = tree.numbered_pool(part, asked).await?;
    found.ok_or_else(|| missing("pool", part, "/v1/pools"))
}

/// Those after a name, as the service gives them in pieces: at least `enough` of them, or all.
async fn all(
    tree: &Tree,
    asked: &Asked,
    after: &str,
    enough: usize,
) -> Result<Vec<v1::PoolInfo>, Failed> {
    let (mut pools, mut after) = (Vec::new(), after.to_owned());
    for _ in 0..ANSWERS_MAX {
        let next = asked.with(v1::ListPoolsRequest { after: after.clone() });
        let mut listed = tree.pools.list_pools(next).await?.into_inner();
        let last = listed.pools.last().map(|it| it.name.clone());
        pools.append(&mut listed.pools);
        match last {
            Some(last) if listed.more && pools.len() < enough => after = last,
            Some(_) | None => break,
        }
    }
    Ok(pools)
}

/// The one of that name, if it is there.
async fn named(tree: &Tree, asked: &Asked, name: &str) -> Result<Vec<v1::PoolInfo>, Failed> {
    // No pool has a name that is none.
    if PoolName::parse(name).is_err() {
        return Ok(Vec::new());
    }
    let request = asked.with(v1::GetPoolRequest { name: name.to_owned() });
    match tree.pools.get_pool(request).await {
        Ok(found) => Ok(vec![found.into_inner()]),
        Err(status) if status.code() == Code::NotFound => Ok(Vec::new()),
        Err(status) => Err(status.into()),
    }
}

/// All of them.
pub async fn list(State(tree): State<Arc<Tree>>, uri: Uri, headers: HeaderMap) -> Answer {
    let mut call = Call::new(&uri, &headers)?;
    let paging = Paging::of(&mut call);
    let request = call.request(())?;
    let place = tree.place().await?;
    let asked = Asked::begin(request.metadata());
    let pools = match &paging.id {
        Some(id) => named(&tree, &asked, id).await?,
        None => all(&tree, &asked, &paging.after, paging.enough()).await?,
    };
    let (pools, next) = paging.page(pools, |it| &it.name);
    let pools: Vec<Pool> = pools.into_iter().map(Pool::of).collect();
    let links = paging.links("/v1/pools", &next);
    place.holds(&Pools { pools, next_page_token: next, links })
}

/// One, by its name or its stable number.
pub async fn one(State(tree): State<Arc<Tree>>, uri: Uri, headers: HeaderMap) -> Answer {
    let request = Call::new(&uri, &headers)?.request(())?;
    let part = segments(&uri)?.pop().unwrap_or_default();
    let asked = Asked::begin(request.metadata());
    let name = name_of(&tree, &part, &asked).await?;
    let request = asked.with(v1::GetPoolRequest { name });
    let found = tree.pools.get_pool(request).await?.into_inner();
    tagged(&headers, &Pool::of(found))
}

impl Tree {
    /// The pool that has a stable number, if this manager knows one.
    async fn numbered_pool(&self, number: &str, asked: &Asked) -> Result<Option<String>, Failed> {
        // The list is not sent, but it is made.
        let _place = self.place().await?;
        let has_it = |name: &str| {
            let Ok(name) = PoolName::parse(name) else { return false };
            let told = self.shared.seen.borrow().numbers.number(&of_pool(&name));
            told.is_some_and(|it| it.to_string() == number)
        };
        let pools = all(self, asked, "", usize::MAX).await?;
        Ok(pools.into_iter().map(|it| it.name).find(|name| has_it(name)))
    }
}
