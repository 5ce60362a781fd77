//! Open and get on a cluster of its own, beside a bare echo: in turns, in the same minute, with
//! the same load generator. The ratios are what counts; absolute figures drift with the machine.
//! Opens go to their owners, by a client that knows the View, and in other turns through any manager,
//! which forwards most of them, as gets always do.

use super::LoadArguments;
use super::echo::{self, EchoClient};
use super::load::{self, Load, Measured, as_f64};
use super::report::{Figures, cores, rounded, show, tell_mistakes};
use super::{target, usage};
use crate::dev::{Cluster, Settings, with_cluster};
use crate::output::{Format, Out};
use anyhow::bail;
use clap::Args;
use rota_client::Client;
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Sessions that are read.
const GET_SESSIONS: u32 = 1000;
/// Connections to the echo server: more carried less on loopback.
const ECHO_CONNECTIONS: u32 = 4;

/// `bench compare`.
#[derive(Args, Debug)]
pub struct CompareArguments {
    #[command(flatten)]
    load: LoadArguments,
    /// Rounds of each kind; the duration is divided among them.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    rounds: u32,
    /// Managers of the cluster.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    managers: u32,
    /// Successors with copies.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=99))]
    replicas: u32,
    /// Nodes of the cluster.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    nodes: u32,
    /// Class of the sessions.
    #[arg(long, default_value = "builtin")]
    class: String,
    /// Bytes that the echo carries each way: about what a get carries.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    payload: u32,
}

/// What is called.
#[derive(Clone, Copy)]
enum Called {
    Echo,
    /// By a client that knows the View, at the owner.
    Open,
    /// Through any manager.
    OpenAny,
    /// Through any manager.
    Get,
}

impl Called {
    /// In the order of their turns.
    const ALL: [Self; 4] = [Self::Echo, Self::Open, Self::OpenAny, Self::Get];

    const fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Open => "open",
            Self::OpenAny => "open-any",
            Self::Get => "get",
        }
    }
}

/// CPU time of everyone who takes part, in microseconds per call.
#[derive(Serialize, Clone, Copy, PartialEq, Debug, Default)]
struct CpuPerCall {
    load_generator: f64,
    managers: f64,
    nodes: f64,
    config_store: f64,
    echo: f64,
}

#[derive(Serialize, PartialEq, Debug, Default)]
struct Compared {
    echo_per_s: f64,
    open_per_s: f64,
    get_per_s: f64,
    open_ratio: f64,
    get_ratio: f64,
    open_p50_ms: f64,
    open_p99_ms: f64,
    open_any_per_s: f64,
    open_any_ratio: f64,
    open_any_p50_ms: f64,
    open_any_p99_ms: f64,
    get_p50_ms: f64,
    get_p99_ms: f64,
    echo_p50_ms: f64,
    echo_p99_ms: f64,
    cores: usize,
    concurrency: u32,
    rounds: u32,
    duration_s: f64,
    managers: u32,
    replicas: u32,
    nodes: u32,
    class: String,
    echo_payload_bytes: u32,
    failed: u64,
    opened: u64,
    dev_ready_ms: f64,
    cpu_us_per_echo: CpuPerCall,
    cpu_us_per_open: CpuPerCall,
    cpu_us_per_open_any: CpuPerCall,
    cpu_us_per_get: CpuPerCall,
}

/// CPU time used so far.
#[derive(Clone, Copy, Default)]
struct CpuTotals {
    load_generator: Duration,
    managers: Duration,
    nodes: Duration,
    config_store: Duration,
    echo: Duration,
}

/// Who takes part.
struct Parties {
    managers: Vec<u32>,
    nodes: Vec<u32>,
    store: u32,
    echo: u32,
}

impl Parties {
    fn cpu(&self) -> CpuTotals {
        let of = |pids: &[u32]| pids.iter().filter_map(|pid| usage::cpu(*pid)).sum();
        CpuTotals {
            load_generator: of(&[std::process::id()]),
            managers: of(&self.managers),
            nodes: of(&self.nodes),
            config_store: of(&[self.store]),
            echo: of(&[self.echo]),
        }
    }
}

/// Rounds of one kind of call.
#[derive(Default)]
struct Kind {
    rounds: Vec<Measured>,
    cpu: Vec<(CpuTotals, CpuTotals)>,
}

impl Kind {
    /// Everything of all rounds.
    fn whole(&self) -> Measured {
        let mut whole = Measured::default();
        self.rounds.iter().for_each(|round| whole.add(round));
        whole
    }

    /// The median of the rounds: one disturbed round does not count.
    fn per_second(&self) -> f64 {
        median(self.rounds.iter().map(Measured::per_second).collect())
    }

    fn cpu_per_call(&self) -> CpuPerCall {
        // Calls of the warm-up use CPU time as well.
        let warm = load::WARM_UP.as_secs_f64();
        let calls: f64 = (self.rounds.iter())
            .map(|it| it.per_second() * (it.elapsed.as_secs_f64() + warm))
            .sum();
        let part = |pick: fn(&CpuTotals) -> Duration| {
            let used: Duration = (self.cpu.iter())
                .map(|(before, after)| pick(after).saturating_sub(pick(before)))
                .sum();
            rounded(used.as_secs_f64() * 1e6 / calls.max(1.0), 1)
        };
        CpuPerCall {
            load_generator: part(|it| it.load_generator),
            managers: part(|it| it.managers),
            nodes: part(|it| it.nodes),
            config_store: part(|it| it.config_store),
            echo: part(|it| it.echo),
        }
    }
}

/// The middle value; 0 of none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// `bench compare`.
pub async fn run(it: &CompareArguments, out: &mut Out) -> anyhow::Result<()> {
    let settings = Settings {
        managers: Some(it.managers),
        replicas: Some(it.replicas),
        nodes: Some(it.nodes),
        port_base: Some(0),
        places: Some(1_000_000),
        ..Settings::default()
    };
    let (compared, kinds) =
        with_cluster(&settings, async |cluster| measure(it, cluster).await).await?;
    if out.format() == Format::Json {
        return Ok(out.json(&compared)?);
    }
    let figures: Vec<Figures> =
        Called::ALL.iter().zip(&kinds).map(|(n, it)| Figures::of(n.name(), it)).collect();
    show(&figures, out)?;
    out.text(&format!(
        "\nopen / echo {:.3}   open through any / echo {:.3}   get / echo {:.3}   ({} cores, {} managers, \
         {} successors, concurrency {}, medians of {} rounds)\n",
        compared.open_ratio,
        compared.open_any_ratio,
        compared.get_ratio,
        compared.cores,
        compared.managers,
        compared.replicas,
        compared.concurrency,
        compared.rounds,
    ))?;
    Ok(())
}

async fn measure(
    it: &CompareArguments,
    cluster: &mut Cluster,
) -> anyhow::Result<(Compared, [Measured; 4])> {
    let (echo_address, echo_pid) = echo::start(cluster).await?;
    let echo = EchoClient::new(&echo_address, ECHO_CONNECTIONS, it.payload as usize)?;
    let document = cluster.document();
    let parties = Parties {
        managers: document.managers.iter().map(|it| it.pid).collect(),
        nodes: document.nodes.iter().map(|it| it.pid).collect(),
        store: document.config_store.pid,
        echo: echo_pid,
    };
    let [client, routed] = [false, true]
        .map(|route| target::client(&document.endpoints(), it.load.connections, route));
    let (client, routed) = (client?, routed?);
    let ids = Arc::new(target::prepare(&client, &it.class, GET_SESSIONS).await?);
    let load = Load { concurrency: it.load.concurrency, duration: it.load.duration / it.rounds };
    let mut kinds: [Kind; 4] = Default::default();
    for round in 1..=it.rounds {
        let mut before = parties.cpu();
        for (called, kind) in Called::ALL.into_iter().zip(&mut kinds) {
            let label = format!("{} {round}/{}", called.name(), it.rounds);
            let measured = match called {
                Called::Echo => echo_load(&label, load, &echo).await,
                Called::Open => open_round(&label, load, &routed, it).await,
                Called::OpenAny => open_round(&label, load, &client, it).await,
                Called::Get => target::get_load(&label, load, &client, ids.clone()).await,
            };
            let after = parties.cpu();
            kind.rounds.push(measured);
            kind.cpu.push((before, after));
            before = after;
        }
    }
    let whole = kinds.each_ref().map(Kind::whole);
    for (called, measured) in Called::ALL.iter().zip(&whole) {
        let name = called.name();
        tell_mistakes(name, measured);
        if measured.count == 0 {
            bail!("no {name} succeeded");
        }
    }
    let compared = compared(it, &kinds, &whole, cluster.started_in);
    Ok((compared, whole))
}

async fn open_round(name: &str, load: Load, client: &Client, it: &CompareArguments) -> Measured {
    target::open_load(name, load, client, &it.class, target::Ids::default()).await
}

async fn echo_load(name: &str, load: Load, echo: &EchoClient) -> Measured {
    let echo = echo.clone();
    load::run(name, load, move |number| {
        let echo = echo.clone();
        async move {
            echo.call(number, target::CALL_WAIT).await?;
            Ok(Instant::now())
        }
    })
    .await
}

fn compared(
    it: &CompareArguments,
    kinds: &[Kind; 4],
    [echo, open, any, get]: &[Measured; 4],
    dev_ready: Duration,
) -> Compared {
    let per_second = kinds.each_ref().map(Kind::per_second);
    let [echo_per_s, open_per_s, any_per_s, get_per_s] = per_second;
    let to_echo = |rate: f64| rounded(rate / echo_per_s.max(1.0), 4);
    let [echo_cpu, open_cpu, any_cpu, get_cpu] = kinds.each_ref().map(Kind::cpu_per_call);
    let ms = |measured: &Measured, part: f64| rounded(measured.latency_ms(part), 3);
    Compared {
        echo_per_s: rounded(echo_per_s, 1),
        open_per_s: rounded(open_per_s, 1),
        get_per_s: rounded(get_per_s, 1),
        open_ratio: to_echo(open_per_s),
        get_ratio: to_echo(get_per_s),
        open_p50_ms: ms(open, 0.5),
        open_p99_ms: ms(open, 0.99),
        open_any_per_s: rounded(any_per_s, 1),
        open_any_ratio: to_echo(any_per_s),
        open_any_p50_ms: ms(any, 0.5),
        open_any_p99_ms: ms(any, 0.99),
        get_p50_ms: ms(get, 0.5),
        get_p99_ms: ms(get, 0.99),
        echo_p50_ms: ms(echo, 0.5),
        echo_p99_ms: ms(echo, 0.99),
        cores: cores(),
        concurrency: it.load.concurrency,
        rounds: it.rounds,
        duration_s: rounded(it.load.duration.as_secs_f64(), 3),
        managers: it.managers,
        replicas: it.replicas,
        nodes: it.nodes,
        class: it.class.clone(),
        echo_payload_bytes: it.payload,
        failed: echo.failed + open.failed + any.failed + get.failed,
        opened: open.count + any.count,
        dev_ready_ms: rounded(
            as_f64(u64::try_from(dev_ready.as_micros()).unwrap_or(0)) / 1000.0,
            1,
        ),
        cpu_us_per_echo: echo_cpu,
        cpu_us_per_open: open_cpu,
        cpu_us_per_open_any: any_cpu,
        cpu_us_per_get: get_cpu,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_disturbed_round_does_not_move_the_median() {
        assert!((median(vec![3.0, 100.0, 2.0]) - 3.0).abs() < 1e-9);
        assert!((median(Vec::new())).abs() < 1e-9);
    }

    #[test]
    fn the_document_begins_with_rates_ratios_and_latencies() {
        let text = serde_json::to_string(&Compared::default()).unwrap();
        let order = ["echo_per_s", "open_per_s", "get_per_s", "open_ratio", "get_ratio"];
        let places: Vec<usize> = order.iter().map(|it| text.find(it).unwrap()).collect();
        assert!(places.is_sorted());
        for field in ["open_p50_ms", "open_p99_ms", "get_p99_ms", "echo_p99_ms", "cores"] {
            assert!(text.contains(field), "{field}");
        }
    }
}
