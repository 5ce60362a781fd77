//! What speaks against a number before anything is begun for it. The decisions ask again, and the
//! compare-and-set of the View decides.

use super::{Addresses, lost};
use crate::link::{self, MESSAGE_BYTES_MAX, with_sources};
use crate::options::Options;
use crate::start::{claim_of, differences};
use rota_membership::{ConfigStore, StoreError};
use rota_model::{FieldError, ManagerNumber, ManagerStatus, Refusal, RefusalKind, Retry};
use rota_proto::operator::{Inspected, JoinAsk};
use rota_proto::v1;
use rota_proto::v1::operator_client::OperatorClient;
use rota_protocol::Disk;
use rota_ring::{Claim, ClaimRefused, View};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tonic::{Code, Status};

/// How long the contact may take to answer.
pub(super) const CONTACT: Duration = Duration::from_secs(3);

/// Advice to whoever comes while another number joins, in milliseconds.
const NEXT_MS: u64 = 1_000;

/// The number that this manager may take.
///
/// # Errors
/// Everything that is wrong with it: the contact, the ring, the number.
pub async fn number(
    ask: &JoinAsk,
    options: &Options,
    store: &dyn ConfigStore,
    addresses: &Addresses,
    begun: Option<ManagerNumber>,
) -> Result<ManagerNumber, Refusal> {
    let mut view = kept(store).await?;
    if let Some(address) = &ask.contact {
        same_ring(&asked(address).await?, &view, address)?;
    }
    let mistakes = differences(&view, &options.ring);
    if !mistakes.is_empty() {
        return Err(Refusal::invalid(mistakes));
    }
    let claim_to = |number| {
        let claim = claim_of(options, number, addresses, &Disk::default());
        Claim { force_lost: ask.force_lost, ..claim }
    };
    if let Some(number) = ask.number.filter(|_| ask.force_lost) {
        lost::take_out(&claim_to(number), begun, store, &view).await?;
        view = kept(store).await?;
    }
    let number = chosen(ask.number, begun, &view, options)?;
    match view.claimed_or_joined(&claim_to(number)) {
        Ok(_) => Ok(number),
        Err(why) => Err(refused_by(&view, &why)),
    }
}

fn chosen(
    asked: Option<ManagerNumber>,
    begun: Option<ManagerNumber>,
    view: &View,
    options: &Options,
) -> Result<ManagerNumber, Refusal> {
    match (asked, begun) {
        (Some(asked), Some(begun)) if asked != begun => {
            let folder = options.data.display();
            let problem = format!(
                "is {asked}, but data folder {folder} was begun for number {begun}: remove it to \
                 take another"
            );
            Err(FieldError::new("number", problem).into())
        }
        (Some(number), _) | (None, Some(number)) => Ok(number),
        (None, None) => view.arcs().free_number().ok_or_else(|| {
            let problem = format!("cannot be chosen: each of the {} slots is a number", view.m);
            FieldError::new("number", problem).into()
        }),
    }
}

/// What a refused claim is to whoever asked for it, with what that View says would help.
fn refused_by(view: &View, why: &ClaimRefused) -> Refusal {
    let down =
        |number| view.managers.get(number).is_some_and(|it| it.status == ManagerStatus::Down);
    if let ClaimRefused::Taken { number, id, .. } = why
        && down(number)
    {
        let text = format!(
            "{why}, and is DOWN: a manager that is started with --id {id} and an empty data folder \
             may take it; for a further manager choose another number, or auto"
        );
        return refused_as(why, text);
    }
    refused(why)
}

/// What a refused claim is to whoever asked for it.
pub fn refused(why: &ClaimRefused) -> Refusal {
    refused_as(why, why.to_string())
}

fn refused_as(why: &ClaimRefused, text: String) -> Refusal {
    match why {
        ClaimRefused::InTransition { .. } => {
            Refusal::new(RefusalKind::NotServing, Retry::AfterMs(NEXT_MS), text)
        }
        ClaimRefused::NotReserved(..)
        | ClaimRefused::HasLeft(..)
        | ClaimRefused::Taken { .. }
        | ClaimRefused::OutsideRing { .. }
        | ClaimRefused::NameTaken { .. }
        | ClaimRefused::RingFull { .. }
        | ClaimRefused::NumbersFull { .. }
        | ClaimRefused::OtherTimes(..)
        | ClaimRefused::NotThisDisk { .. }
        | ClaimRefused::LastCopy { .. }
        | ClaimRefused::StoreIsOlder { .. }
        | ClaimRefused::StoreIsBehind { .. } => {
            let field = FieldError::new("number", text.clone());
            let (kind, retry) = (RefusalKind::InvalidArgument, Retry::WhenChanged);
            Refusal { fields: vec![field], ..Refusal::new(kind, retry, text) }
        }
    }
}

/// A manager's View, or why there is none.
pub(super) async fn inspected(address: &str) -> Result<Inspected, String> {
    let ask = async {
        let channel = link::connect(address).await.map_err(|it| it.text)?;
        let mut client = OperatorClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let answer = client.inspect(v1::InspectRequest {}).await;
        let answer = answer.map_err(|status| why(&status))?;
        Inspected::try_from(answer.into_inner()).map_err(|error| error.to_string())
    };
    let late = || Err(format!("it did not answer within {} s", CONTACT.as_secs()));
    tokio::time::timeout(CONTACT, ask).await.unwrap_or_else(|_| late())
}

/// Why a call failed, for people.
fn why(status: &Status) -> String {
    if status.code() == Code::Unimplemented {
        return "what answers there is no manager".to_owned();
    }
    match (status.source(), status.message()) {
        (Some(cause), _) => with_sources(cause),
        (None, "") => status.code().description().to_owned(),
        (None, said) => said.to_owned(),
    }
}

/// The contact's View.
async fn asked(contact: &str) -> Result<Inspected, Refusal> {
    inspected(contact).await.map_err(|why| {
        let problem = format!(
            "{contact} cannot be asked: {why}; a contact is where a manager serves gRPC, as the column \
             GRPC of `ringctl inspect` shows it"
        );
        let field = FieldError::new("contact", problem);
        let (kind, retry) = (RefusalKind::NotServing, Retry::WhenChanged);
        Refusal { fields: vec![field.clone()], ..Refusal::new(kind, retry, field.to_string()) }
    })
}

/// The View that the config store holds.
pub(super) async fn kept(store: &dyn ConfigStore) -> Result<Arc<View>, Refusal> {
    let away = |retry, text: String| {
        let text = format!("--config-store of this manager: {text}");
        Refusal::new(RefusalKind::ConfigStoreAway, retry, text)
    };
    let state = store.read().await.map_err(|error| {
        let retry = match error {
            StoreError::Unreachable(_) | StoreError::Timeout(_) => Retry::AfterMs(NEXT_MS),
            // It is another cluster's, or holds rubbish.
            StoreError::Broken(_) | StoreError::Refused(_) => Retry::WhenChanged,
        };
        away(retry, error.to_string())
    })?;
    let view = state.view.ok_or_else(|| away(Retry::WhenChanged, "it holds no View".to_owned()))?;
    view.check().map_err(|error| away(Retry::WhenChanged, error.to_string()))?;
    Ok(view)
}

/// Refuses a contact that works under another config store than this manager's.
fn same_ring(contact: &Inspected, kept: &View, address: &str) -> Result<(), Refusal> {
    let there = &contact.view;
    let known = kept.managers.get(&contact.number).map(|it| &it.id);
    let same = there.cluster == kept.cluster
        && known.is_some()
        && known == there.managers.get(&contact.number).map(|it| &it.id);
    if same {
        return Ok(());
    }
    let problem = format!(
        "{address} is manager {} of cluster {:?}, which the config store of this manager does not \
         know: it holds cluster {:?}",
        contact.number, there.cluster, kept.cluster
    );
    Err(FieldError::new("contact", problem).into())
}
