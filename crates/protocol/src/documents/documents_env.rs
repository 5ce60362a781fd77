//! What a manager needs to run operations, whatever the partition.

use crate::contents::searchable::Searchable;
use crate::documents::registry::{administers, operations};
use crate::documents::schema::{check_schema, schema};
use crate::documents::tasks::keeper::Keeper;
use crate::documents::usage::Counted;
use crate::log::env::Env;
use crate::log::origin::Origin;
use crate::ports::slots::CONFIGURATION;
use crate::settings::documents::{AdminKey, DocumentsConfig};
use crate::settings::tasks::TasksConfig;
use rota_docstore::{
    Cache, Checker, Credentials, FieldError, Operations, Rules, Schema, Spaces, Territory,
};
use rota_model::ManagerNumber;
use rota_search::SpecialSearches;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

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
pub(crate) struct DocumentsEnv {
    pub operations: Operations,
    pub schema: Arc<Schema>,
    checker: Arc<Checkers>,
    build: u64,
    destroyed_ms: u64,
    deleted_ms: u64,
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
    /// Operations that work beside the decisions.
    pub works: Works,
    /// What can be searched.
    pub searchable: Searchable,
    /// Who keeps the records of tasks.
    keeper: Arc<Keeper>,
}

impl DocumentsEnv {
    pub fn new(config: &DocumentsConfig, tasks: &TasksConfig) -> Self {
        let schema = Arc::new(schema());
        Self {
            operations: operations(),
            cache: Cache::new(Arc::clone(&schema), config.cache_bytes),
            searchable: Searchable::of(&schema),
            schema,
            checker: Arc::new(Checkers { admin: config.admin_key.clone(), application: None }),
            build: config.client_build_min,
            destroyed_ms: config.destroyed_ms,
            deleted_ms: config.deleted_ms,
            spaces: Spaces::default(),
            knows_spaces: false,
            counted: Counted::default(),
            cache_bytes: config.cache_bytes,
            works: Works::default(),
            keeper: Arc::new(Keeper::new(tasks, &operations())),
        }
    }

    /// Offers other operations, on documents of these classes. Field `schema`: see [`check_schema`].
    pub fn offer(&mut self, operations: Operations, schema: Schema) -> Result<(), FieldError> {
        check_schema(&schema)?;
        self.keeper = Arc::new(self.keeper.offering(&operations));
        self.operations = operations;
        self.searchable = Searchable::of(&schema);
        self.schema = Arc::new(schema);
        self.cache = Cache::new(Arc::clone(&self.schema), self.cache_bytes);
        Ok(())
    }

    /// Offers an application's own searches.
    pub fn search_with(&mut self, specials: SpecialSearches) {
        self.searchable = self.searchable.with_specials(specials);
    }

    /// Asks an application, too, who may do what.
    pub fn check_with(&mut self, checker: Arc<dyn Checker>) {
        let admin = self.checker.admin.clone();
        self.checker = Arc::new(Checkers { admin, application: Some(checker) });
    }

    /// The rules for one partition, or for an operation at one of its slots.
    pub fn rules(&self, territory: impl Territory + 'static) -> Rules {
        self.rules_with(territory, 0)
    }

    /// The rules for one attempt at an operation, which draws its numbers from that salt.
    pub fn rules_with(&self, territory: impl Territory + 'static, salt: u64) -> Rules {
        let mut rules = Rules::new(Schema::new());
        rules.schema = Arc::clone(&self.schema);
        rules.territory = Arc::new(territory);
        rules.checker = self.checker.clone();
        rules.build = self.build;
        rules.tasks = Some(self.keeper.clone());
        rules.salt = salt;
        (rules.destroyed_ms, rules.deleted_ms) = (self.destroyed_ms, self.deleted_ms);
        rules
    }
}

/// Work of one operation that a worker does.
#[derive(Clone, Debug)]
pub(crate) struct AtWork {
    pub(crate) part: ManagerNumber,
    pub(crate) origin: Origin,
    pub(crate) operation: String,
    pub(crate) since_ms: u64,
    /// Its caller was told that it takes too long.
    pub(crate) is_overdue: bool,
    /// It is the run of a task, which has a worker of a queue.
    pub(crate) is_task: bool,
}

/// What works at one manager, whatever the partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Works {
    pub(crate) running: BTreeMap<u64, AtWork>,
    /// Operations that wait for a worker, the first one first.
    pub(crate) queue: VecDeque<(ManagerNumber, Origin)>,
}

impl Works {
    /// How many work, and how many of these for longer than they may.
    pub fn count(&self) -> (usize, usize) {
        let overdue = self.running.values().filter(|it| it.is_overdue).count();
        (self.running.len(), overdue)
    }
}

impl Env {
    pub(crate) fn has_worker(&self) -> bool {
        let running = self.documents_env.works.running.values().filter(|it| !it.is_task);
        running.count() < self.config.documents.works_max
    }

    /// Whether the run of a task may take a thread. Twice as many as queues have workers: what hangs holds its thread
    /// beyond its quota.
    pub(crate) fn has_task_worker(&self) -> bool {
        let workers: usize = self.config.tasks.queues.queues.values().sum();
        let running = self.documents_env.works.running.values().filter(|it| it.is_task);
        running.count() < 2 * workers.max(1)
    }
}
