//! Where sessions are and what nodes run, for operators who compare the two.

use crate::v1;
use crate::wire::WireError;
use rota_messages::DocKey;
use rota_messages::placements::{Placed, Placements, PlacementsAsk, Which};
use rota_model::node_msg::SlotRange;
use rota_model::{
    BootId, ClusterName, FieldError, ManagerNumber, NodeId, Refusal, SessionKey, SlotId,
};

/// Most sessions in one page, and most that are asked for by name.
pub const PAGE_SIZE_MAX: u32 = 1_000;

pub(crate) fn page_size(size: u32) -> Result<u32, FieldError> {
    match size {
        0 => Ok(PAGE_SIZE_MAX),
        size if size <= PAGE_SIZE_MAX => Ok(size),
        size => {
            Err(FieldError::new("page_size", format!("is {size}; the limit is {PAGE_SIZE_MAX}")))
        }
    }
}

fn keys(keys: Vec<v1::SessionKey>) -> Result<Vec<SessionKey>, FieldError> {
    let count = keys.len();
    if count > PAGE_SIZE_MAX as usize {
        let text = format!("names {count} sessions; the limit is {PAGE_SIZE_MAX}");
        return Err(FieldError::new("keys", text));
    }
    let keys: Result<Vec<SessionKey>, WireError> =
        keys.into_iter().map(SessionKey::try_from).collect();
    keys.map_err(|error| FieldError::new("keys", error.to_string()))
}

/// What an operator asks of a partition's sessions, checked.
///
/// # Errors
/// A refusal that names the field: too large a page, too many names, or one that is none.
pub fn placements(request: v1::PlacementsRequest) -> Result<PlacementsAsk, Refusal> {
    let v1::PlacementsRequest { part, after, page_size: size, keys: named } = request;
    let part = ManagerNumber(part);
    if !named.is_empty() {
        return Ok(PlacementsAsk { part, which: Which::Named(keys(named)?) });
    }
    let limit = page_size(size)? as usize;
    let after = after.map(DocKey::try_from).transpose();
    let after = after.map_err(|error| FieldError::new("after", error.to_string()))?;
    Ok(PlacementsAsk { part, which: Which::After { after, limit } })
}

fn placed(it: &Placed) -> v1::PlacedSession {
    let at = it.placement.as_ref();
    v1::PlacedSession {
        key: Some((&it.key).into()),
        state: it.state.as_str().into(),
        node: at.map(|it| it.node.to_string()).unwrap_or_default(),
        boot: at.map_or(0, |it| it.boot.0),
        token: at.map(|it| it.token.into()),
    }
}

/// Where sessions of a partition are.
pub fn placements_response(it: &Placements) -> v1::PlacementsResponse {
    v1::PlacementsResponse {
        pe: it.pe.0,
        sessions: it.sessions.iter().map(placed).collect(),
        next: it.next.as_ref().map(Into::into),
    }
}

/// What an operator asks of what a node runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LiveAsk {
    /// A page of what lives in a range of slots.
    After {
        /// The slots.
        range: SlotRange,
        /// The last of the page before.
        after: Option<SessionKey>,
        /// Most sessions.
        limit: u32,
    },
    /// These.
    Named(Vec<SessionKey>),
}

/// The same, checked, by a node of that cluster.
///
/// # Errors
/// A refusal that names the field: another cluster, too large a page, too many names, or one that is
/// none.
pub fn live(cluster: &ClusterName, request: v1::LiveRequest) -> Result<LiveAsk, Refusal> {
    if request.cluster != cluster.as_str() {
        let text = format!("is {:?}; this node is of {:?}", request.cluster, cluster.as_str());
        return Err(FieldError::new("cluster", text).into());
    }
    if !request.keys.is_empty() {
        return Ok(LiveAsk::Named(keys(request.keys)?));
    }
    let range = SlotRange { first: SlotId(request.first_slot), last: SlotId(request.last_slot) };
    let after = request.after.map(SessionKey::try_from).transpose();
    let after = after.map_err(|error| FieldError::new("after", error.to_string()))?;
    Ok(LiveAsk::After { range, after, limit: page_size(request.page_size)? })
}

/// What a node runs: a page.
pub fn live_response(
    node: &NodeId,
    boot: BootId,
    sessions: Vec<v1::LiveSession>,
    more: bool,
) -> v1::LiveResponse {
    v1::LiveResponse { node: node.to_string(), boot: boot.0, sessions, more }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_question_is_named() {
        let field = |refusal: Refusal| refusal.fields[0].field.clone();
        let page = v1::PlacementsRequest { page_size: 1_001, ..Default::default() };
        assert_eq!(field(placements(page).unwrap_err()), "page_size");
        let many = vec![v1::SessionKey::default(); 1_001];
        let named = v1::PlacementsRequest { keys: many, ..Default::default() };
        assert_eq!(field(placements(named).unwrap_err()), "keys");
        let none = v1::PlacementsRequest { keys: vec![Default::default()], ..Default::default() };
        assert_eq!(field(placements(none).unwrap_err()), "keys");
        let cluster = ClusterName::parse("c").unwrap();
        let other = v1::LiveRequest { cluster: "d".to_owned(), ..Default::default() };
        assert_eq!(field(live(&cluster, other).unwrap_err()), "cluster");
        let ours = v1::LiveRequest { cluster: "c".to_owned(), last_slot: 7, ..Default::default() };
        let range = SlotRange { first: SlotId(0), last: SlotId(7) };
        let asked = LiveAsk::After { range, after: None, limit: PAGE_SIZE_MAX };
        assert_eq!(live(&cluster, ours), Ok(asked));
    }
}
