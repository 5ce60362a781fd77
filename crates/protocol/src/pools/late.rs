//! Orders of which no node came in time, although the provisioner began them: people are told while they are overdue.

use crate::log::at::At;
use crate::pools::order::{expected, ordered, write};
use crate::pools::state::Pools;
use crate::ports::note::Transition;
use rota_model::PoolName;
use rota_model::items::Orders;

/// Why an order is late, for people.
fn why(led: &At<'_>, late: &Orders) -> Option<String> {
    let node = late.ordered.first()?;
    let within_s = led.env.config.timing.provision_ms.div_ceil(1_000);
    Some(format!(
        "the provisioner began nodes, and none registered within {within_s} s: see what node {node} logged. Where nodes \
         take longer, give managers a longer --provision-ms"
    ))
}

/// Why nodes of a pool are late, for people; `None` while they are not. An order that follows changes nothing of it,
/// until a node comes.
pub(crate) fn lateness(led: &At<'_>, pools: &Pools, pool: &PoolName) -> Option<String> {
    let (_, raw) = ordered(led, pool);
    let (_, now) = expected(led, pools, pool);
    let mut all = raw.ordered.iter().chain(&raw.overdue);
    if all.any(|it| led.env.nodes.reg.contains_key(it)) {
        return None;
    }
    // What failed is told as that.
    let may_be_late = raw.failed.is_empty() && (raw.failure.is_empty() || raw.is_late);
    let has_lapsed = now.ordered.is_empty() && !raw.ordered.is_empty();
    if may_be_late && has_lapsed { why(led, &raw) } else { raw.is_late.then_some(raw.failure) }
}

impl Pools {
    /// Operators and opens that wait see that nodes are late, until one of them comes.
    pub fn see_late(&mut self, led: &mut At<'_>, growing: &[PoolName]) {
        for pool in growing.iter().filter(|it| !self.ordering.contains_key(*it)) {
            let late = lateness(led, self, pool);
            let (before, raw) = ordered(led, pool);
            if late.is_some() == raw.is_late {
                continue;
            }
            match &late {
                Some(why) => {
                    led.env.on_order_failed(pool, why);
                    let text = format!("pool {pool}: {why}");
                    led.env.note_text(Transition::OrderFailed, Some(led.log.number), text);
                }
                None => {
                    led.env.nodes.failed_orders.remove(pool);
                }
            }
            let is_late = late.is_some();
            let orders = Orders { failure: late.unwrap_or_default(), is_late, ..raw };
            write(led, pool, before.as_deref(), orders);
        }
    }
}
