//! What is told of a session whose program ended: how, why, and what it printed last.

use rota_client::v1::{self, Exit, Filter, Reason, Session, SessionState, exit};
use rota_tests::brief::Brief;
use rota_tests::sessions::{CALL, becomes, close, listed, open};
use rota_tests::{Launched, TestFolder, classes_of};

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

/// A ring with a node that has both classes.
struct Ground {
    folder: TestFolder,
    brief: Brief,
    agent: Launched,
}

impl Ground {
    async fn start() -> Self {
        let folder = TestFolder::new();
        let brief = Brief::start(&folder).await;
        let classes = classes_of(&folder, &[("astray", ASTRAY), ("ending", ENDING)]);
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
        format!("are in {}/s.", ground.outputs()),
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
    let told =
        "it had not ended within its grace (300 ms), and was killed; last on stdout: ready; ";
    assert_eq!(stubborn.state(), SessionState::Closed);
    assert!(stubborn.detail.starts_with(told), "{stubborn:?}");
    let good = ground.closed("good").await;
    assert_eq!((good.state(), good.detail.as_str()), (SessionState::Closed, ""));
    ground.end().await;
}
