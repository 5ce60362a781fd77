//! What callers are told: of a full pool, of an answer that has grown old, of namespaces and of operations.

use rota_client::docstore::{Caller, Exception, Namespace, Phase, Request};
use rota_client::documents::request::{GetBody, Operate};
use rota_client::v1::SessionState;
use rota_client::{CallError, v1};
use rota_model::Changed;
use rota_tests::brief::Brief;
use rota_tests::sessions::{CALL, close, listed, open};
use rota_tests::{
    Cluster, Launched, PATIENCE, TestFolder, classes_of, eventually, http_get, ringctl,
};
use serde_json::{Value, json};
use std::time::Duration;

/// Who finds no room asks again until then.
const SOON: Duration = Duration::from_secs(2);

/// A machine with two states.
const THING: &str = "name = \"thing\"\nkind = \"machine\"\nstates = [\"on\", \"off\"]\ninitial = \"on\"\n\
     final = [\"off\"]\nevents = [\"stop\"]\ntransitions = [{ from = \"on\", event = \"stop\", to = \"off\" }]\n";

fn raised(error: CallError) -> Exception {
    let CallError::Raised { exception, .. } = error else { panic!("no exception: {error:?}") };
    *exception
}

fn refusal(error: &CallError) -> (String, Changed) {
    (error.reason().to_owned(), error.changed())
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_finds_a_full_pool_is_told_that_nothing_changed_and_no_record_stays() {
    let folder = TestFolder::new();
    let small = ["--nodes", "1", "--places", "4", "--max-nodes", "1"];
    let cluster = Cluster::start(&folder, &small).await;
    let managers = cluster.clients();
    // At the same moment through all owners: what one of them gives away the others do not know yet.
    let asked = |turn: usize| v1::OpenRequest {
        request_id: format!("r{turn}"),
        ..open(&format!("seat {turn}"), "counter")
    };
    let opening: Vec<_> = (0..60)
        .map(|turn| {
            let (client, request) = (managers[turn % managers.len()].clone(), asked(turn));
            tokio::spawn(async move { client.open(request, SOON).await })
        })
        .collect();
    for (turn, opened) in opening.into_iter().enumerate() {
        let mut opened = opened.await.unwrap();
        // On a busy machine the owner may have become another one: then nobody knows, and asks again.
        eventually("it is known what became of an open", PATIENCE, async || {
            let told = match &opened {
                Ok(_) => return Ok(()),
                Err(error) => refusal(error),
            };
            if told == ("NO_CAPACITY".to_owned(), Changed::No) {
                return Ok(());
            }
            opened = managers[0].open(asked(turn), SOON).await;
            Err(format!("{told:?}"))
        })
        .await;
    }
    let client = cluster.client();
    eventually("no life is kept that no node took", PATIENCE, async || {
        let all = listed(&client, v1::Filter::default()).await;
        let left: Vec<_> = all.iter().filter(|it| it.state() == SessionState::Failed).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    cluster.end().await;
}

#[tokio::test]
async fn an_old_answer_says_that_its_session_has_ended_since() {
    let folder = TestFolder::new();
    let brief = Brief::start(&folder).await;
    let classes = classes_of(&folder, &[("thing", THING)]);
    let line = brief.agent(&folder, &classes, "node");
    let agent = Launched::start(&folder, "agent", "rota-node-agent", &line).await;
    brief.opened("first", "thing").await;
    let line = ["session", "open", "a", "--class", "thing", "--request-id", "r1"];
    let json = [&line[..], &["-o", "json"]].concat();
    let first = ringctl(brief.endpoint(), &json).await.json();
    assert_eq!(first.get("ended_since"), None, "{first}");
    brief.client.close(close("a"), CALL).await.unwrap();
    let again = ringctl(brief.endpoint(), &json).await.json();
    assert_eq!((&again["ended_since"], &again["life"]), (&json!(true), &first["life"]));
    let shown = ringctl(brief.endpoint(), &line).await.expect_success();
    assert!(
        shown.stderr.contains("that life of session \"a\" has ended since"),
        "{}",
        shown.stderr
    );
    assert_eq!(agent.end().await, Some(0));
    brief.end().await;
}

#[tokio::test]
async fn an_attribute_that_the_class_does_not_use_is_told_to_its_opener() {
    let folder = TestFolder::new();
    let brief = Brief::start(&folder).await;
    let room = "name = \"room\"\nkind = \"program\"\nargv = [\"sh\", \"-c\", \"echo up; exec sleep 60\", \
                \"sh\", \"{attr.size}\"]\nready = { line = \"up\" }\nattributes = { size = \"3\", owner = \"\" }\n";
    let classes = classes_of(&folder, &[("thing", THING), ("room", room)]);
    let line = brief.agent(&folder, &classes, "node");
    let agent = Launched::start(&folder, "agent", "rota-node-agent", &line).await;
    brief.opened("first", "thing").await;
    let told = async |id: &str, class: &str, attributes: &[&str]| {
        let given = attributes.iter().flat_map(|it| ["--attr", it]);
        let line: Vec<&str> =
            ["session", "open", id, "--class", class].into_iter().chain(given).collect();
        ringctl(brief.endpoint(), &line).await.expect_success().stderr
    };
    let odd = told("a", "room", &["sise=4", "owner=ann"]).await;
    assert_eq!(odd, "warning: class room does not use attribute \"sise\"\n");
    let odd = told("b", "thing", &["colour=red"]).await;
    assert_eq!(odd, "warning: class thing does not use attribute \"colour\"\n");
    assert_eq!(told("c", "room", &["size=4", "owner=ann"]).await, "");
    let line = ["session", "open", "d", "--class", "thing", "--attr", "colour=red", "-o", "json"];
    let json = ringctl(brief.endpoint(), &line).await.json();
    assert_eq!(json["detail"], "class thing does not use attribute \"colour\"");
    // What is told of the end stands alone.
    ringctl(brief.endpoint(), &["session", "close", "b"]).await.expect_success();
    let ended = ringctl(brief.endpoint(), &["session", "get", "b", "-o", "json"]).await.json();
    assert_eq!(ended["detail"], Value::from(""), "{ended}");
    assert_eq!(agent.end().await, Some(0));
    brief.end().await;
}

#[tokio::test]
async fn a_namespace_that_is_shown_can_be_switched_off_and_its_sessions_still_be_closed() {
    let folder = TestFolder::new();
    let brief = Brief::start(&folder).await;
    let classes = classes_of(&folder, &[("thing", THING)]);
    let line = brief.agent(&folder, &classes, "node");
    let agent = Launched::start(&folder, "agent", "rota-node-agent", &line).await;
    brief.opened("first", "thing").await;
    for space in ["default", "shop"] {
        let request = v1::OpenRequest { namespace: space.to_owned(), ..open("a", "thing") };
        brief.client.open(request, CALL).await.unwrap();
        let run = async |command: &[&str]| {
            ringctl(brief.endpoint(), &[command, &["-o", "json"]].concat()).await
        };
        run(&["namespace", "show", space]).await.expect_success();
        let off = run(&["namespace", "off", space, "--message", "Back at noon"]).await.json();
        assert_eq!(off["off"], json!("Back at noon"), "{off}");
        let closing = ["session", "close", "a", "--namespace", space];
        let told = eventually("clients are kept out", PATIENCE, async || {
            let ran = run(&closing).await;
            if ran.code == 0 { Err(ran.stdout) } else { Ok(ran.error()) }
        });
        // The namespace is off for all once the order is answered, at the latest some milliseconds later.
        assert_eq!(told.await["reason"], json!("NAMESPACE_OFF"));
        let closed = run(&[&closing[..], &["--although-off"]].concat()).await.json();
        assert_eq!(closed["finished"], json!(true), "{closed}");
        run(&["namespace", "on", space]).await.expect_success();
    }
    let missing = ringctl(brief.endpoint(), &["namespace", "off", "nowhere", "-o", "json"]).await;
    assert_eq!(missing.error()["reason"], json!("N-NAMESPACE"));
    assert_eq!(agent.end().await, Some(0));
    brief.end().await;
}

#[tokio::test]
async fn operations_are_listed_with_their_parameters_and_refusals_say_in_what_they_happened() {
    let folder = TestFolder::new();
    let brief = Brief::start(&folder).await;
    let run = async |command: &[&str]| {
        ringctl(brief.endpoint(), &[command, &["-o", "json"]].concat()).await
    };
    let all = run(&["document", "operations"]).await.json();
    let all = all["operations"].as_array().unwrap().clone();
    let names: Vec<&str> = all.iter().filter_map(|it| it["name"].as_str()).collect();
    assert!(names.contains(&"document.write") && names.contains(&"web.put"), "{names:?}");
    let of = |name: &str| -> Value { all.iter().find(|it| it["name"] == name).unwrap().clone() };
    // The example of a lock is one that runs as it stands.
    let touch = of("document.touch")["example"].to_string();
    run(&["document", "operate", "shop/cart-7", "document.touch", &touch]).await.expect_success();
    let shown = ringctl(brief.endpoint(), &["document", "operations", "document.write"]).await;
    let shown = shown.expect_success().stdout;
    for part in ["changes[].expect.version", "changes[].put[].raw", "Bytes in base64", "example: {"]
    {
        assert!(shown.to_lowercase().contains(&part.to_lowercase()), "{part}: {shown}");
    }
    let attachment = json!({"mime": "text/plain", "size": 5, "sha256": "0".repeat(64)});
    let lock = |life: &str, put: Value| json!({"changes": [{"class": "Lock", "docid": "cart-7", "life": life, "put": put}]});
    let put = json!([{"class": "P", "key": "a", "attachment": attachment}]);
    for (parameters, expected) in [
        (lock("create", json!([])), ("A-EXISTS", Phase::Work)),
        (lock("keep", put), ("N-BODY", Phase::Validation)),
    ] {
        let request = Request::new(Namespace::parse("shop").unwrap(), "document.write");
        let request = request.with(&parameters).unwrap();
        let operate = Operate { request, docid: "cart-7".to_owned() };
        let told = raised(brief.client.documents().operate(&operate, CALL).await.unwrap_err());
        assert_eq!((told.code().as_str(), told.phase()), expected, "{told:?}");
        let told = told.details();
        assert_eq!((&*told.operation, told.attempts), ("document.write", 1), "{told:?}");
    }
    let get = GetBody {
        space: Namespace::parse("shop").unwrap(),
        docid: "cart-7".to_owned(),
        sha256: "0".repeat(64).parse().unwrap(),
        offset: 0,
        length: 0,
        caller: Caller::default(),
    };
    let told = raised(brief.client.documents().get_body(get, CALL).next().await.unwrap_err());
    assert_eq!((told.code().as_str(), told.phase()), ("N-BODY", Phase::Before), "{told:?}");
    assert_eq!(told.details().operation, "body.get");
    brief.end().await;
}

#[tokio::test]
async fn a_class_whose_program_is_not_there_is_not_offered_until_it_is_and_that_is_told() {
    let folder = TestFolder::new();
    let brief = Brief::start(&folder).await;
    let program = folder.path().join("tools/greeter");
    let class = format!(
        "name = \"greeter\"\nkind = \"program\"\nargv = [{:?}]\nready = {{ line = \"up\" }}\n",
        program.display().to_string()
    );
    let classes = classes_of(&folder, &[("greeter", &class), ("thing", THING)]);
    let checked =
        rota_tests::run_to_end("rota-node-agent", &["check", "--classes", &classes]).await;
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    assert!(checked.stderr.contains("class greeter: argv[0]: "), "{}", checked.stderr);
    let line = brief.agent(&folder, &classes, "node");
    let agent = Launched::start(&folder, "agent", "rota-node-agent", &line).await;
    let log = std::fs::read_to_string(&agent.log).unwrap();
    assert!(
        log.contains("this class is not offered") && log.contains("greeter is not there"),
        "{log}"
    );
    brief.opened("first", "thing").await;
    let refused = brief.client.open(open("a", "greeter"), CALL).await.unwrap_err();
    let (reason, changed) = refusal(&refused);
    assert_eq!((&*reason, changed), ("UNKNOWN_CLASS", Changed::No));
    // Counted by class, once one is known; what was not refused yet stands at 0.
    let page = http_get(brief.http(), "/metrics").await.unwrap().body;
    let count = |class: &str, kind: &str| {
        let (class, kind) = (format!("class=\"{class}\""), format!("kind=\"{kind}\""));
        let is_it =
            |it: &&str| it.contains("op=\"open\"") && it.contains(&class) && it.contains(&kind);
        let mut of_refusals = page.lines().filter(|it| it.starts_with("rota_refusals_total{"));
        let line = of_refusals.find(is_it).unwrap_or_else(|| panic!("{class} {kind}: {page}"));
        line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    assert_eq!(count("other", "UNKNOWN_CLASS"), 1.0);
    for kind in ["NO_CAPACITY", "START_FAILED", "CLOSED"] {
        assert_eq!((count("thing", kind), count("other", kind)), (0.0, 0.0), "{kind}");
    }
    std::fs::create_dir_all(program.parent().unwrap()).unwrap();
    std::fs::write(&program, "#!/bin/sh\necho up\nexec sleep 600\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).unwrap();
    rota_tests::processes::send(agent.pid(), rustix::process::Signal::HUP);
    eventually("the class is offered", PATIENCE, async || {
        let list = ringctl(brief.endpoint(), &["node", "list", "-o", "json"]).await.json();
        let classes = list["nodes"][0]["digests"].clone();
        if classes.get("greeter").is_some() { Ok(()) } else { Err(list.to_string()) }
    })
    .await;
    assert_eq!(agent.end().await, Some(0));
    brief.end().await;
}
