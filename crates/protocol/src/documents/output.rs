//! `session.output`: a node keeps at the ring what the program of a life printed last. `session.forget_output`: somebody has
//! it removed before its time.

use crate::documents::about;
use rota_docstore::name::ATTACHMENT_CLASS;
use rota_docstore::{
    About, Attachment, Digest, DocName, DocumentEdit, Exception, FieldError, Keyed, Namespace,
    Operation, Place, Transaction, Wanted, codes,
};
use rota_messages::documents::{
    KeptOutput, OUTPUT_BYTES_MAX, OUTPUT_CLASS, OUTPUT_KEPT_MS_MAX, OUTPUT_LIVES_MAX,
    OUTPUT_TEXT_BYTES_MAX, OutputEnd,
};
use rota_model::items::{SESSION_CLASS, Standing};
use rota_model::{NodeId, Stamp};
use serde::{Deserialize, Serialize};

/// What a program prints: nobody knows more of it.
const MIME: &str = "application/octet-stream";

/// What is to be kept. Its bytes are stored already.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Keeping {
    id: String,
    life: Stamp,
    node: NodeId,
    keep_ms: u64,
    #[serde(default)]
    stdout: Option<OutputEnd>,
    #[serde(default)]
    stderr: Option<OutputEnd>,
}

/// Keeps it, and lets go of what is too old. What is kept of a life already stays as it is.
pub(crate) struct SessionOutput(Keeping);

impl Operation for SessionOutput {
    const NAME: &'static str = "session.output";
    const PLACE: Place = Place::Inline;
    type Parameters = Keeping;

    fn about() -> About {
        about::SESSION_OUTPUT
    }

    fn new(keeping: Keeping) -> Result<Self, Exception> {
        if !(1..=OUTPUT_KEPT_MS_MAX).contains(&keeping.keep_ms) {
            let problem = format!("is {}; it must be 1 to {OUTPUT_KEPT_MS_MAX}", keeping.keep_ms);
            return Err(FieldError::new("keep_ms", problem).into());
        }
        for (output, end) in [("stdout", &keeping.stdout), ("stderr", &keeping.stderr)] {
            end.as_ref().map_or(Ok(()), |it| check(output, it))?;
        }
        Ok(Self(keeping))
    }

    fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception> {
        let output = named(space, OUTPUT_CLASS, &self.0.id)?;
        Ok(vec![Wanted::current(output), Wanted::current(named(space, SESSION_CLASS, &self.0.id)?)])
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let Keeping { id, life, node, keep_ms, stdout, stderr } = &self.0;
        let now = transaction.now();
        let session = transaction.name(SESSION_CLASS, id)?;
        check_life(transaction.current(&session)?, (*life, node), now)?;
        let name = transaction.name(OUTPUT_CLASS, id)?;
        let edited = transaction.current(&name)?;
        let key = life.as_u64().to_string();
        // Whoever repeats it finds it done.
        if edited.item::<KeptOutput>(&key)?.is_some() {
            return Ok(());
        }
        let kept = KeptOutput {
            node: node.clone(),
            until: now.plus_ms(*keep_ms),
            stdout: stdout.clone(),
            stderr: stderr.clone(),
        };
        edited.ensure();
        for end in kept.ends() {
            let Some(sha256) = end.body() else { continue };
            let key = sha256.to_string();
            if edited.attachment(&key).is_none() {
                edited.attach(&key, Attachment::new(MIME, end.bytes, sha256)?)?;
            }
        }
        edited.put(&key, &kept)?;
        drop_old(edited, now)
    }
}

fn named(space: &Namespace, class: &str, id: &str) -> Result<DocName, FieldError> {
    DocName::new(space, class, id).map_err(|it| FieldError::new("id", it.problem))
}

/// Refuses what is not of a life that there was, as far as the session's record tells.
fn check_life(
    session: &DocumentEdit,
    (life, node): (Stamp, &NodeId),
    now: Stamp,
) -> Result<(), Exception> {
    let newest = session.ctime().filter(|_| session.exists());
    if life > newest.unwrap_or(now) {
        let problem = format!("is {life}, and no life of the session began then");
        return Err(FieldError::new("life", problem).into());
    }
    if newest != Some(life) {
        return Ok(());
    }
    let standing = session.one::<Standing>()?;
    let ran_on = standing.and_then(|it| it.placement).map(|it| it.node);
    if ran_on.as_ref() != Some(node) {
        let problem = format!("is {node}, and the life does not run there");
        return Err(FieldError::new("node", problem).into());
    }
    Ok(())
}

/// Which output is to go.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Forgetting {
    id: String,
    /// That of one life; left out: all.
    #[serde(default)]
    life: Option<Stamp>,
}

/// How many lives had some.
#[derive(Serialize)]
struct Forgot {
    lives: usize,
}

/// Removes what is kept of a session, whenever it would go. May be repeated.
pub(crate) struct SessionForgetOutput(Forgetting);

impl Operation for SessionForgetOutput {
    const NAME: &'static str = "session.forget_output";
    const PLACE: Place = Place::Inline;
    type Parameters = Forgetting;

    fn about() -> About {
        about::SESSION_FORGET_OUTPUT
    }

    fn new(forgetting: Forgetting) -> Result<Self, Exception> {
        Ok(Self(forgetting))
    }

    fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception> {
        Ok(vec![Wanted::current(named(space, OUTPUT_CLASS, &self.0.id)?)])
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let now = transaction.now();
        let name = transaction.name(OUTPUT_CLASS, &self.0.id)?;
        let edited = transaction.current(&name)?;
        let before = edited.keys(KeptOutput::CLASS).count();
        match self.0.life {
            None => drop(edited.destroy()),
            Some(_) if !edited.exists() => {}
            Some(life) => {
                edited.remove(KeptOutput::CLASS, Some(&life.as_u64().to_string()))?;
                drop_old(edited, now)?;
                if edited.keys(KeptOutput::CLASS).next().is_none() {
                    edited.destroy();
                }
            }
        }
        let after = edited.keys(KeptOutput::CLASS).count();
        transaction.answer_json(&Forgot { lives: before.saturating_sub(after) })
    }
}

/// Refuses an end that says nothing of its bytes, or too much.
fn check(output: &str, end: &OutputEnd) -> Result<(), Exception> {
    let (field, problem) = match &end.text {
        _ if !(1..=OUTPUT_BYTES_MAX).contains(&end.bytes) => {
            ("bytes", format!("is {}; it must be 1 to {OUTPUT_BYTES_MAX}", end.bytes))
        }
        Some(text) if text.len() as u64 != end.bytes => {
            ("text", format!("has {} bytes, and not {}", text.len(), end.bytes))
        }
        Some(_) if end.bytes > OUTPUT_TEXT_BYTES_MAX => {
            ("text", format!("has {} bytes; the limit is {OUTPUT_TEXT_BYTES_MAX}", end.bytes))
        }
        None if end.sha256.is_none() => ("sha256", "is missing, and so is text".to_owned()),
        Some(_) | None => return Ok(()),
    };
    let field = FieldError::new(format!("{output}.{field}"), problem);
    Err(Exception::of_field(codes::LIMIT, field))
}

/// What is too old, or of too many lives, goes; and bodies that nothing names then.
fn drop_old(edited: &mut DocumentEdit, now: Stamp) -> Result<(), Exception> {
    let keys: Vec<String> = edited.keys(KeptOutput::CLASS).map(str::to_owned).collect();
    let mut kept = Vec::new();
    for key in keys {
        if let Some(it) = edited.item::<KeptOutput>(&key)? {
            kept.push((key, it));
        }
    }
    // Stamps have as many digits each, so the newest one comes last.
    kept.sort_by(|one, two| one.0.cmp(&two.0));
    let spare = kept.len().saturating_sub(OUTPUT_LIVES_MAX);
    let goes = |at: usize, it: &KeptOutput| at < spare || it.until < now;
    let mut named: Vec<Digest> = Vec::new();
    for (at, (key, it)) in kept.iter().enumerate() {
        if goes(at, it) {
            edited.remove(KeptOutput::CLASS, Some(key))?;
        } else {
            named.extend(it.ends().filter_map(OutputEnd::body));
        }
    }
    let bodies: Vec<String> = edited.keys(ATTACHMENT_CLASS).map(str::to_owned).collect();
    for key in bodies.iter().filter(|key| named.iter().all(|it| it.to_string() != **key)) {
        edited.remove(ATTACHMENT_CLASS, Some(key))?;
    }
    Ok(())
}
