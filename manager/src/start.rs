//! What is done before the driver runs: listeners, data folder, config store, and every check
//! whose failure must end the process with a clear word.

use crate::options::{Options, RingOptions, flag};
use crate::outside::Addresses;
use crate::store_wait::StoreWait;
use anyhow::{Context, Result, bail};
use rota_membership::{CasReply, ConfigStore};
use rota_model::{FieldError, ManagerNumber, ManagerStatus, Nonce};
use rota_protocol::Disk;
use rota_ring::{Change, Claim, ManagerEntry, View};
use rota_storage::begun_for;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::Instant;

/// How long the first View may take to be written, and how long whoever tells a number waits for the config
/// store.
pub const CONFIG_STORE_PATIENCE: Duration = Duration::from_secs(15);

/// Opens a listener. Gives it with the address at which it is reached.
pub async fn listen(flag: &str, wanted: SocketAddr) -> Result<(TcpListener, String)> {
    let listener = TcpListener::bind(wanted)
        .await
        .with_context(|| format!("{flag}: cannot listen at {wanted}"))?;
    let address = listener.local_addr().context("a listener has an address")?;
    Ok((listener, address.to_string()))
}

/// The same listener once more: whoever accepts first, has the connection.
pub fn again(listener: &TcpListener) -> Result<TcpListener> {
    let copy = listener.as_fd().try_clone_to_owned().context("a listener can be shared")?;
    Ok(TcpListener::from_std(std::net::TcpListener::from(copy))?)
}

/// The config store's state, with a View that this manager may work under: the one that stands
/// there, or else the one founded from the command line.
pub async fn founded(
    store: &dyn ConfigStore,
    ring: &RingOptions,
    wait: &mut StoreWait<'_>,
) -> Result<Arc<View>> {
    let mut since = None;
    loop {
        let state = wait.read(store).await?;
        if let Some(view) = state.view {
            agree(&view, ring)?;
            return Ok(view);
        }
        let since = *since.get_or_insert_with(Instant::now);
        if let Some(view) = found(store, ring).await? {
            return Ok(view);
        }
        StoreWait::pause(since, CONFIG_STORE_PATIENCE).await?;
    }
}

/// Writes the first View. `None` when somebody else did, or perhaps did, or nobody knows: then a
/// read tells.
async fn found(store: &dyn ConfigStore, ring: &RingOptions) -> Result<Option<Arc<View>>> {
    if ring.numbers.is_empty() {
        bail!("--ring: the config store holds no View yet, so the ring must be given to found one");
    }
    let founded =
        View::found(ring.cluster.clone(), ring.m, ring.r, ring.managers_max, &ring.numbers);
    let view = founded.map_err(|mistakes| {
        let list: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        anyhow::anyhow!("--ring: {}", list.join("; "))
    })?;
    let view = View { times: Some(ring.times), ..view };
    match store.cas(Change::view(view.clone())).await {
        CasReply::Done(_) => {
            tracing::info!(cluster = %ring.cluster, "the cluster was founded");
            Ok(Some(Arc::new(view)))
        }
        CasReply::Conflict(_) => Ok(None),
        CasReply::Unknown(error) => {
            tracing::warn!(%error, "nobody knows whether the cluster was founded; reading again");
            Ok(None)
        }
    }
}

/// What of the ring's shape the command line says otherwise than the View.
pub fn differences(view: &View, ring: &RingOptions) -> Vec<FieldError> {
    let mut differences = Vec::new();
    if view.cluster != ring.cluster {
        let problem = format!(
            "is {}, but the View is of cluster {there}: start this manager with --cluster {there}, or \
             with the --config-store of its own cluster",
            ring.cluster,
            there = view.cluster
        );
        differences.push(FieldError::new("--cluster", problem));
    }
    let mut compare = |flag: &str, here: u64, there: u64| {
        if here != there {
            let remedy = format!("start this manager with {flag} {there}");
            let problem = format!("is {here}, but the View has {there}: {remedy}");
            differences.push(FieldError::new(flag, problem));
        }
    };
    compare("--slots", ring.m.into(), view.m.into());
    compare("--replicas", ring.r.into(), view.r.into());
    compare("--managers-max", ring.managers_max.into(), view.managers_max.into());
    for (field, here, there) in view.times.map(|it| ring.times.differences(&it)).unwrap_or_default()
    {
        compare(&flag(field), here, there);
    }
    differences
}

/// Refuses a View of another cluster or of another shape than the command line says.
fn agree(view: &View, ring: &RingOptions) -> Result<()> {
    view.check().context("the config store holds a View that cannot be used")?;
    let differences: Vec<String> =
        differences(view, ring).iter().map(ToString::to_string).collect();
    for (number, id) in &ring.numbers {
        if view.managers.get(number).is_none_or(|entry| entry.id != *id) {
            tracing::warn!(%number, %id, "--ring names what the View does not; the View counts");
        }
    }
    if differences.is_empty() { Ok(()) } else { bail!(differences.join("; ")) }
}

/// The claim that this manager would make to a number. The decisions make the real one.
pub fn claim_of(
    options: &Options,
    number: ManagerNumber,
    addresses: &Addresses,
    disk: &Disk,
) -> Claim {
    let identity = &disk.identity;
    Claim {
        number,
        id: options.id.clone(),
        grpc: addresses.grpc.clone(),
        http: addresses.http.clone(),
        held: identity.taken.into_iter().chain(identity.intended).collect(),
        taken: identity.taken.map(|(incarnation, _)| incarnation),
        nonce: Nonce(0),
        disk: (disk.parts.iter())
            .filter(|(_, meta)| meta.whole)
            .map(|(part, meta)| (*part, meta.pe))
            .collect(),
        force_lost: false,
        times: options.ring.times,
        peer_times: options.timing.of_peers(),
    }
}

/// The number for which the data folder of a manager that joins was begun, and whether that is in the
/// ring: then nobody needs to tell it again. A number that has left is not.
pub async fn begun(
    store: &dyn ConfigStore,
    options: &Options,
    wait: &mut StoreWait<'_>,
) -> Result<Option<(ManagerNumber, bool)>> {
    let folder = options.data.display();
    let begun = begun_for(&options.data, &options.ring.cluster, &options.id);
    let begun = begun.with_context(|| format!("data folder {folder} cannot be used"))?;
    let Some(number) = begun else { return Ok(None) };
    let state = wait.read(store).await?;
    let entry = state.view.as_ref().and_then(|view| view.managers.get(&number));
    let is_in = |it: &ManagerEntry| it.id == options.id && it.status != ManagerStatus::Left;
    Ok(Some((number, entry.is_some_and(is_in))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_membership::FakeStore;
    use rota_model::{ClusterName, ClusterTimes, ManagerId, ManagerNumber};
    use rota_ring::ConfigState;

    fn ring(cluster: &str, r: u32) -> RingOptions {
        RingOptions {
            cluster: ClusterName::parse(cluster).unwrap(),
            m: 1024,
            r,
            managers_max: 100,
            times: rota_protocol::Timing::default().of_cluster(),
            numbers: vec![
                (ManagerNumber(100), ManagerId::parse("a").unwrap()),
                (ManagerNumber(400), ManagerId::parse("b").unwrap()),
            ],
        }
    }

    async fn founded_in(store: &FakeStore, ring: &RingOptions) -> Result<Arc<View>> {
        founded(store, ring, &mut StoreWait::at_most(CONFIG_STORE_PATIENCE)).await
    }

    #[tokio::test]
    async fn the_first_manager_founds_the_cluster_and_the_next_agrees() {
        let store = FakeStore::new(ConfigState::default());
        let first = founded_in(&store, &ring("c", 2)).await.unwrap();
        let second = founded_in(&store, &ring("c", 2)).await.unwrap();
        assert_eq!(first.epoch.0, 1);
        assert_eq!(first, second);
    }

    #[tokio::test]
    async fn a_view_of_another_cluster_or_shape_is_refused_with_all_differences() {
        let store = FakeStore::new(ConfigState::default());
        founded_in(&store, &ring("c", 2)).await.unwrap();
        let times = ClusterTimes { node_lost_ms: 13_000, ..ring("c", 2).times };
        let other = RingOptions { m: 64, managers_max: 7, times, ..ring("other", 1) };
        let text = founded_in(&store, &other).await.unwrap_err().to_string();
        for part in [
            "cluster c",
            "--slots is 64",
            "--replicas is 1",
            "--managers-max is 7",
            "--node-lost-ms is 13000, but the View has 20000",
        ] {
            assert!(text.contains(part), "{part} is missing in {text}");
        }
        assert!(!text.contains("--renew-ms"), "only what differs: {text}");
    }

    #[tokio::test]
    async fn a_view_without_times_is_agreed_with_whatever_they_are() {
        let store = FakeStore::new(ConfigState::default());
        let view = founded_in(&store, &ring("c", 2)).await.unwrap();
        let epoch = view.epoch.next();
        let old = View { times: None, epoch, ..(*view).clone() };
        assert!(matches!(store.cas(Change::view(old)).await, CasReply::Done(_)));
        let times = ClusterTimes { node_lost_ms: 13_000, ..ring("c", 2).times };
        let other = RingOptions { times, ..ring("c", 2) };
        assert_eq!(founded_in(&store, &other).await.unwrap().times, None);
    }

    #[tokio::test]
    async fn without_a_view_the_ring_must_be_given() {
        let store = FakeStore::new(ConfigState::default());
        let none = RingOptions { numbers: Vec::new(), ..ring("c", 2) };
        let text = founded_in(&store, &none).await.unwrap_err().to_string();
        assert!(text.contains("--ring"), "{text}");
    }

    #[tokio::test]
    async fn a_port_in_use_is_named() {
        let (_held, address) = listen("--grpc", "127.0.0.1:0".parse().unwrap()).await.unwrap();
        let error = listen("--grpc", address.parse().unwrap()).await.unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("--grpc") && text.contains(&address), "{text}");
    }
}
