//! A program session from nothing: from the open to an answering program, beside a bare spawn of
//! the same program.

use super::compare::median;
use super::load;
use super::report::{cores, rounded};
use super::target;
use crate::dev::{Cluster, Family, Settings, shipped_classes, with_cluster};
use crate::output::{Format, Out, plain_table};
use anyhow::{Context, bail};
use clap::Args;
use rota_client::{Client, v1};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How long a program may take to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(30);
/// Between two tries to reach a program that does not listen yet.
const TRY_EVERY: Duration = Duration::from_millis(1);

/// `bench cold`.
#[derive(Args, Debug)]
pub struct ColdArguments {
    /// A class that runs a program which answers on its port.
    #[arg(long, default_value = "http")]
    class: String,
    /// Folder of class files [default: deploy/classes of the checkout, if it is found].
    #[arg(long, value_name = "DIR")]
    classes: Option<PathBuf>,
    /// How many pairs are measured. The two of a pair follow each other, in changing order.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
}

/// The part of a class file that a bare spawn needs.
#[derive(Deserialize, PartialEq, Debug)]
struct ProgramClass {
    name: String,
    #[serde(default)]
    argv: Vec<String>,
}

#[derive(Serialize, Clone, Copy, PartialEq, Debug, Default)]
struct Times {
    p50_ms: f64,
    p90_ms: f64,
    max_ms: f64,
}

#[derive(Serialize, PartialEq, Debug, Default)]
struct Cold {
    class: String,
    runs: u32,
    /// From the open to the answer to the open.
    opened: Times,
    /// From the open to the first byte of the program.
    answered: Times,
    /// From a bare spawn to the first byte of the program.
    bare: Times,
    /// Median over the pairs of `answered` less `bare`.
    added_ms: f64,
    /// Median over the pairs of `answered` divided by `bare`.
    ratio: f64,
    cores: usize,
}

impl Times {
    fn of(mut all: Vec<f64>) -> Self {
        all.sort_by(f64::total_cmp);
        let at = |percent: usize| {
            let index = (all.len() * percent / 100).min(all.len().saturating_sub(1));
            rounded(all.get(index).copied().unwrap_or(0.0), 2)
        };
        Self { p50_ms: at(50), p90_ms: at(90), max_ms: at(100) }
    }
}

/// `bench cold`.
pub async fn run(it: &ColdArguments, out: &mut Out) -> anyhow::Result<()> {
    let folder = it.classes.clone().or_else(shipped_classes);
    let folder = folder.context("no class files are found beside ringctl: give --classes DIR")?;
    let class = find_class(&folder, &it.class)?;
    let settings = Settings {
        managers: Some(3),
        port_base: Some(0),
        classes: Some(folder),
        ..Settings::default()
    };
    let cold = with_cluster(&settings, async |cluster| measure(it, &class, cluster).await).await?;
    if out.format() == Format::Json {
        return Ok(out.json(&cold)?);
    }
    let mut table = plain_table(["FROM", "TO", "P50 MS", "P90 MS", "MAX MS"]);
    let rows = [
        ("open", "answer to the open", cold.opened),
        ("open", "answer of the program", cold.answered),
        ("bare spawn", "answer of the program", cold.bare),
    ];
    for (from, to, times) in rows {
        let ms = [times.p50_ms, times.p90_ms, times.max_ms].map(|it| format!("{it:.1}"));
        let [p50, p90, max] = ms;
        table.add_row([from.to_owned(), to.to_owned(), p50, p90, max]);
    }
    out.table(&table)?;
    let Cold { runs, added_ms, ratio, .. } = cold;
    out.text(&format!(
        "\na session takes {ratio:.2} times as long as a bare spawn, {added_ms:.1} ms more \
         (medians of {runs} pairs)\n"
    ))?;
    Ok(())
}

fn find_class(folder: &Path, name: &str) -> anyhow::Result<ProgramClass> {
    let entries = std::fs::read_dir(folder);
    let entries = entries.with_context(|| format!("--classes {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_none_or(|it| it != "toml") {
            continue;
        }
        let text = std::fs::read_to_string(&path)?;
        // The node reports mistakes of class files; here only the wanted one matters.
        let Ok(class) = toml::from_str::<ProgramClass>(&text) else { continue };
        if class.name == name {
            if class.argv.is_empty() {
                bail!("class {name:?} runs no program");
            }
            return Ok(class);
        }
    }
    bail!("class {name:?} is not in {}", folder.display())
}

/// The program's arguments for a port and a folder.
fn arguments(class: &ProgramClass, port: u16, folder: &Path) -> Vec<String> {
    let folder = folder.to_string_lossy();
    let fill = |word: &String| {
        let word = word.replace("{port}", &port.to_string()).replace("{session}", "bare");
        let word = word.replace("{ip}", "127.0.0.1");
        word.replace("{folder}", &folder)
    };
    class.argv.iter().map(fill).collect()
}

async fn measure(
    it: &ColdArguments,
    class: &ProgramClass,
    cluster: &mut Cluster,
) -> anyhow::Result<Cold> {
    let client = target::client(&cluster.document().endpoints(), 1, false)?;
    let prefix = target::prefix();
    let mut pairs = Vec::new();
    let bar = load::bar("cold", u64::from(it.runs));
    // The first pair warms up: the program's files come from the disk, connections are opened.
    for run in 0..=it.runs {
        let id = format!("{prefix}-{run}");
        // What comes second finds warmer caches; each comes second as often as the other.
        let pair = if run % 2 == 0 {
            let bare = bare_spawn(class, cluster, run).await?;
            Pair { bare, session: session(&client, &it.class, &id).await? }
        } else {
            let session = session(&client, &it.class, &id).await?;
            Pair { bare: bare_spawn(class, cluster, run).await?, session }
        };
        if run > 0 {
            pairs.push(pair);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(compared(it, &pairs))
}

/// Milliseconds of a bare spawn, and of a session's open and first answer beside it.
#[derive(Clone, Copy)]
struct Pair {
    bare: f64,
    session: (f64, f64),
}

fn compared(it: &ColdArguments, pairs: &[Pair]) -> Cold {
    let all = |pick: fn(&Pair) -> f64| pairs.iter().map(pick).collect::<Vec<f64>>();
    Cold {
        class: it.class.clone(),
        runs: it.runs,
        opened: Times::of(all(|pair| pair.session.0)),
        answered: Times::of(all(|pair| pair.session.1)),
        bare: Times::of(all(|pair| pair.bare)),
        added_ms: rounded(median(all(|pair| pair.session.1 - pair.bare)), 2),
        ratio: rounded(median(all(|pair| pair.session.1 / pair.bare)), 3),
        cores: cores(),
    }
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

async fn session(client: &Client, class: &str, id: &str) -> anyhow::Result<(f64, f64)> {
    let began = Instant::now();
    let request = target::open_request(id.to_owned(), class);
    let answer = client.open(request, ANSWER_WAIT).await?;
    let to_open = ms(began);
    let session = answer.session.context("the answer has no session")?;
    answers(&session.address).await?;
    let to_answer = ms(began);
    let close = v1::CloseRequest { id: id.to_owned(), ..Default::default() };
    client.close(close, ANSWER_WAIT).await?;
    Ok((to_open, to_answer))
}

/// Resolves at the first byte of an answer; what is asked is HTTP, which other servers answer with
/// a complaint.
async fn answers(address: &str) -> anyhow::Result<()> {
    let until = Instant::now() + ANSWER_WAIT;
    while Instant::now() < until {
        match tokio::time::timeout(ANSWER_WAIT, ask(address)).await {
            Ok(Ok(_first_byte)) => return Ok(()),
            Ok(Err(_)) | Err(_) => tokio::time::sleep(TRY_EVERY).await,
        }
    }
    bail!("{address} did not answer within {ANSWER_WAIT:?}")
}

async fn ask(address: &str) -> std::io::Result<u8> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
    stream.read_u8().await
}

async fn bare_spawn(class: &ProgramClass, cluster: &Cluster, run: u32) -> anyhow::Result<f64> {
    let folder = cluster.folder().join(format!("bare-{run}"));
    std::fs::create_dir_all(&folder)?;
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let port = free.local_addr()?.port();
    drop(free);
    let address = format!("127.0.0.1:{port}");
    let argv = arguments(class, port, &folder);
    let (program, rest) = argv.split_first().context("argv is not empty")?;
    let mut command = Command::new(program);
    command.args(rest).current_dir(&folder);
    let family: &Family = &cluster.family;
    let began = Instant::now();
    let process = family.start("bare", command, &cluster.log("bare"))?;
    let answered = tokio::select! {
        answered = answers(&address) => answered,
        ending = family.wait_for_end(process.pid) => Err(anyhow::anyhow!("{program} ended {ending}")),
    };
    let time = ms(began);
    family.signal(process.pid, Signal::KILL);
    family.wait_for_end(process.pid).await;
    answered?;
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_found_by_its_name_and_its_arguments_are_filled_in() {
        let folder = tempfile::tempdir().unwrap();
        let text =
            "name = \"web\"\nkind = \"program\"\nargv = [\"serve\", \"{port}\", \"{folder}\"]";
        std::fs::write(folder.path().join("a.toml"), text).unwrap();
        std::fs::write(folder.path().join("b.toml"), "name = \"still\"\nkind = \"machine\"")
            .unwrap();
        let class = find_class(folder.path(), "web").unwrap();
        assert_eq!(arguments(&class, 80, Path::new("/f")), ["serve", "80", "/f"]);
        assert!(find_class(folder.path(), "still").unwrap_err().to_string().contains("no program"));
        assert!(find_class(folder.path(), "none").is_err());
    }

    #[test]
    fn differences_and_ratios_are_taken_pair_by_pair() {
        let it = ColdArguments { class: "web".into(), classes: None, runs: 3 };
        // The machine was slow during the second pair: each pair alone still says the same.
        let pairs = [(10.0, 12.0), (100.0, 120.0), (20.0, 24.0)];
        let pairs = pairs.map(|(bare, answer)| Pair { bare, session: (answer - 1.0, answer) });
        let cold = compared(&it, &pairs);
        assert!((cold.ratio - 1.2).abs() < 1e-9);
        assert!((cold.added_ms - 4.0).abs() < 1e-9);
        assert!((cold.bare.p50_ms - 20.0).abs() < 1e-9);
    }

    #[tokio::test]
    async fn a_server_answers_at_its_first_byte() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"x").await.unwrap();
        });
        answers(&address).await.unwrap();
    }
}
