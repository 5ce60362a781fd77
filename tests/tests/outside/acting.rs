//! Actions that a test asks a node for, as a manager does.

use rota_client::v1::{self, node_agent_client::NodeAgentClient};
use rota_model::{SessionKey, SlotId, Token};
use rota_tests::programs::session_folder;
use rota_tests::{Launched, PATIENCE};
use serde::Deserialize;
use std::path::Path;
use tokio::time::timeout;
use tokio_stream::StreamExt;
use tonic::transport::Endpoint;

/// By what the program of a session runs, as its node wrote it down.
#[derive(Clone, Debug, Deserialize)]
pub struct Ran {
    /// Which session.
    pub key: SessionKey,
    /// Which attempt.
    pub token: Token,
    /// Which life.
    pub life: u64,
    /// Its slot.
    pub slot: SlotId,
}

impl Ran {
    /// That of the session with that id in a node's data folder.
    ///
    /// # Panics
    /// It has none.
    pub fn of(node: &Path, id: &str) -> Self {
        let text = std::fs::read(session_folder(node, id).join("run.json"));
        serde_json::from_slice(&text.expect("its terms are there")).expect("they are understood")
    }

    /// An action that takes up to a minute.
    pub fn act(&self, life_cycle: &str, word: &str) -> v1::Act {
        let (namespace, id) = (self.key.namespace.to_string(), self.key.id.to_string());
        v1::Act {
            key: Some(v1::SessionKey { namespace, id }),
            slot: self.slot.0,
            token: Some(v1::LogPos { pe: self.token.0.pe.0, seq: self.token.0.seq.0 }),
            life: self.life,
            life_cycle: life_cycle.to_owned(),
            word: word.to_owned(),
            failures: 0,
            timeout_ms: 60_000,
            document: "{}".to_owned(),
        }
    }
}

/// Asks an agent for an action, and waits for its end: `DONE` or the code, and what is told with it.
///
/// # Panics
/// No such answer comes.
pub async fn act(agent: &Launched, act: v1::Act) -> (String, String) {
    let (slot, token) = (act.slot, act.token.expect("an attempt"));
    let call = v1::NodeCall {
        call: 1,
        boot: agent.ready["boot"].as_u64().expect("a number"),
        pe: token.pe,
        range: Some(v1::SlotRange { first: slot, last: slot }),
        what: Some(v1::node_call::What::Act(act)),
    };
    let batch = v1::NodeCallBatch { calls: vec![call], cluster: "brief".to_owned() };
    // Open until the answer is there.
    let calls = tokio_stream::once(batch).chain(tokio_stream::pending());
    let address = format!("http://{}", agent.told("address"));
    let channel = Endpoint::from_shared(address).expect("an address").connect().await;
    let mut client = NodeAgentClient::new(channel.expect("the agent listens"));
    let mut answers = client.exchange(calls).await.expect("it takes calls").into_inner();
    let answered = async {
        loop {
            let batch = answers.message().await.expect("the stream stands").expect("it is open");
            if let Some(answer) = batch.answers.into_iter().next() {
                return answer.answer;
            }
        }
    };
    let answer = timeout(PATIENCE, answered).await.expect("an answer comes");
    let Some(v1::node_answer::Answer::Acted(acted)) = answer else { panic!("{answer:?}") };
    let how = if acted.done { "DONE".to_owned() } else { acted.code };
    (how, acted.text)
}
