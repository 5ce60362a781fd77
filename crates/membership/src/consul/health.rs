//! What Consul says of the managers' health: `/v1/health/service/NAME`, which consulrs lacks.

use super::agent::{Agent, Until, consistent, index_of};
use super::service::ServiceKind;
use crate::port::StoreError;
use consulrs::api::features::{FeaturedEndpoint, Features};
use rota_model::{ClusterName, Incarnation, ManagerNumber, MemberId};
use rustify_derive::Endpoint;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long one query waits. While somebody looks gone it is told anew that often, for a
/// suspicion that came to nothing is forgotten.
const WAIT: Duration = Duration::from_secs(2);

#[derive(Debug, Endpoint)]
#[endpoint(path = "health/service/{self.service}", response = "Vec<Entry>")]
struct HealthRequest {
    #[endpoint(skip)]
    features: Features,
    #[endpoint(skip)]
    service: String,
}

impl FeaturedEndpoint for HealthRequest {
    fn features(&self) -> Option<Features> {
        Some(self.features.clone())
    }
}

#[derive(Deserialize, Debug)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    service: Registered,
    checks: Vec<Check>,
}

#[derive(Deserialize, Debug)]
#[serde(rename_all = "PascalCase")]
struct Registered {
    #[serde(default)]
    meta: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize, Debug)]
#[serde(rename_all = "PascalCase")]
struct Check {
    status: String,
}

/// Follows the health of a cluster's managers.
#[derive(Debug)]
pub struct PeerHealth {
    agent: Agent,
    cluster: ClusterName,
    /// What to wait on; 0 asks at once.
    index: u64,
}

impl PeerHealth {
    /// A follower that has asked nothing yet.
    pub fn new(agent: Agent, cluster: ClusterName) -> Self {
        Self { agent, cluster, index: 0 }
    }

    /// The managers that look gone: one of their checks, or of their machine's, is critical. Waits
    /// for news, up to 2 s. Only who is registered can look gone: of a manager that is not there
    /// at all (it ended in good order, or the agent lost its data) nothing is known.
    ///
    /// # Errors
    /// When Consul cannot be asked.
    pub async fn next(&mut self) -> Result<Vec<MemberId>, StoreError> {
        let until = (self.index > 0).then_some(Until { index: self.index, wait: WAIT });
        let request = HealthRequest {
            features: consistent(until),
            service: ServiceKind::Manager.name(self.agent.address()),
        };
        let call = consulrs::api::exec_with_result(self.agent.consul(), request);
        let wait = until.map_or(Duration::ZERO, |it| it.wait);
        let answer = self.agent.within(wait, call).await.inspect_err(|_| self.index = 0)?;
        let index = index_of(&answer);
        // An index that went back is of another history: begin anew.
        self.index = if index < self.index { 0 } else { index };
        Ok(gone(&answer.response, &self.cluster))
    }
}

fn gone(entries: &[Entry], cluster: &ClusterName) -> Vec<MemberId> {
    let critical = entries.iter().filter(|it| it.checks.iter().any(|it| it.status == "critical"));
    critical.filter_map(|entry| member(entry.service.meta.as_ref()?, cluster)).collect()
}

/// The manager that registered with this; `None` for one of another cluster.
fn member(meta: &BTreeMap<String, String>, cluster: &ClusterName) -> Option<MemberId> {
    if meta.get("cluster").map(String::as_str) != Some(cluster.as_str()) {
        return None;
    }
    let number = meta.get("number")?.parse().ok()?;
    let incarnation = meta.get("incarnation")?.parse().ok()?;
    Some(MemberId { number: ManagerNumber(number), incarnation: Incarnation(incarnation) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_critical_looks_gone_and_others_do_not() {
        let entry = |cluster: &str, number: u32, status: &str| {
            format!(
                r#"{{"Node":{{"Node":"x"}},"Service":{{"ID":"i","Meta":{{"cluster":"{cluster}",
                "number":"{number}","incarnation":"2"}}}},"Checks":[{{"Status":"passing"}},
                {{"Status":"{status}"}}]}}"#
            )
        };
        let text = format!(
            r#"[{},{},{},{{"Service":{{"Meta":null}},"Checks":[{{"Status":"critical"}}]}}]"#,
            entry("c", 1, "passing"),
            entry("c", 7, "critical"),
            entry("other", 9, "critical"),
        );
        let entries: Vec<Entry> = serde_json::from_str(&text).unwrap();
        let member = MemberId { number: ManagerNumber(7), incarnation: Incarnation(2) };
        assert_eq!(gone(&entries, &ClusterName::parse("c").unwrap()), [member]);
    }
}
