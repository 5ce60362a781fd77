//! Lists of sessions by conditions as text, and in an order that is asked for: searches of sessions.
//!
//! The page token is that of the search, sealed together with what else the list asks for.

use crate::mistakes::Mistakes;
use crate::position::{TokenKind, open_token, seal_token};
use crate::v1;
use prost::Message;
use rota_messages::documents::{SESSION_FIELDS, session_fields, with_session_fields};
use rota_model::items::SESSION_CLASS;
use rota_model::{FieldError, Filter, Refusal};
use rota_search::{Position, Query, Search, Shapes, Sort, Wanted};
use std::sync::LazyLock;

/// The names of its fields.
const WHERE: &str = "where";
const SORT: &str = "sort";

/// What is indexed of sessions.
static SHAPES: LazyLock<Shapes> = LazyLock::new(|| with_session_fields(Shapes::default()));

/// A list of sessions that is a search, checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionSearch {
    /// What is searched.
    pub search: Search,
    /// Behind this place.
    pub after: Option<Position>,
    /// Most sessions of a page.
    pub limit: u32,
    /// What must hold of the sessions beside: its namespace stands in the search as well.
    pub filter: Filter,
}

impl SessionSearch {
    /// The token of the page behind a place.
    pub fn token(&self, after: &Position) -> String {
        let token = self.search.token(after);
        seal_token(TokenKind::SessionSearch, token.as_bytes(), &sealed_with(&self.filter))
    }
}

fn sealed_with(filter: &Filter) -> Vec<u8> {
    v1::FilterOp::from(filter).encode_to_vec()
}

/// Whether a list is a search.
pub fn is_search(request: &v1::ListRequest) -> bool {
    !request.r#where.is_empty() || !request.sort.is_empty() || request.descending
}

impl Mistakes {
    /// Conditions on sessions.
    pub(crate) fn selected(&mut self, text: &str) -> Option<rota_search::Filter> {
        let fields = session_fields().with(rota_search::DOCID, rota_search::Kind::Text);
        self.note_in(WHERE, rota_search::Filter::parse(text, &fields))
    }
}

/// Checks a list that [`is_search`].
///
/// # Errors
/// Every wrong field: `where` with the column, `sort`, `descending`, `stale_ok`, `page_token` and those of other lists.
pub fn list(request: v1::ListRequest) -> Result<SessionSearch, Refusal> {
    let mut mistakes = Mistakes::default();
    let limit = mistakes.page_size(request.page_size);
    let filter = mistakes.filter(request.filter);
    let selected = mistakes.selected(&request.r#where);
    let sort = (!request.sort.is_empty())
        .then(|| Sort { field: request.sort.as_str().into(), descending: request.descending });
    if sort.is_none() && request.descending {
        let problem = "goes with sort: without it there is nothing to turn round";
        mistakes.note::<()>(Err(FieldError::new("descending", problem)));
    }
    if request.stale_ok {
        let problem = "does not go with where or sort: what they find is always confirmed";
        mistakes.note::<()>(Err(FieldError::new("stale_ok", problem)));
    }
    let search = (|| {
        let query = Query {
            class: SESSION_CLASS.into(),
            item: Some(SESSION_FIELDS.into()),
            space: filter.as_ref()?.namespace.clone(),
            filter: selected?,
            sort,
            wanted: Wanted::Documents,
            special: None,
        };
        mistakes.note(Search::new(query, &SHAPES).map_err(by_request))
    })();
    let after = match (&search, &filter) {
        _ if request.page_token.is_empty() => Some(None),
        (Some(search), Some(filter)) => {
            mistakes.note(place_of(search, filter, &request.page_token)).map(Some)
        }
        // A token can only be judged beside what is searched.
        (None, _) | (_, None) => None,
    };
    let asked = (|| {
        let (search, after, limit, filter) = (search?, after?, limit?, filter?);
        Some(SessionSearch { search, after, limit, filter })
    })();
    mistakes.finish(asked)
}

/// A mistake of a search, under the names of a list: what is no field of its own stands in the conditions.
fn by_request(mistake: FieldError) -> FieldError {
    if mistake.field == SORT {
        return mistake;
    }
    FieldError::new(WHERE, format!("{}: {}", mistake.field, mistake.problem))
}

fn place_of(search: &Search, filter: &Filter, token: &str) -> Result<Position, FieldError> {
    let body = open_token(TokenKind::SessionSearch, token, &sealed_with(filter))?;
    let garbled = |_| FieldError::new("page_token", "is garbled, or comes from another list");
    search.position(str::from_utf8(&body).map_err(garbled)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_docstore::{DocName, Namespace};
    use rota_search::Place;

    fn request() -> v1::ListRequest {
        let filter = v1::Filter { class: "room".into(), ..v1::Filter::default() };
        v1::ListRequest {
            filter: Some(filter),
            r#where: "attr.user = \"x\" and state = ready".into(),
            sort: "age".into(),
            ..v1::ListRequest::default()
        }
    }

    fn wrong(request: v1::ListRequest) -> Vec<(String, String)> {
        let refusal = list(request).expect_err("it is wrong");
        refusal.fields.into_iter().map(|it| (it.field, it.problem)).collect()
    }

    #[test]
    fn conditions_or_an_order_make_a_list_a_search() {
        assert!(!is_search(&v1::ListRequest::default()));
        for (r#where, sort, descending) in
            [("age > 1s", "", false), ("", "age", false), ("", "", true)]
        {
            let (r#where, sort) = (r#where.to_owned(), sort.to_owned());
            assert!(is_search(&v1::ListRequest {
                r#where,
                sort,
                descending,
                ..Default::default()
            }));
        }
    }

    #[test]
    fn a_page_token_goes_on_with_the_very_list_that_gave_it() {
        let asked = list(request()).expect("it is well");
        let name = DocName::new(&Namespace::default_space(), SESSION_CLASS, "a").expect("a name");
        let after = Position { value: None, place: Place { name, key: None } };
        let page_token = asked.token(&after);
        let next = v1::ListRequest { page_token: page_token.clone(), ..request() };
        assert_eq!(list(next.clone()).expect("it is well").after, Some(after));
        let others = [
            v1::ListRequest { filter: None, ..next.clone() },
            v1::ListRequest { sort: "node".into(), ..next.clone() },
            v1::ListRequest { descending: true, ..next.clone() },
            v1::ListRequest { r#where: "age > 1s".into(), ..next },
            v1::ListRequest { page_token: "nonsense".into(), ..request() },
        ];
        for other in others {
            let fields: Vec<String> = wrong(other).into_iter().map(|it| it.0).collect();
            assert_eq!(fields, ["page_token"]);
        }
        let plain = v1::ListRequest { page_token, filter: request().filter, ..Default::default() };
        assert!(crate::request::list(plain).is_err());
    }

    #[test]
    fn all_mistakes_are_told_by_their_fields_and_with_their_columns() {
        let filter = v1::Filter { states: vec![99], ..v1::Filter::default() };
        let all = wrong(v1::ListRequest {
            filter: Some(filter),
            r#where: "state = READY or age > 1m".into(),
            sort: String::new(),
            descending: true,
            stale_ok: true,
            page_size: 1_001,
            ..v1::ListRequest::default()
        });
        let fields: Vec<&str> = all.iter().map(|it| it.0.as_str()).collect();
        assert_eq!(fields, ["page_size", "filter.states", "where", "descending", "stale_ok"]);
        assert!(all[2].1.starts_with("column 15: `or` cannot stand here"), "{}", all[2].1);
        let unknown = wrong(v1::ListRequest { sort: "colour".into(), ..request() });
        assert_eq!(unknown[0].0, "sort");
        assert!(unknown[0].1.contains("no known field; there are age"), "{}", unknown[0].1);
    }
}
