//! Tables of the ring for people.

use super::join::{Copy, Node, Partition, Ring, without_config_store};
use crate::output::{Style, counted, pairs, plain_table};
use comfy_table::Table;

/// The ring in one sentence.
pub fn headline(ring: &Ring) -> String {
    let there: Vec<_> = ring.managers.iter().filter(|it| !it.has_left()).collect();
    let answering = there.iter().filter(|it| it.answers).count();
    let live: u64 = ring.partitions.iter().filter_map(|it| it.sessions.get("READY")).sum();
    let under_way = ring.transition.as_ref().map_or(String::new(), |transition| {
        format!(
            "number {} is under way: {}, since epoch {}\n",
            transition.number, transition.kind, transition.since
        )
    });
    let told = ring.partitions.iter().filter_map(|partition| {
        let what = partition.loss.as_ref().or(partition.recovered.as_ref())?;
        Some(format!("partition {}: {what}\n", partition.number))
    });
    let told: String = told.collect();
    let away = there.iter().filter(|it| it.config_store_error.is_some());
    let away: Vec<&str> = away.map(|it| it.id.as_str()).collect();
    let away = without_config_store(&away, answering).map_or(String::new(), |it| format!("{it}\n"));
    format!(
        "cluster {}, epoch {}: {}, {} with copies; {answering} of {} answer, {}, {} \
         READY\n{under_way}{told}{away}",
        ring.cluster,
        ring.epoch,
        counted(ring.slots.into(), "slot"),
        counted(ring.replicas.into(), "successor"),
        counted(there.len() as u64, "manager"),
        counted(ring.nodes.len() as u64, "node"),
        counted(live, "session"),
    )
}

/// A line per manager.
pub fn managers(ring: &Ring) -> Table {
    let mut table = plain_table([
        "MANAGER",
        "ID",
        "STABLE_NUMBER",
        "STATUS",
        "RUN",
        "EPOCH",
        "GRPC",
        "HTTP",
        "NOTE",
    ]);
    for it in &ring.managers {
        let note = match (&it.error, &it.config_store_error) {
            _ if it.has_left() => Some("its number stays reserved".to_owned()),
            (Some(error), _) => Some(format!("no answer: {error}")),
            (None, Some(away)) => Some(format!("without the config store {away}")),
            (None, None) => None,
        };
        table.add_row([
            it.number.to_string(),
            it.id.clone(),
            stable_number(it.stable_number),
            it.status.clone(),
            it.incarnation.to_string(),
            it.epoch.map_or("-".to_owned(), |epoch| epoch.to_string()),
            it.grpc.clone(),
            it.http.clone(),
            note.unwrap_or_default(),
        ]);
    }
    table
}

/// `-` while nobody who answered knows it.
pub fn stable_number(it: Option<u64>) -> String {
    it.map_or_else(|| "-".to_owned(), |it| it.to_string())
}

/// One copy as `681 serving`, `1022 copy +3` (entries behind) or `(340 learning)` outside the
/// in-sync set.
fn copy_text(copy: &Copy) -> String {
    let mut text = format!("{} {}", copy.number, copy.role.as_deref().unwrap_or("silent"));
    if let Some(lag) = copy.lag.filter(|lag| *lag > 0) {
        text.push_str(&format!(" +{lag}"));
    }
    if copy.in_sync { text } else { format!("({text})") }
}

fn sessions_text(partition: &Partition) -> String {
    let counts = partition.sessions.iter().filter(|(_, count)| **count > 0);
    let counts = counts.map(|(state, count)| format!("{count} {state}"));
    let waiting: u64 = partition.waiting.values().sum();
    let waiting = (waiting > 0).then(|| format!("{waiting} waiting"));
    let counts: Vec<String> = counts.chain(waiting).collect();
    if counts.is_empty() { "-".to_owned() } else { counts.join(", ") }
}

/// A line per partition.
pub fn partitions(ring: &Ring) -> Table {
    let header =
        ["PARTITION", "SLOTS", "SHARE", "HOME", "OWNER", "STATE", "PE", "COPIES", "SESSIONS"];
    let mut table = plain_table(header);
    for it in &ring.partitions {
        let copies: Vec<String> = it.copies.iter().map(copy_text).collect();
        table.add_row([
            it.number.to_string(),
            format!("{}..{}", it.first_slot, it.last_slot),
            format!("{:.1}%", it.share * 100.0),
            it.home.to_string(),
            it.owner.to_string(),
            it.state.clone(),
            it.pe.to_string(),
            copies.join(", "),
            sessions_text(it),
        ]);
    }
    table
}

/// A bar of ten characters that is filled to `load` (0 to 1, more is shown as full).
fn load_bar(load: f64, style: Style) -> String {
    let (full, empty) = if style.unicode { ('█', '░') } else { ('#', '.') };
    let tenths = (1..=10).filter(|tenth| load * 10.0 >= f64::from(*tenth) - 0.5).count();
    let bar = |tenth: usize| if tenth < tenths { full } else { empty };
    (0..10).map(bar).collect()
}

/// The digits of a digest that people see; JSON has all of them.
pub fn short_digest(digest: &str) -> &str {
    digest.get(..8).unwrap_or(digest)
}

/// A line per node; a class stands there with the digest of its text.
pub fn node_table(ring: &Ring, style: Style) -> Table {
    let mut header = vec![
        "NODE",
        "POOL",
        "STABLE_NUMBER",
        "STATE",
        "LOAD",
        "USED",
        "SANDBOX",
        "ADDRESS",
        "CLASSES",
    ];
    let has_labels = ring.nodes.iter().any(|it| !it.labels.is_empty());
    header.extend(has_labels.then_some("LABELS"));
    let mut table = plain_table(header);
    for it in &ring.nodes {
        let empty = if it.state == "DRAINING" && it.sessions == 0 { " (empty)" } else { "" };
        let mut row = vec![
            it.id.clone(),
            it.pool.clone(),
            stable_number(it.stable_number),
            format!("{}{empty}", it.state),
            format!("{} {:.0}%", load_bar(it.load, style), it.load * 100.0),
            used(it),
            if it.sandbox.is_empty() { "?".to_owned() } else { it.sandbox.clone() },
            it.address.clone(),
            class_texts(it),
        ];
        row.extend(has_labels.then(|| pairs(&it.labels).join(" ")));
        table.add_row(row);
    }
    table
}

/// The classes of a node, each with the digest of its text.
pub fn class_texts(it: &Node) -> String {
    let class = |name: &String| match it.digests.get(name) {
        Some(digest) => format!("{name}@{}", short_digest(digest)),
        None => name.clone(),
    };
    it.classes.iter().map(class).collect::<Vec<_>>().join(" ")
}

/// Places, and what else is in use.
fn used(it: &Node) -> String {
    let mut text = format!("{}/{}", it.used, it.places);
    for (used, of, unit) in
        [(it.used_cpu_millis, it.cpu_millis, "m CPU"), (it.used_memory_mib, it.memory_mib, " MiB")]
    {
        if used > 0 {
            text.push_str(&format!(", {used}/{of}{unit}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::join::{join, tests::answers};
    use super::*;

    #[test]
    fn a_load_bar_fills_by_tenths() {
        assert_eq!(load_bar(0.0, Style::PLAIN), "..........");
        assert_eq!(load_bar(0.5, Style::PLAIN), "#####.....");
        assert_eq!(load_bar(1.7, Style::PLAIN), "##########");
    }

    #[test]
    fn the_tables_tell_owner_copies_and_silence() {
        let ring = join(&answers()).unwrap();
        let partitions = partitions(&ring).to_string();
        assert!(partitions.contains("681 serving, 1022 silent +3, (340 learning)"), "{partitions}");
        assert!(partitions.contains("33.4%") && partitions.contains("5 READY"), "{partitions}");
        let managers = managers(&ring).to_string();
        for note in ["no answer: refused", "without the config store for 2.0 s: refused"] {
            assert!(managers.contains(note), "{managers}");
        }
        let away = "without the config store: m2; the others have it";
        assert!(headline(&ring).contains(away), "{}", headline(&ring));
        assert!(headline(&ring).contains("2 of 3 managers answer"));
        assert!(headline(&ring).contains("number 340 is under way: join, since epoch 5"));
    }
}
