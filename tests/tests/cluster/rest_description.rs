//! The description of the tree, held against the rules of OpenAPI and against a manager that runs.

use crate::foreign::{python, run};
use rota_tests::{Cluster, TestFolder, checkout, http_get, skipped};
use tokio::process::Command;

/// A program that `deploy/test` installs with its Python.
fn program(name: &str) -> Option<Command> {
    let program = python()?.with_file_name(name);
    program.is_file().then(|| Command::new(program))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_description_that_is_served_is_one_of_openapi() {
    let name = "the_description_that_is_served_is_one_of_openapi";
    let Some(mut validator) = program("openapi-spec-validator") else {
        return skipped(name, "there is no openapi-spec-validator; deploy/test installs it");
    };
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &["--managers", "1"]).await;
    let http = &cluster.document.managers[0].http;
    let page = http_get(http, "/v1/openapi.json").await.unwrap();
    assert_eq!((page.code, page.header("content-type")), (200, Some("application/json")));
    assert_eq!(page.json()["openapi"], "3.1.0");
    let file = folder.at("openapi.json");
    std::fs::write(&file, &page.body).unwrap();
    validator.args(["--schema", "3.1", &file]);
    run(validator).await;
    cluster.end().await;
}

/// Always the same made-up requests: what fails here, fails for whoever repeats it.
const SEED: &str = "25";

#[tokio::test(flavor = "multi_thread")]
async fn made_up_requests_are_answered_as_the_description_says() {
    let name = "made_up_requests_are_answered_as_the_description_says";
    let Some(mut schemathesis) = program("schemathesis") else {
        return skipped(name, "there is no schemathesis; deploy/test installs it");
    };
    let folder = TestFolder::new();
    let cluster = Cluster::start(&folder, &[]).await;
    let config = checkout().join("tests/foreign/schemathesis.toml");
    schemathesis.arg("--config-file").arg(config).current_dir(folder.path());
    let http = &cluster.document.managers[0].http;
    let page = http_get(http, "/v1/openapi.json").await.unwrap().json();
    // Watches do not end, and the description itself is none of what it tests.
    let paths = page["paths"].as_object().unwrap().iter();
    let ends = paths.filter(|it| !it.0.ends_with(":watch") && !it.0.ends_with("/openapi.json"));
    // A path may have several methods, and what they share beside them.
    let methods = ["get", "put", "post", "delete", "head", "patch"];
    let ends =
        ends.map(|(_, it)| methods.iter().filter(|method| it.get(**method).is_some()).count());
    let ends: usize = ends.sum();
    let description = format!("http://{http}/v1/openapi.json");
    schemathesis.args(["run", &description, "--seed", SEED]);
    let told = run(schemathesis).await;
    assert!(told.contains(&format!("Tested: {ends}\n")), "{ends} operations end: {told}");
    cluster.end().await;
}
