//! The operations that every manager knows, on a store that stands alone.

use proptest::prelude::*;
use rota_docstore::space::SPACE_CLASS;
use rota_docstore::*;
use rota_protocol::operate::AdminKey;
use rota_protocol::operate::{operations, schema};
use serde_json::{Value, json};
use std::sync::Arc;

struct Bench {
    store: Store,
    rules: Rules,
    ms: u64,
}

fn rules() -> Rules {
    Rules::new(schema())
}

fn at(ms: u64) -> Stamp {
    Stamp::parse(260_101_000_000_000).unwrap().plus_ms(ms)
}

fn name(class: &str, docid: &str) -> DocName {
    DocName::new(&Namespace::parse("shop").unwrap(), class, docid).unwrap()
}

fn request(space: &str, operation: &str, parameters: &Value) -> Request {
    let space = Namespace::parse(space).unwrap();
    let request = Request::new(space, operation).with(parameters).unwrap();
    // Without a name, no repetition is known as one.
    Request { who: Credentials { account: "ann".into(), ..Credentials::default() }, ..request }
}

impl Bench {
    fn new() -> Self {
        Self { store: Store::default(), rules: rules(), ms: 0 }
    }

    fn perform(&mut self, request: Request) -> Result<Answer, Exception> {
        self.ms += 1_000;
        self.store.perform(&operations(), &self.rules, request, at(self.ms))
    }

    fn run(&mut self, operation: &str, parameters: Value) -> Result<Answer, Exception> {
        self.perform(request("shop", operation, &parameters))
    }

    fn refused(&mut self, operation: &str, parameters: Value) -> String {
        self.run(operation, parameters).unwrap_err().to_string()
    }

    fn version(&self, class: &str, docid: &str) -> Option<Stamp> {
        self.store.peek(&name(class, docid)).filter(|it| !it.is_deleted()).map(|it| it.version())
    }
}

fn body(answer: &Answer) -> Value {
    match &answer.body {
        Body::Json(text) => text.read().unwrap(),
        Body::Nothing | Body::Binary { .. } => Value::Null,
    }
}

fn ensure(docid: &str) -> Value {
    let put = json!([{"class": "Ln", "key": "1", "json": {"n": 1}}]);
    json!({"changes": [{"class": "Cart", "docid": docid, "life": "ensure", "put": put}]})
}

#[test]
fn a_document_of_any_class_is_written_and_read() {
    let mut bench = Bench::new();
    let put = json!([
        {"class": "Ln", "key": "1", "json": {"n": 1}},
        {"class": "Note", "raw": "aGVsbG8="},
    ]);
    let change = json!({"class": "Cart", "docid": "c", "life": "create", "put": put});
    let answer = bench.run("document.write", json!({"changes": [change]})).unwrap();
    let changed = json!({"class": "Cart", "docid": "c", "existed": false});
    assert_eq!(body(&answer), json!({"documents": [changed]}));
    let reading = json!({"documents": [{"class": "Cart", "docid": "c"}]});
    let read = body(&bench.run("document.read", reading).unwrap());
    let document = &read["documents"][0];
    assert_eq!(document["version"], json!(answer.version.as_u64()));
    let items = json!([
        {"class": "Ln", "key": "1", "json": {"n": 1}},
        {"class": "Note", "raw": "aGVsbG8="},
    ]);
    assert_eq!(document["items"], items);
    let remove = json!({"class": "Cart", "docid": "c", "remove": [{"class": "Note"}]});
    bench.run("document.write", json!({"changes": [remove]})).unwrap();
    assert!(bench.store.peek(&name("Cart", "c")).unwrap().content("Note", None).is_none());
}

#[test]
fn a_write_whose_expectation_does_not_hold_changes_nothing() {
    let mut bench = Bench::new();
    let version = bench.run("document.write", ensure("c")).unwrap().version;
    let change = |expect: Value| json!({"changes": [{"class": "Cart", "docid": "c", "expect": expect, "touch": true}]});
    let wrong = bench.refused("document.write", change(json!({"version": at(7).as_u64()})));
    let text = format!("version of shop/Cart/c is {version}, not {}", at(7));
    assert_eq!(wrong, format!("A-EXPECTED: {text}"));
    assert_eq!(bench.version("Cart", "c"), Some(version));
    let right = change(json!({"version": version.as_u64(), "ctime": version.as_u64()}));
    assert!(bench.run("document.write", right).unwrap().version > version);
    let create = json!({"changes": [{"class": "Cart", "docid": "c", "life": "create"}]});
    assert!(bench.refused("document.write", create).starts_with("A-EXISTS"));
    let keep = json!({"changes": [{"class": "Cart", "docid": "other"}]});
    assert!(bench.refused("document.write", keep).starts_with("N-DOCUMENT"));
}

#[test]
fn a_repeated_operation_time_gives_the_same_answer_and_one_version() {
    let mut bench = Bench::new();
    let mut asked = request("shop", "document.write", &ensure("c"));
    asked.operation_time = Some(at(500));
    let first = bench.perform(asked.clone()).unwrap();
    bench.run("document.touch", json!({"class": "Cart", "docid": "c"})).unwrap();
    let touched = bench.version("Cart", "c");
    let again = bench.perform(asked).unwrap();
    assert_eq!((again.version, &again.body), (first.version, &first.body));
    assert_eq!(bench.version("Cart", "c"), touched);
}

#[test]
fn two_clients_without_a_name_that_expect_the_same_version_do_not_both_succeed() {
    let mut bench = Bench::new();
    let version = bench.run("document.write", ensure("c")).unwrap().version;
    let expect = json!({"version": version.as_u64()});
    let put = json!([{"class": "N", "key": "", "json": 1}]);
    let change = json!({"class": "Cart", "docid": "c", "expect": expect, "put": put});
    let asked = request("shop", "document.write", &json!({"changes": [change]}));
    // In one millisecond, by their own clocks.
    let asked = Request { operation_time: Some(at(500)), who: Credentials::default(), ..asked };
    let named = |id: &str| Request { request_id: RequestId::parse(id).ok(), ..asked.clone() };
    for (one, other) in [(asked.clone(), asked.clone()), (named("one"), named("other"))] {
        let mut bench = Bench { store: bench.store.clone(), ..Bench::new() };
        let first = bench.perform(one.clone()).unwrap();
        let refused = bench.perform(other).unwrap_err();
        assert_eq!(refused.code().as_str(), "A-EXPECTED");
        if one.is_repeatable() {
            assert_eq!(bench.perform(one).unwrap(), first, "the first one again");
        }
    }
}

#[test]
fn a_repeated_end_of_a_life_does_not_end_the_next_one() {
    let mut bench = Bench::new();
    let mut begun = request("shop", "document.write", &ensure("c"));
    begun.operation_time = Some(at(400));
    let first = bench.perform(begun.clone()).unwrap();
    let change = json!({"class": "Cart", "docid": "c", "life": "destroy"});
    let mut ended = request("shop", "document.write", &json!({"changes": [change]}));
    ended.operation_time = Some(at(500));
    let end = bench.perform(ended.clone()).unwrap();
    assert_eq!(body(&end)["documents"][0]["existed"], json!(true));
    assert_eq!(bench.version("Cart", "c"), None);
    // The write is remembered, although the document is gone that remembered it.
    assert_eq!(bench.perform(begun).unwrap().version, first.version);
    assert_eq!(bench.version("Cart", "c"), None);
    let next = bench.run("document.write", ensure("c")).unwrap();
    let again = bench.perform(ended).unwrap();
    assert_eq!((again.version, body(&again)), (end.version, body(&end)));
    assert_eq!(bench.version("Cart", "c"), Some(next.version));
}

fn with_operation_time(operation: &str, parameters: &Value, operation_time: u64) -> Request {
    Request { operation_time: Some(at(operation_time)), ..request("shop", operation, parameters) }
}

fn lives(changes: &[(&str, &str)]) -> Value {
    let change =
        |(life, docid): &(&str, &str)| json!({"class": "Cart", "docid": docid, "life": life});
    json!({"changes": changes.iter().map(change).collect::<Vec<_>>()})
}

#[test]
fn a_repeated_touch_begins_no_life_after_the_one_that_it_touched() {
    let mut bench = Bench::new();
    let touch = with_operation_time("document.touch", &json!({"class": "Cart", "docid": "c"}), 500);
    let first = bench.perform(touch.clone()).unwrap();
    bench.run("document.write", lives(&[("destroy", "c")])).unwrap();
    assert_eq!(bench.perform(touch).unwrap(), first);
    assert_eq!(bench.version("Cart", "c"), None);
}

#[test]
fn a_repeated_write_is_known_after_the_life_ended_that_remembered_it() {
    let mut bench = Bench::new();
    bench.run("document.write", lives(&[("create", "{g}a")])).unwrap();
    let change = with_operation_time(
        "document.write",
        &lives(&[("destroy", "{g}a"), ("ensure", "{g}b")]),
        500,
    );
    let first = bench.perform(change.clone()).unwrap();
    bench.run("document.write", lives(&[("destroy", "{g}b")])).unwrap();
    let anew = bench.run("document.write", lives(&[("create", "{g}a")])).unwrap();
    assert_eq!(bench.perform(change).unwrap(), first);
    assert_eq!(bench.version("Cart", "{g}a"), Some(anew.version), "it was destroyed again");
    assert_eq!(bench.version("Cart", "{g}b"), None, "it was created again");
}

#[test]
fn a_write_that_ends_what_it_began_leaves_nothing_also_when_it_is_remembered() {
    let mut bench = Bench::new();
    let both =
        with_operation_time("document.write", &lives(&[("ensure", "c"), ("destroy", "c")]), 500);
    let first = bench.perform(both.clone()).unwrap();
    assert_eq!(bench.version("Cart", "c"), None);
    bench.run("document.write", lives(&[("create", "c")])).unwrap();
    assert_eq!(bench.perform(both).unwrap(), first);
    assert!(bench.version("Cart", "c").is_some());
}

#[test]
fn as_many_changes_as_are_allowed_are_remembered_too() {
    let mut bench = Bench::new();
    let docids: Vec<String> = (0..16).map(|it| format!("{{g}}{it}")).collect();
    let all = |life| docids.iter().map(|it| (life, it.as_str())).collect::<Vec<_>>();
    let created =
        bench.perform(with_operation_time("document.write", &lives(&all("create")), 100)).unwrap();
    for (n, docid) in (101..).zip(&docids) {
        let touch = json!({"class": "Cart", "docid": docid});
        bench.perform(with_operation_time("document.touch", &touch, n)).unwrap();
    }
    let mut most = all("destroy");
    most[15].0 = "keep";
    for (n, changes) in [(200, most), (201, all("ensure")), (202, all("destroy"))] {
        let asked = with_operation_time("document.write", &lives(&changes), n);
        let first = bench.perform(asked.clone()).unwrap();
        assert_eq!(bench.perform(asked).unwrap(), first);
    }
    let again =
        bench.perform(with_operation_time("document.write", &lives(&all("create")), 100)).unwrap();
    assert_eq!(again, created);
}

#[test]
fn items_that_came_and_went_are_in_nobodys_way() {
    let mut bench = Bench::new();
    let keys = || (0..16_380).map(|it: u32| it.to_string());
    let put: Vec<Value> = keys().map(|key| json!({"class": "I", "key": key, "json": 1})).collect();
    let remove: Vec<Value> = keys().map(|key| json!({"class": "I", "key": key})).collect();
    let cart = |changes: Value| {
        let mut change = json!({"class": "Cart", "docid": "c", "life": "ensure"});
        change.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        json!({"changes": [change]})
    };
    bench.run("document.write", cart(json!({"put": put}))).unwrap();
    bench.run("document.write", cart(json!({"remove": remove}))).unwrap();
    let touch = json!({"class": "Cart", "docid": "c"});
    for n in 0..10 {
        bench.perform(with_operation_time("document.touch", &touch, n)).unwrap();
    }
    let document = bench.store.peek(&name("Cart", "c")).unwrap();
    assert_eq!((document.items().len(), document.dtime()), (16_380, document.ctime()));
}

/// One of the operations that anybody may ask for, on two documents.
fn any_request() -> impl Strategy<Value = (&'static str, Value)> {
    let docid = || prop_oneof![Just("{g}a"), Just("{g}b")];
    let life = prop_oneof![Just("ensure"), Just("destroy")];
    let write =
        prop::collection::vec((life, docid()), 1..4).prop_map(|it| ("document.write", lives(&it)));
    let touch = docid().prop_map(|it| ("document.touch", json!({"class": "Cart", "docid": it})));
    prop_oneof![3 => write, 1 => touch]
}

proptest! {
    #[test]
    fn whatever_was_asked_for_since_a_repetition_changes_nothing_and_gets_the_same(
        asked in prop::collection::vec(any_request(), 1..12)
    ) {
        let mut bench = Bench::new();
        let mut answered = Vec::new();
        for (n, (operation, parameters)) in (1..).zip(&asked) {
            let asked = with_operation_time(operation, parameters, n);
            answered.push((asked.clone(), bench.perform(asked).unwrap()));
        }
        let state = bench.store.clone();
        for (asked, answer) in answered {
            prop_assert_eq!(bench.perform(asked).unwrap(), answer);
        }
        prop_assert!(bench.store == state);
    }
}

#[test]
fn classes_with_a_meaning_of_their_own_are_not_written() {
    let mut bench = Bench::new();
    for class in ["session", "orders", "stable-number", "Pool", "Space", "Web", "H"] {
        let change = json!({"class": class, "docid": "x", "life": "ensure"});
        let refusal = bench.refused("document.write", json!({"changes": [change]}));
        assert!(refusal.starts_with("S-CLASS: class ") && refusal.contains(class), "{refusal}");
        let touch = bench.refused("document.touch", json!({"class": class, "docid": "x"}));
        assert!(touch.starts_with("S-CLASS"), "{touch}");
    }
    let put = json!([{"class": "H", "key": "k", "json": 1}]);
    let change = json!({"class": "Cart", "docid": "x", "life": "ensure", "put": put});
    let refusal = bench.refused("document.write", json!({"changes": [change]}));
    assert!(refusal.starts_with("A-INVALID: changes[0].put[0].class"), "{refusal}");
    let reading = json!({"documents": [{"class": "session", "docid": "x"}]});
    assert_eq!(
        body(&bench.run("document.read", reading).unwrap())["documents"][0]["exists"],
        false
    );
}

/// An application's own operation that tries to change a session.
struct Meddle;

impl Operation for Meddle {
    const NAME: &'static str = "meddle";
    type Parameters = Value;
    fn new(_: Value) -> Result<Self, Exception> {
        Ok(Self)
    }
    fn work(&mut self, bench: &mut Transaction<'_>) -> Result<(), Exception> {
        let name = bench.name("session", "x")?;
        bench.current(&name)?.ensure();
        Ok(())
    }
}

#[test]
fn no_operation_changes_a_session() {
    let mut store = Store::default();
    let operations = operations().with::<Meddle>();
    let asked = request("shop", "meddle", &json!({}));
    let exception = store.perform(&operations, &rules(), asked, at(1)).unwrap_err();
    assert_eq!((exception.code(), exception.phase()), (&codes::CLASS, Phase::Validation));
    assert!(exception.to_string().contains("shop/session/x"), "{exception}");
    assert!(store.is_empty());
}

#[test]
fn every_mistake_in_the_parameters_names_its_place() {
    let mut bench = Bench::new();
    let cases = [
        (json!({"changes": []}), "changes are 0; there must be 1 to 16"),
        (json!({"changes": [{"class": "C", "docid": ""}]}), "changes[0].docid must not be empty"),
        (
            json!({"changes": [{"class": "C", "docid": "d", "life": "destroy", "touch": true}]}),
            "changes[0].life is destroy, which goes with no other change",
        ),
        (
            json!({"changes": [{"class": "C", "docid": "d", "put": [{"class": "I"}]}]}),
            "changes[0].put[0].content must be exactly one of json (not null), raw and attachment",
        ),
        (
            json!({"changes": [{"class": "C", "docid": "d", "put": [{"class": "I", "raw": "!"}]}]}),
            "changes[0].put[0].raw is not base64",
        ),
        (json!({"changes": 1}), "parameters do not fit operation document.write"),
        (json!({"x": 1}), "parameters do not fit operation document.write"),
    ];
    for (parameters, text) in cases {
        let refusal = bench.refused("document.write", parameters);
        assert!(refusal.contains(text), "{refusal}");
    }
}

#[test]
fn an_old_build_and_a_wrong_key_are_refused_before_any_work() {
    let mut bench = Bench::new();
    bench.rules.build = 5;
    bench.rules.checker = Arc::new(AdminKey::new("secret"));
    let mut old = request("shop", "document.write", &ensure("c"));
    old.build = Some(4);
    let exception = bench.perform(old.clone()).unwrap_err();
    assert_eq!((exception.code(), exception.phase()), (&codes::BUILD, Phase::Before));
    old.build = Some(5);
    assert!(bench.perform(old).is_ok());
    let describe = request("z", "namespace.put", &json!({"name": "shop", "create": true}));
    let exception = bench.perform(describe.clone()).unwrap_err();
    assert_eq!((exception.code(), exception.phase()), (&codes::REFUSED, Phase::Before));
    let mut wrong = describe.clone();
    wrong.who.admin = "Secret".to_owned();
    assert_eq!(bench.perform(wrong).unwrap_err().letter(), Letter::S);
    let mut right = describe;
    right.who.admin = "secret".to_owned();
    assert!(bench.perform(right).is_ok());
    let stranger = bench.perform(request("z", "document.write", &ensure("c"))).unwrap_err();
    assert_eq!((stranger.code(), stranger.phase()), (&codes::REFUSED, Phase::Before));
}

#[test]
fn a_namespace_is_described_switched_and_removed_in_the_one_for_configuration() {
    let mut bench = Bench::new();
    let create =
        json!({"name": "shop", "create": true, "description": "Carts", "limits": {"documents": 1}});
    assert!(bench.refused("namespace.put", create.clone()).starts_with("S-SPACE"));
    let mut in_z = |operation: &str, parameters: Value| {
        bench.perform(request("z", operation, &parameters)).map(|it| body(&it))
    };
    let refusal = in_z("namespace.switch", json!({"name": "shop"})).unwrap_err();
    assert_eq!(*refusal.code(), codes::NAMESPACE);
    in_z("namespace.put", create.clone()).unwrap();
    in_z("namespace.put", create).unwrap();
    let other = json!({"name": "shop", "create": true});
    assert_eq!(*in_z("namespace.put", other).unwrap_err().code(), codes::EXISTS);
    let refusal = in_z("namespace.remove", json!({"name": "shop"})).unwrap_err();
    assert_eq!(refusal.code().as_str(), "A-ON");
    in_z("namespace.switch", json!({"name": "shop", "off": "Back at noon"})).unwrap();
    // What is not named stays off, and has no limits any more.
    in_z("namespace.put", json!({"name": "shop"})).unwrap();
    let refusal = bench.refused("document.write", ensure("a"));
    assert_eq!(refusal, "O-OFF: namespace shop is off: Back at noon");
    let mut in_z = |operation: &str, parameters: Value| {
        bench.perform(request("z", operation, &parameters)).map(|it| body(&it))
    };
    let z = in_z("namespace.put", json!({"name": "z", "create": true})).unwrap_err();
    assert_eq!(z.details().fields[0].field, "name");
    assert_eq!(in_z("namespace.remove", json!({"name": "shop"})), Ok(json!({"existed": true})));
    assert_eq!(in_z("namespace.remove", json!({"name": "shop"})), Ok(json!({"existed": false})));
    let description = DocName::new(&Namespace::parse("z").unwrap(), SPACE_CLASS, "shop").unwrap();
    assert!(bench.store.peek(&description).unwrap().is_deleted());
}

#[test]
fn what_is_given_of_a_namespace_is_changed_and_the_rest_stays() {
    let mut bench = Bench::new();
    let set = |bench: &mut Bench, parameters: Value| {
        bench.ms += 1;
        bench.perform(request("z", "namespace.set", &parameters)).map(|_| ())
    };
    let described = |bench: &Bench| {
        let name = DocName::new(&Namespace::parse("z").unwrap(), SPACE_CLASS, "shop").unwrap();
        serde_json::to_value(bench.store.peek(&name).unwrap().one::<Description>().unwrap())
            .unwrap()
    };
    let refusal = set(&mut bench, json!({"name": "shop", "description": "Carts"})).unwrap_err();
    assert_eq!(*refusal.code(), codes::NAMESPACE);
    let limits = json!({"documents": 1, "item_bytes": 9_000, "attachment_bytes": null});
    let create = json!({"name": "shop", "create": true, "description": "Carts",
        "limits": limits, "readers": ["a", "b"]});
    bench.perform(request("z", "namespace.put", &create)).unwrap();
    let off = json!({"name": "shop", "off": "Back at noon"});
    bench.perform(request("z", "namespace.switch", &off)).unwrap();
    let change = json!({"name": "shop", "limits": {"documents": null, "attachment_bytes": 7},
        "add_readers": ["c", "a"], "remove_readers": ["b", "x"]});
    set(&mut bench, change.clone()).unwrap();
    let expected = json!({"description": "Carts", "off": "Back at noon",
        "limits": {"documents": null, "item_bytes": 9_000, "attachment_bytes": 7}, "readers": ["a", "c"]});
    assert_eq!(described(&bench), expected);
    set(&mut bench, change).unwrap();
    assert_eq!(described(&bench), expected, "it may be repeated");
    let many: Vec<_> = (0..63).map(|it| json!(format!("n{it}"))).collect();
    let refusal = set(&mut bench, json!({"name": "shop", "add_readers": many})).unwrap_err();
    assert_eq!((refusal.code(), &*refusal.details().fields[0].field), (&codes::LIMIT, "readers"));
    assert_eq!(described(&bench), expected, "nothing is half done");
    let unknown = set(&mut bench, json!({"name": "shop", "limits": {"v3": 1}})).unwrap_err();
    assert!(unknown.to_string().contains("v3"), "{unknown}");
}

#[test]
fn a_web_resource_is_put_and_removed() {
    let mut bench = Bench::new();
    let put = json!({"path": "logo.svg", "mime": "image/svg+xml", "body": "PHN2Zy8+"});
    bench.perform(request("z", "web.put", &put)).unwrap();
    let z = Namespace::parse("z").unwrap();
    let document = bench.store.peek(&DocName::new(&z, "Web", "logo.svg").unwrap()).unwrap();
    assert_eq!(document.content("Body", None), Some(&Content::raw(*b"<svg/>").unwrap()));
    let mime = json!({"path": "x", "mime": "a\nb", "body": ""});
    assert!(bench.perform(request("z", "web.put", &mime)).is_err());
    let removed = bench.perform(request("z", "web.remove", &json!({"path": "logo.svg"}))).unwrap();
    assert_eq!(body(&removed), json!({"existed": true}));
}

#[test]
fn administration_with_a_operation_time_is_done_once_and_answers_the_same_again() {
    let mut bench = Bench::new();
    let mut in_z = |operation: &str, parameters: Value, operation_time: Option<Stamp>| {
        bench.ms += 1;
        let mut asked = request("z", operation, &parameters);
        asked.operation_time = operation_time;
        let answer = bench.perform(asked).unwrap();
        (answer.version, body(&answer))
    };
    let shop = json!({"name": "shop"});
    let create = json!({"name": "shop", "create": true});
    let off = json!({"name": "shop", "off": ""});
    let logo = json!({"path": "logo.svg"});
    let put = json!({"path": "logo.svg", "mime": "image/svg+xml", "body": "PHN2Zy8+"});
    let newer = json!({"path": "logo.svg", "mime": "image/svg+xml", "body": "PHN2Zz4="});
    let operation_time = |n: u64| Some(at(n));
    // Each later change must not be undone by the repetition of an earlier one.
    let created = in_z("namespace.put", create.clone(), operation_time(1));
    in_z("namespace.switch", off.clone(), operation_time(2));
    let removed = in_z("namespace.remove", shop.clone(), operation_time(3));
    assert_eq!(removed.1, json!({"existed": true}));
    assert_eq!(in_z("namespace.put", create.clone(), operation_time(1)), created);
    in_z("namespace.put", create, None);
    in_z("namespace.switch", off, None);
    assert_eq!(
        in_z("namespace.remove", shop.clone(), operation_time(3)),
        removed,
        "it is another one"
    );
    assert_eq!(in_z("namespace.remove", shop.clone(), None).1, json!({"existed": true}));
    assert_eq!(in_z("namespace.remove", shop, operation_time(3)), removed);
    // What was described so already is remembered like what was not.
    let other = json!({"name": "inn", "create": true});
    in_z("namespace.put", other.clone(), None);
    let found = in_z("namespace.put", other.clone(), operation_time(6));
    in_z("namespace.put", json!({"name": "inn", "description": "Rooms"}), None);
    assert_eq!(in_z("namespace.put", other, operation_time(6)), found);
    let published = in_z("web.put", put.clone(), operation_time(4));
    in_z("web.put", newer, None);
    assert_eq!(in_z("web.put", put.clone(), operation_time(4)), published);
    let withdrawn = in_z("web.remove", logo.clone(), operation_time(5));
    assert_eq!(withdrawn.1, json!({"existed": true}));
    assert_eq!(in_z("web.put", put.clone(), operation_time(4)), published);
    assert_eq!(in_z("web.remove", logo.clone(), operation_time(5)), withdrawn);
    in_z("web.put", put, None);
    assert_eq!(in_z("web.remove", logo, operation_time(5)), withdrawn);
    let name = DocName::new(&Namespace::parse("z").unwrap(), "Web", "logo.svg").unwrap();
    assert!(!bench.store.peek(&name).unwrap().is_deleted());
}
