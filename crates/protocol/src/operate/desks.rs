//! What a manager needs to run operations, whatever the partition.

use super::holdings::Counted;
use super::registry::{AdminKey, CONFIGURATION, administers, check_schema, operations, schema};
use rota_docstore::rules::WEEK_MS;
use rota_docstore::{
    Cache, Checker, Credentials, FieldError, Operations, Rules, Schema, Spaces, Territory,
};
use std::sync::Arc;

/// What an administrator decides about documents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DocumentsConfig {
    /// The key that operations of administrators need. Default: none.
    pub admin_key: AdminKey,
    /// The oldest build of clients that may run operations; a client that says none may. Default 0.
    pub client_build_min: u64,
    /// Memory for copies of documents that other managers own, in bytes. Default 64 MiB. Too low:
    /// operations that read them fetch them again and again; those that read more than it holds are
    /// refused (A-LIMIT).
    pub cache_bytes: u64,
    /// How long destroyed items of documents stay known, in milliseconds. Default 7 days. Too low:
    /// copies that were away longer get the list of all keys. Too high: documents grow.
    pub destroyed_ms: u64,
    /// How long ended lives of documents, and names of deleted namespaces, stay known, in milliseconds.
    /// Default 7 days. Too low: an import brings back what was deleted elsewhere since. Too high: ends
    /// of documents fill memory and disk.
    pub deleted_ms: u64,
    /// Most bytes of applications' documents in all copies at this manager: names and contents of items,
    /// and [`DOCUMENT_BYTES`](super::DOCUMENT_BYTES) for each document. Default 4 GiB. Too low: what
    /// makes them grow is refused (A-LIMIT). Too high: the process runs out of memory.
    pub bytes_max: u64,
    /// Most operations of applications that work at once beside the decisions. Default 8. Too low: callers
    /// wait, and are refused (X-BUSY), while some do long work. Too high: work takes the processors from
    /// the decisions.
    pub works_max: usize,
    /// How long one of them may work, in milliseconds, before its caller is told X-QUOTA. Default 10 s.
    /// Too low: what would have ended well is thrown away. Too high: callers hear late of what hangs.
    pub work_ms: u64,
}

impl Default for DocumentsConfig {
    fn default() -> Self {
        Self {
            admin_key: AdminKey::default(),
            client_build_min: 0,
            cache_bytes: 64 * 1024 * 1024,
            destroyed_ms: WEEK_MS,
            deleted_ms: WEEK_MS,
            bytes_max: 4 * 1024 * 1024 * 1024,
            works_max: 8,
            work_ms: 10_000,
        }
    }
}

/// Who may run operations: both must agree. Where there is an administrator's key, it decides alone about
/// administration: operators have no account with an application.
struct Checkers {
    admin: AdminKey,
    application: Option<Arc<dyn Checker>>,
}

impl Checker for Checkers {
    fn check(&self, who: &Credentials, space: &str, operation: &str) -> Result<(), String> {
        Checker::check(&self.admin, who, space, operation)?;
        if self.admin.is_set() && space == CONFIGURATION && administers(operation) {
            return Ok(());
        }
        self.application.as_ref().map_or(Ok(()), |it| it.check(who, space, operation))
    }
}

/// What a manager needs to run operations.
#[derive(Clone)]
pub(crate) struct Desks {
    pub operations: Operations,
    pub schema: Arc<Schema>,
    checker: Arc<Checkers>,
    build: u64,
    destroyed_ms: u64,
    deleted_ms: u64,
    /// What documents of applications fill at this manager.
    pub filled: u64,
    /// Namespaces, as the follower learned them.
    pub spaces: Spaces,
    /// Whether it has learned them. Until then nobody here knows which are off, so nothing is
    /// served that depends on it.
    pub knows_spaces: bool,
    /// What those with limits hold in all partitions.
    pub counted: Counted,
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
            checker: Arc::new(Checkers { admin: config.admin_key.clone(), application: None }),
            build: config.client_build_min,
            destroyed_ms: config.destroyed_ms,
            deleted_ms: config.deleted_ms,
            filled: 0,
            spaces: Spaces::default(),
            knows_spaces: false,
            counted: Counted::default(),
            cache_bytes: config.cache_bytes,
        }
    }

    /// Offers other operations, on documents of these classes. Field `schema`: see [`check_schema`].
    pub fn offer(&mut self, operations: Operations, schema: Schema) -> Result<(), FieldError> {
        check_schema(&schema)?;
        self.operations = operations;
        self.schema = Arc::new(schema);
        self.cache = Cache::new(Arc::clone(&self.schema), self.cache_bytes);
        Ok(())
    }

    /// Asks an application, too, who may do what.
    pub fn check_with(&mut self, checker: Arc<dyn Checker>) {
        let admin = self.checker.admin.clone();
        self.checker = Arc::new(Checkers { admin, application: Some(checker) });
    }

    /// The rules for one partition, or for an operation at one of its slots.
    pub fn rules(&self, territory: impl Territory + 'static) -> Rules {
        let mut rules = Rules::new(Schema::new());
        rules.schema = Arc::clone(&self.schema);
        rules.territory = Arc::new(territory);
        rules.checker = self.checker.clone();
        rules.build = self.build;
        (rules.destroyed_ms, rules.deleted_ms) = (self.destroyed_ms, self.deleted_ms);
        rules
    }
}
