//! Copying what changed in a document to all that hold it.

use crate::log::at::At;
use crate::ports::slots::slot_of;
use crate::ring_tasks::look::{Look, Round};
use crate::ring_tasks::state::{Asking, Of, Order};
use rota_docstore::{Content, DocName, Exception, Item, Namespace, codes};
use rota_messages::api::CopyOp;
use rota_messages::{DocKey, DocumentOp, Found, Op};
use rota_model::{FieldError, Stamp};
use rota_search::{Condition, Filter, KEY, Query, Search, Test, Value, Wanted};
use rota_tasks::CopyWork;
use smol_str::SmolStr;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most searches of a copying at a time.
const LOOKS_MAX: usize = 8;

/// So many documents are known before they are written: the rest is looked for after that.
const TARGETS_MAX: usize = 1_000;

/// About how many bytes of contents one document is sent at once; more go separately.
const COPY_BYTES_MAX: u64 = 1024 * 1024;

/// An item, and the class of documents that may hold it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Question {
    class: SmolStr,
    item: Item,
}

/// A copying that is under way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Copying {
    space: Namespace,
    /// How many changes its task knew when it began.
    pub changes: u64,
    questions: Vec<Question>,
    next: usize,
    looks: BTreeMap<usize, Look>,
    /// Looks that go on when what was found is written.
    paused: Vec<usize>,
    /// Documents that hold something, each with the questions that found it.
    targets: BTreeMap<DocName, Vec<usize>>,
}

impl Copying {
    /// What changed since the task was registered, as it is committed here.
    pub fn new(led: &At<'_>, space: &Namespace, work: &CopyWork) -> Result<Self, Exception> {
        let name = DocName::new(space, &work.class, &work.docid)?;
        let key = DocKey::new(slot_of(&name, led.env.view().m), name);
        let document = led.log.replica.docs.get(&key).map(|it| it.glimpse());
        let schema = &led.env.documents_env.schema;
        let mut questions = Vec::new();
        let items = document.iter().flat_map(|it| it.items().iter());
        for item in items.filter(|it| it.version() >= work.from) {
            let Some(rule) = schema.copies(&work.class, item.name().class()) else { continue };
            let (Some(content), Some(version)) = (item.content(), item.item_version()) else {
                continue;
            };
            // A body stays with the document that names it.
            if matches!(content, Content::Attachment(_)) {
                continue;
            }
            let key = rule.key(item.name(), &work.docid);
            let name = rota_docstore::ItemName::keyed(item.name().class(), &key)?;
            let item = Item::existing(name, version, version, content.clone())?;
            let of = |class: &&'static str| Question { class: (*class).into(), item: item.clone() };
            questions.extend(rule.to.iter().map(of));
        }
        Ok(Self {
            space: space.clone(),
            changes: work.changes,
            questions,
            next: 0,
            looks: BTreeMap::new(),
            paused: Vec::new(),
            targets: BTreeMap::new(),
        })
    }

    fn search(&self, led: &At<'_>, question: &Question) -> Result<Search, FieldError> {
        let name = question.item.name();
        let key = Value::text(name.key().unwrap_or_default());
        let condition = Condition { field: KEY.into(), test: Test::Eq(key) };
        let query = Query {
            class: question.class.clone(),
            item: Some(name.class().into()),
            space: Some(self.space.clone()),
            filter: Filter { conditions: vec![condition] },
            sort: None,
            wanted: Wanted::Documents,
            special: None,
        };
        Search::new(query, &led.env.documents_env.searchable.shapes(&question.class))
    }

    /// What is to be asked next; `room`: about so much at most.
    pub fn orders(&mut self, led: &At<'_>, room: usize) -> Result<Vec<Order>, FieldError> {
        let mut orders = Vec::new();
        let now = Stamp::from_epoch_ms(led.env.now.wall_ms);
        if self.targets.is_empty() {
            for number in std::mem::take(&mut self.paused) {
                let Some(look) = self.looks.get_mut(&number) else { continue };
                let asked = look.ask(led.env.view()).into_iter();
                orders.extend(asked.map(|op| (Of::Look(number), op)));
            }
        }
        while self.looks.len() < LOOKS_MAX
            && orders.len() < room
            && self.targets.len() < TARGETS_MAX
            && self.next < self.questions.len()
        {
            let search = self.search(led, &self.questions[self.next])?;
            let mut look = Look::new(search, now);
            orders.extend(look.ask(led.env.view()).into_iter().map(|op| (Of::Look(self.next), op)));
            self.looks.insert(self.next, look);
            self.next += 1;
        }
        let is_found = self.next == self.questions.len() || self.targets.len() >= TARGETS_MAX;
        if self.looks.len() == self.paused.len() && (is_found || !self.paused.is_empty()) {
            while orders.len() < room
                && let Some((name, questions)) = self.targets.pop_first()
            {
                orders.extend(self.copies(&name, &questions));
            }
        }
        Ok(orders)
    }

    /// What one document is told, in as few pieces as fit.
    fn copies(&self, name: &DocName, questions: &[usize]) -> Vec<Order> {
        let mut pieces: Vec<(u64, Vec<Item>)> = Vec::new();
        for question in questions {
            let item = &self.questions[*question].item;
            let bytes = item.content().map_or(0, Content::volume);
            match pieces.last_mut().filter(|it| it.0 + bytes <= COPY_BYTES_MAX) {
                Some(piece) => {
                    piece.0 += bytes;
                    piece.1.push(item.clone());
                }
                None => pieces.push((bytes, vec![item.clone()])),
            }
        }
        let order = |(_, items): (u64, Vec<Item>)| {
            let copy = CopyOp { name: name.clone(), items: Arc::new(items) };
            (Of::Act, Op::Documents(DocumentOp::Copy(copy)))
        };
        pieces.into_iter().map(order).collect()
    }

    /// A partition answered a search.
    pub fn on_found(
        &mut self,
        led: &At<'_>,
        number: usize,
        found: Found,
    ) -> Result<Asking, FieldError> {
        let view = led.env.view();
        let Some(look) = self.looks.get_mut(&number) else { return Ok(Asking::Nothing) };
        let order = |op| (Of::Look(number), op);
        let next = match look.take(found, view.m)? {
            Round::Waiting => return Ok(Asking::Nothing),
            Round::Again => {
                return Ok(Asking::Later(look.ask(view).into_iter().map(order).collect()));
            }
            Round::Page(page, _) => {
                for hit in page.hits {
                    self.targets.entry(hit.at.place.name).or_default().push(number);
                }
                page.next
            }
        };
        if next.is_none() {
            self.looks.remove(&number);
            return Ok(Asking::Nothing);
        }
        if self.targets.len() >= TARGETS_MAX {
            self.paused.push(number);
            return Ok(Asking::Nothing);
        }
        Ok(Asking::Now(look.ask(view).into_iter().map(order).collect()))
    }

    /// Whether nothing is left to ask.
    pub fn is_over(&self) -> bool {
        self.next == self.questions.len() && self.looks.is_empty() && self.targets.is_empty()
    }
}

/// What a task is told whose parameters nobody can read.
pub(crate) fn unread(of: &str) -> Exception {
    Exception::new(codes::STORED, format!("the parameters of {of} cannot be read"))
}
