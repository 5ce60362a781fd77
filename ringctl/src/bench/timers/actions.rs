//! How many actions of life cycles run in a second: each is a program of its own, and a session runs one at a time.

use super::super::load::as_f64;
use super::super::report::rounded;
use super::super::target::{CALL_WAIT, client, open_request, prefix};
use super::{all_fired, each, item_of};
use crate::dev::{Cluster, Ground, Settings};
use crate::task::at::now;
use anyhow::Context;
use rota_client::docstore::Stamp;
use rota_client::v1;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const CLASS: &str = "acting";
const LIFE_CYCLE: &str = "act";
const CLASS_TEXT: &str = r#"name = "acting"
kind = "program"
argv = ["sh", "-c", "echo up; exec sleep 100000"]
ready = { line = "up" }
"#;
const ACTION: &str = "#!/bin/sh\nexit 0\n";
/// Actions of one session.
const EACH: u32 = 20;
/// Between the last open and the time at which all actions are due.
const LEAD_MS: u64 = 1_000;

/// Puts the class into a folder of classes.
pub fn write_class(classes: &Path) -> anyhow::Result<()> {
    fs::write(classes.join(format!("{CLASS}.toml")), CLASS_TEXT)?;
    let class = classes.join(CLASS);
    let actions = class.join("actions");
    let action = actions.join(LIFE_CYCLE);
    fs::create_dir_all(&actions)?;
    fs::write(&action, ACTION)?;
    // It runs as a user of its own, who can read nothing that is ours alone.
    for path in [classes, &class, &actions, &action] {
        fs::set_permissions(path, Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// How many of them ended well in a second, from when all of them were due.
pub async fn rate(ground: &mut Ground, settings: &Settings, count: u32) -> anyhow::Result<f64> {
    ground.with_cluster(settings, async |cluster: &mut Cluster| run(cluster, count).await).await
}

async fn run(cluster: &Cluster, count: u32) -> anyhow::Result<f64> {
    let client = client(&cluster.document().endpoints(), 1, false)?;
    let name = prefix();
    let ids: Vec<String> = (0..count.div_ceil(EACH)).map(|it| format!("{name}-{it}")).collect();
    each("opening", &client, &ids, |client, id| async move {
        client.open(open_request(id, CLASS), CALL_WAIT).await.map(drop)
    })
    .await?;
    let due = now().plus_ms(LEAD_MS);
    each("changing", &client, &ids, |client, id| {
        let add_state = (0..EACH).map(|it| item_of(LIFE_CYCLE, &format!("a{it}"), due)).collect();
        let request = v1::UpdateRequest { id, add_state, ..Default::default() };
        async move { client.update(request, CALL_WAIT).await.map(drop) }
    })
    .await?;
    let times = all_fired(&client, &ids, last_fired).await?;
    let last = times.into_iter().max().context("there are no actions")?;
    let ms = last.ms_since(due).unwrap_or_default().max(1);
    let all = u64::try_from(ids.len())? * u64::from(EACH);
    Ok(rounded(as_f64(all) * 1_000.0 / as_f64(ms), 1))
}

/// When the last action of a session was done, if all are.
fn last_fired(life: &v1::Life) -> anyhow::Result<Option<Stamp>> {
    let of_cycle = |it: &&v1::LifeItem| it.life_cycle == LIFE_CYCLE;
    let fired: Vec<u64> =
        life.items.iter().chain(&life.history).filter(of_cycle).map(|it| it.fired_at).collect();
    let last = fired.iter().max().copied().context("a session lost its actions")?;
    let is_done = fired.iter().all(|it| *it > 0);
    Ok(is_done.then(|| Stamp::parse(last)).transpose()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_actions_of_a_session_are_done_when_the_last_one_is() {
        let item = |fired_at| v1::LifeItem {
            life_cycle: LIFE_CYCLE.to_owned(),
            fired_at,
            ..Default::default()
        };
        let at = 261_128_000_000_050;
        let life = |items, history| v1::Life { items, history, ..Default::default() };
        assert_eq!(last_fired(&life(vec![item(0)], vec![item(at)])).unwrap(), None);
        let done = last_fired(&life(vec![item(at - 1)], vec![item(at)])).unwrap();
        assert_eq!(done, Some(Stamp::parse(at).unwrap()));
        assert!(last_fired(&life(vec![], vec![])).is_err());
    }
}
