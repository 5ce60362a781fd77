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
use rota_model::Stamp;
use rota_proto::events::all_kinds;
use shown::{All, Seen, Shown};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// `events`.
#[derive(Args, Debug)]
pub struct EventsArguments {
    /// Go on with what happens from now on, until Ctrl-C or SIGTERM.
    #[arg(short, long)]
    follow: bool,
    /// At most so many, the newest [default: 100, with -f 10, with --since all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    last: Option<u32>,
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

/// `session events`.
#[derive(Args, Debug)]
pub struct SessionEventsArguments {
    /// Id of the session.
    id: String,
    /// Namespace of the id.
    #[arg(long, default_value = "default")]
    namespace: String,
    /// Go on with what happens to it from now on, until Ctrl-C or SIGTERM.
    #[arg(short, long)]
    follow: bool,
    /// At most so many, the newest.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    last: Option<u32>,
    /// How long a manager may take to answer before it is shown as silent.
    #[arg(long, default_value = "2s", value_parser = length_of_time)]
    timeout: Duration,
}

impl SessionEventsArguments {
    /// Whether it goes on without an end.
    pub fn follows(&self) -> bool {
        self.follow
    }
}

/// What is asked of every manager.
struct Ask {
    request: v1::EventsRequest,
    /// What happened before is not shown.
    since: Option<Stamp>,
    /// How long a manager may take.
    wait: Duration,
}

impl Ask {
    /// The newest ones by time, as many as are asked for.
    fn choose(&self, events: &mut Vec<Shown>) {
        events.retain(|it| self.passes(it));
        events.sort_by_key(Shown::order);
        let mut seen = Seen::default();
        events.retain(|it| seen.is_new(it));
        let last = usize::try_from(self.request.last).unwrap_or(usize::MAX);
        let mut more = events.iter().filter(|it| !it.is_remark()).count();
        // What this program remarks is shown beside them.
        events.retain(|it| {
            let stays = last == 0 || it.is_remark() || more <= last;
            more -= usize::from(!it.is_remark());
            stays
        });
    }

    fn passes(&self, event: &Shown) -> bool {
        event.is_remark() || self.since.is_none_or(|it| event.at >= it.as_u64())
    }
}

fn kind(text: &str) -> Result<String, String> {
    if all_kinds().any(|it| it == text) {
        return Ok(text.to_owned());
    }
    Err(format!("is none of {}", all_kinds().collect::<Vec<_>>().join(", ")))
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
    let last = match (it.last, it.since, it.follow) {
        (Some(last), _, _) => last,
        (None, Some(_), _) => 0,
        (None, None, true) => 10,
        (None, None, false) => 100,
    };
    let (follow, kinds) = (it.follow, it.kinds.clone());
    let request = v1::EventsRequest { last, follow, kinds, ..Default::default() };
    let ask = Ask { request, since: it.since.map(ago), wait: it.timeout };
    if it.follow {
        return connect::told_when_gone(follow_all(&client, &ask, out)).await;
    }
    connect::told(endpoint, show_all(&client, &ask, out)).await
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
    let (follow, last) = (it.follow, it.last.unwrap_or(0));
    let request = v1::EventsRequest { namespace, id, follow, last, ..Default::default() };
    let ask = Ask { request, since: None, wait: it.timeout };
    if it.follow { follow_all(client, &ask, out).await } else { show_all(client, &ask, out).await }
}

async fn show_all(client: &Client, ask: &Ask, out: &mut Out) -> anyhow::Result<()> {
    let mut events = gather::all(client, ask).await?;
    ask.choose(&mut events);
    match out.format() {
        Format::Json => {
            let (remarks, events) = events.into_iter().partition(Shown::is_remark);
            out.json(&All { events, remarks })?;
        }
        Format::Table if events.is_empty() => eprintln!("no manager keeps such an event"),
        Format::Table => out.table(&shown::table(&events))?,
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
        let ask = Ask { request, since: None, wait: Duration::ZERO };
        let mut events = vec![event(3), Shown::silent(9, "why"), event(1), event(2)];
        ask.choose(&mut events);
        let kinds: Vec<(u64, bool)> = events.iter().map(|it| (it.at, it.is_remark())).collect();
        assert_eq!((kinds[0], kinds[1], kinds[2].1), ((2, false), (3, false), true));
        let all = Ask { request: v1::EventsRequest::default(), ..ask };
        let mut events = vec![event(3), event(1)];
        all.choose(&mut events);
        assert_eq!(events.len(), 2);
    }
}
