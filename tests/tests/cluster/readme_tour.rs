//! The tour of the README, command by command, as a reader types it.

use rota_tests::sessions::opened;
use rota_tests::{Cluster, TestFolder, binary, checkout};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use tokio::time::timeout;

/// How long one command may take; it only ends what hangs.
const WAIT: Duration = Duration::from_secs(60);

/// A command, and what the page shows of its output.
struct Step {
    command: String,
    shown: Vec<String>,
}

/// Those of the console block below a heading.
fn steps(page: &str, heading: &str) -> Vec<Step> {
    let (_, below) = page.split_once(heading).expect("the page has the heading");
    let (_, below) = below.split_once("```console\n").expect("a console block follows");
    let (block, _) = below.split_once("\n```").expect("the block ends");
    let mut steps: Vec<Step> = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(line), _) => {
                let command = line.split("  # ").next().unwrap_or(line).trim().to_owned();
                steps.push(Step { command, shown: Vec::new() });
            }
            (None, Some(step)) => step.shown.push(line.to_owned()),
            (None, None) => panic!("{line:?} stands ahead of any command"),
        }
    }
    steps
}

/// What a line says whatever ports, numbers and times are: its words, or of a document its id, outcome, states and class.
fn frame(line: &str) -> Vec<String> {
    if line.starts_with('{') {
        let says = |field: &&str| {
            ["\"id\":", "\"outcome\":", "\"state\":", "\"class\":"]
                .iter()
                .any(|key| field.contains(key))
        };
        let parts =
            line.split(',').filter(says).filter_map(|it| Some(it[it.find('"')?..].to_owned()));
        return parts.collect();
    }
    line.split_whitespace().map(str::to_owned).collect()
}

/// Runs a line by a shell, as whoever reads the page does.
async fn typed(cluster: &Cluster, line: &str) -> String {
    let programs = binary("ringctl").parent().expect("it lies in a folder").to_owned();
    let path = std::env::var("PATH").expect("there is a search path");
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).env("PATH", format!("{}:{path}", programs.display()));
    shell.env("ROTA_ENDPOINT", cluster.endpoints());
    shell.stdin(Stdio::null()).kill_on_drop(true);
    let ran = timeout(WAIT, shell.output()).await.expect("it comes to its end").expect("sh runs");
    let [stdout, stderr] = [ran.stdout, ran.stderr].map(|it| String::from_utf8_lossy(&it).into());
    assert!(ran.status.success(), "$ {line}\n{stdout}\n{stderr}");
    stdout
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_the_readmes_tour_does_what_the_page_shows() {
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--nodes", "1"]).await;
    let session = opened(&cluster.client(), "demo", "http").await;
    let page = std::fs::read_to_string(checkout().join("README.md")).expect("there is a README");
    let (mut ran, mut killed) = (0, false);
    for Step { command, shown } in steps(&page, "## A tour of two minutes") {
        if command.starts_with("export ") {
            continue;
        }
        if command.starts_with("kill -9 ") {
            // The owner of what the next command asks for.
            let told = cluster.ringctl(&["session", "get", "crossing", "-o", "json"]).await.json();
            let owner = told["owner"].as_u64().expect("it has an owner");
            let managers = &cluster.document.managers;
            let at = managers.iter().position(|it| u64::from(it.number) == owner);
            cluster.kill_manager(at.expect("a manager of this cluster")).await;
            killed = true;
            continue;
        }
        let line = match command.split_once("http://127.0.0.1:") {
            Some((before, after)) => {
                let rest = after.trim_start_matches(|it: char| it.is_ascii_digit());
                format!("{before}http://{}{rest}", session.address)
            }
            None => command.clone(),
        };
        let told = typed(&cluster, &line).await;
        let first = shown.iter().find(|it| !it.starts_with("..."));
        let first = first.expect("the page shows some output");
        let wanted = frame(first);
        assert!(!wanted.is_empty(), "$ {command}\nthe page shows {first:?}");
        let found = told.lines().any(|printed| {
            let there = frame(printed);
            wanted.iter().all(|word| there.contains(word))
        });
        assert!(found, "$ {command}\nthe page shows {first:?}, and this came:\n{told}");
        for line in shown.iter().filter(|it| !it.starts_with(['.', '{'])) {
            let begins = line.split_whitespace().next();
            let found = told.lines().any(|it| it.split_whitespace().next() == begins);
            assert!(found, "$ {command}\nthe page shows {line:?}, and this came:\n{told}");
        }
        ran += 1;
    }
    assert!(ran >= 9 && killed, "only {ran} commands were run");
    cluster.end().await;
}
