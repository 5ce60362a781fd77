//! A page of sessions that a search finds.

use super::Shared;
use super::list::{PAGE_BYTES_MAX, STEP_MAX};
use super::owners::Failure;
use super::search::{Gathered, Question, gather};
use rota_docstore::codes;
use rota_model::{Filter, Refusal, RefusalKind, Retry, SessionView};
use rota_proto::session_search::SessionSearch;
use rota_protocol::session_search::session_name;
use rota_search::Position;
use tokio::time::Instant;

/// Gathers a page, and gives the token of the next one; empty: that was all.
pub async fn sought(
    shared: &Shared,
    asked: SessionSearch,
    deadline: Instant,
) -> Result<(Vec<SessionView>, String), Refusal> {
    let question = Question {
        search: asked.search.clone(),
        after: asked.after.clone(),
        limit: asked.limit.min(STEP_MAX),
        reader: None,
        with_sessions: true,
    };
    let gathered = gather(shared, question, deadline).await.map_err(refusal)?;
    let (sessions, next) = fitting(gathered, &asked.filter);
    let token = next.map(|it| asked.token(&it)).unwrap_or_default();
    Ok((sessions, token))
}

/// What is told of a page: sessions that pass, up to a page's size in bytes, and where to go on.
fn fitting(gathered: Gathered, filter: &Filter) -> (Vec<SessionView>, Option<Position>) {
    let Gathered { page, sessions } = gathered;
    let (mut told, mut bytes, mut reached) = (Vec::new(), 0, None);
    let mut sessions = sessions.into_iter().peekable();
    for hit in page.hits {
        let is_its = |it: &SessionView| session_name(&it.record.key) == hit.at.place.name;
        let passing = sessions.next_if(is_its).filter(|it| filter.passes(&it.record));
        if let Some(session) = passing {
            bytes += session.record.bytes();
            if bytes > PAGE_BYTES_MAX && !told.is_empty() {
                return (told, reached);
            }
            told.push(session);
        }
        reached = Some(hit.at);
    }
    (told, page.next)
}

/// Who lists sessions hears of refusals alone: there is no account that could be wrong.
fn refusal(failure: Failure) -> Refusal {
    match failure {
        Failure::Refused(refusal) => refusal,
        // As a list without a search tells it.
        Failure::Raised(exception) if *exception.code() == codes::OFF => {
            let text = exception.details().message.clone();
            Refusal::new(RefusalKind::NamespaceOff, exception.retry(), text)
        }
        Failure::Raised(exception) => {
            Refusal::new(RefusalKind::Internal, Retry::Never, exception.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::list::tests::session;
    use super::*;
    use rota_model::Stamp;
    use rota_search::{Hit, Page, Place};

    fn gathered(ids: &[&str], bytes: usize) -> Gathered {
        let sessions: Vec<SessionView> = ids.iter().map(|id| session(id, bytes)).collect();
        let place = |it: &SessionView| Place { name: session_name(&it.record.key), key: None };
        let at = |it| Position { value: None, place: place(it) };
        let hit = |it| Hit { at: at(it), version: Stamp::MIN, content: None };
        let hits = sessions.iter().map(hit).collect();
        let next = sessions.last().map(at);
        Gathered { page: Page { hits, next, documents_read: 0 }, sessions }
    }

    fn ids(sessions: &[SessionView]) -> Vec<&str> {
        sessions.iter().map(|it| it.record.key.id.as_str()).collect()
    }

    fn id(next: Option<&Position>) -> Option<&str> {
        next.map(|it| it.place.name.docid())
    }

    #[test]
    fn a_page_of_large_sessions_ends_early_and_goes_on_after_the_last_that_fitted() {
        let (sessions, next) = fitting(gathered(&["a", "b", "c"], 900 * 1024), &Filter::default());
        assert_eq!((ids(&sessions), id(next.as_ref())), (vec!["a", "b"], Some("b")));
        let huge = gathered(&["a"], 3 * PAGE_BYTES_MAX);
        let (sessions, next) = fitting(huge, &Filter::default());
        assert_eq!((ids(&sessions), id(next.as_ref())), (vec!["a"], Some("a")));
    }

    #[test]
    fn what_else_is_asked_for_leaves_out_sessions_and_never_the_end_of_the_page() {
        let class = rota_model::ClassName::parse("other").ok();
        let (sessions, next) =
            fitting(gathered(&["a", "b"], 1), &Filter { class, ..Filter::default() });
        assert_eq!((ids(&sessions), id(next.as_ref())), (vec![], Some("b")));
    }

    #[test]
    fn a_namespace_that_is_off_is_told_as_to_every_list() {
        let off = Refusal::new(RefusalKind::NamespaceOff, Retry::WhenChanged, "Back at noon");
        let told = refusal(Failure::from(off));
        assert_eq!((told.kind, told.message.as_str()), (RefusalKind::NamespaceOff, "Back at noon"));
    }

    #[test]
    fn a_session_that_went_meanwhile_shifts_no_other_one() {
        let mut gathered = gathered(&["a", "b", "c"], 1);
        gathered.sessions.remove(1);
        let (sessions, _) = fitting(gathered, &Filter::default());
        assert_eq!(ids(&sessions), ["a", "c"]);
    }
}
