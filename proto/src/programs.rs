//! Output and use of the programs of sessions, for operators.

use crate::mistakes::Mistakes;
use crate::running::page_size;
use crate::v1;
use rota_model::{ClusterName, FieldError, NodeId, Refusal, SessionKey, Stamp};

/// Most lines that are asked for as the last ones.
pub const TAIL_LINES_MAX: u32 = 1_000_000;

/// Most bytes of a piece of output.
pub const PIECE_BYTES_MAX: usize = 32 * 1024;

/// One of a program's outputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutputName {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl OutputName {
    /// Both.
    pub const ALL: [OutputName; 2] = [OutputName::Stdout, OutputName::Stderr];

    /// Its name for people, and of its file.
    pub fn as_str(self) -> &'static str {
        match self {
            OutputName::Stdout => "stdout",
            OutputName::Stderr => "stderr",
        }
    }

    /// That of the wire; `None` for none in particular.
    pub fn of(wire: v1::Output) -> Option<Self> {
        match wire {
            v1::Output::Unspecified => None,
            v1::Output::Stdout => Some(OutputName::Stdout),
            v1::Output::Stderr => Some(OutputName::Stderr),
        }
    }
}

impl From<OutputName> for v1::Output {
    fn from(name: OutputName) -> Self {
        match name {
            OutputName::Stdout => v1::Output::Stdout,
            OutputName::Stderr => v1::Output::Stderr,
        }
    }
}

/// Which output is asked for, checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogsAsk {
    /// Whose.
    pub key: SessionKey,
    /// Of which life; `None`: the newest.
    pub life: Option<Stamp>,
    /// At which node; `None`: where it ran.
    pub node: Option<NodeId>,
    /// `None`: both outputs.
    pub only: Option<OutputName>,
    /// The last so many lines; `None`: all that is kept.
    pub tail: Option<u32>,
    /// Until the program's end.
    pub follow: bool,
    /// Where to go on.
    pub stdout_from: Option<u64>,
    /// The same of the other output.
    pub stderr_from: Option<u64>,
}

impl LogsAsk {
    /// Where to go on in that output.
    pub fn from(&self, output: OutputName) -> Option<u64> {
        match output {
            OutputName::Stdout => self.stdout_from,
            OutputName::Stderr => self.stderr_from,
        }
    }

    /// Whether that output is asked for.
    pub fn wants(&self, output: OutputName) -> bool {
        self.only.is_none_or(|it| it == output)
    }
}

/// A request for output, checked.
///
/// # Errors
/// A refusal that names every wrong field.
pub fn logs(request: &v1::LogsRequest) -> Result<LogsAsk, Refusal> {
    let mut mistakes = Mistakes::default();
    let key = mistakes.key(&request.namespace, &request.id);
    let life = mistakes.life(request.life);
    let node = mistakes.given("node", &request.node, NodeId::parse);
    let only = v1::Output::try_from(request.only).map_err(|_| {
        FieldError::new(
            "only",
            format!("is {}; outputs are 1 (stdout) and 2 (stderr)", request.only),
        )
    });
    let only = mistakes.note(only).map(OutputName::of);
    if let Some(lines) = request.tail.filter(|it| *it > TAIL_LINES_MAX) {
        let problem = format!("is {lines}; the limit is {TAIL_LINES_MAX} lines");
        mistakes.note::<()>(Err(FieldError::new("tail", problem)));
    }
    let ask = (|| {
        Some(LogsAsk {
            key: key?,
            life: life?,
            node: node?,
            only: only?,
            tail: request.tail,
            follow: request.follow,
            stdout_from: request.stdout_from,
            stderr_from: request.stderr_from,
        })
    })();
    mistakes.finish(ask)
}

/// What is asked of the use of a node's sessions, checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsageAsk {
    /// The node.
    pub node: NodeId,
    /// The last of the page before.
    pub after: Option<SessionKey>,
    /// Most sessions.
    pub limit: u32,
}

/// A question for what sessions use, checked.
///
/// # Errors
/// A refusal that names the field.
pub fn usage(request: &v1::UsageRequest) -> Result<UsageAsk, Refusal> {
    let mut mistakes = Mistakes::default();
    let node = mistakes.note_in("node", NodeId::parse(&request.node));
    let limit = mistakes.note(page_size(request.page_size));
    let after = request.after.clone().map(SessionKey::try_from).transpose();
    let after = mistakes.note(after.map_err(|it| FieldError::new("after", it.to_string())));
    let ask = (|| Some(UsageAsk { node: node?, after: after?, limit: limit? }))();
    mistakes.finish(ask)
}

/// Refuses what is meant for a node of another cluster, or for another node.
///
/// # Errors
/// A refusal that names the field.
pub fn check_addressee(
    (cluster, node): (&ClusterName, &NodeId),
    (given, asked): (&str, Option<&NodeId>),
) -> Result<(), Refusal> {
    if given != cluster.as_str() {
        let problem = format!("is {given:?}; this node is of {:?}", cluster.as_str());
        return Err(FieldError::new("cluster", problem).into());
    }
    match asked.filter(|it| *it != node) {
        Some(asked) => {
            let problem = format!("is {asked}; this node is {node}");
            Err(FieldError::new("node", problem).into())
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rota_model::RefusalKind;

    #[test]
    fn every_mistake_of_a_request_for_output_is_told() {
        let request = v1::LogsRequest {
            life: 7,
            node: "x".repeat(300),
            only: 9,
            tail: Some(TAIL_LINES_MAX + 1),
            ..v1::LogsRequest::default()
        };
        let refusal = logs(&request).unwrap_err();
        let fields: Vec<&str> = refusal.fields.iter().map(|it| it.field.as_str()).collect();
        assert_eq!(fields, ["id", "life", "node", "only", "tail"], "{refusal}");
        assert_eq!(refusal.kind, RefusalKind::InvalidArgument);
    }

    #[test]
    fn a_request_for_output_says_where_and_how_much() {
        let request = v1::LogsRequest {
            id: "../x y".into(),
            only: v1::Output::Stderr.into(),
            tail: Some(0),
            stderr_from: Some(5),
            ..v1::LogsRequest::default()
        };
        let ask = logs(&request).unwrap();
        assert_eq!((ask.key.namespace.as_str(), ask.key.id.as_str()), ("default", "../x y"));
        assert_eq!((ask.life, &ask.node, ask.tail), (None, &None, Some(0)));
        assert!(ask.wants(OutputName::Stderr) && !ask.wants(OutputName::Stdout));
        assert_eq!(OutputName::ALL.map(|it| ask.from(it)), [None, Some(5)]);
    }

    #[test]
    fn a_node_refuses_what_is_meant_for_another_one() {
        let (cluster, node) = (ClusterName::parse("c").unwrap(), NodeId::parse("n1").unwrap());
        let other = NodeId::parse("n2").unwrap();
        let check = |given, asked| check_addressee((&cluster, &node), (given, asked));
        assert_eq!(check("c", Some(&node)), Ok(()));
        assert_eq!(check("c", None), Ok(()));
        assert!(check("c", Some(&other)).unwrap_err().message.contains("this node is n1"));
        assert!(check("d", None).unwrap_err().message.starts_with("cluster is \"d\""));
    }

    #[test]
    fn a_question_for_use_names_a_node_and_a_page() {
        let request = v1::UsageRequest { page_size: 1_001, ..v1::UsageRequest::default() };
        let refusal = usage(&request).unwrap_err();
        let fields: Vec<&str> = refusal.fields.iter().map(|it| it.field.as_str()).collect();
        assert_eq!(fields, ["node", "page_size"], "{refusal}");
        let ask = usage(&v1::UsageRequest { node: "n1".into(), ..Default::default() }).unwrap();
        assert_eq!((ask.after, ask.limit), (None, 1_000));
    }
}
