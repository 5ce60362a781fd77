//! What is told of a session whose program ended: how, why, and what it printed last.

use rota_client::v1::{self, Exit, Filter, Reason, Session, SessionState, exit};
use rota_tests::brief::Brief;
use rota_tests::sessions::{CALL, becomes, close, listed, open, opened, read};
use rota_tests::{Cluster, Launched, TestFolder, classes_of};

/// Listens on a port that nobody gave it.
const ASTRAY: &str = r#"
name = "astray"
kind = "program"
argv = ["python3", "-u", "-c", """
import socket, sys, time
own = socket.create_server(('127.0.0.1', 0))
print('configuration: port', own.getsockname()[1])
print('\u001b[31mWARNING\u202e: nobody set PORT', file=sys.stderr)
time.sleep(1000)
"""]
ready = { port = true }
start_timeout = "1500ms"
"#;

/// Ready at once. Ends as it is told: when it is asked to, or by itself once a file is there.
const ENDING: &str = r#"
name = "ending"
kind = "program"
argv = ["python3", "-u", "-c", """
import os, signal, sys, time
def asked(*_):
    print('cannot save')
    sys.exit(9)
how = sys.argv[1]
if how == 'badly':
    signal.signal(signal.SIGTERM, asked)
if how == 'never':
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('ready')
while how in ('code 0', 'code 3', 'signal') and not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
if how in ('code 0', 'code 3'):
    print('FATAL: no room', file=sys.stderr)
    sys.exit(int(how[5:]))
if how == 'signal':
    os.kill(os.getpid(), signal.SIGSEGV)
time.sleep(1000)
""", "{attr.how}", "{attr.until}"]
ready = { line = "ready" }
grace = "300ms"
sandbox = "none"
attributes = { how = "at once", until = "" }
"#;

/// Ends never when it is asked, and has long to do so.
const PATIENT: &str = r#"
name = "patient"
kind = "program"
argv = ["python3", "-u", "-c", """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('ready')
time.sleep(1000)
"""]
ready = { line = "ready" }
grace = "4m"
"#;

/// Alone asked to end, and by INT, it looks whether its child was left alone.
const PARENT: &str = r#"
name = "parent"
kind = "program"
argv = ["python3", "-u", "-c", """
import signal, subprocess, sys, time
child = subprocess.Popen(['sleep', '1000'])
def asked(*_):
    try:
        child.wait(0.3)
        print('child is gone')
    except subprocess.TimeoutExpired:
        print('child lives')
    sys.exit(7)
signal.signal(signal.SIGINT, asked)
print('ready')
while True:
    time.sleep(1000)
"""]
ready = { line = "ready" }
stop_signal = "SIGINT"
kill_mode = "main"
grace = "4m"
"#;

/// A ring with a node that has these classes.
struct Ground {
    folder: TestFolder,
    brief: Brief,
    agent: Launched,
}

impl Ground {
    async fn start() -> Self {
        let folder = TestFolder::new();
        let brief = Brief::start(&folder).await;
        let classes =
            [("astray", ASTRAY), ("ending", ENDING), ("patient", PATIENT), ("parent", PARENT)];
        let classes = classes_of(&folder, &classes);
        let line = brief.agent(&folder, &classes, "node");
        let agent = Launched::start(&folder, "agent", "rota-node-agent", &line).await;
        Self { folder, brief, agent }
    }

    async fn open(&self, id: &str, how: &str) {
        let attributes = [("how", how.to_owned()), ("until", self.folder.at("until"))];
        let attributes = attributes.map(|(name, value)| (name.to_owned(), value)).into();
        let request = v1::OpenRequest { attributes, ..open(id, "ending") };
        self.brief.client.open(request, CALL).await.unwrap();
    }

    async fn ended(&self, id: &str, state: SessionState) -> Session {
        becomes(&self.brief.client, id, state).await
    }

    async fn closed(&self, id: &str) -> Session {
        let answer = self.brief.client.close(close(id), CALL).await.unwrap();
        assert!(answer.finished, "{answer:?}");
        answer.session.unwrap()
    }

    /// Where the outputs of sessions stand, as messages name it.
    fn outputs(&self) -> String {
        self.folder.path().join("node/sessions").canonicalize().unwrap().display().to_string()
    }

    async fn end(self) {
        assert_eq!(self.agent.end().await, Some(0));
        self.brief.end().await;
    }
}

fn how(session: &Session) -> Option<exit::How> {
    session.exit.clone().and_then(|Exit { how }| how)
}

#[tokio::test]
async fn a_start_that_takes_too_long_tells_what_was_printed_where_and_which_ports_were_opened() {
    let ground = Ground::start().await;
    let _node = ground.brief.opened("other", "ending").await;
    let error = ground.brief.client.open(open("s", "astray"), CALL).await.unwrap_err();
    assert_eq!(error.reason(), "START_FAILED", "{error:?}");
    let session = ground.ended("s", SessionState::Failed).await;
    assert_eq!(session.reason(), Reason::StartTimeout, "{session:?}");
    let detail = &session.detail;
    assert!(error.to_string().contains(detail.as_str()), "{error}");
    let (_, port) = detail.split_once("configuration: port ").expect("what it printed");
    let port: String = port.chars().take_while(char::is_ascii_digit).collect();
    let parts = [
        format!("it listened on 127.0.0.1:{port}"),
        "last on stderr: [31mWARNING : nobody set PORT".to_owned(),
        format!("are in {}/default/s/", ground.outputs()),
    ];
    for part in parts {
        assert!(detail.contains(&part), "{part} is not in {detail}");
    }
    ground.end().await;
}

#[tokio::test]
async fn what_ends_by_itself_and_not_well_has_failed_with_its_last_words() {
    let ground = Ground::start().await;
    ground.brief.opened("other", "ending").await;
    for (id, as_told) in [("ill", "code 3"), ("dead", "signal"), ("well", "code 0")] {
        ground.open(id, as_told).await;
    }
    std::fs::write(ground.folder.at("until"), "").unwrap();
    let ill = ground.ended("ill", SessionState::Failed).await;
    assert_eq!((ill.reason(), how(&ill)), (Reason::Exited, Some(exit::How::Code(3))));
    assert!(ill.detail.contains("last on stderr: FATAL: no room"), "{ill:?}");
    assert!(ill.detail.contains("last on stdout: ready"), "{ill:?}");
    assert!(ill.detail.contains(&ground.outputs()), "{ill:?}");
    let dead = ground.ended("dead", SessionState::Failed).await;
    assert_eq!((dead.reason(), how(&dead)), (Reason::Exited, Some(exit::How::Signal(11))));
    let well = ground.ended("well", SessionState::Closed).await;
    assert_eq!((well.reason(), well.detail.as_str()), (Reason::Exited, ""), "{well:?}");
    let filter = Filter { states: vec![SessionState::Failed.into()], ..Filter::default() };
    let failed = listed(&ground.brief.client, filter).await;
    let mut failed: Vec<&str> = failed.iter().map(|it| it.id.as_str()).collect();
    failed.sort_unstable();
    assert_eq!(failed, ["dead", "ill"]);
    ground.end().await;
}

#[tokio::test]
async fn what_was_asked_to_end_is_closed_however_it_did_and_says_what_went_wrong() {
    let ground = Ground::start().await;
    ground.brief.opened("other", "ending").await;
    for (id, as_told) in [("bad", "badly"), ("stubborn", "never"), ("good", "at once")] {
        ground.open(id, as_told).await;
    }
    let bad = ground.closed("bad").await;
    assert_eq!((bad.state(), bad.reason()), (SessionState::Closed, Reason::ClosedByClient));
    assert_eq!(how(&bad), Some(exit::How::Code(9)));
    let told = "asked to end, it ended with exit code 9; last on stdout: ready | cannot save; ";
    assert!(bad.detail.starts_with(told), "{bad:?}");
    let stubborn = ground.closed("stubborn").await;
    let told = "it did not end when it was asked to (grace 300 ms), and was killed; last on stdout: ready; ";
    assert_eq!(stubborn.state(), SessionState::Closed);
    assert!(stubborn.detail.starts_with(told), "{stubborn:?}");
    let good = ground.closed("good").await;
    assert_eq!((good.state(), good.detail.as_str()), (SessionState::Closed, ""));
    ground.end().await;
}

#[tokio::test]
async fn a_close_gives_a_time_of_its_own_and_a_second_one_shortens_it() {
    let folder = TestFolder::new();
    let classes = classes_of(&folder, &[("patient", PATIENT)]);
    // A manager without copies never says that a close is under way.
    let cluster = Cluster::start(&folder, &["--classes", &classes]).await;
    let client = cluster.client();
    opened(&client, "s", "patient").await;
    let close =
        async |more: &[&str]| cluster.ringctl(&[&["session", "close", "s"], more].concat()).await;
    let wrong = close(&["--grace", "6m"]).await;
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(wrong.stderr.contains("--grace") && wrong.stderr.contains("5m"), "{wrong:?}");

    let slow = close(&["--grace", "3m", "--timeout", "1s"]).await;
    assert_eq!(slow.code, 1, "{slow:?}");
    for part in
        ["node n1 was asked to end it", "its program uses its grace (at most 180.0 s)", "--force"]
    {
        assert!(slow.stderr.contains(part), "{part} is not in {slow:?}");
    }
    let session = read(&client, "s").await.unwrap();
    assert_eq!(session.state(), SessionState::Closing, "{session:?}");
    let hurried = close(&["--grace", "200ms", "-o", "json"]).await.json();
    assert_eq!((&hurried["finished"], &hurried["state"]), (&true.into(), &"CLOSED".into()));
    let detail = hurried["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("when it was asked to (grace 200 ms), and was killed"), "{hurried}");

    opened(&client, "s", "patient").await;
    let forced = close(&["--force", "-o", "json"]).await.json();
    assert_eq!((&forced["finished"], &forced["exit"]["signal"]), (&true.into(), &9.into()));
    assert_eq!(forced["detail"], "", "{forced}");
    cluster.end().await;
}

#[tokio::test]
async fn a_class_says_by_what_its_program_is_asked_to_end_and_that_it_alone_is() {
    let ground = Ground::start().await;
    ground.brief.opened("s", "parent").await;
    let closed = ground.closed("s").await;
    assert_eq!(how(&closed), Some(exit::How::Code(7)), "{closed:?}");
    assert!(closed.detail.contains("last on stdout: ready | child lives; "), "{closed:?}");
    ground.end().await;
}

#[tokio::test]
async fn a_new_id_that_turns_the_direction_of_writing_is_refused() {
    let ground = Ground::start().await;
    let error = ground.brief.client.open(open("adm\u{202e}in", "ending"), CALL).await.unwrap_err();
    assert_eq!(error.reason(), "INVALID_ARGUMENT", "{error:?}");
    assert!(error.to_string().contains("id has U+202E at byte 3"), "{error}");
    ground.end().await;
}
