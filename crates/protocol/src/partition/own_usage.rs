//! What this manager's own partitions hold of namespaces with limits.

use crate::documents::usage::Own;
use crate::log::env::Env;
use crate::partition::partitions::Partitions;
use crate::partition::state::Partition;
use rota_docstore::Usage;

/// Counts what this manager's partitions hold of namespaces with limits; `None` when it knows of none.
pub(crate) fn own(env: &Env, parts: &Partitions) -> Option<Own> {
    let limited: Vec<&str> = env.documents_env.spaces.limited().collect();
    let leading = parts.awake().filter(|part| part.leader().is_some());
    let holds = |part: &Partition| {
        let usages =
            limited.iter().map(|it| ((*it).to_owned(), part.log.replica.counts.usages.get(it)));
        (part.log.number, usages.filter(|(_, usage)| *usage != Usage::default()).collect())
    };
    (!limited.is_empty()).then(|| leading.map(holds).collect())
}
