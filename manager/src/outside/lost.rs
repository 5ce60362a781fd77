//! An operator's word that a number's machine and disk are gone for good. It lets an empty folder take the
//! place of a last copy. And a number that the ring has as active, with nobody left who would miss it (after
//! a loss of all, in a ring of one, or without copies), is taken out as by any peer, unless it shows that it
//! lives, or somebody answers who would take it out if it were silent.
//!
//! ```text
//!  --force-lost ──▶ DOWN: its address accepts a connection ──▶ refused, else nothing to do
//!               ──▶ for as long as a silent node is waited for:
//!                   its address accepts a connection, or one of its neighbours answers ──▶ refused
//!                   the View has it as DOWN ──▶ nothing more to do
//!               ──▶ compare-and-set: DOWN, as after a suspicion ──▶ an empty folder may take the number
//! ```

use super::checks::{CONTACT, inspected, kept, refused};
use rota_membership::{CasReply, ConfigStore};
use rota_model::{FieldError, ManagerNumber, MemberId, Refusal, RefusalKind, Retry};
use rota_ring::{Change, Claim, ManagerEntry, View};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

/// Between two looks at who may live.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How often the View may change in between before this is given up.
const TRIES: usize = 5;

/// Takes the manager out that has the claimed number, unless it is out already.
///
/// # Errors
/// It, or somebody who would miss it, lives; it is no manager of this name; an empty folder could not
/// take its number; the View could not be written.
pub async fn take_out(
    claim: &Claim,
    begun: Option<ManagerNumber>,
    store: &dyn ConfigStore,
    view: &View,
) -> Result<(), Refusal> {
    if begun.is_some() {
        let problem = "is set, but the data folder of this manager is in use already: a lost manager's \
                       number is taken with an empty one";
        return Err(FieldError::new("force_lost", problem).into());
    }
    let Some(entry) = view.managers.get(&claim.number) else {
        let problem = format!("is {}, which nobody has in this ring", claim.number);
        return Err(FieldError::new("number", problem).into());
    };
    let Some(lost) = view.member(claim.number).filter(|_| entry.serves()) else {
        return not_at_its_address(view, claim).await;
    };
    without(view, lost, claim)?;
    let patience = Duration::from_millis(claim.times.node_lost_ms);
    tracing::warn!(manager = %lost, ?patience, "told that a manager is lost; looking whether it is");
    let until = Instant::now() + patience;
    // One look at least, however short that time or long this process's last pause.
    loop {
        let view = kept(store).await?;
        if !runs_by(&view, lost)? {
            return Ok(());
        }
        may_not_live(&view, claim).await?;
        if Instant::now() >= until {
            break;
        }
        sleep(LOOK_EVERY).await;
    }
    write(claim, lost, store).await
}

/// Whether the View still has that run as one that serves.
fn runs_by(view: &View, lost: MemberId) -> Result<bool, Refusal> {
    match view.member(lost.number).filter(|it| *it != lost) {
        Some(other) => Err(lives(format!("number {} runs again, as {other}", lost.number))),
        None => Ok(view.managers.get(&lost.number).is_some_and(ManagerEntry::serves)),
    }
}

fn lives(why: String) -> Refusal {
    let text = format!("it is not lost: {why}");
    let field = FieldError::new("force_lost", text.clone());
    let (kind, retry) = (RefusalKind::InvalidArgument, Retry::WhenChanged);
    Refusal { fields: vec![field], ..Refusal::new(kind, retry, text) }
}

/// Refuses when somebody accepts connections where it was.
async fn not_at_its_address(view: &View, claim: &Claim) -> Result<(), Refusal> {
    let number = claim.number;
    let address = view.managers.get(&number).map(|it| &it.grpc);
    // A newcomer may have been given the address of the one that was.
    let Some(own) = address.filter(|it| **it != claim.grpc) else { return Ok(()) };
    let answers = inspected(own).await;
    let other = |answer: &rota_proto::operator::Inspected| {
        answer.number != number || answer.view.cluster != view.cluster
    };
    let accepts = match &answers {
        Ok(answer) => !other(answer),
        // Whoever accepts and does not answer may be a process that stands still.
        Err(_) => timeout(CONTACT, TcpStream::connect(own)).await.is_ok_and(|it| it.is_ok()),
    };
    if accepts {
        return Err(lives(format!("a process accepts connections at {own}, its address")));
    }
    Ok(())
}

/// Refuses what shows that it may live.
async fn may_not_live(view: &View, claim: &Claim) -> Result<(), Refusal> {
    not_at_its_address(view, claim).await?;
    for peer in view.neighbours(claim.number) {
        let Some(entry) = view.managers.get(&peer).filter(|it| it.serves()) else { continue };
        let answer = inspected(&entry.grpc).await;
        let is_there = answer.is_ok_and(|it| it.number == peer && it.view.cluster == view.cluster);
        if is_there {
            return Err(lives(format!(
                "manager {peer} at {} shares partitions with it and takes it out by itself when it \
                 is silent; then the number is DOWN, and can be taken",
                entry.grpc
            )));
        }
    }
    Ok(())
}

/// The View without it, if an empty folder may take the number then.
fn without(view: &View, lost: MemberId, claim: &Claim) -> Result<View, Refusal> {
    let next = view.without(&[lost]);
    let next = next.ok_or_else(|| lives("the View changes just now".to_owned()))?;
    match next.claimed_or_joined(claim) {
        Ok(_) => Ok(next),
        Err(why) => Err(refused(&why)),
    }
}

async fn write(claim: &Claim, lost: MemberId, store: &dyn ConfigStore) -> Result<(), Refusal> {
    for _ in 0..TRIES {
        let view = kept(store).await?;
        if !runs_by(&view, lost)? {
            return Ok(());
        }
        match store.cas(Change::view(without(&view, lost, claim)?)).await {
            CasReply::Done(_) => {
                tracing::warn!(manager = %lost, "taken out: an operator says that it is lost");
                return Ok(());
            }
            CasReply::Conflict(_) => {}
            CasReply::Unknown(error) => {
                let text = format!("nobody knows whether manager {lost} was taken out: {error}");
                let (kind, retry) = (RefusalKind::ConfigStoreAway, Retry::AfterMs(1_000));
                return Err(Refusal::unknown_outcome(kind, retry, text));
            }
        }
    }
    let text = format!("the View changed {TRIES} times while manager {lost} was to be taken out");
    Err(Refusal::new(RefusalKind::NotServing, Retry::AfterMs(1_000), text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_membership::{FakeStore, Outage};
    use rota_model::{ClusterName, ClusterTimes, ManagerId, ManagerStatus, Nonce};
    use rota_ring::{ClaimRefused, ConfigState};
    use std::collections::BTreeMap;
    use tokio::net::TcpListener;

    const NUMBER: ManagerNumber = ManagerNumber(100);

    fn claim(grpc: &str) -> Claim {
        Claim {
            number: NUMBER,
            id: ManagerId::parse("a").unwrap(),
            grpc: grpc.to_owned(),
            http: String::new(),
            held: Vec::new(),
            taken: None,
            nonce: Nonce(1),
            disk: BTreeMap::new(),
            force_lost: true,
            times: ClusterTimes {
                renew_ms: 1,
                lease_term_ms: 3,
                lease_kill_ms: 4,
                // So short that only the look which is always made is sure.
                node_lost_ms: 0,
            },
            peer_times: rota_model::PeerTimes { heartbeat_ms: 1, suspect_ms: 4 },
        }
    }

    /// A ring of one manager, which runs at that address.
    fn store_of(grpc: &str) -> (FakeStore, View) {
        let cluster = ClusterName::parse("c").unwrap();
        let numbers = [(NUMBER, ManagerId::parse("a").unwrap())];
        let view = View::found(cluster, 1024, 0, 3, &numbers).unwrap();
        let view = view.claimed(&claim(grpc)).unwrap();
        let state = Some(view.clone().into());
        (FakeStore::new(ConfigState { index: 3, view: state, ..ConfigState::default() }), view)
    }

    async fn status(store: &FakeStore) -> ManagerStatus {
        kept(store).await.unwrap().managers[&NUMBER].status
    }

    #[tokio::test]
    async fn a_manager_that_is_silent_everywhere_is_taken_out_and_one_that_may_live_is_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let there = listener.local_addr().unwrap().to_string();
        let (store, view) = store_of(&there);
        let again = claim("127.0.0.1:1");
        // It accepts and says nothing.
        let refused = take_out(&again, None, &store, &view).await.unwrap_err();
        assert!(refused.to_string().contains(&there), "{refused}");
        assert_eq!(status(&store).await, ManagerStatus::Active);
        drop(listener);
        let begun = take_out(&again, Some(NUMBER), &store, &view).await.unwrap_err();
        assert!(begun.to_string().contains("data folder"), "{begun}");
        take_out(&again, None, &store, &view).await.unwrap();
        assert_eq!(status(&store).await, ManagerStatus::Down);
        let view = kept(&store).await.unwrap();
        take_out(&again, None, &store, &view).await.expect("it is out already");
        assert!(view.claimed(&again).is_ok());
        // One that is DOWN may live, too.
        let listener = TcpListener::bind(&there).await.unwrap();
        let refused = take_out(&again, None, &store, &view).await.unwrap_err();
        assert!(refused.to_string().contains("accepts connections"), "{refused}");
        drop(listener);
        let unsaid = Claim { force_lost: false, ..again };
        assert!(matches!(view.claimed(&unsaid), Err(ClaimRefused::LastCopy { .. })));
    }

    #[tokio::test]
    async fn another_name_another_run_and_a_store_that_is_away_take_nobody_out() {
        let (store, view) = store_of("127.0.0.1:1");
        let other = Claim { id: ManagerId::parse("b").unwrap(), ..claim("127.0.0.1:2") };
        let refused = take_out(&other, None, &store, &view).await.unwrap_err();
        assert!(refused.to_string().contains("belongs to manager"), "{refused}");
        let stranger = Claim { number: ManagerNumber(7), ..claim("127.0.0.1:2") };
        let refused = take_out(&stranger, None, &store, &view).await.unwrap_err();
        assert!(refused.to_string().contains("nobody has"), "{refused}");
        let lost = view.member(NUMBER).unwrap();
        let next = view.without(&[lost]).unwrap().claimed(&claim("127.0.0.1:1")).unwrap();
        assert!(runs_by(&next, lost).unwrap_err().to_string().contains("runs again"));
        store.set_outage(Outage::Away);
        let refused = take_out(&claim("127.0.0.1:2"), None, &store, &view).await.unwrap_err();
        assert_eq!(refused.kind, RefusalKind::ConfigStoreAway);
        store.set_outage(Outage::None);
        assert_eq!(status(&store).await, ManagerStatus::Active);
    }
}
