//! What administrators order of one task. To delete one is to remove its document: a run that is under way finds
//! nothing at its end.

use crate::task::Task;
use rota_model::{FieldError, Stamp};

impl Task {
    fn not_running(&self, order: &str) -> Result<(), FieldError> {
        match self.start_time {
            None => Ok(()),
            Some(since) => {
                let problem = format!("is set: it runs since {since}; {order} it when it ended");
                Err(FieldError::new("startTime", problem))
            }
        }
    }

    /// Starts it earlier. Errors: it runs (`startTime`), or starts no later than that already (`startAt`).
    pub fn advance(&self, at: Stamp) -> Result<Task, FieldError> {
        self.not_running("advance")?;
        if let Some(now_at) = self.start_at.filter(|it| *it <= at) {
            let problem = format!("is {now_at} already; postpone it, or name an earlier time");
            return Err(FieldError::new("startAt", problem));
        }
        Ok(Task { start_at: Some(at), ..self.clone() })
    }

    /// Starts it later. Errors: it runs (`startTime`), was given up, or starts no earlier already (`startAt`).
    pub fn postpone(&self, at: Stamp) -> Result<Task, FieldError> {
        self.not_running("postpone")?;
        let Some(now_at) = self.start_at else {
            return Err(FieldError::new("startAt", "is not set: it was given up; retry it"));
        };
        if now_at >= at {
            let problem = format!("is {now_at} already; advance it, or name a later time");
            return Err(FieldError::new("startAt", problem));
        }
        Ok(Task { start_at: Some(at), ..self.clone() })
    }

    /// Runs it now: also one that was given up. `retry` stays, so the operation still sees that it is no first run,
    /// and one that was given up gets one more try. Errors: it runs (`startTime`), or is paused (`paused`).
    pub fn retry_now(&self, now: Stamp) -> Result<Task, FieldError> {
        self.not_running("retry")?;
        if self.paused {
            return Err(FieldError::new("paused", "is set; resume it first"));
        }
        Ok(Task { start_at: Some(now), exc: None, report: None, ..self.clone() })
    }

    /// Holds a periodic task back; one that runs comes to its end, and its next run is held back.
    /// Errors: it is not periodic (`cron`).
    pub fn pause(&self) -> Result<Task, FieldError> {
        if self.cron.is_none() {
            return Err(FieldError::new("cron", "is not set: it is not periodic; postpone it"));
        }
        Ok(Task { paused: true, ..self.clone() })
    }

    /// Lets a periodic task go on. Runs that passed meanwhile are left out: one that waits for its first try gets the
    /// next run after `now`. Errors: it is not periodic (`cron`).
    pub fn resume(&self, now: Stamp) -> Result<Task, FieldError> {
        let Some(cron) = self.cron else {
            return Err(FieldError::new("cron", "is not set: it is not periodic"));
        };
        let passed = self.paused && self.retry == 0 && self.start_at.is_some_and(|it| it < now);
        let start_at = if passed { cron.next(now) } else { self.start_at };
        Ok(Task { paused: false, start_at, ..self.clone() })
    }
}
