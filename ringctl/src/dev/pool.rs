//! The pool of the nodes, as `--max-nodes` says.

use super::layout::{Layout, Settings};
use rota_client::Client;
use rota_client::pools::SetPool;
use rota_model::{PoolName, PoolSettings, ProvisionerName};
use std::time::Duration;

/// How long the ring may take to keep a description. It serves already.
const WAIT: Duration = Duration::from_secs(10);

/// What the options change of the pool `default`; `None`: nothing was given, and it stays as it is.
fn change(settings: &Settings, layout: &Layout) -> Option<SetPool> {
    let said = settings.max_nodes.is_some() || settings.places.is_some();
    if !said || (layout.max_nodes == 0 && settings.max_nodes.is_none()) {
        return None;
    }
    let mut fields = vec!["provisioner", "places", "max_nodes"];
    let grown = if layout.max_nodes > 0 {
        PoolSettings {
            provisioner: ProvisionerName::parse("process").ok(),
            places: layout.places,
            max_nodes: layout.max_nodes,
            ..PoolSettings::default()
        }
    } else {
        fields.extend([
            "min_nodes",
            "warm_places",
            "warm_nodes",
            "scale_in_delay_s",
            "scale_in_below",
            "schedules",
        ]);
        PoolSettings::default()
    };
    Some(SetPool {
        name: PoolName::default_pool(),
        settings: grown,
        fields: fields.into_iter().map(str::to_owned).collect(),
        allow_missing: true,
    })
}

/// Describes the pool, if the options say anything of it.
pub async fn describe(settings: &Settings, layout: &Layout, client: &Client) -> anyhow::Result<()> {
    if let Some(change) = change(settings, layout) {
        client.pools().set(&change, WAIT).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::layout::Folder;
    use super::*;

    fn changed(max_nodes: Option<u32>, places: Option<u32>) -> Option<SetPool> {
        let data = tempfile::tempdir().unwrap();
        let settings = Settings { port_base: Some(0), max_nodes, places, ..Settings::default() };
        let folder = Folder::open(data.path(), &settings).unwrap();
        change(&settings, &folder.layout)
    }

    #[test]
    fn a_pool_is_described_when_more_nodes_may_come_and_left_alone_without_a_word_of_it() {
        let grown = changed(Some(4), None).unwrap();
        assert_eq!((grown.settings.max_nodes, grown.settings.places), (4, 1_000));
        assert_eq!(grown.fields, ["provisioner", "places", "max_nodes"]);
        assert_eq!(changed(None, None), None);
        assert_eq!(changed(None, Some(7)), None);
        let none = changed(Some(0), None).unwrap();
        assert_eq!((none.settings, none.fields.len()), (PoolSettings::default(), 9));
    }
}
