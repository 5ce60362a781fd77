//! `/v1/pools/{pool}/nodes`.

use super::call::{Asked, Call, segments};
use super::error::Failed;
use super::links;
use super::links::is_number;
use super::paging::Paging;
use super::pools;
use super::sessions;
use super::shown::Node;
use super::tree::{Answer, Tree, missing};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::IntoResponse as _;
use rota_proto::v1;
use rota_proto::v1::operator_server::Operator as _;
use rota_proto::v1::pools_server::Pools as _;
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;

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
    let found = nodes.into_iter().find(|it| match is_number(node) {
        true => it.stable_number > 0 && it.stable_number.to_string() == node,
        false => it.id == node,
    });
    let found = found.ok_or_else(|| missing("node", node, &list))?;
    Ok((list, found))
}

/// One, by its stable number within its pool, or its id.
pub async fn one(State(tree): State<Arc<Tree>>, uri: Uri, headers: HeaderMap) -> Answer {
    let request = Call::new(&uri, &headers)?.request(())?;
    let (list, node) = find(&tree, &uri, &Asked::begin(request.metadata())).await?;
    Ok(Json(Node::of(node, &list)).into_response())
}

/// The sessions that run, or ran, on a node.
pub async fn sessions(State(tree): State<Arc<Tree>>, uri: Uri, headers: HeaderMap) -> Answer {
    // The page looks at the rest of the query.
    let asked = Asked::begin(Call::new(&uri, &headers)?.metadata());
    let (list, node) = find(&tree, &uri, &asked).await?;
    let list = links::node(&list, &node.id, node.stable_number) + "/sessions";
    sessions::page(&tree, &uri, &headers, sessions::Within::Node { id: node.id, list }).await
}
