//! What tests of life cycles ask, and what nodes are asked for them.

use super::*;
use rota_lifecycle::{Edit, LifeItem, Managed};
use rota_messages::lives::{Life, UpdateOp};
use rota_model::node_msg::{Action, ActionEnd, NodeAnswer};
use rota_protocol::{LivesAnswer, LivesOp};
use rota_tasks::Patience;

/// An action that may be retried so often.
pub fn action(retries: u32) -> Handler {
    Handler::Action { events: Default::default(), retries, timeout_ms: 5_000 }
}

/// Three managers, and a node with class `builtin`: `note` and `mark` are only marked, `bill` and `ship` act.
pub fn laid_for_lives() -> Table {
    laid_for_lives_with(Table::laid().places)
}

/// The same with a node of so many places.
pub fn laid_for_lives_with(places: u32) -> Table {
    let mut table = Table::laid();
    table.places = places;
    table.tasks.patience = Patience { first_ms: 1_000, most_ms: 2_000, retries: 9 };
    table.start_all();
    register_for_lives(&mut table, "n1", 100);
    table.pass(1_500);
    table
}

/// A node boots with that class.
pub fn register_for_lives(table: &mut Table, node: &str, boot: u64) {
    let cycles = [
        ("note", Handler::Mark),
        ("mark", Handler::Mark),
        ("bill", action(2)),
        ("ship", action(2)),
    ];
    register_with_cycles(table, (node, boot), cycles);
}

/// A node says that its class `builtin` has those life cycles.
pub fn register_with_cycles<const N: usize>(
    table: &mut Table,
    (node, boot): (&str, u64),
    cycles: [(&str, Handler); N],
) {
    let life_cycles = cycles.into_iter().map(|(name, it)| (name.to_owned(), it)).collect();
    let life = Box::new(LifeFacts { life_cycles, ..LifeFacts::default() });
    let facts = ClassFacts { life, ..ClassFacts::default() };
    table.register_with_facts(node, boot, table.places, facts);
}

/// A time of the table, as a stamp.
pub fn at(table: &Table, after_ms: u64) -> Stamp {
    Stamp::from_epoch_ms(table.now().wall_ms + after_ms)
}

/// An open with life-cycle items.
pub fn with_life(id: &str, request: &str, items: &[String]) -> Op {
    let mut asked = open(id, request);
    if let Op::Open(open) = &mut asked {
        let managed_state = items.iter().cloned().collect();
        open.spec.life = Some(Arc::new(LifeOptions { managed_state, ..LifeOptions::default() }));
    }
    asked
}

/// An item by its text.
pub fn item(text: &str) -> LifeItem {
    LifeItem::parse(text).expect("it is an item")
}

/// A change of nothing.
pub fn update(id: &str) -> UpdateOp {
    UpdateOp {
        key: key(id),
        life: None,
        if_version: None,
        attributes: BTreeMap::new(),
        edit: Arc::default(),
        skip: Vec::new(),
        retry: Vec::new(),
        ran: None,
    }
}

/// A change that adds an item.
pub fn adding(id: &str, text: &str) -> Op {
    let edit = Arc::new(Edit::adding(vec![item(text)]));
    Op::Lives(LivesOp::Update(Box::new(UpdateOp { edit, ..update(id) })))
}

/// A change that removes an item.
pub fn removing(id: &str, text: &str) -> Op {
    let edit = Arc::new(Edit { remove: vec![item(text)], ..Edit::default() });
    Op::Lives(LivesOp::Update(Box::new(UpdateOp { edit, ..update(id) })))
}

/// How a session lives, by an answer.
pub fn life_of(result: OpResult) -> Life {
    match result {
        Ok(Answer::Lives(LivesAnswer::Life(life))) => *life,
        other => panic!("not how a session lives: {other:?}"),
    }
}

/// Asks the owner of a session.
pub fn asks(table: &mut Table, id: &str, op: Op) -> OpResult {
    let owner = table.owner(id);
    let call = table.ask(owner, op);
    table.wait_for(call, 5_000)
}

/// How a session lives.
pub fn shown(table: &mut Table, id: &str) -> Life {
    life_of(asks(table, id, Op::Lives(LivesOp::Show(key(id)))))
}

/// Its life cycles.
pub fn managed(table: &mut Table, id: &str) -> Arc<Managed> {
    shown(table, id).managed
}

/// What has fired and is over, oldest first.
pub fn history(managed: &Managed) -> Vec<String> {
    let fired = managed.history().iter().filter(|it| it.fired.is_some());
    fired.map(|it| it.item.life_cycle().to_string()).collect()
}

/// The actions that nodes were asked for since the last look: by whom, the call, and which.
pub fn actions(table: &mut Table) -> Vec<(u32, u64, Action)> {
    let calls = std::mem::take(&mut table.node_calls);
    let of = |(owner, call): (u32, ToNode)| match call {
        ToNode::Act { head, action, .. } => Some((owner, head.call, *action)),
        ToNode::Create { .. }
        | ToNode::Destroy { .. }
        | ToNode::Scan { .. }
        | ToNode::Meet { .. } => None,
    };
    calls.into_iter().filter_map(of).collect()
}

/// Nodes answer nothing by themselves from now on: waits for the next action that one is asked for.
pub fn next_action(table: &mut Table, within_ms: u64) -> (u32, u64, Action) {
    let until_ms = table.now_ms + within_ms;
    loop {
        if let Some(found) = actions(table).pop() {
            return found;
        }
        assert!(table.now_ms < until_ms, "no node is asked for an action");
        table.pass(20);
    }
}

/// A node says how an action ended.
pub fn ends(table: &mut Table, (owner, call): (u32, u64), end: ActionEnd) {
    table.node_says(owner, "n1", call, NodeAnswer::Acted { end });
    table.pass(200);
}

/// It succeeded, and printed that.
pub fn done(output: &str) -> ActionEnd {
    ActionEnd::Done { output: output.to_owned() }
}

/// It failed.
pub fn failed(code: &str) -> ActionEnd {
    ActionEnd::Failed { code: code.to_owned(), report: "it said no".to_owned() }
}
