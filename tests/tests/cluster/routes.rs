//! The route to a session, and a real nginx that goes by it.

use rota_tests::sessions::{CALL, close, opened, read};
use rota_tests::{
    Cluster, HttpRequest, PATIENCE, Page, TestFolder, checkout, eventually, http_ask,
    shipped_classes_and, skipped,
};
use rustix::process::Signal;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

const WAIT: Duration = Duration::from_secs(20);

/// A class whose sessions are opened on demand: `tests/foreign/echo.py`.
fn echo() -> String {
    let program = checkout().join("tests/foreign/echo.py");
    format!(
        "name = \"echo\"\nkind = \"program\"\nargv = [\"python3\", \"-u\", {program:?}, \"{{ip}}\", \
         \"{{port}}\"]\nready = {{ port = true }}\nstart_timeout = \"20s\"\nopen_on_demand = true\n"
    )
}

async fn cluster(folder: &TestFolder) -> Cluster {
    let classes = shipped_classes_and(folder, &[("echo", &echo())]);
    let cluster = Cluster::start(folder, &["--classes", &classes]).await;
    eventually("every manager knows that the class opens on demand", PATIENCE, async || {
        for manager in 0..3 {
            let known = asked(&cluster, manager, "/v1/pools/default", false).await.json();
            if known["classes"]["echo"]["open_on_demand"] != true {
                return Err(known.to_string());
            }
        }
        Ok(())
    })
    .await;
    cluster
}

async fn asked(cluster: &Cluster, manager: usize, path: &str, is_gateway: bool) -> Page {
    let gateway = [("Rota-Gateway", "1")];
    let headers = if is_gateway { &gateway[..] } else { &[] };
    let request = HttpRequest::get(path, headers);
    http_ask(&cluster.document.managers[manager].http, request).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_is_told_and_a_gateway_has_opened_what_its_class_allows() {
    let folder = TestFolder::new();
    let cluster = cluster(&folder).await;
    let client = cluster.client();
    let http = opened(&client, "plain", "http").await;
    let page = asked(&cluster, 0, "/route?session=plain", false).await;
    assert_eq!((page.code, page.header("rota-address")), (204, Some(http.address.as_str())));
    assert_eq!(page.header("rota-life"), Some(http.life.to_string().as_str()));
    let refused = async |manager: usize, path: &str, is_gateway: bool, why: &str| {
        let page = asked(&cluster, manager, path, is_gateway).await;
        assert_eq!(page.code, 404, "{path}: {page:?}");
        assert!(page.body.contains(why), "{why} in {page:?}");
    };
    refused(0, "/route?session=new&class=echo", false, "rota-gateway: 1").await;
    refused(1, "/route?session=new", true, "no class is given").await;
    refused(2, "/route?session=new&class=http", true, "open_on_demand = true").await;
    refused(0, "/route?session=new&class=none", true, "open_on_demand = true").await;
    assert!(read(&client, "new").await.is_err(), "nothing was opened");
    let page = asked(&cluster, 1, "/route?session=new&class=echo", true).await;
    assert_eq!(page.code, 204, "{page:?}");
    let session = read(&client, "new").await.unwrap();
    assert_eq!(page.header("rota-address"), Some(session.address.as_str()));
    let again = asked(&cluster, 2, "/route?session=new", true).await;
    assert_eq!(again.header("rota-life"), page.header("rota-life"));
    client.close(close("new"), CALL).await.unwrap();
    refused(0, "/route?session=new", false, "CLOSED").await;
    let reopened = asked(&cluster, 0, "/route?session=new", true).await;
    assert_eq!(reopened.code, 204, "with the class that it had: {reopened:?}");
    assert_ne!(reopened.header("rota-life"), page.header("rota-life"));
    client.close(close("plain"), CALL).await.unwrap();
    refused(1, "/route?session=plain", true, "open_on_demand = true").await;
    let http = &cluster.document.managers[0].http;
    let yes = HttpRequest::get("/route?session=&class=echo", &[("Rota-Gateway", "yes")]);
    let wrong = http_ask(http, yes).await.unwrap();
    assert_eq!(wrong.code, 400, "{wrong:?}");
    assert!(wrong.body.contains("Rota-Gateway must be 1; session must not"), "{wrong:?}");
    let foreign = HttpRequest::get(
        "/route?session=foreign&class=echo",
        &[("Rota-Gateway", "1"), ("Origin", "https://evil.example")],
    );
    assert_eq!(http_ask(http, foreign).await.unwrap().code, 403);
    assert!(read(&client, "foreign").await.is_err());
    cluster.end().await;
}

/// An nginx with the configuration that ships. It listens at a socket in the folder.
struct Nginx {
    child: Child,
    socket: String,
}

impl Nginx {
    async fn start(folder: &TestFolder, cluster: &Cluster) -> Self {
        let shipped = std::fs::read_to_string(checkout().join("deploy/nginx/rota.conf")).unwrap();
        let (socket, http) = (folder.at("nginx.sock"), &cluster.document.managers);
        let mut own = shipped.replace("127.0.0.1:8080", &format!("unix:{socket}"));
        own = own.replace("&class=http&", "&class=echo&");
        for (port, manager) in [7403, 7404, 7405].into_iter().zip(http) {
            own = own.replace(&format!("127.0.0.1:{port}"), &manager.http);
        }
        std::fs::write(folder.at("rota.conf"), own).unwrap();
        let at = folder.path().display();
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let temporary = temporary.map(|it| format!("{it}_temp_path {at}/nginx-{it};"));
        let main = format!(
            "daemon off; master_process off; pid {at}/nginx.pid;\nevents {{}}\nhttp {{ access_log off; {}\n\
             include {at}/rota.conf; }}\n",
            temporary.join(" ")
        );
        std::fs::write(folder.at("nginx.conf"), main).unwrap();
        let mut command = Command::new("nginx");
        command.args(["-e", &folder.at("nginx.log"), "-c", &folder.at("nginx.conf")]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.kill_on_drop(true).spawn().expect("nginx starts");
        eventually("nginx listens", PATIENCE, async || match UnixStream::connect(&socket).await {
            Ok(_) => Ok(()),
            Err(error) => {
                let log = std::fs::read_to_string(folder.at("nginx.log")).unwrap_or_default();
                Err(format!("{error}: {log}"))
            }
        })
        .await;
        Self { child, socket }
    }

    async fn get(&self, path: &str) -> Page {
        let from_a_page = &[("Origin", "https://app.example"), ("Sec-Fetch-Site", "cross-site")];
        let request = HttpRequest::get(path, from_a_page);
        http_ask(&format!("unix:{}", self.socket), request).await.unwrap()
    }

    async fn end(mut self) {
        let pid = self.child.id().expect("it was not waited for");
        rota_tests::processes::send(pid, Signal::TERM);
        let ended = timeout(WAIT, self.child.wait()).await.expect("nginx ends").unwrap();
        assert!(ended.success(), "{ended}");
    }
}

/// A WebSocket, of which only short messages of text are written and read.
struct WebSocket(UnixStream);

impl WebSocket {
    async fn open(socket: &str, path: &str) -> Result<Self, String> {
        let begin = async {
            let mut stream = UnixStream::connect(socket).await?;
            let request = format!(
                "GET {path} HTTP/1.1\r\nHost: app.example\r\nOrigin: https://app.example\r\nUpgrade: websocket\r\n\
                 Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: \
                 dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            );
            stream.write_all(request.as_bytes()).await?;
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await?);
            }
            Ok::<_, std::io::Error>((stream, String::from_utf8_lossy(&head).into_owned()))
        };
        let begun = timeout(WAIT, begin).await.map_err(|_| "no answer in time".to_owned())?;
        let (stream, head) = begun.map_err(|error| error.to_string())?;
        // The answer to the sample key of RFC 6455.
        let accepts = head.contains("101") && head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        if accepts { Ok(Self(stream)) } else { Err(head) }
    }

    /// Sends a text, and gives what comes back: which run of the program it is, and the text.
    async fn say(&mut self, text: &str) -> std::io::Result<String> {
        let mask = [1, 2, 3, 4];
        let length = u8::try_from(text.len()).unwrap();
        let masked = text.bytes().enumerate().map(|(at, it)| it ^ mask[at % 4]);
        let frame: Vec<u8> = [0x81, 0x80 | length].into_iter().chain(mask).chain(masked).collect();
        let exchange = async {
            self.0.write_all(&frame).await?;
            let mut head = [0; 2];
            self.0.read_exact(&mut head).await?;
            let mut said = vec![0; head[1].into()];
            self.0.read_exact(&mut said).await?;
            Ok(String::from_utf8_lossy(&said).into_owned())
        };
        timeout(WAIT, exchange).await.expect("an answer, or the end")
    }
}

/// Which run of the program answers, as it tells it.
fn run_of(page: &Page) -> &str {
    let run = page.body.strip_prefix("run ").and_then(|it| it.split(' ').next());
    run.unwrap_or_else(|| panic!("no run in {page:?}"))
}

/// Kills the only program of class `echo`.
fn kill_the_program(cluster: &Cluster) {
    let mut programs = cluster.processes();
    programs.retain(|it| it.line[0].contains("python3") && it.line.join(" ").contains("echo.py"));
    let [program] = &programs[..] else { panic!("one program of echo is in {programs:?}") };
    program.signal(Signal::KILL);
}

#[tokio::test(flavor = "multi_thread")]
async fn nginx_leads_requests_and_websockets_to_sessions_and_opens_a_killed_one_again() {
    let name = "nginx_leads_requests_and_websockets_to_sessions_and_opens_a_killed_one_again";
    let version = Command::new("nginx").arg("-v").stderr(Stdio::null()).status().await;
    if !version.is_ok_and(|it| it.success()) {
        return skipped(name, "there is no nginx; deploy/test installs it");
    }
    let folder = TestFolder::new();
    let cluster = cluster(&folder).await;
    let nginx = Nginx::start(&folder, &cluster).await;
    let page = nginx.get("/s/room-1/some/page%20here?a=1").await;
    assert_eq!(page.code, 200, "{page:?}");
    assert!(page.body.contains("path /some/page%20here?a=1 host localhost"), "{page:?}");
    let life = page.header("rota-life").unwrap().to_owned();
    let first = run_of(&page).to_owned();
    let mut socket = WebSocket::open(&nginx.socket, "/s/room-1/chat").await.unwrap();
    assert_eq!(socket.say("hello").await.unwrap(), format!("{first} hello"));
    kill_the_program(&cluster);
    assert!(socket.say("still there?").await.is_err(), "the program has ended");
    let page = eventually("the room is opened again", PATIENCE, async || {
        let page = nginx.get("/s/room-1/").await;
        if page.code == 200 { Ok(page) } else { Err(format!("{page:?}")) }
    })
    .await;
    let second = run_of(&page).to_owned();
    assert!(second != first && page.header("rota-life") != Some(&life), "{page:?}");
    let mut socket = WebSocket::open(&nginx.socket, "/s/room-1/chat").await.unwrap();
    assert_eq!(socket.say("back").await.unwrap(), format!("{second} back"));

    assert_ne!(run_of(&nginx.get("/s/room-2/").await), second, "another room");

    // A manager dies: the others route.
    cluster.kill_manager(0).await;
    for _ in 0..6 {
        let page = nginx.get("/s/room-1/").await;
        assert_eq!((page.code, run_of(&page)), (200, second.as_str()), "{page:?}");
    }
    assert_eq!(socket.say("again").await.unwrap(), format!("{second} again"));
    for path in ["/s/", "/s/room%201/", "/s/a&class=http/", "/_rota_route", "/route?session=room-1"]
    {
        assert_eq!(nginx.get(path).await.code, 404, "{path}");
    }
    nginx.end().await;
    cluster.end().await;
}
