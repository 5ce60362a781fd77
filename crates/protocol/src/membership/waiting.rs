//! Operators' orders that wait.

use rota_messages::{Order, Ordered};
use rota_model::{FieldError, ManagerNumber, NodeId, Refusal, RefusalKind, Retry};
use rota_ring::{LeaveRefused, NodeOrder, RingTransition, View};

/// An order about a node that waits.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct WaitingNode {
    pub(crate) call: u64,
    pub(crate) node: NodeId,
    pub(crate) order: NodeOrder,
    pub(crate) until_ms: u64,
    /// The read of the config store that it waits for.
    pub(crate) read: u64,
    pub(crate) tries: u32,
}

/// Orders that may wait at one manager. People give them, one at a time.
pub(crate) const ORDERS_MAX: usize = 16;

/// How long an order may wait for the config store and for other changes of the View.
pub(crate) const ORDER_MS: u64 = 5_000;

/// An order that waits.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Waiting {
    pub(crate) call: u64,
    pub(crate) order: Order,
    pub(crate) until_ms: u64,
    /// The read of the config store that it waits for.
    pub(crate) read: Option<u64>,
    /// What was under way by that read. An order to take that back takes back nothing that began later.
    pub(crate) saw: Option<RingTransition>,
}

impl Waiting {
    /// The View that the order asks for, unless it stands there already, and what is answered then.
    pub(crate) fn carried_out(&self, view: &View) -> Result<(Option<View>, Ordered), Refusal> {
        match self.order {
            Order::Leave(number) if view.leaver() == Some(number) => {
                Ok((None, Ordered::new(view, number)))
            }
            Order::Leave(number) => {
                let next = view.leaving(number).map_err(|why| refused_leave(&why))?;
                let answer = Ordered::new(&next, number);
                Ok((Some(next), answer))
            }
            Order::Cancel(number) => self.cancelled(view, number),
        }
    }

    fn cancelled(
        &self,
        view: &View,
        number: Option<ManagerNumber>,
    ) -> Result<(Option<View>, Ordered), Refusal> {
        let refused = |text: String| Refusal::new(RefusalKind::NotFound, Retry::WhenChanged, text);
        let next = view.cancelled(number).map_err(|why| refused(why.to_string()))?;
        if let Some(now) = view.transition.filter(|it| Some(*it) != self.saw) {
            let before =
                self.saw.map_or("nothing was under way".into(), |it| format!("{it} has ended"));
            return Err(refused(format!("{before}; {now} began after this order")));
        }
        let number = view.transition.map_or(number.unwrap_or_default(), RingTransition::number);
        let answer = Ordered { cancelled: view.transition, ..Ordered::new(&next, number) };
        Ok((Some(next), answer))
    }
}

fn refused_leave(why: &LeaveRefused) -> Refusal {
    let text = why.to_string();
    match why {
        LeaveRefused::InTransition { .. } => {
            Refusal::new(RefusalKind::NotServing, Retry::WhenChanged, text)
        }
        LeaveRefused::Unknown(..)
        | LeaveRefused::AlreadyLeft(_)
        | LeaveRefused::NeverStarted(_)
        | LeaveRefused::LastManager(_)
        | LeaveRefused::LastCopy { .. } => {
            let fields = vec![FieldError::new("number", text.clone())];
            let refusal = Refusal::new(RefusalKind::InvalidArgument, Retry::WhenChanged, text);
            Refusal { fields, ..refusal }
        }
    }
}
