//! Class files: how long sessions live, and the actions of their life cycles.

use rota_model::{Handler, LifeFacts, Restarts};
use rota_node::class::{
    ActionFile, ActionFolder, Class, FoundAction, Health, HealthCheck, parse_classes_with,
};
use std::collections::{BTreeMap, BTreeSet};

const DAY: u64 = 86_400_000;

fn program(lines: &str) -> String {
    format!("name = \"c\"\nkind = \"program\"\nargv = [\"p\"]\nports = [\"admin\"]\n{lines}")
}

fn machine(lines: &str) -> String {
    format!("name = \"c\"\nkind = \"machine\"\nstates = [\"a\"]\ninitial = \"a\"\n{lines}")
}

fn folder(files: &[(&str, FoundAction)]) -> BTreeMap<String, ActionFolder> {
    let file = |(path, found): &(&str, FoundAction)| ActionFile {
        path: path.split('/').map(str::to_owned).collect(),
        found: found.clone(),
    };
    BTreeMap::from([("c".to_owned(), ActionFolder { files: files.iter().map(file).collect() })])
}

fn read(text: &str, files: &[(&str, FoundAction)]) -> Result<Class, Vec<String>> {
    let classes = parse_classes_with([("c.toml", text)], &folder(files));
    let classes = classes.map_err(|list| list.iter().map(ToString::to_string).collect::<Vec<_>>());
    classes.map(|it| it.into_values().next().expect("there is one class"))
}

fn facts(text: &str) -> LifeFacts {
    *read(text, &[]).expect("no mistakes").text.facts.life
}

fn mistakes(text: &str) -> Vec<String> {
    read(text, &[]).expect_err("it has mistakes")
}

/// Each mistake must be there once, under its field.
fn assert_mistakes(found: &[String], expected: &[&str]) {
    for start in expected {
        let start = format!("c.toml: {start}");
        assert_eq!(
            found.iter().filter(|it| it.starts_with(&start)).count(),
            1,
            "{start}: {found:#?}"
        );
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

#[test]
fn a_class_says_how_long_its_sessions_live_and_what_an_open_may_ask_for() {
    let lines = "grace = \"7s\"\n[life]\nidle = \"30m\"\nidle_max = \"8h\"\nmax_life = \"7d\"\n\
                 max_life_max = \"366d\"\nstart_timeout_max = \"1m\"\nidle_connections = true\n";
    let class = read(&program(lines), &[]).unwrap();
    assert!(class.idle_connections);
    let expected = LifeFacts {
        idle_ms: Some(1_800_000),
        idle_max_ms: Some(28_800_000),
        max_life_ms: Some(7 * DAY),
        max_life_max_ms: Some(366 * DAY),
        start_timeout_max_ms: Some(60_000),
        close_grace_max_ms: Some(7_000),
        ..LifeFacts::default()
    };
    assert_eq!(*class.text.facts.life, expected);
}

#[test]
fn without_a_word_of_it_an_open_may_only_shorten_what_the_class_says() {
    let expected = LifeFacts {
        start_timeout_max_ms: Some(10_000),
        close_grace_max_ms: Some(5_000),
        ..LifeFacts::default()
    };
    assert_eq!(facts(&program("")), expected);
    assert_eq!(facts(&machine("")), LifeFacts::default());
}

#[test]
fn restarts_have_defaults_for_what_is_left_out() {
    let restarts = |lines: &str| facts(&machine(lines)).restarts;
    assert_eq!(restarts(""), None);
    let usual = Restarts { times: 5, delay_ms: 1_000, delay_max_ms: 60_000, steady_ms: 600_000 };
    assert_eq!(restarts("life.restart = {}"), Some(usual));
    let own = "life.restart = { times = 1000, delay = \"2m\", steady = \"1h\" }";
    let expected =
        Restarts { times: 1000, delay_ms: 120_000, delay_max_ms: 120_000, steady_ms: 3_600_000 };
    assert_eq!(restarts(own), Some(expected));
    let wrong =
        "life.restart = { times = 0, delay = \"9s\", delay_max = \"8s\", steady = \"0s\", x = 1 }";
    let expected = [
        "life.restart.times is 0; it must be a whole number from 1 to 1000",
        "life.restart.delay_max must be at least delay (9000 ms)",
        "life.restart.steady is \"0s\"; it must be 1s to 366d",
        "life.restart.x is not a field",
    ];
    assert_mistakes(&mistakes(&machine(wrong)), &expected);
}

#[test]
fn every_wrong_time_is_told_with_its_field_and_what_was_expected() {
    let lines = "[life]\nidle = \"999ms\"\nidle_max = \"367d\"\nmax_life = \"1w\"\nmax_life_max = 7\n\
                 start_timeout_max = \"5s\"\nclose_grace_max = \"1s\"\nidel = \"1s\"\n";
    let expected = [
        "life.idle is \"999ms\"; it must be 1s to 366d",
        "life.idle_max is \"367d\"; it must be 1s to 366d",
        "life.max_life is \"1w\"; it must be a whole number with ms, s, m, h or d",
        "life.max_life_max is a number; it must be a text",
        "life.start_timeout_max is 5000 ms; it must be at least start_timeout (10000 ms)",
        "life.close_grace_max is 1000 ms; it must be at least grace (5000 ms)",
        "life.idel is not a field",
    ];
    assert_mistakes(&mistakes(&program(lines)), &expected);
    let less =
        "[life]\nidle = \"9s\"\nidle_max = \"8s\"\nmax_life = \"9s\"\nmax_life_max = \"8s\"\n";
    let expected = ["life.idle_max is 8000 ms; it must be at least life.idle", "life.max_life_max"];
    assert_mistakes(&mistakes(&program(less)), &expected);
    assert_mistakes(&mistakes(&program("life = 3")), &["life is a number; it must be a table"]);
}

#[test]
fn a_machine_has_no_port_no_program_and_no_actions() {
    let lines = "[life]\nidle_connections = true\nstart_timeout_max = \"1m\"\nclose_grace_max = \"1m\"\n\
                 health = { port = true }\ncycles = { note = { mark_only = true } }\n";
    let expected = [
        "life.idle_connections is a field of kind \"program\"",
        "life.start_timeout_max is a field of kind",
        "life.close_grace_max is a field of kind",
        "life.health is a field of kind",
        "actions/mail is an action, and the class is a machine",
    ];
    let found = read(&machine(lines), &[("mail", FoundAction::Program([1; 32]))]).unwrap_err();
    assert_mistakes(&found, &expected);
    let marks = facts(&machine("life.cycles.note = { mark_only = true }"));
    assert_eq!(marks.life_cycles, BTreeMap::from([("note".to_owned(), Handler::Mark)]));
}

#[test]
fn a_session_is_looked_after_by_its_port_a_path_or_a_program() {
    let health =
        |lines: &str| read(&program(&format!("[life.health]\n{lines}")), &[]).unwrap().health;
    let usual = Health {
        check: HealthCheck::Port,
        every_ms: 10_000,
        timeout_ms: 2_000,
        failures: 3,
        after_ms: 0,
    };
    assert_eq!(health("port = true"), Some(usual.clone()));
    let times = "every = \"5m\"\ntimeout = \"1s\"\nfailures = 1\nafter = \"1h\"";
    let check = HealthCheck::Http("/alive?deep=1".to_owned());
    let all =
        Health { check, every_ms: 300_000, timeout_ms: 1_000, failures: 1, after_ms: 3_600_000 };
    assert_eq!(health(&format!("http = \"/alive?deep=1\"\n{times}")), Some(all));
    let found = health("argv = [\"probe\", \"{port}\", \"{port.admin}\"]").unwrap();
    let HealthCheck::Program(argv) = found.check else { panic!("a program") };
    assert_eq!(argv.len(), 3);
}

#[test]
fn every_mistake_about_looking_after_a_session_is_told() {
    let of = |lines: &str| mistakes(&program(&format!("[life.health]\n{lines}")));
    let one = "life.health must have exactly one of port = true, http = \"/path\" and argv";
    for lines in ["", "port = false", "port = true\nhttp = \"/\""] {
        assert_mistakes(&of(lines), &[one]);
    }
    assert_mistakes(&of("http = \"alive\""), &["life.health.http is \"alive\"; it must be a path"]);
    let argv = [
        "life.health.argv[0] must not depend on what a client gives",
        "life.health.argv uses {port.x}",
    ];
    assert_mistakes(&of("argv = [\"{attr.p}\", \"{port.x}\"]"), &argv);
    let times =
        "port = true\nevery = \"1ms\"\ntimeout = \"2m\"\nfailures = 0\nafter = \"2h\"\nb = 1";
    let expected = [
        "life.health.every is \"1ms\"; it must be 100ms to 1h",
        "life.health.timeout is \"2m\"; it must be 10ms to 1m",
        "life.health.failures is 0; it must be a whole number from 1 to 1000",
        "life.health.after is \"2h\"; it must be 0s to 1h",
        "life.health.b is not a field",
    ];
    assert_mistakes(&of(times), &expected);
    let no_port =
        "ready = { line = \"up\" }\n[life]\nidle_connections = true\nhealth = { port = true }";
    let expected = [
        "life.idle_connections is true, and the class has no port",
        "life.health asks for the port",
    ];
    assert_mistakes(&mistakes(&program(no_port)), &expected);
}

const RUNS: FoundAction = FoundAction::Program([7; 32]);

#[test]
fn life_cycles_have_their_programs_from_the_folder_of_the_class() {
    let lines = "[life.cycles.note]\nmark_only = true\n[life.cycles.billing]\nretries = 9\ntimeout = \"1m\"\n\
                 memory_mib = 64\n";
    let files = [("billing/paid", RUNS), ("billing/stock?gone", RUNS), ("mail", RUNS)];
    let class = read(&program(lines), &files).unwrap();
    let events = BTreeSet::from(["paid".to_owned(), "stock?gone".to_owned()]);
    let expected = BTreeMap::from([
        ("note".to_owned(), Handler::Mark),
        ("billing".to_owned(), Handler::Action { events, retries: 9, timeout_ms: 60_000 }),
        (
            "mail".to_owned(),
            Handler::Action { events: BTreeSet::new(), retries: 5, timeout_ms: 30_000 },
        ),
    ]);
    assert_eq!(class.text.facts.life.life_cycles, expected);
    assert_eq!(class.action_memory_mib, BTreeMap::from([("billing".to_owned(), 64)]));
}

#[test]
fn every_mistake_about_life_cycles_is_told_with_its_field_or_file() {
    let long = "x".repeat(65);
    let lines = format!(
        "[life.cycles.gone]\n[life.cycles.mail]\nmark_only = true\n[life.cycles.{long}]\nmark_only = true\n\
         [life.cycles.idle]\nmark_only = true\n[life.cycles.note]\nmark_only = true\nretries = 1\n\
         [life.cycles.post]\nretries = 1001\ntimeout = \"2h\"\nmemory_mib = 7\nb = 1\n[life.cycles]\nodd = 3\n"
    );
    let files = [
        ("mail", RUNS),
        ("post", RUNS),
        ("plain", FoundAction::NotExecutable),
        ("out", FoundAction::LeadsOut),
        ("empty", FoundAction::EmptyFolder),
        ("deep/er", FoundAction::TooDeep),
        ("broken", FoundAction::Unusable("no such file".to_owned())),
        ("health", RUNS),
        (".hidden", RUNS),
        ("post/a?b?c", RUNS),
    ];
    let lines = lines.replace("[life.cycles]\nodd = 3\n", "");
    let lines = format!("life.cycles.odd = 3\n{lines}");
    let expected = [
        "life.cycles.gone has no program in the class's folder (actions), and is not mark_only",
        "life.cycles.mail is mark_only, and the class's folder has a program for it",
        &format!("life.cycles.{long} has the name"),
        "life.cycles.idle has a reserved name",
        "life.cycles.note is mark_only: nothing runs",
        "life.cycles.post.retries is 1001; it must be a whole number from 0 to 1000",
        "life.cycles.post.timeout is \"2h\"; it must be 100ms to 1h",
        "life.cycles.post.memory_mib is 7; it must be a whole number from 8 to",
        "life.cycles.post.b is not a field",
        "life.cycles.odd is a number; it must be a table",
        "actions/plain is not executable",
        "actions/out is a link that leads out of the class's folder",
        "actions/empty is a folder without a program",
        "actions/deep/er is a folder; it must be a file for one event",
        "actions/broken cannot be used: no such file",
        "actions/health has a reserved name",
        "actions/.hidden has the name",
        "actions/post/a?b?c has the name",
    ];
    assert_mistakes(&read(&program(&lines), &files).unwrap_err(), &expected);
}

#[test]
fn a_changed_action_is_a_changed_class_and_one_without_actions_is_its_text() {
    let text = program("");
    let digest = |files: &[(&str, FoundAction)]| read(&text, files).unwrap().text.digest;
    assert_eq!(digest(&[]), Class::parse("c.toml", &text).unwrap().text.digest);
    let all = [
        digest(&[]),
        digest(&[("mail", RUNS)]),
        digest(&[("mail", FoundAction::Program([8; 32]))]),
        digest(&[("post", RUNS)]),
    ];
    assert_eq!(BTreeSet::from(all.map(|it| it.0)).len(), 4);
    assert_eq!(digest(&[("mail", RUNS)]), all[1]);
}
