//! Which resource has which key among the stable numbers. Everybody makes the same ones.

use rota_ids::{Group, Key, Kind, Policy, Uuid, uuid_of};
use rota_model::{ManagerId, NodeId, PoolName, SessionKey};
use std::sync::LazyLock;

/// The types, as they stand in names of entries.
static MANAGER: LazyLock<Kind> = LazyLock::new(|| kind("Manager"));
static POOL: LazyLock<Kind> = LazyLock::new(|| kind("Pool"));
static NODE: LazyLock<Kind> = LazyLock::new(|| kind("Node"));
static SESSION: LazyLock<Kind> = LazyLock::new(|| kind("Session"));

fn kind(name: &str) -> Kind {
    Kind::parse(name).expect("kinds in the code have letters only")
}

/// The key of a manager, by its id: it keeps its stable number when it takes another ring number.
pub fn of_manager(id: &ManagerId) -> Key {
    Policy::Global.key(MANAGER.clone(), None, uuid_of(&MANAGER, "", id.as_str()))
}

/// The key of a pool.
pub fn of_pool(pool: &PoolName) -> Key {
    Policy::Global.key(POOL.clone(), None, uuid_of_pool(pool))
}

/// The key of a node, which is numbered within its pool. In another pool it is another resource.
pub fn of_node(pool: &PoolName, node: &NodeId) -> Key {
    let uuid = uuid_of(&NODE, pool.as_str(), node.as_str());
    Policy::Local.key(NODE.clone(), Some(uuid_of_pool(pool)), uuid)
}

/// The key of a session, which is numbered within its node. On another node it is another resource.
pub fn of_session(pool: &PoolName, node: &NodeId, session: &SessionKey) -> Key {
    let uuid = uuid_of(&SESSION, session.namespace.as_str(), session.id.as_str());
    Policy::Local.key(SESSION.clone(), Some(of_node(pool, node).uuid), uuid)
}

/// All sessions of a node.
pub fn sessions_of_node(pool: &PoolName, node: &NodeId) -> Group {
    sessions_of(of_node(pool, node).uuid)
}

/// All sessions of the node with that UUID.
pub(crate) fn sessions_of(node: Uuid) -> Group {
    Group { parent: Some(node), kind: SESSION.clone() }
}

fn uuid_of_pool(pool: &PoolName) -> Uuid {
    uuid_of(&POOL, "", pool.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::{Namespace, SessionId};

    #[test]
    fn the_names_of_entries_are_the_same_in_every_release() {
        let pool = PoolName::parse("default").unwrap();
        let node = NodeId::parse("n1").unwrap();
        let uuid_of_pool = of_pool(&pool).uuid;
        assert_eq!(of_pool(&pool).to_string(), format!("Pool.{uuid_of_pool}"));
        let uuid = Uuid::new_v5(&rota_ids::NAMESPACE, b"Node:7:defaultn1");
        assert_eq!(of_node(&pool, &node).to_string(), format!("Node.{uuid_of_pool}.{uuid}"));
        let uuid = Uuid::new_v5(&rota_ids::NAMESPACE, b"Manager:0:m1");
        let id = ManagerId::parse("m1").unwrap();
        let session =
            SessionKey::new(Namespace::parse("shop").unwrap(), SessionId::parse("cart").unwrap());
        let of_session = of_session(&pool, &node, &session);
        assert_eq!(of_session.uuid, Uuid::new_v5(&rota_ids::NAMESPACE, b"Session:4:shopcart"));
        assert_eq!(of_session.group(), sessions_of_node(&pool, &node));
        assert_eq!(of_session.parent, Some(of_node(&pool, &node).uuid));
        assert_eq!(of_manager(&id).to_string(), format!("Manager.{uuid}"));
    }
}
