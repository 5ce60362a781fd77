//! What happened lately: `ringctl events` and `ringctl session events`.
//!
//! ```text
//!   every manager of the View ── its events ──▶ one list, by time ──▶ table, JSON
//!                             ── with -f ─────▶ lines, as they come
//! ```

mod gather;
mod shown;

use crate::connect;
use crate::failure::UsageMistake;
use crate::length_of_time::length_of_time;
use crate::output::{Format, Out};
use clap::Args;
use rota_client::{Client, v1};
use rota_daemon::Stop;
use rota_model::{RefusalKind, Stamp};
use rota_proto::events::{RemarkKind, all_kinds};
use shown::{All, Seen, Shown};
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long the owner of a session may take to say whether it knows it.
const KNOWN_WAIT: Duration = Duration::from_secs(10);

/// Which events, and how.
#[derive(Args, Debug)]
struct Wanted {
    /// Go on with what happens from now on, until Ctrl-C or SIGTERM.
    #[arg(short, long)]
    follow: bool,
    /// Only what happened within this time.
    #[arg(long, value_name = "DURATION", value_parser = length_of_time)]
    since: Option<Duration>,
    /// Only of these kinds, as in session_lost,node_lost; several with commas.
    #[arg(long = "kind", value_name = "KIND,...", value_delimiter = ',', value_parser = kind)]
    kinds: Vec<String>,
    /// How long a manager may take to answer before it is shown as silent.
    #[arg(long, default_value = "2s", value_parser = length_of_time)]
    timeout: Duration,
}

/// `events`.
#[derive(Args, Debug)]
pub struct EventsArguments {
    /// At most so many, the newest [default: 100, with -f 10, with --since all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    last: Option<u32>,
    #[command(flatten)]
    wanted: Wanted,
}

/// `session events`.
#[derive(Args, Debug)]
pub struct SessionEventsArguments {
    /// Id of the session.
    id: String,
    /// Namespace of the id.
    #[arg(long, default_value = "default")]
    namespace: String,
    /// At most so many, the newest [default: all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    last: Option<u32>,
    #[command(flatten)]
    wanted: Wanted,
}

impl SessionEventsArguments {
    /// Whether it goes on without an end.
    pub fn follows(&self) -> bool {
        self.wanted.follow
    }
}

/// What is asked of every manager.
struct Ask {
    request: v1::EventsRequest,
    /// Only of these kinds, those of remarks among them; none: of every one.
    kinds: BTreeSet<String>,
    /// What happened before is not shown.
    since: Option<Stamp>,
    /// How long a manager may take.
    wait: Duration,
}

impl Ask {
    fn new(wanted: &Wanted, request: v1::EventsRequest) -> Self {
        let kinds: BTreeSet<String> = wanted.kinds.iter().cloned().collect();
        // Managers know nothing of remarks.
        let told = kinds.iter().filter(|it| RemarkKind::parse(it).is_none());
        let request =
            v1::EventsRequest { follow: wanted.follow, kinds: told.cloned().collect(), ..request };
        Self { request, kinds, since: wanted.since.map(ago), wait: wanted.timeout }
    }

    /// The newest ones by time, as many as are asked for.
    fn choose(&self, events: &mut Vec<Shown>) {
        events.retain(|it| self.passes(it));
        events.sort_by_key(Shown::order);
        let mut seen = Seen::default();
        events.retain(|it| seen.is_new(it));
        let last = usize::try_from(self.request.last).unwrap_or(usize::MAX);
        let mut more = events.iter().filter(|it| !it.is_remark()).count();
        // What this program remarks is shown beside them.
        events.retain(|event| {
            let stays = last == 0 || event.is_remark() || more <= last;
            more -= usize::from(!event.is_remark());
            stays
        });
        // What a manager forgot is missing only where nothing newer fills the list.
        let shown = events.iter().filter(|it| !it.is_remark());
        let is_full = last > 0 && shown.clone().count() >= last;
        let oldest = shown.map(|it| it.at).next().filter(|_| is_full).unwrap_or(0);
        let from = oldest.max(self.since.map_or(0, Stamp::as_u64));
        events.retain(|it| !it.is_forgotten() || it.at > from);
    }

    fn passes(&self, event: &Shown) -> bool {
        if event.is_remark() {
            // Where none is named, all are told: something is missing.
            let mut named =
                self.kinds.iter().filter(|it| RemarkKind::parse(it).is_some()).peekable();
            return named.peek().is_none() || named.any(|it| *it == event.kind);
        }
        (self.kinds.is_empty() || self.kinds.contains(&event.kind))
            && self.since.is_none_or(|it| event.at >= it.as_u64())
    }
}

/// The kinds of all that is shown.
fn shown_kinds() -> Vec<&'static str> {
    all_kinds().chain(RemarkKind::ALL.iter().map(|it| it.as_str())).collect()
}

fn kind(text: &str) -> Result<String, String> {
    match shown_kinds() {
        all if all.contains(&text) => Ok(text.to_owned()),
        all => Err(format!("is none of {}", all.join(", "))),
    }
}

/// The time so long ago, by the clock of this machine.
fn ago(length: Duration) -> Stamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let ms = now.saturating_sub(length).as_millis();
    Stamp::from_epoch_ms(u64::try_from(ms).unwrap_or(u64::MAX))
}

/// Shows what happened in the cluster.
pub async fn run(it: &EventsArguments, endpoint: &str, out: &mut Out) -> anyhow::Result<()> {
    let client = connect::client(endpoint, out.format())?;
    let last = match (it.last, it.wanted.since, it.wanted.follow) {
        (Some(last), _, _) => last,
        (None, Some(_), _) => 0,
        (None, None, true) => 10,
        (None, None, false) => 100,
    };
    let ask = Ask::new(&it.wanted, v1::EventsRequest { last, ..Default::default() });
    if it.wanted.follow {
        return connect::told_when_gone(follow_all(&client, &ask, out)).await;
    }
    let shown = async { show(gather::all(&client, &ask).await?, &ask, out) };
    connect::told(endpoint, shown).await
}

/// Shows what happened to one session.
pub async fn of_session(
    client: &Client,
    it: &SessionEventsArguments,
    out: &mut Out,
) -> anyhow::Result<()> {
    rota_model::SessionId::check(&it.id)
        .map_err(|it| UsageMistake(format!("the id {}", it.problem)))?;
    let (namespace, id) = (it.namespace.clone(), it.id.clone());
    let last = it.last.unwrap_or(0);
    let ask = Ask::new(&it.wanted, v1::EventsRequest { namespace, id, last, ..Default::default() });
    if it.wanted.follow {
        return follow_all(client, &ask, out).await;
    }
    let events = gather::all(client, &ask).await?;
    if events.iter().all(Shown::is_remark) {
        check_known(client, it, &ask).await?;
    }
    show(events, &ask, out)
}

/// Of a session that has no events of the kinds that are asked for: whether there is or was one at all.
async fn check_known(
    client: &Client,
    it: &SessionEventsArguments,
    ask: &Ask,
) -> anyhow::Result<()> {
    let (namespace, id) = (it.namespace.clone(), it.id.clone());
    let get = v1::GetRequest { namespace, id, stale_ok: false };
    let unknown = match client.get(get, KNOWN_WAIT).await {
        Err(error) if error.reason() == RefusalKind::NotFound.as_str() => error,
        // Whoever owns it is silent, or says that it is there: what managers told is all there is.
        Ok(_) | Err(_) => return Ok(()),
    };
    let request = v1::EventsRequest { kinds: Vec::new(), last: 1, ..ask.request.clone() };
    let any = Ask { request, kinds: BTreeSet::new(), since: None, wait: ask.wait };
    let events = gather::all(client, &any).await?;
    // A manager that is silent may keep some.
    if events.iter().all(|it| it.is_remark() && !it.is_silent()) {
        remark(&events);
        return Err(unknown.into());
    }
    Ok(())
}

/// What is said beside a table.
fn remark(events: &[Shown]) {
    for remark in events.iter().filter(|it| it.is_remark()) {
        eprint!("{}", remark.line());
    }
}

fn show(mut events: Vec<Shown>, ask: &Ask, out: &mut Out) -> anyhow::Result<()> {
    ask.choose(&mut events);
    let is_any = !events.is_empty();
    let (remarks, events): (Vec<Shown>, Vec<Shown>) =
        events.into_iter().partition(Shown::is_remark);
    if out.format() == Format::Json {
        return Ok(out.json(&All { events, remarks })?);
    }
    remark(&remarks);
    match events.as_slice() {
        [] if !is_any => eprintln!("no manager keeps such an event"),
        [] => {}
        _ => out.table(&shown::table(&events))?,
    }
    Ok(())
}

async fn follow_all(client: &Client, ask: &Ask, out: &mut Out) -> anyhow::Result<()> {
    let mut stop = Stop::listen()?;
    let mut following = gather::Following::start(client, ask).await?;
    let (mut is_first, mut seen) = (true, Seen::default());
    loop {
        let mut events = tokio::select! {
            events = following.next() => events?,
            _ = stop.wished() => return Ok(()),
        };
        // What happens from now on is shown, however much it is.
        if std::mem::take(&mut is_first) {
            ask.choose(&mut events);
        }
        for event in events.iter().filter(|it| ask.passes(it) && seen.is_new(it)) {
            match out.format() {
                Format::Json => out.json(event)?,
                Format::Table => out.text(&event.line())?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remarks_are_shown_beside_the_last_events() {
        let event =
            |at| Shown::of(v1::Event { at, kind: "serving".to_owned(), ..Default::default() });
        let request = v1::EventsRequest { last: 2, ..Default::default() };
        let ask = Ask { request, kinds: BTreeSet::new(), since: None, wait: Duration::ZERO };
        let mut events = vec![event(3), Shown::silent(9, "why"), event(1), event(2)];
        ask.choose(&mut events);
        let kinds: Vec<(u64, bool)> = events.iter().map(|it| (it.at, it.is_remark())).collect();
        assert_eq!((kinds[0], kinds[1], kinds[2].1), ((2, false), (3, false), true));
        let all = Ask { request: v1::EventsRequest::default(), ..ask };
        let mut events = vec![event(3), event(1)];
        all.choose(&mut events);
        assert_eq!(events.len(), 2);
    }

    fn forgotten(events: &[Shown]) -> Vec<u64> {
        events.iter().filter(|it| it.is_forgotten()).map(|it| it.at).collect()
    }

    #[test]
    fn what_a_manager_forgot_is_told_where_something_of_it_may_be_missing() {
        let stamp = |it| Stamp::from_epoch_ms(1_800_000_000_000 + it);
        let at = |it| stamp(it).as_u64();
        let event = |it| Shown::of(v1::Event { at: at(it), ..Default::default() });
        let chosen = |last, since: Option<u64>| {
            let request = v1::EventsRequest { last, ..Default::default() };
            let (kinds, since) = (BTreeSet::new(), since.map(stamp));
            let ask = Ask { request, kinds, since, wait: Duration::ZERO };
            let anew = [Shown::forgotten(1, at(4)), Shown::forgotten(2, at(7))];
            let mut events = vec![event(3), event(5)];
            events.extend(anew);
            ask.choose(&mut events);
            forgotten(&events)
        };
        assert_eq!(chosen(0, None), [at(4), at(7)]);
        assert_eq!(chosen(9, None), [at(4), at(7)], "fewer are kept than are asked for");
        assert_eq!(chosen(1, None), [at(7)], "the list is full, and older events are not in it");
        assert_eq!(chosen(0, Some(6)), [at(7)]);
    }

    fn wanted(kinds: &[&str]) -> Ask {
        let kinds = kinds.iter().map(|it| (*it).to_owned()).collect();
        let (follow, since, timeout) = (false, None, Duration::ZERO);
        Ask::new(&Wanted { follow, since, kinds, timeout }, v1::EventsRequest::default())
    }

    #[test]
    fn every_kind_that_is_shown_may_be_asked_for() {
        for it in [Shown::silent(1, "why"), Shown::missed(1, None), Shown::forgotten(1, 4)] {
            assert_eq!(kind(&it.kind), Ok(it.kind.clone()));
        }
        assert!(kind("session_opened").is_ok() && kind("content_published").is_ok());
        assert!(kind("opened").unwrap_err().contains("events_missed"));
    }

    #[test]
    fn remarks_are_chosen_by_their_kinds_where_some_are_named() {
        let of = |kind: &str| Shown::of(v1::Event { kind: kind.to_owned(), ..Default::default() });
        let (silent, missed) = (Shown::silent(1, "why"), Shown::missed(1, None));
        let lost = wanted(&["node_lost"]);
        assert!(lost.passes(&of("node_lost")) && !lost.passes(&of("serving")));
        assert!(lost.passes(&silent) && lost.passes(&missed));
        let only_silent = wanted(&["manager_silent"]);
        assert!(only_silent.request.kinds.is_empty(), "managers do not know it");
        assert!(only_silent.passes(&silent) && !only_silent.passes(&missed));
        assert!(!only_silent.passes(&of("serving")));
    }
}
