//! Command lines that are taken, and those that are refused with every mistake in them.

use super::*;

fn parse(more: &[&str]) -> Result<Options, Vec<FieldError>> {
    let base = [
        "rota-manager",
        "--data",
        "d",
        "--number",
        "100",
        "--id",
        "a",
        "--config-store",
        "127.0.0.1:7",
        "--cluster",
        "c",
        "--ring",
        "100=a,400=b",
    ];
    let all = base.iter().chain(more).copied();
    Arguments::try_parse_from(all).expect("clap takes any text").check()
}

fn fields(result: Result<Options, Vec<FieldError>>) -> Vec<String> {
    result.unwrap_err().into_iter().map(|it| it.field).collect()
}

#[test]
fn a_good_command_line_is_taken_with_its_defaults() {
    let options = parse(&[]).unwrap();
    assert_eq!(options.number, Some(ManagerNumber(100)));
    assert_eq!(options.ring.m, 1024);
    assert_eq!(options.ring.r, 2);
    assert_eq!(options.ring.numbers.len(), 2);
    assert_eq!(options.load_limit.permille(), 800);
    assert_eq!(options.timing, Timing::default());
    assert!(options.grpc.ip().is_loopback());
}

#[test]
fn names_that_turn_the_direction_of_writing_are_refused() {
    let line = ["rota-manager", "--data", "d", "--number", "100", "--config-store", "127.0.0.1:7"];
    let names = ["--id", "a\u{202e}b", "--cluster", "c\u{202e}d", "--ring", "100=a\u{202e}b,400=b"];
    let all = line.iter().chain(&names);
    let wrong = fields(Arguments::try_parse_from(all).expect("clap takes any text").check());
    for field in ["--id", "--cluster", "--ring"] {
        assert!(wrong.iter().any(|it| it == field), "{field} of {wrong:?}");
    }
}

#[test]
fn all_mistakes_are_listed_at_once() {
    let wrong = parse(&[
        "--slots",
        "0",
        "--grpc",
        "x",
        "--replicas",
        "many",
        "--load-limit",
        "2",
        "--log-format",
        "xml",
        "--suspect-ms",
        "10",
        "--process-agent",
        "/nonesuch/agent",
        "--config-store",
        "consul://nowhere",
    ]);
    let fields = fields(wrong);
    for field in [
        "--slots",
        "--number",
        "--grpc",
        "--replicas",
        "--load-limit",
        "--log-format",
        "--heartbeat-ms",
        "--resend-ms",
        "--process-agent",
        "--process-data",
        "--config-store",
    ] {
        assert!(fields.iter().any(|it| it == field), "{field} is missing in {fields:?}");
    }
}

#[test]
fn times_out_of_order_name_both_options_with_their_values() {
    let late = ["--lease-term-ms", "2000", "--lease-kill-ms", "19999", "--tombstone-ms", "1000"];
    let wrong = parse(&[&["--join-ms", "3000"], &late[..]].concat());
    let told: Vec<String> = wrong.unwrap_err().iter().map(ToString::to_string).collect();
    for wanted in [
        "--suspect-ms is 1000 ms; 3 times that must be below --join-ms (3000 ms)",
        "--suspect-ms is 1000 ms; 2 times that must be below --lease-term-ms (2000 ms)",
        "--lease-kill-ms is 19999 ms; 5/4 of that must be below --node-lost-ms (20000 ms)",
        "--create-deadline-ms is 5000 ms; 2 times that must be below --tombstone-ms (1000 ms)",
        "--tombstone-ms is 1000; it must be at least 600000",
    ] {
        assert!(told.iter().any(|it| it.starts_with(wanted)), "{wanted} is missing in {told:?}");
    }
}

#[test]
fn what_is_no_time_is_named_alone() {
    let wrong = parse(&["--suspect-ms", "soon", "--lease-term-ms", "2000"]);
    assert_eq!(fields(wrong), ["--suspect-ms"]);
}

#[test]
fn the_long_help_tells_what_every_time_is_where_nothing_is_said() {
    let help = <Arguments as clap::CommandFactory>::command().render_long_help().to_string();
    let timing = Timing::default();
    for (option, ms) in [
        ("--suspect-ms", timing.suspect_ms),
        ("--join-ms", timing.join_ms),
        ("--tombstone-ms", timing.tombstone_ms),
    ] {
        let (_, after) = help.split_once(&format!("{option} <MS>")).expect("it is in the help");
        // It may be broken into lines anywhere.
        let said: Vec<&str> = after.split("--").next().unwrap().split_whitespace().collect();
        let said = said.join(" ");
        assert!(said.contains(&format!("[default: {ms}]")), "{option}: {said}");
    }
}

#[test]
fn listeners_outside_of_loopback_need_a_flag_that_says_insecure() {
    let mistakes = parse(&["--grpc", "10.0.0.1:0"]).unwrap_err();
    assert!(mistakes[0].problem.contains("--insecure-bind"), "{mistakes:?}");
    assert!(parse(&["--grpc", "10.0.0.1:0", "--insecure-bind"]).is_ok());
    assert_eq!(fields(parse(&["--grpc", "0.0.0.0:0", "--insecure-bind"])), ["--grpc"]);
}

#[test]
fn a_broken_ring_names_the_broken_item() {
    let mistakes = parse(&["--ring", "100=a,x=b,7"]);
    let problems: Vec<String> = mistakes.unwrap_err().iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 2);
    assert!(problems[0].contains("\"x\"") && problems[1].contains("\"7\""), "{problems:?}");
}

#[test]
fn ended_sessions_are_kept_for_as_long_as_request_ids_are_promised_to_be_remembered() {
    assert_eq!(parse(&["--tombstone-ms", "600000"]).unwrap().timing.tombstone_ms, 600_000);
    let mistakes = parse(&["--tombstone-ms", "599999"]).unwrap_err();
    assert_eq!(mistakes.len(), 1, "{mistakes:?}");
    let text = mistakes[0].to_string();
    assert!(text.contains("--tombstone-ms") && text.contains("at least 600000"), "{text}");
}

#[test]
fn a_provisioner_needs_all_its_options() {
    assert_eq!(
        fields(parse(&["--process-classes", "/etc"])),
        ["--process-agent", "--process-data"]
    );
}

#[test]
fn the_load_limit_is_kept_in_thousandths() {
    for (text, permille) in [("0.8", 800), ("1", 1000), ("0.125", 125), ("0.0001", 1)] {
        assert_eq!(parse(&["--load-limit", text]).unwrap().load_limit.permille(), permille);
    }
}

#[test]
fn what_is_decided_about_bodies_is_checked() {
    let default = AttachmentSettings { reserve_bytes: 1 << 30, ..AttachmentSettings::default() };
    assert_eq!(parse(&[]).unwrap().bodies, default);
    let given = ["--body-bytes-max", "1000", "--body-grace-ms", "60000"];
    let bodies = parse(&given).unwrap().bodies;
    assert_eq!((bodies.body_bytes_max, bodies.grace_ms), (1_000, 60_000));
    let given = ["--body-free-bytes-max", "5000", "--body-reserve-bytes", "0"];
    let bodies = parse(&given).unwrap().bodies;
    assert_eq!((bodies.free_bytes_max, bodies.reserve_bytes), (5_000, 0));
    let mut given = vec!["--body-bytes-max", "0", "--body-grace-ms", "9999"];
    given.extend(["--body-free-bytes-max", "0", "--body-reserve-bytes", "1125899906842625"]);
    let wrong = parse(&given).unwrap_err();
    let told: Vec<String> = wrong.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "--body-bytes-max is 0; it must lie in [1, 68719476736]",
            "--body-grace-ms is 9999; it must lie in [10000, 31536000000]",
            "--body-free-bytes-max is 0; it must lie in [1, 1125899906842624]",
            "--body-reserve-bytes is 1125899906842625; it must lie in [0, 1125899906842624]",
        ]
    );
}

#[test]
fn what_is_decided_about_documents_is_checked() {
    assert_eq!(parse(&[]).unwrap().documents, DocumentsConfig::default());
    let flags = [
        ("--documents-bytes-max", "16777216"),
        ("--documents-cache-bytes", "33554432"),
        ("--documents-destroyed-ms", "60000"),
        ("--documents-deleted-ms", "3600000"),
    ];
    let given: Vec<&str> = flags.iter().flat_map(|(flag, value)| [*flag, *value]).collect();
    let DocumentsConfig { bytes_max, cache_bytes, destroyed_ms, deleted_ms, .. } =
        parse(&given).unwrap().documents;
    let taken = [bytes_max, cache_bytes, destroyed_ms, deleted_ms];
    assert_eq!(taken, [16_777_216, 33_554_432, 60_000, 3_600_000]);
    for (flag, value) in flags {
        let low: u64 = value.parse().unwrap();
        let told = parse(&[flag, &(low - 1).to_string()]).unwrap_err();
        assert_eq!(told.len(), 1, "{told:?}");
        let text = told[0].to_string();
        let expected = format!("{flag} is {}; it must lie in [{low}, ", low - 1);
        assert!(text.starts_with(&expected), "{text}");
        let told = parse(&[flag, "much"]).unwrap_err();
        assert_eq!(told[0].to_string(), format!("{flag} is \"much\", not a whole number"));
    }
}

#[test]
fn how_long_numbers_are_kept_is_checked() {
    assert_eq!(parse(&[]).unwrap().numbers.retention_ms, 7 * 24 * 3_600_000);
    assert!(parse(&[]).unwrap().numbers.sessions);
    assert!(!parse(&["--no-session-numbers"]).unwrap().numbers.sessions);
    assert_eq!(parse(&["--number-retention-ms", "0"]).unwrap().numbers.retention_ms, 0);
    let told = parse(&["--number-retention-ms", "a week"]).unwrap_err();
    assert_eq!(told[0].to_string(), "--number-retention-ms is \"a week\", not a whole number");
    let told = parse(&["--number-retention-ms", "315360000001"]).unwrap_err();
    let expected = "--number-retention-ms is 315360000001; it must lie in [0, 315360000000]";
    assert_eq!(told[0].to_string(), expected);
}

#[test]
fn what_may_fill_the_memory_is_checked() {
    let memory = parse(&[]).unwrap().memory;
    assert_eq!((memory.answers_bytes_max, memory.sessions_bytes_max), (256 << 20, 1 << 30));
    let given = ["--answers-bytes-max", "16777216", "--sessions-bytes-max", "67108864"];
    let memory = parse(&given).unwrap().memory;
    assert_eq!((memory.answers_bytes_max, memory.sessions_bytes_max), (16 << 20, 64 << 20));
    let given = ["--answers-bytes-max", "16777215", "--sessions-bytes-max", "1"];
    let told: Vec<String> = parse(&given).unwrap_err().iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "--answers-bytes-max is 16777215; it must lie in [16777216, 4294967295]",
            "--sessions-bytes-max is 1; it must lie in [67108864, 1099511627776]",
        ]
    );
}

#[test]
fn an_engine_elsewhere_needs_a_file_that_nobody_else_can_read_and_a_server_that_is_near() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("url");
    let path = file.to_str().unwrap();
    let write = |url: &str, mode: u32| {
        std::fs::write(&file, url).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    assert_eq!(parse(&[]).unwrap().engine, EngineOptions::Log);
    let line = ["--engine", "postgres", "--engine-url-file", path];
    write("postgresql://u:sesame@127.0.0.1/rota\n", 0o600);
    assert!(matches!(parse(&line).unwrap().engine, EngineOptions::Postgres(_)));
    let told = |more: &[&str]| {
        let wrong = parse(more).unwrap_err();
        let told: Vec<_> = wrong.iter().map(ToString::to_string).collect();
        assert!(!told.join("").contains("sesame"), "a password is shown: {told:?}");
        told.join("; ")
    };
    assert!(told(&line[..2]).starts_with("--engine-url-file is missing"));
    assert!(told(&line[2..]).contains("it must be postgres"));
    assert!(
        told(&["--engine-url", "postgresql://u:sesame@h/d"]).contains("--engine-url-file FILE")
    );
    write("postgresql://u:sesame@127.0.0.1/rota", 0o644);
    assert!(told(&line).contains("chmod 0600"));
    write("postgresql://u:sesame@db.example.org/rota", 0o600);
    assert!(told(&line).contains("outside of this machine"));
    let insecure = [&line[..], &["--insecure-engine"]].concat();
    assert!(matches!(parse(&insecure).unwrap().engine, EngineOptions::Postgres(_)));
    write("sesame", 0o600);
    assert!(told(&line).contains("--engine-url-file does not parse"));
}
