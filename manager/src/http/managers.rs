//! `/v1/managers`.

use super::call::{Call, segments};
use super::error::Failed;
use super::links::is_number;
use super::paging::Paging;
use super::shown::Manager;
use super::tags::tagged;
use super::tree::{Answer, Tree, missing};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::IntoResponse as _;
use rota_proto::v1;
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;

/// A page of them.
#[derive(Serialize)]
struct Managers {
    managers: Vec<Manager>,
    epoch: u64,
    next_page_token: String,
    links: Value,
}

/// The ring's View as this manager goes by it.
async fn view(tree: &Tree, call: Call) -> Result<v1::View, Failed> {
    Ok(tree.inspect(call).await?.view.unwrap_or_default())
}

/// All of them.
pub async fn list(State(tree): State<Arc<Tree>>, uri: Uri, headers: HeaderMap) -> Answer {
    let mut call = Call::new(&uri, &headers)?;
    let paging = Paging::of(&mut call);
    let view = view(&tree, call).await?;
    let (managers, next) = paging.page(view.managers, |it| &it.id);
    let managers: Vec<Manager> = managers.into_iter().map(Manager::of).collect();
    let links = paging.links("/v1/managers", &next);
    let epoch = view.epoch;
    Ok(Json(Managers { managers, epoch, next_page_token: next, links }).into_response())
}

/// One, by its stable number or its id.
pub async fn one(State(tree): State<Arc<Tree>>, uri: Uri, headers: HeaderMap) -> Answer {
    let call = Call::new(&uri, &headers)?;
    let part = segments(&uri)?.pop().unwrap_or_default();
    let found =
        view(&tree, call).await?.managers.into_iter().find(|manager| match is_number(&part) {
            true => manager.stable_number > 0 && manager.stable_number.to_string() == part,
            false => manager.id == part,
        });
    let found = found.ok_or_else(|| missing("manager", &part, "/v1/managers"))?;
    tagged(&headers, &Manager::of(found))
}
