//! What nodes logged of the sessions that ran on them (`--log info,sessions=debug --log-format json`).

use rota_model::{
    BootId, Epoch, LogPos, Namespace, NodeId, Seq, SessionId, SessionKey, Stamp, Token,
};
use rota_sim::ledger::{EndCause, Instance};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// One execution, and of which life it was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Execution {
    /// As the simulator writes it down.
    pub instance: Instance,
    /// The life.
    pub life: Stamp,
}

/// The name of a session in the default namespace.
pub fn key_of(id: &str) -> SessionKey {
    SessionKey::new(Namespace::default_space(), SessionId::parse(id).expect("a test's id is good"))
}

/// The executions in the log of a node. Fails when a line about one cannot be read.
pub fn executions(node: &str, log: &Path) -> Vec<Execution> {
    let text = std::fs::read_to_string(log).expect("a node has a log");
    of_text(node, &text)
}

fn of_text(node: &str, text: &str) -> Vec<Execution> {
    let mut found: BTreeMap<(u64, String, String), Execution> = BTreeMap::new();
    let documents = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    for line in documents.filter(|it| it["target"] == "sessions") {
        let number = |name: &str| field(&line, name).as_u64().expect("it is a number");
        let text = |name: &str| field(&line, name).as_str().expect("it is text").to_owned();
        let (boot, at_us) = (number("boot"), number("at_us"));
        if text("message") == "boots" {
            // An agent that was killed says nothing of an end; the next one says this.
            let earlier = found.range_mut(..(boot, String::new(), String::new()));
            earlier.for_each(|(_, execution)| {
                execution.instance.to.get_or_insert((at_us, EndCause::BootDied));
            });
            continue;
        }
        let (session, token) = (text("session"), text("token"));
        let it = (boot, session.clone(), token.clone());
        match text("message").as_str() {
            "begins" => {
                let execution = begun(node, boot, &session, &token, at_us);
                let life = Stamp::try_from(number("life")).expect("a life is a stamp");
                let again = found.insert(it, Execution { instance: execution, life });
                assert_eq!(again, None, "{node} began it twice: {line}");
            }
            "over" => {
                // What never began may be said to be over.
                let Some(execution) = found.get_mut(&it) else { continue };
                execution.instance.to.get_or_insert((at_us, cause(&text("why"))));
            }
            other => panic!("{node} logs {other:?} of a session: {line}"),
        }
    }
    found.into_values().collect()
}

fn field<'a>(line: &'a Value, name: &str) -> &'a Value {
    line.get(name).unwrap_or_else(|| panic!("no {name} in {line}"))
}

fn position(token: &str) -> LogPos {
    let (pe, seq) = token.split_once(':').expect("a token is a position");
    let number = |text: &str| text.parse().expect("a position is two numbers");
    LogPos::new(Epoch(number(pe)), Seq(number(seq)))
}

fn begun(node: &str, boot: u64, session: &str, token: &str, from_us: u64) -> Instance {
    let (_, id) = session.split_once('/').expect("a session has a namespace");
    Instance {
        key: key_of(id),
        node: NodeId::parse(node).expect("a node's name"),
        boot: BootId(boot),
        token: Token(position(token)),
        address: String::new(),
        from_us,
        change: 0,
        to: None,
    }
}

fn cause(why: &str) -> EndCause {
    match why {
        "STOPPED" => EndCause::Destroyed,
        "LEASE" | "LEASE_NOT_RENEWED" => EndCause::Lease,
        "START_TIMEOUT" | "NOT_STARTED" => EndCause::StartTimeout,
        "DRAINED" => EndCause::Drained,
        _ => EndCause::Own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(at_us: u64, token: &str, message: &str, more: &str) -> String {
        format!(
            r#"{{"level":"DEBUG","at_us":{at_us},"boot":1,"session":"default/a","token":"{token}",{more},"message":"{message}","target":"sessions"}}"#
        )
    }

    #[test]
    fn an_execution_lasts_from_its_first_line_to_its_first_end() {
        let life = r#""life":261121152849820"#;
        let text = [
            "what is no JSON".to_owned(),
            line(5, "1:1", "begins", life),
            line(7, "1:1", "over", r#""why":"STOPPED""#),
            line(8, "1:1", "over", r#""why":"LEASE""#),
            line(9, "2:4", "begins", life),
            line(9, "7:7", "over", r#""why":"STOPPED""#),
        ];
        assert_eq!(times(&text), [(5, Some((7, EndCause::Destroyed))), (9, None)]);
    }

    fn times(lines: &[String]) -> Vec<(u64, Option<(u64, EndCause)>)> {
        let found = of_text("n1", &lines.join("\n"));
        found.iter().map(|it| (it.instance.from_us, it.instance.to)).collect()
    }

    #[test]
    fn what_an_agent_that_was_killed_had_running_is_over_when_the_next_one_boots() {
        let life = r#""life":261121152849820"#;
        let boots = |boot: u64, at_us: u64| {
            format!(r#"{{"at_us":{at_us},"boot":{boot},"message":"boots","target":"sessions"}}"#)
        };
        let text = [
            boots(1, 3),
            line(5, "1:1", "begins", life),
            line(6, "1:2", "begins", life),
            line(7, "1:1", "over", r#""why":"STOPPED""#),
            boots(2, 9),
        ];
        let died = Some((9, EndCause::BootDied));
        assert_eq!(times(&text), [(5, Some((7, EndCause::Destroyed))), (6, died)]);
    }
}
