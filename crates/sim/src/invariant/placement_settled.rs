//! I6: an id goes to another (node, token) only after its node's definite answer about the earlier
//! token, or after that boot is gone by the registry, or when nothing about the earlier token was ever given
//! to a connection; and then nothing about it is given to one any more.

use super::{Verdict, Violation};
use crate::ledger::BootFacts;
use rota_model::node_msg::{ScanFate, ScanItem, SlotRange};
use rota_model::{BootId, NodeId, SessionKey, Token};
use std::collections::{BTreeMap, BTreeSet};

/// A page of a node's answer to a scan.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// It begins after this session.
    pub after: Option<&'a SessionKey>,
    /// What it shows.
    pub items: &'a [ScanItem],
    /// More follows after the last item.
    pub more: bool,
}

/// Tokens that nodes were asked to run, and those that they gave a definite no or end about.
#[derive(Clone, Debug, Default)]
pub struct PlacementSettled {
    asked: BTreeMap<SessionKey, BTreeMap<Token, (NodeId, BootId)>>,
    settled: BTreeSet<(SessionKey, Token)>,
    sent: BTreeSet<(SessionKey, Token)>,
}

impl PlacementSettled {
    /// A node said that a token does not run and never will.
    pub fn on_definite(&mut self, key: &SessionKey, token: Token) {
        self.settled.insert((key.clone(), token));
    }

    /// A node answered a scan: what it did not call live is dead, or can never start any more,
    /// because the scan raised the fence above the epoch of every Create that is still under way.
    pub fn on_scanned(
        &mut self,
        (node, boot): &(NodeId, BootId),
        slots: SlotRange,
        m: u32,
        page: &Page<'_>,
    ) {
        let last = page.items.last().filter(|_| page.more).map(|it| &it.key);
        let covers = |key: &SessionKey| {
            slots.contains(rota_ring::slot_of_session(key, m))
                && page.after.is_none_or(|after| key > after)
                && last.is_none_or(|last| key <= last)
        };
        for (key, tokens) in self.asked.iter().filter(|(key, _)| covers(key)) {
            for (token, _) in tokens.iter().filter(|(_, at)| (&at.0, at.1) == (node, *boot)) {
                let live = page.items.iter().any(|item| {
                    item.key == *key
                        && item.token == *token
                        && matches!(item.fate, ScanFate::Live { .. })
                });
                if !live {
                    self.settled.insert((key.clone(), *token));
                }
            }
        }
    }

    /// A manager asks a node to run a token.
    ///
    /// # Errors
    /// An earlier token of that id was asked for, and nobody settled it.
    pub fn on_create(
        &mut self,
        boots: &Boots,
        key: &SessionKey,
        token: Token,
        node: &NodeId,
        boot: BootId,
    ) -> Verdict {
        let asked = self.asked.entry(key.clone()).or_default();
        for (earlier, at) in asked.range(..token) {
            let name = (key.clone(), *earlier);
            let may_run = self.sent.contains(&name) && !self.settled.contains(&name);
            if may_run && !is_gone(boots, at) {
                let (at, earlier_boot) = at;
                let text = format!(
                    "{node} is asked to run token {token} of {key}, while token {earlier} at {at} \
                     {earlier_boot:?} is not settled"
                );
                return Err(Violation::new("I6", text));
            }
        }
        asked.insert(token, (node.clone(), boot));
        Ok(())
    }

    /// A Create of a token is given to a connection.
    ///
    /// # Errors
    /// A later token of that id was asked for, and nobody settled this one.
    pub fn on_sent(&mut self, boots: &Boots, key: &SessionKey, token: Token) -> Verdict {
        let name = (key.clone(), token);
        let asked = self.asked.get(key);
        let later = asked.and_then(|it| it.last_key_value()).map(|it| *it.0);
        let at = asked.and_then(|it| it.get(&token));
        let is_over = self.settled.contains(&name) || at.is_some_and(|it| is_gone(boots, it));
        self.sent.insert(name);
        match later.filter(|it| *it > token && !is_over) {
            Some(later) => {
                let text =
                    format!("a Create of {key} token {token} is sent, and {later} was asked for");
                Err(Violation::new("I6", text))
            }
            None => Ok(()),
        }
    }
}

/// Boots, by what the registry said of them.
type Boots = BTreeMap<(NodeId, BootId), BootFacts>;

fn is_gone(boots: &Boots, at: &(NodeId, BootId)) -> bool {
    boots.get(at).is_some_and(|it| it.gone_us.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::invariant::example::{key, node, token};
    use rota_model::Epoch;

    #[test]
    fn a_second_node_before_the_first_refused_is_found() {
        let boots = BTreeMap::new();
        let mut book = PlacementSettled::default();
        let (one, two) = (token(1, 1), token(1, 2));
        let create = |book: &mut PlacementSettled, at: &str, token| {
            book.on_create(&boots, &key("y"), token, &node(at), BootId(1))?;
            book.on_sent(&boots, &key("y"), token)
        };
        assert_eq!(create(&mut book, "n0", one), Ok(()));
        assert_eq!(create(&mut book, "n1", two).unwrap_err().rule, "I6");
        assert_eq!(create(&mut book, "n0", one), Ok(()));
        book.on_definite(&key("y"), one);
        assert_eq!(create(&mut book, "n1", two), Ok(()));
    }

    #[test]
    fn a_second_node_is_fine_while_nothing_was_sent_to_the_first_and_nothing_is_sent_later() {
        let boots = BTreeMap::new();
        let mut book = PlacementSettled::default();
        let (one, two) = (token(1, 1), token(1, 2));
        let of = key("y");
        assert_eq!(book.on_create(&boots, &of, one, &node("n0"), BootId(1)), Ok(()));
        assert_eq!(book.on_create(&boots, &of, two, &node("n1"), BootId(1)), Ok(()));
        assert_eq!(book.on_sent(&boots, &of, two), Ok(()));
        assert_eq!(book.on_sent(&boots, &of, one).unwrap_err().rule, "I6");
    }

    #[test]
    fn a_gone_boot_settles_its_tokens() {
        let gone = BootFacts { registered: Some(Epoch(1)), gone_us: Some(2), proved_us: None };
        let boots = BTreeMap::from([((node("n0"), BootId(1)), gone)]);
        let mut book = PlacementSettled::default();
        book.on_create(&boots, &key("y"), token(1, 1), &node("n0"), BootId(1)).unwrap();
        assert_eq!(book.on_create(&boots, &key("y"), token(1, 2), &node("n1"), BootId(1)), Ok(()));
    }
}
