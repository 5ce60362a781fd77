//! Nodes that a provisioner was asked for and that did not register in time. Operators and opens that wait are told of
//! them while they are overdue.

use crate::log::at::At;
use crate::pools::order::{expected, ordered, write};
use crate::pools::state::Pools;
use crate::ports::note::Transition;
use rota_model::PoolName;
use rota_model::items::{Orders, decision_of};

/// Why a pool lacks nodes that are overdue, for people. `None` when none is, or when the provisioner said what failed.
fn lateness(led: &At<'_>, pool: &PoolName, raw: &Orders, now: &Orders) -> Option<String> {
    let may_be_late = raw.failed.is_empty() && (raw.failure.is_empty() || raw.is_late);
    let node = now.overdue.first().filter(|_| may_be_late)?;
    let by = decision_of(pool, node).and_then(|it| now.provisioner_of(it))?;
    let within_s = led.env.config.timing.provision_ms.div_ceil(1_000);
    Some(format!(
        "provisioner {by} was asked for nodes that did not register within {within_s} s, such as node {node}: see what \
         it did, and what that node logged. Where nodes take longer, give managers a longer --provision-ms"
    ))
}

impl Pools {
    /// Sees whether nodes are overdue. What was told of them is taken back when they come, and stays when they are
    /// given up, until the next order.
    pub fn see_late(&mut self, led: &mut At<'_>, growing: &[PoolName]) {
        for pool in growing.iter().filter(|it| !self.ordering.contains_key(*it)) {
            let (before, raw) = ordered(led, pool);
            let (_, now) = expected(led, self, pool);
            match lateness(led, pool, &raw, &now) {
                Some(why) => {
                    // Renewed at each look: other managers ask for it while opens wait there.
                    led.env.on_order_failed(pool, &why);
                    if !raw.is_late {
                        let text = format!("pool {pool}: {why}");
                        led.env.note_text(Transition::OrderFailed, Some(led.log.number), text);
                        let orders = Orders { failure: why, is_late: true, ..raw };
                        write(led, pool, before.as_deref(), orders);
                    }
                }
                None if raw.is_late => {
                    led.env.nodes.failed_orders.remove(pool);
                    let mut late = raw.ordered.iter().chain(&raw.overdue);
                    let is_given_up = late.any(|it| now.to_clear.contains(it));
                    let failure = if is_given_up { raw.failure.clone() } else { String::new() };
                    let orders = Orders { failure, is_late: false, ..raw };
                    write(led, pool, before.as_deref(), orders);
                }
                None => {}
            }
        }
    }
}
