//! Workers of one manager are given to the operations that wait for them.

use crate::manager::inputs::Manager;
use crate::ports::note::Transition;
use crate::ports::work::Worked;

impl Manager {
    /// What an operation worked for came back.
    pub(crate) fn on_worked(&mut self, work: u64, worked: &Worked) {
        let Some(it) = self.env.desks.works.running.remove(&work) else { return };
        let part = self.parts.get_mut(&it.part);
        if !part.is_some_and(|part| part.on_worked(&mut self.env, it.origin, work, worked)) {
            let took_ms = self.env.now.mono_ms.saturating_sub(it.since_ms);
            let text = format!(
                "operation {} has worked for {took_ms} ms, and nobody waits for it any more: it changes \
                 nothing",
                it.operation
            );
            self.env.note_text(Transition::WorkDropped, Some(it.part), text);
        }
        self.begin_works();
    }

    /// Gives free workers to those that wait for one.
    fn begin_works(&mut self) {
        while self.env.has_worker()
            && let Some((part, origin)) = self.env.desks.works.queue.pop_front()
        {
            if let Some(part) = self.parts.get_mut(&part) {
                part.on_worker(&mut self.env, origin);
            }
        }
    }

    /// Forgets those that do not wait for a worker any more.
    pub(crate) fn tick_works(&mut self) {
        let parts = &mut self.parts;
        self.env.desks.works.queue.retain(|(part, origin)| {
            parts.get_mut(part).is_some_and(|it| it.waits_for_worker(*origin))
        });
    }
}
