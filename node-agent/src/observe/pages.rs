//! HTTP of a node: `/metrics` for Prometheus.

use super::listing::{Listing, OfClass};
use super::service::READERS_MAX;
use super::usage::{self, Sample};
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use rota_daemon::{HttpLimits, HttpNames, serve_http};
use std::fmt::{Display, Write};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// A scraper and a person or two.
const LIMITS: HttpLimits = HttpLimits {
    connections: 32,
    idle: Duration::from_secs(10),
    lifetime: Some(Duration::from_secs(60)),
    last_request: Duration::from_secs(5),
    drain: Duration::from_secs(1),
};

/// What the pages show.
#[derive(Clone)]
struct Shown {
    listing: Listing,
    readers: Arc<Semaphore>,
    looks: Arc<Semaphore>,
}

/// Serves until the task is dropped.
pub async fn serve(
    listener: TcpListener,
    listing: Listing,
    (readers, looks): (Arc<Semaphore>, Arc<Semaphore>),
    names: HttpNames,
) {
    let shown = Shown { listing, readers, looks };
    let router = Router::new().route("/metrics", get(metrics)).with_state(shown);
    serve_http(listener, router, LIMITS, names, std::future::pending()).await;
}

async fn metrics(State(shown): State<Shown>) -> Response {
    let Ok(look) = shown.looks.acquire().await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let listing = shown.listing.clone();
    let sample = tokio::task::spawn_blocking(move || usage::sample(&listing)).await;
    drop(look);
    match sample {
        Ok(sample) => {
            let readers = READERS_MAX - shown.readers.available_permits();
            let kind = "text/plain; version=0.0.4; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], exposition(&sample, readers)).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Samples of one metric in the format of Prometheus.
struct Exposition(String);

impl Exposition {
    fn metric<V: Display>(
        &mut self,
        (name, kind): (&str, &str),
        meaning: &str,
        values: impl Iterator<Item = (String, V)>,
    ) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {meaning}\n# TYPE {name} {kind}");
        for (labels, value) in values {
            let _ = writeln!(self.0, "{name}{labels} {value}");
        }
    }
}

/// The label of a class. Names of classes may hold anything but control characters.
fn of_class(class: &str) -> String {
    format!("{{class=\"{}\"}}", class.replace('\\', "\\\\").replace('"', "\\\""))
}

fn exposition(sample: &Sample, readers: usize) -> String {
    let mut text = Exposition(String::new());
    let each = |value: fn(&OfClass) -> f64| {
        sample.classes.iter().map(move |(class, of)| (of_class(class), value(of)))
    };
    #[expect(clippy::cast_precision_loss, reason = "the format's numbers are of that kind")]
    let (programs, memory) = (each(|of| of.programs as f64), each(|of| of.memory_bytes as f64));
    text.metric(("rota_programs", "gauge"), "Programs that run.", programs);
    text.metric(
        ("rota_program_cpu_seconds_total", "counter"),
        "CPU time of programs, ended ones included.",
        each(|of| of.cpu.as_secs_f64()),
    );
    text.metric(("rota_program_memory_bytes", "gauge"), "Memory of programs that run.", memory);
    let own = sample.own;
    text.metric(
        ("rota_agent_cpu_seconds", "gauge"),
        "CPU time of the agent, its guardian and its keepers that run.",
        std::iter::once((String::new(), own.cpu.as_secs_f64())),
    );
    text.metric(
        ("rota_agent_memory_bytes", "gauge"),
        "Memory of the agent, its guardian and its keepers.",
        std::iter::once((String::new(), own.memory_bytes)),
    );
    text.metric(
        ("rota_output_readers", "gauge"),
        "Readers of output, at most 64.",
        std::iter::once((String::new(), readers)),
    );
    text.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::usage::Used;
    use std::collections::BTreeMap;

    #[test]
    fn each_class_has_its_series_whatever_it_is_called() {
        let of = OfClass { programs: 2, cpu: Duration::from_millis(1_500), memory_bytes: 4_096 };
        let own = Used { cpu: Duration::from_secs(1), memory_bytes: 7, processes: 2 };
        let classes = BTreeMap::from([("http".to_owned(), of), ("a \"b\\".to_owned(), of)]);
        let programs = Used::default();
        let sample = Sample { at_us: 1, own, programs, sessions: Vec::new(), classes };
        let text = exposition(&sample, 3);
        for line in [
            "# TYPE rota_programs gauge",
            "rota_programs{class=\"http\"} 2",
            "rota_programs{class=\"a \\\"b\\\\\"} 2",
            "rota_program_cpu_seconds_total{class=\"http\"} 1.5",
            "rota_program_memory_bytes{class=\"http\"} 4096",
            "rota_agent_cpu_seconds 1",
            "rota_agent_memory_bytes 7",
            "rota_output_readers 3",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in {text}");
        }
    }
}
