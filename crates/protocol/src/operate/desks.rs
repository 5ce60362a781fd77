//! What a manager needs to run operations, whatever the partition.

use super::here::Slots;
use super::registry::{AdminKey, operations, schema};
use rota_docstore::{Cache, Checker, Operations, Rules, Schema, Spaces};
use std::sync::Arc;

/// What an administrator decides about documents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DocumentsConfig {
    /// The key that operations of administrators need. Default: none.
    pub admin_key: AdminKey,
    /// The oldest build of clients that may run operations; a client that says none may. Default 0.
    pub client_build_min: u64,
    /// Memory for copies of documents that other managers own, in bytes. Default 64 MiB. Too low:
    /// operations that read them fetch them again and again.
    pub cache_bytes: u64,
}

impl Default for DocumentsConfig {
    fn default() -> Self {
        let admin_key = AdminKey::default();
        Self { admin_key, client_build_min: 0, cache_bytes: 64 * 1024 * 1024 }
    }
}

/// What a manager needs to run operations.
pub(crate) struct Desks {
    pub operations: Operations,
    pub schema: Arc<Schema>,
    checker: Arc<dyn Checker>,
    build: u64,
    /// Namespaces, as the follower learned them.
    pub spaces: Spaces,
    /// Whether it has learned them. Until then nobody here knows which are off, so nothing is
    /// served that depends on it.
    pub knows_spaces: bool,
    /// Copies of documents that other managers own.
    pub cache: Cache,
    cache_bytes: u64,
}

impl Desks {
    pub fn new(config: &DocumentsConfig) -> Self {
        let schema = Arc::new(schema());
        Self {
            operations: operations(),
            cache: Cache::new(Arc::clone(&schema), config.cache_bytes),
            schema,
            checker: Arc::new(config.admin_key.clone()),
            build: config.client_build_min,
            spaces: Spaces::default(),
            knows_spaces: false,
            cache_bytes: config.cache_bytes,
        }
    }

    /// Offers other operations, on documents of these classes.
    pub fn offer(&mut self, operations: Operations, schema: Schema) {
        self.operations = operations;
        self.schema = Arc::new(schema);
        self.cache = Cache::new(Arc::clone(&self.schema), self.cache_bytes);
    }

    /// The rules for one partition.
    pub fn rules(&self, slots: Slots) -> Rules {
        let mut rules = Rules::new(Schema::new());
        rules.schema = Arc::clone(&self.schema);
        rules.territory = Arc::new(slots);
        rules.checker = Arc::clone(&self.checker);
        rules.build = self.build;
        rules
    }
}
