//! What operators do with pools.

use super::Shared;
use super::namespaces::{administer, configuration, descriptions, usage_until};
use super::owners::{Failure, sync};
use crate::clock::Clock;
use crate::rpc::deadline::deadline_of;
use prost::Message as _;
use rota_docstore::{
    Body, DocName, Document, Exception, FieldError, Phase, Stamp, SyncRequest, Update, codes,
};
use rota_model::items::{ORDERS_CLASS, Orders, POOL_CLASS, decision_of};
use rota_model::{KnownPool, NodeId, NodeState, PoolName, PoolSettings, ProvisionerName};
use rota_proto::documents::{UPDATES_BYTES_MAX, in_call, status as exception_status};
use rota_proto::pool::{CreatePool, PoolLoad, PoolState, SetPool};
use rota_proto::{pool, v1};
use rota_protocol::Numbered;
use rota_protocol::operate::read_pool;
use rota_protocol::stable_numbers::of_pool;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

/// The service of pools.
pub struct PoolsService {
    /// What the services share.
    pub shared: Arc<Shared>,
}

/// Owners of pools that are asked at once.
const ASKED_AT_ONCE: usize = 64;

/// What a pool's document says, and its version.
type Described = Option<(KnownPool, Stamp)>;

fn document(class: &str, pool: &PoolName) -> Result<SyncRequest, Exception> {
    let name = DocName::new(&configuration(), class, pool.as_str())?;
    Ok(SyncRequest { name, held: None })
}

/// The document in the answer to a question for all of it.
fn whole(update: Option<Update>) -> Option<Arc<Document>> {
    match update {
        Some(Update::Full(document)) if !document.is_deleted() => Some(document),
        Some(
            Update::Full(_)
            | Update::Deleted { .. }
            | Update::Unchanged { .. }
            | Update::Changes(_)
            | Update::Absent { .. }
            | Update::SourceBehind { .. },
        )
        | None => None,
    }
}

fn described(document: Option<&Document>) -> Result<Described, Exception> {
    let Some(document) = document else { return Ok(None) };
    Ok(read_pool(document)?.map(|it| (it, document.version())))
}

/// Most names that are told at once.
const TOLD_MAX: usize = 8;

/// Names of nodes, for people.
fn some_of(nodes: &[NodeId]) -> String {
    some(&nodes.iter().map(NodeId::as_str).collect::<Vec<_>>())
}

/// The first of these names, for people, and how many more there are.
fn some(all: &[&str]) -> String {
    let names: Vec<&str> = all.iter().copied().take(TOLD_MAX).collect();
    let more = all.len() - names.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", names.join(", "))
}

/// What the owner of a pool ordered, and has not come.
async fn orders(shared: &Shared, name: &PoolName, deadline: Instant) -> Result<Orders, Failure> {
    let syncs = vec![document(ORDERS_CLASS, name)?];
    let updates = sync(shared, None, syncs, false, deadline).await?;
    let found = whole(updates.into_iter().next().map(|it| it.1));
    let orders = found.map(|it| it.one::<Orders>()).transpose().map_err(Exception::from)?;
    let seen = shared.seen.borrow();
    let has_come = |it: &NodeId| seen.nodes.contains_key(it);
    let mut orders =
        orders.flatten().unwrap_or_default().as_of(Clock::start().now().wall_ms, has_come);
    let overdue = std::mem::take(&mut orders.overdue);
    if orders.is_late && !overdue.is_empty() {
        // They may come all the same; until then they have their places in the maximum.
        orders.failure =
            format!("not registered in time: {}; {}", some_of(&overdue), orders.failure);
    }
    orders.ordered.extend(overdue);
    orders.ordered.sort_unstable();
    Ok(orders)
}

/// The nodes of each pool, as this manager knows them.
async fn loads(shared: &Shared) -> Result<BTreeMap<PoolName, PoolLoad>, Failure> {
    let stats = shared.mailbox.stats().await?;
    let mut loads = BTreeMap::<PoolName, PoolLoad>::new();
    for (reg, load) in stats.nodes.iter().filter(|(reg, _)| !reg.state.is_gone()) {
        let of_pool = loads.entry(reg.pool.clone()).or_default();
        of_pool.nodes += 1;
        of_pool.ready_nodes += u32::from(reg.state == NodeState::Ready);
        of_pool.places += u64::from(load.offered.places);
        of_pool.used_places += u64::from(load.used.places);
    }
    Ok(loads)
}

/// What is odd about settings; empty: nothing.
fn warning(settings: &PoolSettings, here: &[String]) -> String {
    let Some(provisioner) = settings.provisioner.as_ref().map(|it| it.as_str()) else {
        return String::new();
    };
    if !here.iter().any(|name| name == provisioner) {
        let here = if here.is_empty() { "none".to_owned() } else { here.join(", ") };
        return format!(
            "this manager has no provisioner {provisioner:?}, and every manager needs its flags; it has {here}"
        );
    }
    if !settings.schedules.is_empty() && settings.scale_in_delay_s == 0 {
        return "schedules start nodes, and none is ended: scale_in_delay_s is 0".to_owned();
    }
    String::new()
}

async fn state(
    shared: &Shared,
    name: PoolName,
    found: Described,
    load: PoolLoad,
    deadline: Instant,
) -> PoolState {
    let (known, version) = found.map(|(known, it)| (known, Some(it))).unwrap_or_default();
    let version = version.filter(|_| known.settings.is_some());
    let (settings, texts) = (known.settings.unwrap_or_default(), known.texts);
    // An owner that is away must not take the rest of the answer with it.
    let orders = orders(shared, &name, usage_until(deadline)).await;
    let orders = orders.map_err(|it| Status::from(it).message().to_owned());
    let warning = warning(&settings, &shared.provisioners);
    let key = of_pool(&name);
    let number = shared.seen.borrow().numbers.number(&key);
    let numbered = number.map(|number| Numbered { number, uuid: key.uuid.to_string() });
    let in_force = settings.in_force(Stamp::from_epoch_ms(Clock::start().now().wall_ms));
    PoolState { name, settings, version, texts, load, orders, warning, numbered, in_force }
}

fn missing(name: &PoolName, there: &BTreeSet<PoolName>) -> Failure {
    let pools = match there.iter().map(PoolName::as_str).collect::<Vec<_>>() {
        none if none.is_empty() => "there are no pools".to_owned(),
        all => format!("the pools are {}", some(&all)),
    };
    let problem = format!("{name} is not described, and no node says that it is of it; {pools}");
    Exception::of_field(codes::DOCUMENT, FieldError::new("name", problem)).into()
}

impl PoolsService {
    /// Changes a description, and shows the pool.
    async fn change(
        &self,
        operation: &str,
        name: &PoolName,
        parameters: &Value,
        (admin, deadline): (String, Instant),
    ) -> Result<Response<v1::PoolInfo>, Status> {
        let shared = &self.shared;
        let shown = document(POOL_CLASS, name).map_err(Failure::from)?;
        let (_, update) = administer(shared, operation, shown, parameters, admin).await?;
        let found = described(whole(update).as_deref());
        let found = found.map_err(|it| Failure::from(it.at(Phase::Synchronisation)))?;
        let load = loads(shared).await?.remove(name).unwrap_or_default();
        Ok(Response::new((&state(shared, name.clone(), found, load, deadline).await).into()))
    }

    async fn get(&self, name: PoolName, deadline: Instant) -> Result<PoolState, Failure> {
        let shared = &self.shared;
        let updates = sync(shared, None, vec![document(POOL_CLASS, &name)?], false, deadline);
        let update = updates.await?.into_iter().next().map(|it| it.1);
        let found = described(whole(update).as_deref())?;
        let load = loads(shared).await?.remove(&name);
        if found.is_none() && load.is_none() {
            let described = descriptions(shared, POOL_CLASS).await?;
            let described = described.iter().map(|it| PoolName::parse(it.name().docid()));
            let there = described.filter_map(Result::ok).chain(loads(shared).await?.into_keys());
            return Err(missing(&name, &there.collect()));
        }
        Ok(state(shared, name, found, load.unwrap_or_default(), deadline).await)
    }

    /// Refused while nodes of a pool are there, were ordered and may come, or are not ended: nobody ends what a pool
    /// left behind that is gone.
    async fn check_unused(&self, name: &PoolName, deadline: Instant) -> Result<(), Failure> {
        let there = loads(&self.shared).await?.remove(name).unwrap_or_default().nodes;
        let orders = orders(&self.shared, name, usage_until(deadline)).await?;
        // Nobody ends what a provisioner started that managers do not have, and a misspelt one started nothing.
        let has =
            |it: &ProvisionerName| self.shared.provisioners.iter().any(|has| has == it.as_str());
        let by = |node: &NodeId| orders.provisioner_of(decision_of(name, node)?);
        let left: Vec<NodeId> =
            orders.to_clear.iter().filter(|it| by(it).is_some_and(has)).cloned().collect();
        let message = match (there, orders.ordered.len(), left.len()) {
            (0, 0, 0) => return Ok(()),
            (0, 0, _) => {
                let why = if orders.end_failure.is_empty() { "" } else { "; " };
                format!(
                    "what is left of nodes of pool {name} is being ended: {}{why}{}; the pool can be deleted once that is \
                     done",
                    some_of(&left),
                    orders.end_failure
                )
            }
            (0, _, _) => {
                let why = if orders.failure.is_empty() { "" } else { "; " };
                let left_ms = orders.given_up_wall_ms.saturating_sub(Clock::start().now().wall_ms);
                format!(
                    "nodes of pool {name} were ordered and may come: {}{why}{}; give it --provisioner none, so that no \
                     more are ordered, and try again when they are given up, in {} s",
                    some_of(&orders.ordered),
                    orders.failure,
                    left_ms.div_ceil(1_000)
                )
            }
            (there, _, _) => format!(
                "nodes of pool {name} are there: {there}; take its provisioner away (--provisioner none), drain them, \
                 and end their agents"
            ),
        };
        Err(Exception::business("NODES", message).into())
    }

    /// Those after a name that fit into one response, in order of their names.
    async fn list(&self, after: &str, deadline: Instant) -> Result<v1::ListPoolsResponse, Failure> {
        let mut pools = BTreeMap::<PoolName, Described>::new();
        for document in descriptions(&self.shared, POOL_CLASS).await? {
            let name = PoolName::parse(document.name().docid()).map_err(Exception::from)?;
            pools.insert(name, described(Some(&document))?);
        }
        let mut loads = loads(&self.shared).await?;
        for name in loads.keys() {
            pools.entry(name.clone()).or_default();
        }
        let mut listed = v1::ListPoolsResponse::default();
        let mut bytes = 0;
        let mut rest = pools.into_iter().filter(|(name, _)| name.as_str() > after).peekable();
        while rest.peek().is_some() {
            let mut asked = JoinSet::new();
            for (name, found) in rest.by_ref().take(ASKED_AT_ONCE) {
                let load = loads.remove(&name).unwrap_or_default();
                let shared = self.shared.clone();
                asked.spawn(async move { state(&shared, name, found, load, deadline).await });
            }
            let mut states = asked.join_all().await;
            states.sort_unstable_by(|a, b| a.name.cmp(&b.name));
            for state in states {
                let info = v1::PoolInfo::from(&state);
                bytes += info.encoded_len() + 8;
                if bytes > UPDATES_BYTES_MAX {
                    listed.more = true;
                    return Ok(listed);
                }
                listed.pools.push(info);
            }
        }
        Ok(listed)
    }
}

/// What `pool.remove` answers.
fn existed(body: &Body) -> bool {
    match body {
        Body::Json(text) => {
            let answer: Result<Value, _> = serde_json::from_str(text.as_str());
            answer.is_ok_and(|it| it["existed"] == true)
        }
        Body::Nothing | Body::Binary { .. } => false,
    }
}

/// The parameters of the operation `pool.set`: `null` for a field that gets its default.
fn setting(set: &SetPool) -> Value {
    let Ok(Value::Object(mut all)) = serde_json::to_value(&set.settings) else {
        unreachable!("settings are an object with texts as keys")
    };
    let counts = |field: &&str| set.fields.is_empty() || set.fields.iter().any(|it| it == field);
    let fields = PoolSettings::FIELDS.into_iter().filter(counts);
    let settings: Map<String, Value> =
        fields.map(|field| (field.to_owned(), all.remove(field).unwrap_or(Value::Null))).collect();
    json!({"name": set.name, "allow_missing": set.allow_missing, "settings": settings})
}

#[tonic::async_trait]
impl v1::pools_server::Pools for PoolsService {
    async fn create_pool(
        &self,
        request: Request<v1::CreatePoolRequest>,
    ) -> Result<Response<v1::PoolInfo>, Status> {
        let asked = async {
            let by = self.shared.admitted(request.metadata())?;
            let CreatePool { name, settings } =
                pool::create(request.into_inner()).map_err(|it| exception_status(&it))?;
            let parameters = json!({"name": name, "settings": settings});
            self.change("pool.create", &name, &parameters, by).await
        };
        asked.await.map_err(|it| in_call("pool.create", it))
    }

    async fn list_pools(
        &self,
        request: Request<v1::ListPoolsRequest>,
    ) -> Result<Response<v1::ListPoolsResponse>, Status> {
        let deadline = deadline_of(request.metadata());
        Ok(Response::new(self.list(&request.get_ref().after, deadline).await?))
    }

    async fn get_pool(
        &self,
        request: Request<v1::GetPoolRequest>,
    ) -> Result<Response<v1::PoolInfo>, Status> {
        let asked = async {
            let name = pool::name(&request.get_ref().name).map_err(|it| exception_status(&it))?;
            let state = self.get(name, deadline_of(request.metadata())).await?;
            Ok::<_, Status>(Response::new((&state).into()))
        };
        asked.await.map_err(|it| in_call("pool.get", it))
    }

    async fn set_pool(
        &self,
        request: Request<v1::SetPoolRequest>,
    ) -> Result<Response<v1::PoolInfo>, Status> {
        let asked = async {
            let by = self.shared.admitted(request.metadata())?;
            let set = pool::set(request.into_inner()).map_err(|it| exception_status(&it))?;
            self.change("pool.set", &set.name, &setting(&set), by).await
        };
        asked.await.map_err(|it| in_call("pool.set", it))
    }

    async fn delete_pool(
        &self,
        request: Request<v1::DeletePoolRequest>,
    ) -> Result<Response<v1::DeletePoolResponse>, Status> {
        let asked = async {
            let (admin, deadline) = self.shared.admitted(request.metadata())?;
            let name = pool::name(&request.get_ref().name).map_err(|it| exception_status(&it))?;
            self.check_unused(&name, deadline).await?;
            let parameters = json!({"name": name});
            let shown = document(POOL_CLASS, &name).map_err(Failure::from)?;
            let (body, _) =
                administer(&self.shared, "pool.remove", shown, &parameters, admin).await?;
            Ok::<_, Status>(Response::new(v1::DeletePoolResponse { existed: existed(&body) }))
        };
        asked.await.map_err(|it| in_call("pool.remove", it))
    }
}
