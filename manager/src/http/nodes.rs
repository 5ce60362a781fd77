//! `/v1/pools/{pool}/nodes`.

use super::call::{Asked, Call, segments};
use super::error::Failed;
use super::filter::Within;
use super::links;
use super::links::is_number;
use super::paging::Paging;
use super::pools;
use super::sessions;
use super::shown::Node;
use super::tags::tagged;
use super::tree::{Answer, Tree, missing};
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use rota_proto::v1;
use rota_proto::v1::operator_server::Operator as _;
use rota_proto::v1::pools_server::Pools as _;
use rota_proto::v1::sessions_server::Sessions as _;
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long a list waits for the stable numbers of its sessions.
const NUMBERS_PATIENCE: Duration = Duration::from_secs(2);

/// A page of them.
#[derive(Serialize)]
struct Nodes {
    nodes: Vec<Node>,
    next_page_token: String,
    links: Value,
}

/// A pool and its nodes, as this manager knows them.
struct OfPool {
    /// The path of their list.
    list: String,
    nodes: Vec<v1::NodeStats>,
}

async fn of_pool_named(tree: &Tree, name: String, asked: &Asked) -> Result<OfPool, Failed> {
    // Its service says whether it is there: a new one has no nodes and no number, and a deleted one may have both.
    let get = asked.with(v1::GetPoolRequest { name });
    let pool = tree.pools.get_pool(get).await?.into_inner();
    let inspect = asked.with(v1::InspectRequest {});
    let mut nodes = tree.operator.inspect(inspect).await?.into_inner().nodes;
    nodes.retain(|it| it.pool == pool.name);
    let list = links::nodes(&pool.name, pool.stable_number).unwrap_or_default();
    Ok(OfPool { list, nodes })
}

/// The nodes of a pool.
pub async fn list(State(tree): State<Arc<Tree>>, uri: Uri, headers: HeaderMap) -> Answer {
    let mut call = Call::new(&uri, &headers)?;
    let paging = Paging::of(&mut call);
    let parts = segments(&uri)?;
    let pool = parts.get(1).map(String::as_str).unwrap_or_default();
    let asked = Asked::begin(call.request(())?.metadata());
    let name = pools::name_of(&tree, pool, &asked).await?;
    let place = tree.place().await?;
    let OfPool { list, nodes } = of_pool_named(&tree, name, &asked).await?;
    let (nodes, next) = paging.page(nodes, |it| &it.id);
    let nodes: Vec<Node> = nodes.into_iter().map(|it| Node::of(it, &list)).collect();
    let links = paging.links(&list, &next);
    place.holds(&Nodes { nodes, next_page_token: next, links })
}

async fn find(tree: &Tree, uri: &Uri, asked: &Asked) -> Result<(String, v1::NodeStats), Failed> {
    let parts = segments(uri)?;
    let part = |at: usize| parts.get(at).map(String::as_str).unwrap_or_default();
    let (pool, node) = (part(1), part(3));
    let name = pools::name_of(tree, pool, asked).await?;
    let OfPool { list, nodes } = of_pool_named(tree, name, asked).await?;
    let found = nodes.into_iter().find(|stats| match is_number(node) {
        true => stats.stable_number > 0 && stats.stable_number.to_string() == node,
        false => stats.id == node,
    });
    let found = found.ok_or_else(|| missing("node", node, &list))?;
    Ok((list, found))
}

/// One, by its stable number within its pool, or its id.
pub async fn one(State(tree): State<Arc<Tree>>, uri: Uri, headers: HeaderMap) -> Answer {
    let request = Call::new(&uri, &headers)?.request(())?;
    let (list, node) = find(&tree, &uri, &Asked::begin(request.metadata())).await?;
    tagged(&headers, &Node::of(node, &list))
}

/// The stable numbers of a node's sessions.
async fn numbers(
    tree: &Tree,
    node: &v1::NodeStats,
    asked: &Asked,
) -> Result<Vec<v1::SessionNumber>, Failed> {
    let (pool, node) = (node.pool.clone(), node.id.clone());
    let request = asked.with(v1::SessionNumbersRequest { pool, node });
    Ok(tree.operator.session_numbers(request).await?.into_inner().sessions)
}

/// The sessions that run, or ran, on a node.
pub async fn sessions(State(tree): State<Arc<Tree>>, uri: Uri, headers: HeaderMap) -> Answer {
    // The page looks at the rest of the query.
    let asked = Asked::begin(Call::new(&uri, &headers)?.metadata());
    let (list, node) = find(&tree, &uri, &asked).await?;
    // Where nobody tells the numbers, the sessions are told without.
    let numbers = timeout(NUMBERS_PATIENCE, numbers(&tree, &node, &asked)).await;
    let numbers = numbers.ok().and_then(Result::ok).unwrap_or_default();
    let numbers = numbers.into_iter().map(|it| ((it.namespace, it.id), it.number)).collect();
    let list = links::node(&list, &node.id, node.stable_number) + "/sessions";
    sessions::page(&tree, &uri, &headers, Within::Node { id: node.id, list, numbers }).await
}

/// One of them, by its stable number within its node.
pub async fn session(State(tree): State<Arc<Tree>>, uri: Uri, headers: HeaderMap) -> Answer {
    let mut call = Call::new(&uri, &headers)?;
    let asked = Asked::begin(call.metadata());
    let stale_ok = call.is_set("stale_ok");
    drop(call.request(())?);
    let part = segments(&uri)?.into_iter().nth(5).unwrap_or_default();
    let (list, node) = find(&tree, &uri, &asked).await?;
    let list = links::node(&list, &node.id, node.stable_number) + "/sessions";
    let missing = || missing("session", &part, &list);
    if !is_number(&part) {
        return Err(missing());
    }
    let numbers = numbers(&tree, &node, &asked).await?;
    let found = numbers.into_iter().find(|it| it.number.to_string() == part);
    let v1::SessionNumber { namespace, id, number, .. } = found.ok_or_else(missing)?;
    let request = asked.with(v1::GetRequest { namespace, id, stale_ok });
    let got = tree.sessions.get(request).await?.into_inner();
    // It keeps its number for a while after it has moved.
    if got.session.as_ref().is_none_or(|it| it.node_id != node.id) {
        return Err(missing());
    }
    Ok(sessions::answer(&headers, got, |it| it.numbered(Some(number), &list)))
}
