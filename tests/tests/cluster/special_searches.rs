//! The example of a search of an application's own, over a ring: pages while an owner dies, and what is refused.

use rota_client::v1;
use rota_tests::sessions::CALL;
use rota_tests::{Cluster, TestFolder, binary};
use serde_json::{Value, json};

/// Shops on one meridian, a tenth of a degree from each other: 11 km.
const SHOPS: u32 = 60;

fn docid(number: u32) -> String {
    format!("s{number:02}")
}

async fn opened(cluster: &Cluster, number: u32) {
    let at = json!({"class": "At", "json": {"lat": 50.0 + f64::from(number) / 10.0, "lon": 20.0}});
    let open = number.is_multiple_of(2);
    let hours = json!({"class": "Hours", "json": {"open": open}});
    let docid = docid(number);
    let change = json!({"class": "Shop", "docid": docid, "life": "ensure", "put": [at, hours]});
    let (place, changes) = (format!("default/{docid}"), json!({"changes": [change]}).to_string());
    let line = ["document", "operate", &place, "document.write", &changes];
    cluster.ringctl(&line).await.expect_success();
}

fn docids(hits: &Value) -> Vec<String> {
    let hits = hits["hits"].as_array().expect("there are hits");
    hits.iter().map(|it| it["docid"].as_str().expect("it is a text").to_owned()).collect()
}

fn near(km: u32) -> String {
    json!({"lat": 53.0, "lon": 20.0, "km": km}).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_applications_own_search_has_pages_over_the_ring_though_an_owner_dies_between_them() {
    let folder = TestFolder::new();
    let programs = folder.path().join("programs");
    std::fs::create_dir_all(&programs).unwrap();
    std::os::unix::fs::symlink(binary("examples/nearby"), programs.join("rota-manager")).unwrap();
    let programs = folder.at("programs");
    let cluster = Cluster::start_in(&folder, &[], &[("ROTA_BIN_DIR", &programs)]).await;
    for number in 0..SHOPS {
        opened(&cluster, number).await;
    }
    let search = async |more: &[&str]| {
        let line = ["document", "search", "default/Shop", "-o", "json"];
        cluster.ringctl(&[&line[..], more].concat()).await
    };
    let special = async |parameters: &str, more: &[&str]| {
        let line = ["--item", "At", "--special", "near", "--parameters", parameters];
        search(&[&line[..], more].concat()).await
    };
    // Two steps of 11 km fit into 25 km.
    let found = special(&near(25), &["--items"]).await.json();
    assert_eq!(docids(&found), [28, 29, 30, 31, 32].map(docid));
    assert_eq!(found["hits"][2]["json"]["lat"], 53.0, "{found}");
    let found = special(&near(25), &["--where", "lat > 53", "--sort", "-docid"]).await.json();
    assert_eq!(docids(&found), [32, 31].map(docid), "conditions hold as well");

    let client = cluster.client();
    let mut request = v1::SearchRequest {
        class: "Shop".to_owned(),
        special: "near".to_owned(),
        parameters: near(250),
        page_size: 6,
        ..Default::default()
    };
    let (mut seen, mut pages) = (Vec::new(), 0);
    loop {
        let page = client.documents().search(request.clone(), CALL).await.unwrap();
        assert!(page.hits.len() <= 6);
        seen.extend(page.hits.iter().map(|it| it.name.docid().to_owned()));
        pages += 1;
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
        if pages == 2 {
            cluster.kill_manager(0).await;
        }
    }
    let expected: Vec<String> = (8..=52).map(docid).collect();
    assert_eq!((seen, pages), (expected, 8));
    mistakes(&cluster).await;
    cluster.end().await;
}

/// At a manager that lives.
async fn mistakes(cluster: &Cluster) {
    let refused = async |class: &str, more: &[&str]| {
        let line = ["document", "search", class, "-o", "json"];
        let error = cluster.ringctl_at(1, &[&line[..], more].concat()).await.error();
        assert_eq!(error["reason"], "A-INVALID", "{error}");
        error["message"].as_str().expect("there is a text").to_owned()
    };
    let told = refused("default/Shop", &["--special", "far"]).await;
    assert!(told.contains("special \"far\" is unknown here; there are near"), "{told}");
    let told = refused("default/Cart", &["--special", "near"]).await;
    assert!(told.contains("\"Cart\" has no special search"), "{told}");
    let told = refused("default/Shop", &["--special", "near"]).await;
    assert!(told.contains("parameters do not fit search near: missing field `lat`"), "{told}");
    let far = near(1_001);
    let told = refused("default/Shop", &["--special", "near", "--parameters", &far]).await;
    assert!(told.contains("parameters.km is 1001, and must be 0 to 1000"), "{told}");
    let told = refused("default/Shop", &["--special", "near", "--parameters", "{"]).await;
    assert!(told.contains("parameters does not parse"), "{told}");
    let close = near(10);
    let by_lat = ["--item", "At", "--sort", "lat", "--special", "near", "--parameters", &close];
    let told = refused("default/Shop", &by_lat).await;
    assert!(told.contains("sort must be docid, or left out"), "{told}");
    let found = ["document", "search", "default/Shop", "--where", "docid = s07", "-o", "json"];
    assert_eq!(docids(&cluster.ringctl_at(1, &found).await.json()), ["s07"], "others go on");
}
