//! Closing the sessions that a filter selects.

use crate::log::at::At;
use crate::ring_tasks::look::{Look, Round};
use crate::ring_tasks::state::{Asking, Of, Order};
use rota_docstore::{Exception, Namespace};
use rota_messages::documents::{SESSION_FIELDS, session_fields};
use rota_messages::{Found, Op};
use rota_model::items::SESSION_CLASS;
use rota_model::{CloseOp, FieldError, RequestId, SessionKey, Stamp};
use rota_search::{DOCID, Filter, Kind, Query, Search, Sort, Wanted};
use rota_tasks::{CloseWork, Run, TaskKey};
use std::collections::VecDeque;
use xxhash_rust::xxh3::xxh3_64;

/// A closing that is under way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Closing {
    task: String,
    /// Sessions that were opened later stay.
    before: Stamp,
    grace_ms: Option<u64>,
    /// The search for the rest; `None`: all were found.
    look: Option<Look>,
    is_asked: bool,
    found: VecDeque<(SessionKey, Stamp)>,
}

impl Closing {
    pub fn new(led: &At<'_>, key: &TaskKey, run: Run, work: &CloseWork) -> Result<Self, Exception> {
        let space: &Namespace = &key.ns;
        let filter = Filter::parse(&work.filter, &session_fields().with(DOCID, Kind::Text))?;
        let query = Query {
            class: SESSION_CLASS.into(),
            item: Some(SESSION_FIELDS.into()),
            space: Some(space.clone()),
            filter,
            sort: Some(Sort { field: DOCID.into(), descending: false }),
            wanted: Wanted::Documents,
            special: None,
        };
        let shapes = led.env.documents_env.searchable.shapes(SESSION_CLASS);
        let before = work.before.unwrap_or(run.start_time);
        let look = Look::of_sessions(Search::new(query, &shapes)?, before);
        Ok(Self {
            task: key.docid.clone(),
            before,
            grace_ms: work.grace_ms,
            look: Some(look),
            is_asked: false,
            found: VecDeque::new(),
        })
    }

    /// What is to be asked next; `room`: so much at most, one look aside.
    pub fn orders(&mut self, led: &At<'_>, room: usize) -> Vec<Order> {
        let mut orders = Vec::new();
        while orders.len() < room
            && let Some((key, life)) = self.found.pop_front()
        {
            let text = format!("{} {key} {life}", self.task);
            let request = format!("task-{:016x}", xxh3_64(text.as_bytes()));
            let request = RequestId::parse(&request).expect("letters, a dash and digits");
            let (life, grace_ms) = (Some(life), self.grace_ms);
            let close = CloseOp { key, life, request, by_operator: true, grace_ms };
            orders.push((Of::Act, Op::Close(close)));
        }
        if orders.is_empty()
            && !self.is_asked
            && let Some(look) = &mut self.look
        {
            self.is_asked = true;
            orders.extend(look.ask(led.env.view()).into_iter().map(|op| (Of::Look(0), op)));
        }
        orders
    }

    /// A partition answered the search.
    pub fn on_found(&mut self, led: &At<'_>, found: Found) -> Result<Asking, FieldError> {
        let view = led.env.view();
        let Some(look) = &mut self.look else { return Ok(Asking::Nothing) };
        match look.take(found, view.m)? {
            Round::Waiting => {}
            Round::Again => {
                let asked = look.ask(view).into_iter().map(|op| (Of::Look(0), op));
                return Ok(Asking::Later(asked.collect()));
            }
            Round::Page(page, sessions) => {
                self.is_asked = false;
                if page.next.is_none() {
                    self.look = None;
                }
                let records = sessions.iter().map(|it| &it.record);
                let live = records.filter(|it| !it.state.is_ended() && it.life <= self.before);
                let inside = live.filter(|record| {
                    page.next
                        .as_ref()
                        .is_none_or(|next| record.key.id.as_str() <= next.place.name.docid())
                });
                self.found.extend(inside.map(|it| (it.key.clone(), it.life)));
            }
        }
        Ok(Asking::Nothing)
    }

    /// Whether nothing is left to ask.
    pub fn is_over(&self) -> bool {
        self.look.is_none() && self.found.is_empty()
    }
}
