//! How far a run of a flow's function has got, and the rules for its steps.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::error::{Changed, Error, text_of};
use super::journal::{Entry, Kind, MAX_STEP_CHARACTERS, MAX_STEPS, State, UNDO};
use crate::{Error as StoreError, Reply};

/// What starts the names of the engine's own steps, such as [`UNDO`]. Those that a service chooses cannot start with
/// it.
const OWN: char = '~';

/// How far a run has got: what is recorded, and what the function has asked for.
#[derive(Debug, Default)]
pub(super) struct Progress {
    entries: HashMap<String, Entry>,
    asked: HashSet<String>,
    /// What is recorded and was not asked for yet, in the order in which it was recorded.
    unasked: Vec<String>,
    /// The steps for which a compensation is registered.
    compensated: HashSet<String>,
    /// Whether the function has returned, so that nobody has to ask for anything any more.
    returned: bool,
    /// How many bytes the results take that are recorded.
    kept_bytes: usize,
    /// Whether this run has recorded anything.
    got_on: bool,
    ending: Option<Ending>,
}

/// How a run ends. The first one stays.
#[derive(Debug, Clone)]
pub(super) enum Ending {
    /// The flow has its reply.
    Finished {
        /// The reply.
        reply: Reply,
        /// Whether it was undone.
        failed: bool,
    },
    /// It goes on in a while.
    Paused(Duration),
    /// A person has to find out what became of a step.
    Held {
        /// The step.
        step: String,
        /// What is known of it.
        why: String,
    },
    /// It failed in a way that may pass.
    Broken {
        /// What failed.
        cause: String,
        /// How the code does not fit, if that is what failed.
        changed: Option<Changed>,
    },
    /// Another worker took over.
    Lost,
}

impl Ending {
    /// How a run ends that cannot go on because of this error.
    pub(super) fn of(error: &Error) -> Ending {
        match error {
            Error::Store(StoreError::Fenced) => Ending::Lost,
            // Whoever takes it up next, which is at once, reads that it is to be undone.
            Error::Store(StoreError::Cancelled) => Ending::Paused(Duration::ZERO),
            Error::Changed(changed) => Ending::Broken { cause: text_of(error), changed: Some(changed.clone()) },
            _ => Ending::Broken { cause: text_of(error), changed: None },
        }
    }
}

impl Progress {
    pub(super) fn new(entries: Vec<Entry>) -> Progress {
        let chosen = entries.iter().filter(|entry| !entry.step.starts_with(OWN));
        let kept = entries.iter().filter_map(|entry| entry.result.as_ref()).map(|kept| kept.bytes.len());
        let kept_bytes = kept.fold(0, usize::saturating_add);
        let unasked = chosen.map(|entry| entry.step.clone()).collect();
        let entries = entries.into_iter().map(|entry| (entry.step.clone(), entry)).collect();
        Progress { entries, unasked, kept_bytes, ..Progress::default() }
    }

    /// The function asks for a step: what is recorded of it, or nothing if it is new.
    ///
    /// A new one may begin only when everything recorded was asked for before it. Otherwise a step that was renamed
    /// would run a second time under its new name.
    pub(super) fn ask(&mut self, flow: &str, step: &str, kind: Kind) -> Result<Option<Entry>, Changed> {
        if !can_be_chosen(step) {
            return Err(Changed::StepName { step: step.to_owned() });
        }
        if !self.asked.insert(step.to_owned()) {
            return Err(Changed::DuplicateStep { step: step.to_owned() });
        }
        self.unasked.retain(|unasked| unasked != step);
        if let Some(entry) = self.find(step, kind)? {
            return Ok(Some(entry));
        }
        self.none_vanished(flow)?;
        // The step itself, its compensation, and the compensations of those before it.
        if self.entries.len() + self.compensated.len() + 2 > MAX_STEPS {
            return Err(Changed::TooManySteps { flow: flow.to_owned() });
        }
        Ok(None)
    }

    /// What is recorded of a step that must be of this kind.
    pub(super) fn find(&self, step: &str, kind: Kind) -> Result<Option<Entry>, Changed> {
        match self.entries.get(step) {
            Some(entry) if entry.kind != kind => {
                Err(Changed::KindChanged { step: step.to_owned(), recorded: entry.kind, asked: kind })
            }
            found => Ok(found.cloned()),
        }
    }

    /// What is recorded of a step, whatever it is.
    pub(super) fn get(&self, step: &str) -> Option<&Entry> {
        self.entries.get(step)
    }

    /// The function says that it knows of a step which it does not have any more.
    pub(super) fn retire(&mut self, step: &str) {
        // A call without an end has to be asked for: somebody must find out what became of it.
        if self.entries.get(step).is_some_and(|entry| matches!(entry.state, State::Pending | State::Unknown)) {
            return;
        }
        self.asked.insert(step.to_owned());
        self.unasked.retain(|unasked| unasked != step);
    }

    /// Everything recorded was asked for.
    pub(super) fn none_vanished(&self, flow: &str) -> Result<(), Changed> {
        match self.unasked.first() {
            None => Ok(()),
            Some(step) => Err(Changed::Vanished { step: step.clone(), flow: flow.to_owned() }),
        }
    }

    /// A compensation is registered for a step that was asked for before.
    pub(super) fn compensate(&mut self, step: &str, kind: Kind) -> Result<(), Changed> {
        if !self.asked.contains(step) {
            return Err(Changed::NoSuchStep { step: step.to_owned() });
        }
        self.find(step, kind)?;
        if !self.compensated.insert(step.to_owned()) {
            return Err(Changed::DuplicateStep { step: format!("{UNDO}{step}") });
        }
        Ok(())
    }

    /// A step is recorded now.
    pub(super) fn note(&mut self, step: &str, kind: Kind, state: State) {
        let entry = Entry { step: step.to_owned(), kind, state, result: None, intent: None, restored: false };
        self.entries.insert(step.to_owned(), entry);
        self.got_on = true;
    }

    /// Whether this run has recorded anything, so that the failures of those before it do not count any more.
    pub(super) fn got_on(&self) -> bool {
        self.got_on
    }

    /// The result of a step that is recorded now takes so many bytes.
    pub(super) fn keep(&mut self, bytes: usize) {
        self.kept_bytes = self.kept_bytes.saturating_add(bytes);
    }

    pub(super) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Ends the run, unless it has ended already; whether it did is returned.
    pub(super) fn end(&mut self, ending: Ending) -> bool {
        let first = self.ending.is_none();
        self.ending.get_or_insert(ending);
        first
    }

    pub(super) fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// The function has returned: whoever still has its handle can do nothing more with it.
    pub(super) fn close(&mut self) {
        self.returned = true;
    }

    /// Whether the function can ask for steps.
    pub(super) fn is_open(&self) -> bool {
        self.ending.is_none() && !self.returned
    }
}

/// Whether a service may give a step this name.
fn can_be_chosen(step: &str) -> bool {
    (1..=MAX_STEP_CHARACTERS).contains(&step.len())
        && step.bytes().all(|b| b.is_ascii_graphic())
        && !step.starts_with(OWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(steps: &[(&str, Kind)]) -> Progress {
        let entry = |(step, kind): &(&str, Kind)| Entry {
            step: (*step).to_owned(),
            kind: *kind,
            state: State::Done,
            result: None,
            intent: None,
            restored: false,
        };
        Progress::new(steps.iter().map(entry).collect())
    }

    fn vanished(step: &str) -> Changed {
        Changed::Vanished { step: step.to_owned(), flow: "order".to_owned() }
    }

    #[test]
    fn a_step_is_named_by_up_to_80_visible_characters_that_are_not_the_engines_own() {
        for step in ["a", "charge-the-card", "a~undo.", &"x".repeat(80)] {
            assert_eq!(recorded(&[]).ask("order", step, Kind::Commit), Ok(None), "{step}");
        }
        for step in ["", "a b", "é", "a\n", "~undo.a", "~", &"x".repeat(81)] {
            let refused = recorded(&[]).ask("order", step, Kind::Commit);
            assert_eq!(refused, Err(Changed::StepName { step: step.to_owned() }));
        }
    }

    #[test]
    fn a_name_is_asked_for_once_in_a_run() {
        let mut progress = recorded(&[("reserve", Kind::Commit)]);
        assert!(matches!(progress.ask("order", "reserve", Kind::Commit), Ok(Some(_))));
        let twice = Changed::DuplicateStep { step: "reserve".to_owned() };
        assert_eq!(progress.ask("order", "reserve", Kind::Commit), Err(twice.clone()));
        assert!(twice.to_string().contains("give the second another"), "{twice}");
    }

    #[test]
    fn nothing_new_begins_before_everything_recorded_was_asked_for() {
        let mut progress = recorded(&[("reserve", Kind::Commit), ("charge", Kind::Call), ("~undo.charge", Kind::Call)]);
        assert_eq!(progress.ask("order", "renamed", Kind::Commit), Err(vanished("reserve")));
        assert!(matches!(progress.ask("order", "reserve", Kind::Commit), Ok(Some(_))));
        assert_eq!(progress.ask("order", "mail", Kind::Call), Err(vanished("charge")));
        assert_eq!(progress.none_vanished("order"), Err(vanished("charge")));
        progress.retire("charge");
        assert_eq!(progress.none_vanished("order"), Ok(()));
        assert_eq!(progress.ask("order", "deliver", Kind::Commit), Ok(None));
    }

    #[test]
    fn a_step_stays_what_it_was() {
        let changed = recorded(&[("charge", Kind::Call)]).ask("order", "charge", Kind::Commit).unwrap_err();
        let step = "charge".to_owned();
        assert_eq!(changed, Changed::KindChanged { step, recorded: Kind::Call, asked: Kind::Commit });
    }

    #[test]
    fn only_what_was_asked_for_is_compensated_and_only_once() {
        let mut progress = recorded(&[("reserve", Kind::Commit), ("charge", Kind::Call)]);
        let unknown = Changed::NoSuchStep { step: "reserve".to_owned() };
        assert_eq!(progress.compensate("reserve", Kind::Commit), Err(unknown));
        progress.ask("order", "reserve", Kind::Commit).unwrap();
        assert_eq!(progress.compensate("reserve", Kind::Commit), Ok(()));
        let twice = Changed::DuplicateStep { step: "~undo.reserve".to_owned() };
        assert_eq!(progress.compensate("reserve", Kind::Commit), Err(twice));
        progress.retire("charge");
        assert!(matches!(progress.compensate("charge", Kind::Commit), Err(Changed::KindChanged { .. })));
        assert_eq!(progress.compensate("charge", Kind::Call), Ok(()));
    }

    #[test]
    fn there_is_always_room_to_undo_what_was_done() {
        let mut progress = recorded(&[]);
        let mut steps = 0;
        while progress.ask("order", &format!("s{steps}"), Kind::Commit).is_ok() {
            progress.note(&format!("s{steps}"), Kind::Commit, State::Done);
            progress.compensate(&format!("s{steps}"), Kind::Commit).unwrap();
            steps += 1;
        }
        assert_eq!(steps, MAX_STEPS / 2);
    }

    #[test]
    fn a_call_without_an_end_is_not_retired() {
        let mut progress = recorded(&[]);
        progress = Progress { unasked: vec!["charge".to_owned()], ..progress };
        progress.note("charge", Kind::Call, State::Pending);
        progress.retire("charge");
        assert_eq!(progress.none_vanished("order"), Err(vanished("charge")));
        progress.note("charge", Kind::Call, State::Done);
        progress.retire("charge");
        assert_eq!(progress.none_vanished("order"), Ok(()));
    }

    #[test]
    fn the_first_ending_stays() {
        let mut progress = recorded(&[]);
        assert!(progress.is_open() && progress.end(Ending::of(&Error::Store(StoreError::Fenced))));
        assert!(!progress.end(Ending::Paused(Duration::ZERO)));
        assert!(matches!(progress.ending(), Some(Ending::Lost)) && !progress.is_open());
    }
}
