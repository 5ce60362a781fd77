//! Class files: those that ship, and every mistake that one can have.

use core::net::IpAddr;
use rota_model::{
    Attributes, ClassName, Disturb, Namespace, Resources, Sandbox, SessionId, SessionKey,
    parse_label,
};
use rota_node::class::{
    Class, ClassKind, KillMode, Limits, MachineClass, ProgramClass, ReadyWhen, StopSignal, Values,
    parse_classes,
};
use rota_node::machine::{Machine, SendError};
use std::collections::BTreeMap;
use std::sync::Arc;

const BUILTIN: &str = include_str!("../../../deploy/classes/builtin.toml");
const COUNTER: &str = include_str!("../../../deploy/classes/counter.toml");
const TRAFFIC_LIGHT: &str = include_str!("../../../deploy/classes/traffic-light.toml");
const HTTP: &str = include_str!("../../../deploy/classes/http.toml");
const REDIS: &str = include_str!("../../../deploy/classes/redis.toml");
const NOTES: &str = include_str!("../../../deploy/classes/notes.toml");
const SHIPPED: [(&str, &str); 6] = [
    ("builtin.toml", BUILTIN),
    ("counter.toml", COUNTER),
    ("traffic-light.toml", TRAFFIC_LIGHT),
    ("http.toml", HTTP),
    ("redis.toml", REDIS),
    ("notes.toml", NOTES),
];

fn machine_class(text: &str) -> Arc<MachineClass> {
    let class = Class::parse("test.toml", text).expect("no mistakes");
    let ClassKind::Machine(machine) = class.kind else { panic!("a machine") };
    machine
}

fn mistakes(text: &str) -> Vec<String> {
    let list = Class::parse("c.toml", text).expect_err("it has mistakes");
    list.iter().map(ToString::to_string).collect()
}

fn program(lines: &str) -> String {
    format!("name = \"c\"\nkind = \"program\"\n{lines}")
}

fn machine(lines: &str) -> String {
    format!("name = \"c\"\nkind = \"machine\"\n{lines}")
}

#[test]
fn every_class_that_ships_is_without_mistakes() {
    let classes = parse_classes(SHIPPED).unwrap();
    let names: Vec<&str> = classes.keys().map(ClassName::as_str).collect();
    assert_eq!(names, ["builtin", "counter", "http", "notes", "redis", "traffic-light"]);
}

#[test]
fn a_digest_names_the_text_of_a_class_as_sha256sum_does() {
    let text = "name = \"c\"\nkind = \"machine\"\nstates = [\"a\"]\ninitial = \"a\"\n";
    let digest = Class::parse("c.toml", text).unwrap().text.digest;
    assert_eq!(digest.to_string(), "e794918919f978b2");
    assert_ne!(Class::parse("c.toml", &format!("# new\n{text}")).unwrap().text.digest, digest);
}

#[test]
fn a_class_may_name_its_pool() {
    let text = "name = \"c\"\nkind = \"machine\"\nstates = [\"a\"]\ninitial = \"a\"\n";
    let pool = |text: &str| Class::parse("c.toml", text).map(|it| it.text.facts.pool);
    assert_eq!(pool(text), Ok(None));
    let named = pool(&format!("pool = \"gpu\"\n{text}")).unwrap().unwrap();
    assert_eq!(named.as_str(), "gpu");
    let mistakes = pool(&format!("pool = \"a\\u0000\"\n{text}")).unwrap_err();
    assert_eq!((mistakes.len(), mistakes[0].field.as_str()), (1, "pool"));
}

#[test]
fn a_program_may_have_limits() {
    let text = "name = \"c\"\nkind = \"program\"\nargv = [\"sleep\"]\n";
    let limits = |more: &str| match Class::parse("c.toml", &format!("{text}{more}"))?.kind {
        ClassKind::Program(program) => Ok(program.limits),
        ClassKind::Machine(_) => panic!("it is a program"),
    };
    assert_eq!(limits(""), Ok(Limits::default()));
    let said = limits("[limits]\nmemory_mib = 64\ncpu_millis = 500\nprocesses = 9").unwrap();
    let all = Limits { memory_mib: Some(64), cpu_millis: Some(500), processes: Some(9) };
    assert_eq!(said, all);
    for (wrong, problem) in [
        ("[limits]\nmemory_mib = 7", "limits.memory_mib is 7; it must be a whole number from 8 to"),
        (
            "[limits]\ncpu_millis = 9",
            "limits.cpu_millis is 9; it must be a whole number from 10 to",
        ),
        ("[limits]\nfiles = 9", "limits.files is not a field; known are memory_mib, cpu_millis"),
    ] {
        let mistakes: Vec<rota_node::class::ClassMistake> = limits(wrong).unwrap_err();
        let said = mistakes.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert!(said.len() == 1 && said[0].contains(problem), "{wrong}: {said:?}");
    }
}

#[test]
fn a_class_says_what_becomes_of_its_sessions_when_a_node_is_lost() {
    let text = "name = \"c\"\nkind = \"machine\"\nstates = [\"a\"]\ninitial = \"a\"\n";
    let said = |more: &str| {
        Class::parse("c.toml", &format!("{text}{more}")).map(|it| it.text.facts.reopens)
    };
    assert_eq!([said("").unwrap(), said("on_node_loss = \"lost\"").unwrap()], [false; 2]);
    assert!(said("on_node_loss = \"reopen\"").unwrap());
    let wrong = said("on_node_loss = \"restart\"").unwrap_err();
    let told: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    let expected = "c.toml: on_node_loss is \"restart\"; it must be \"lost\" or \"reopen\"";
    assert_eq!(told, [expected]);
}

#[test]
fn a_class_says_which_orders_may_end_its_sessions() {
    let text = "name = \"c\"\nkind = \"machine\"\nstates = [\"a\"]\ninitial = \"a\"\n";
    let said = |more: &str| {
        Class::parse("c.toml", &format!("{text}{more}")).map(|it| it.text.facts.disturb)
    };
    assert_eq!(said("").unwrap(), Disturb::OnUpgrade);
    for it in Disturb::ALL {
        assert_eq!(said(&format!("disturb = \"{}\"", it.as_str())).unwrap(), it);
    }
    let wrong = said("disturb = \"sometimes\"").unwrap_err();
    let told: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    let expected =
        "c.toml: disturb is \"sometimes\"; it must be \"never\", \"on_upgrade\" or \"always\"";
    assert_eq!(told, [expected]);
}

#[test]
fn a_class_says_whether_its_sessions_may_be_in_other_pools() {
    let text = "name = \"c\"\nkind = \"machine\"\nstates = [\"a\"]\ninitial = \"a\"\n";
    let said = |more: &str| {
        Class::parse("c.toml", &format!("{text}{more}")).map(|it| it.text.facts.only_its_pool)
    };
    let named = "pool = \"gpu\"\n";
    assert!(!said("").unwrap() && !said(&format!("{named}other_pools = true")).unwrap());
    assert!(said(&format!("{named}other_pools = false")).unwrap());
    let told: Vec<String> =
        said("other_pools = false").unwrap_err().iter().map(ToString::to_string).collect();
    assert_eq!(told, ["c.toml: other_pools is false, and there is no pool: name the only one"]);
}

#[test]
fn a_class_says_whether_its_sessions_are_opened_on_demand() {
    let text = "name = \"c\"\nkind = \"machine\"\nstates = [\"a\"]\ninitial = \"a\"\n";
    let said = |more: &str| {
        Class::parse("c.toml", &format!("{text}{more}")).map(|it| it.text.facts.opens_on_demand)
    };
    assert_eq!([said("").unwrap(), said("open_on_demand = false").unwrap()], [false; 2]);
    assert!(said("open_on_demand = true").unwrap());
    let wrong = said("open_on_demand = \"yes\"").unwrap_err();
    let told: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["c.toml: open_on_demand is a text; it must be true or false"]);
}

#[test]
fn a_class_says_what_it_needs_of_its_node() {
    let text = "name = \"c\"\nkind = \"machine\"\nstates = [\"a\"]\ninitial = \"a\"\n";
    let needs =
        |more: &str| Class::parse("c.toml", &format!("{text}{more}")).map(|it| it.text.facts.needs);
    assert!(needs("").unwrap().is_default());
    let all = "[needs]\nweight = 3\ncpu_millis = 500\nmemory_mib = 64\nlabels = { gpu = \"yes\" }";
    let said = needs(all).unwrap();
    assert_eq!(said.takes(), Resources { places: 3, cpu_millis: 500, memory_mib: 64 });
    assert_eq!(said.labels, [parse_label("gpu=yes").unwrap()].into());
    for (wrong, problem) in [
        ("needs = 3", "needs is a number; it must be a table"),
        ("[needs]\nweight = 0", "needs.weight is 0; it must be a whole number from 1 to 1000000"),
        ("[needs]\nweight = \"3\"", "needs.weight is a text; it must be a whole number from 1"),
        ("[needs]\ncpu_millis = -1", "needs.cpu_millis is -1; it must be a whole number from 1"),
        ("[needs]\ncpu = 1", "needs.cpu is not a field; known are weight, cpu_millis, memory_mib"),
        ("[needs]\nlabels = { gpu = 1 }", "needs.labels.gpu is a number; it must be a text"),
        ("[needs]\nlabels = { gpu = \"\" }", "needs.labels.gpu must not be empty"),
    ] {
        let mistakes = needs(wrong).unwrap_err();
        let said = mistakes.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert!(said.len() == 1 && said[0].contains(problem), "{wrong}: {said:?}");
    }
}

#[test]
fn the_list_of_shipped_classes_is_the_folder() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/classes");
    let entries = std::fs::read_dir(folder).unwrap().map(|it| it.unwrap().file_name());
    let mut files: Vec<String> = entries.map(|it| it.into_string().unwrap()).collect();
    // The folders of classes lie beside them.
    files.retain(|it| it.ends_with(".toml"));
    files.sort();
    let mut listed: Vec<&str> = SHIPPED.iter().map(|(file, _)| *file).collect();
    listed.sort_unstable();
    assert_eq!(files, listed);
}

fn values<'a>(
    key: &'a SessionKey,
    ports: &'a BTreeMap<String, u16>,
    attributes: &'a Attributes,
) -> Values<'a> {
    let (ip, folder, class_folder) = (IpAddr::from([127, 0, 0, 1]), "/", "/classes/c");
    Values { key, ip, port: 9_000, ports, folder, class_folder, attributes }
}

#[test]
fn the_http_class_gives_a_whole_argument_list() {
    let class = Class::parse("http.toml", HTTP).unwrap();
    let ClassKind::Program(program) = &class.kind else { panic!("a program") };
    let key = SessionKey::new(Namespace::default_space(), SessionId::parse("web 1").unwrap());
    let (ports, attributes) = (BTreeMap::new(), Attributes::new());
    let values = values(&key, &ports, &attributes);
    let values = Values { ip: [10, 0, 0, 5].into(), port: 8123, folder: "/srv/web 1", ..values };
    let line = program.command(&class, &values).unwrap();
    let expected = [
        "python3",
        "-u",
        "-m",
        "http.server",
        "8123",
        "--bind",
        "10.0.0.5",
        "--directory",
        "/srv/web 1",
    ];
    assert_eq!(line.argv, expected);
    assert_eq!(program.ready, ReadyWhen::Port);
    assert!(program.port);
    assert_eq!((program.start_timeout_ms, program.grace_ms), (10_000, 2_000));
}

#[test]
fn the_counter_counts_refuses_and_ends() {
    let mut counter = Machine::new(&machine_class(COUNTER));
    assert_eq!((counter.state(), counter.changes()), ("zero", 0));
    let step = counter.send("increment").unwrap();
    assert_eq!((step.from.as_str(), step.to.as_str(), step.changes), ("zero", "one", 1));
    assert!(!step.is_final);
    counter.send("reset").unwrap();

    let refused = counter.send("decrement").unwrap_err();
    let SendError::NoTransition { state, possible, .. } = &refused else { panic!("{refused}") };
    assert_eq!(state, "zero");
    assert_eq!(*possible, ["increment", "reset", "stop"]);
    let unknown = counter.send("explode").unwrap_err();
    assert!(unknown.to_string().contains("increment, decrement, reset, stop"), "{unknown}");
    assert_eq!((counter.state(), counter.changes()), ("zero", 2));

    assert!(counter.send("stop").unwrap().is_final);
    assert!(counter.has_ended());
    assert_eq!(counter.send("reset"), Err(SendError::Ended { state: "stopped".into() }));
}

#[test]
fn the_counter_goes_up_to_nine_and_back() {
    let mut counter = Machine::new(&machine_class(COUNTER));
    for _ in 0..9 {
        counter.send("increment").unwrap();
    }
    assert_eq!(counter.state(), "nine");
    assert!(counter.send("increment").is_err());
    for _ in 0..9 {
        counter.send("decrement").unwrap();
    }
    assert_eq!(counter.state(), "zero");
}

#[test]
fn the_traffic_light_goes_round_and_fails_from_anywhere() {
    let class = machine_class(TRAFFIC_LIGHT);
    let mut light = Machine::new(&class);
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(light.send("next").unwrap().to);
    }
    assert_eq!(seen, ["red-amber", "green", "amber", "red"]);
    light.send("fail").unwrap();
    assert!(light.send("next").is_err());
    assert_eq!(light.send("repair").unwrap().to, "red");
    assert!(class.report_states());
}

#[test]
fn the_smallest_machine_has_one_state_and_reports_nothing() {
    let class = machine_class(BUILTIN);
    assert_eq!((class.states().len(), class.events().len()), (1, 0));
    assert!(!class.report_states());
    assert!(matches!(Machine::new(&class).send("x"), Err(SendError::UnknownEvent { .. })));
}

#[test]
fn text_that_is_no_toml_says_where() {
    let list = mistakes("name = \"c\"\nkind = machine");
    assert_eq!(list.len(), 1);
    assert!(list[0].starts_with("c.toml: is not TOML:") && list[0].contains("line 2"), "{list:?}");
}

#[test]
fn all_mistakes_of_a_machine_are_listed_at_once() {
    let list = mistakes(
        r#"
name = ""
kind = "machine"
colour = "red"
states = ["a", "b", "a", 7]
initial = "c"
final = ["b", "d"]
events = ["go"]
transitions = [
    { from = "a", event = "go", to = "z" },
    { from = "a", event = "fly", to = "b" },
    { from = "b", event = "go", to = "a" },
    { from = "a", event = "go", to = "b" },
    { from = ["a"], event = "go", to = "b", why = 1 },
    { event = "go" },
    "x",
]
"#,
    );
    let expected = [
        "c.toml: name must not be empty",
        "c.toml: states[3] is a number; it must be a text",
        "c.toml: states[2] is \"a\" again",
        "c.toml: initial is \"c\", which is not one of the states",
        "c.toml: final[1] is \"d\", which is not one of the states",
        "c.toml: transitions[0].to is \"z\", which is not one of the states",
        "c.toml: transitions[1].event is \"fly\", which is not one of the events",
        "c.toml: transitions[2].from is \"b\", a final state: nothing leads on from it",
        "c.toml: transitions[4].why is not a field; known are from, event, to",
        "c.toml: transitions[4] is a second transition from \"a\" on \"go\"",
        "c.toml: transitions[5].from is missing",
        "c.toml: transitions[5].to is missing",
        "c.toml: transitions[6] must be a table { from, event, to }",
        "c.toml: colour is not a field; known are name, kind, attributes, pool, other_pools, needs, on_node_loss, disturb, open_on_demand, life, states, initial, final, \
         events, transitions, report_states",
    ];
    assert_eq!(list, expected);
}

#[test]
fn a_machine_without_states_or_initial_state_is_refused() {
    let list = mistakes(&machine(""));
    let expected = [
        "c.toml: states is missing or empty; a machine has at least one state",
        "c.toml: initial is missing",
    ];
    assert_eq!(list, expected);
}

#[test]
fn a_machine_that_would_end_at_once_is_refused() {
    let list = mistakes(&machine("states = [\"a\"]\ninitial = \"a\"\nfinal = [\"a\"]"));
    assert_eq!(list, ["c.toml: final[0] is \"a\", the initial state: it would end at once"]);
}

#[test]
fn an_unreachable_final_state_is_allowed() {
    let text = machine("states = [\"a\", \"b\"]\ninitial = \"a\"\nfinal = [\"b\"]");
    assert!(Class::parse("c.toml", &text).is_ok());
}

#[test]
fn all_mistakes_of_a_program_are_listed_at_once() {
    let list = mistakes(&program(
        r#"
argv = ["{attr.program}", "{nonsense}", "{", 3]
env = { "A=B" = "x", C = "}" , D = 1 }
ready = { port = false, speed = 1 }
start_timeout = "1h"
grace = "6m"
memory = "default"
attributes = { x = 1 }
"#,
    ));
    let expected = [
        "c.toml: attributes.x is a number; it must be a text",
        "c.toml: argv[3] is a number; it must be a text",
        "c.toml: argv[1] has an unknown placeholder {nonsense}; known are {session}, {namespace}, \
         {ip}, {port}, {port.NAME}, {folder}, {class} and {attr.NAME}; write {{ for a brace",
        "c.toml: argv[2] has a { without a } after it; write {{ for a brace",
        "c.toml: argv[0] must not depend on what a client gives: it is the program",
        "c.toml: env.D is a number; it must be a text",
        "c.toml: env.A=B is no name for a variable: empty, or with = or NUL",
        "c.toml: env.C has a } without a { before it; write }} for a brace",
        "c.toml: ready.speed is not a field; known are port, line",
        "c.toml: ready must be { port = true } or { line = \"text\" }",
        "c.toml: start_timeout is \"1h\"; it must be 100ms to 10m",
        "c.toml: grace is \"6m\"; it must be 0s to 5m",
        "c.toml: memory is not a field; known are name, kind, attributes, pool, other_pools, needs, on_node_loss, disturb, open_on_demand, life, argv, env, port, ports, ready, \
         start_timeout, grace, stop_signal, kill_mode, options, sandbox, limits, output_kept, output_kept_kib",
    ];
    assert_eq!(list, expected);
}

#[test]
fn an_empty_argument_list_is_refused_and_so_is_a_missing_one() {
    assert_eq!(
        mistakes(&program("argv = []\nready = { line = \"up\" }")),
        ["c.toml: argv is empty; its first item is the program"]
    );
    assert_eq!(mistakes(&program("ready = { line = \"up\" }")), ["c.toml: argv is missing"]);
    let list = mistakes(&program("argv = [\"\"]\nready = { line = \"up\" }"));
    assert_eq!(list, ["c.toml: argv[0] is empty; it is the program"]);
}

#[test]
fn a_program_that_reads_its_port_from_its_environment_is_ready_by_it() {
    let class = Class::parse("c.toml", &program("argv = [\"serve\"]")).unwrap();
    let ClassKind::Program(it) = class.kind else { panic!("a program") };
    assert_eq!(it.ready, ReadyWhen::Port);
}

#[test]
fn a_program_says_what_it_is_kept_from_or_leaves_it_to_its_node() {
    let sandbox = |line: &str| {
        let text = program(&format!("argv = [\"serve\"]\n{line}"));
        let class = Class::parse("c.toml", &text).map_err(|list| list[0].to_string())?;
        let ClassKind::Program(it) = class.kind else { panic!("a program") };
        Ok::<_, String>(it.sandbox)
    };
    assert_eq!(sandbox(""), Ok(None));
    assert_eq!(sandbox("sandbox = \"none\""), Ok(Some(Sandbox::None)));
    assert_eq!(sandbox("sandbox = \"basic\""), Ok(Some(Sandbox::Basic)));
    let strict =
        "c.toml: sandbox is \"strict\", which no node can do yet; it must be \"none\" or \"basic\"";
    assert_eq!(sandbox("sandbox = \"strict\""), Err(strict.to_owned()));
    let wrong = "c.toml: sandbox is \"much\"; it must be \"none\" or \"basic\"";
    assert_eq!(sandbox("sandbox = \"much\""), Err(wrong.to_owned()));
    assert!(Sandbox::None < Sandbox::Basic);
}

fn program_class(lines: &str) -> Arc<ProgramClass> {
    let class = Class::parse("c.toml", &program(lines)).expect("no mistakes");
    let ClassKind::Program(program) = class.kind else { panic!("a program") };
    program
}

#[test]
fn a_program_says_by_which_signal_it_is_asked_to_end_and_who_gets_that() {
    let ready = "argv = [\"serve\"]\nready = { line = \"up\" }";
    let class = program_class(ready);
    assert_eq!((class.stop_signal, class.kill_mode), (StopSignal::Term, KillMode::Group));
    for name in ["SIGINT", "INT"] {
        let lines = format!("{ready}\nstop_signal = \"{name}\"\nkill_mode = \"main\"");
        let class = program_class(&lines);
        assert_eq!((class.stop_signal, class.kill_mode), (StopSignal::Int, KillMode::Main));
    }
    let wrong = format!("{ready}\nstop_signal = \"KILL\"\nkill_mode = \"none\"");
    assert_eq!(
        mistakes(&program(&wrong)),
        [
            "c.toml: stop_signal is \"KILL\", which asks nobody; grace = \"0s\" kills at once",
            "c.toml: kill_mode is \"none\"; it must be one of group, main",
        ]
    );
    let wrong = format!("{ready}\nstop_signal = \"BANG\"");
    let known = "TERM, INT, QUIT, HUP, USR1, USR2, WINCH";
    let problem = format!("c.toml: stop_signal is \"BANG\"; it must be one of {known}");
    assert_eq!(mistakes(&program(&wrong)), [problem]);
}

#[test]
fn a_program_has_a_port_when_something_asks_for_it_and_none_otherwise() {
    assert!(program_class("argv = [\"serve\", \"{port}\"]").port);
    assert!(program_class("argv = [\"serve\"]\nport = true").port, "it reads ROTA_PORT");
    let line = "ready = { line = \"up\" }";
    assert!(!program_class(&format!("argv = [\"serve\"]\n{line}")).port);
    assert!(program_class(&format!("argv = [\"serve\"]\nport = true\n{line}")).port);
    assert!(program_class(&format!("argv = [\"serve\", \"{{port}}\"]\n{line}")).port);
    let list = mistakes(&program("argv = [\"serve\", \"{port}\"]\nport = false"));
    let problem = "is false, but ready waits for the port, or argv or env holds {port}";
    assert_eq!(list, [format!("c.toml: port {problem}")]);
}

#[test]
fn further_ports_have_names_that_the_class_lists() {
    let lines = "argv = [\"serve\", \"{port}\", \"{port.admin}\"]\nports = [\"admin\", \"game_1\"]";
    let class = Class::parse("c.toml", &program(lines)).unwrap();
    let ClassKind::Program(program_class) = &class.kind else { panic!("a program") };
    assert_eq!(Vec::from_iter(&program_class.ports), ["admin", "game_1"]);
    let key = SessionKey::new(Namespace::default_space(), SessionId::parse("s").unwrap());
    let ports = BTreeMap::from([("admin".to_owned(), 9_001), ("game_1".to_owned(), 9_002)]);
    let attributes = Attributes::new();
    let values = values(&key, &ports, &attributes);
    assert_eq!(program_class.command(&class, &values).unwrap().argv, ["serve", "9000", "9001"]);
    let wrong = "argv = [\"serve\", \"{port}\", \"{port.x}\"]\nports = [\"a\", \"a\", \"A\", \"\"]";
    let expected = [
        "c.toml: ports[1] is \"a\" a second time",
        "c.toml: ports[2] is \"A\"; a name has 1 to 32 characters: a to z, 0 to 9 and _",
        "c.toml: ports[3] is \"\"; a name has 1 to 32 characters: a to z, 0 to 9 and _",
        "c.toml: ports does not list \"x\", which {port.x} uses",
    ];
    assert_eq!(mistakes(&program(wrong)), expected);
}

#[test]
fn both_ways_of_being_ready_are_one_too_many() {
    let list =
        mistakes(&program("argv = [\"s\", \"{port}\"]\nready = { port = true, line = \"x\" }"));
    assert_eq!(list, ["c.toml: ready must be { port = true } or { line = \"text\" }"]);
}

#[test]
fn a_class_has_exactly_one_kind() {
    let none = mistakes("name = \"c\"\nargv = [\"x\"]");
    assert_eq!(none, ["c.toml: kind is missing"]);
    let other = mistakes("name = \"c\"\nkind = \"robot\"");
    assert_eq!(other, ["c.toml: kind is \"robot\"; it must be \"machine\" or \"program\""]);
    let both = mistakes(&machine("states = [\"a\"]\ninitial = \"a\"\nargv = [\"x\"]"));
    assert_eq!(both, ["c.toml: argv is a field of kind \"program\"; a class has one kind"]);
    let both = mistakes(&program("argv = [\"x\", \"{port}\"]\nstates = [\"a\"]"));
    assert_eq!(both, ["c.toml: states is a field of kind \"machine\"; a class has one kind"]);
}

#[test]
fn a_mistake_elsewhere_hides_no_other() {
    let list = mistakes(
        "name = \"\"\nkind = \"machine\"\nstates = [\"a\"]\ninitial = \"a\"\n\
         events = [\"go\", \"go\", \"stay\"]\n\
         transitions = [{ from = \"a\", event = \"go\", to = \"b\" }]",
    );
    let expected = [
        "c.toml: name must not be empty",
        "c.toml: events[1] is \"go\" again",
        "c.toml: transitions[0].to is \"b\", which is not one of the states",
        "c.toml: events[2] is \"stay\", which no transition uses",
    ];
    assert_eq!(list, expected);
    // Only the first argument is the program.
    let list = mistakes(&program("argv = [\"{\", \"{session}\"]"));
    assert_eq!(list, ["c.toml: argv[0] has a { without a } after it; write {{ for a brace"]);
}

#[test]
fn without_a_right_kind_the_other_fields_are_looked_at_all_the_same() {
    let robot = "c.toml: kind is \"robot\"; it must be \"machine\" or \"program\"";
    let list = mistakes("name = \"c\"\nkind = \"robot\"\nstates = 5\nspeed = 1");
    let expected = [
        robot,
        "c.toml: states is a number; it must be a list",
        "c.toml: states is missing or empty; a machine has at least one state",
        "c.toml: initial is missing",
        "c.toml: speed is not a field; known are name, kind, attributes, pool, other_pools, needs, on_node_loss, disturb, open_on_demand, life, states, initial, final, \
         events, transitions, report_states",
    ];
    assert_eq!(list, expected);
    let list = mistakes("name = \"c\"\ngrace = \"1\"\nargv = [\"p\", \"{port}\"]");
    assert_eq!(list.len(), 2, "{list:?}");
    assert_eq!(list[0], "c.toml: kind is missing");
    assert!(list[1].starts_with("c.toml: grace is \"1\""), "{list:?}");
    let list = mistakes("name = \"c\"\nkind = \"robot\"\nstates = 5\nargv = 5\nspeed = 1");
    assert_eq!(list.len(), 2, "{list:?}");
    assert!(list[1].starts_with("c.toml: speed is not a field"), "{list:?}");
}

#[test]
fn times_have_defaults_and_limits() {
    let class = Class::parse("c.toml", &program("argv = [\"x\", \"{port}\"]")).unwrap();
    let ClassKind::Program(it) = class.kind else { panic!("a program") };
    assert_eq!((it.start_timeout_ms, it.grace_ms), (10_000, 5_000));
    for (line, fits) in [
        ("start_timeout = \"100ms\"", true),
        ("start_timeout = \"99ms\"", false),
        ("start_timeout = \"10m\"", true),
        ("start_timeout = \"601s\"", false),
        ("start_timeout = 10", false),
        ("grace = \"0s\"", true),
        ("grace = \"5m\"", true),
        ("grace = \"-1s\"", false),
        ("grace = \"99999999999999999999s\"", false),
        ("grace = \"s\"", false),
    ] {
        let text = program(&format!("argv = [\"x\", \"{{port}}\"]\n{line}"));
        assert_eq!(Class::parse("c.toml", &text).is_ok(), fits, "{line}");
    }
}

#[test]
fn mistakes_of_all_files_are_listed_and_one_name_stands_in_one_file() {
    let files = [("a.toml", BUILTIN), ("b.toml", BUILTIN), ("c.toml", "kind = \"machine\"")];
    let list = parse_classes(files).unwrap_err();
    let text: Vec<String> = list.iter().map(ToString::to_string).collect();
    assert_eq!(text.len(), 4, "{text:?}");
    assert_eq!(text[0], "b.toml: name is builtin, which stands in a.toml already");
    assert!(text[1..].iter().all(|it| it.starts_with("c.toml: ")));
}

#[test]
fn a_name_that_stands_in_two_files_is_found_in_files_with_other_mistakes() {
    let broken = format!("{BUILTIN}\nodd = 1");
    let doubled = |list: Vec<rota_node::class::ClassMistake>| {
        let text: Vec<String> = list.iter().map(ToString::to_string).collect();
        assert_eq!(text.len(), 2, "{text:?}");
        assert!(text.iter().any(|it| it.contains("odd is not a field")), "{text:?}");
        let twice = "b.toml: name is builtin, which stands in a.toml already";
        assert!(text.iter().any(|it| it == twice), "{text:?}");
    };
    doubled(parse_classes([("a.toml", broken.as_str()), ("b.toml", BUILTIN)]).unwrap_err());
    doubled(parse_classes([("a.toml", BUILTIN), ("b.toml", broken.as_str())]).unwrap_err());
}
