//! Nothing is forgotten while it can still be delivered again (I9).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::{Context, Error, Handler, Runner, Settings, failed};
use crate::backoff::Backoff;
use crate::inbox::Inbox;
use crate::observe;
use crate::source::{self, Recognition, Redelivery, Source};

/// Says what is wrong with the retention, with the arithmetic. Sequences and offsets are kept for ever.
fn shortfall(settings: &Settings, redelivery: &Redelivery) -> Option<String> {
    if settings.recognition != Recognition::Id {
        return None;
    }
    let kept = settings.retention;
    match redelivery {
        Redelivery::Within { longest, .. } if *longest <= kept => None,
        Redelivery::Within { longest, because } => Some(format!(
            "ids are kept for {} and the source may deliver a message again for {} ({because}): a message that comes \
             after its id is forgotten would apply twice; set the inbox retention to at least {}, or shorten what the \
             source keeps",
            shown(kept),
            shown(*longest),
            shown(*longest)
        )),
        Redelivery::Unlimited { because } => Some(format!(
            "ids are kept for {} and the source may deliver a message again without end ({because}): a message that \
             comes after its id is forgotten would apply twice; recognise messages by sequence or offset, or bound \
             what the source keeps",
            shown(kept)
        )),
    }
}

/// Refuses to run if the retention is too short. `false` if it is told to stop before the source can be asked.
pub(super) async fn required<S: Inbox, K: Source, H: Handler<S>>(
    runner: &Runner<S, K, H>,
    stopping: &mut watch::Receiver<bool>,
) -> Result<bool, Error> {
    let mut backoff = Backoff::new(runner.settings.backoff_min, runner.settings.backoff_max);
    loop {
        match runner.source.redelivery().await {
            Ok(redelivery) => {
                return match shortfall(&runner.settings, &redelivery) {
                    Some(wrong) => Err(Error::Settings(format!("consumer {}: {wrong}", runner.consumer.name()))),
                    None => Ok(true),
                };
            }
            Err(error @ source::Error::Refused(_)) => return Err(Error::Source(error)),
            Err(error) => failed("ask how long its source delivers again", &error),
        }
        if !backoff.pause(stopping).await {
            return Ok(false);
        }
    }
}

/// Raises the alarm when the source is changed while it is read, for as long as it is polled.
pub(super) async fn watch<S: Inbox, K: Source, H: Handler<S>>(context: Arc<Context<S, K, H>>) {
    let name = context.consumer.name();
    observe::inbox_retention_short(name, false);
    loop {
        tokio::time::sleep(context.settings.retention_interval).await;
        match context.source.redelivery().await {
            Ok(redelivery) => {
                let wrong = shortfall(&context.settings, &redelivery);
                observe::inbox_retention_short(name, wrong.is_some());
                if let Some(wrong) = wrong {
                    tracing::error!(consumer = name, wrong, "the source was changed and ids are kept too short a time");
                }
            }
            Err(error) => failed("ask how long its source delivers again", &error),
        }
    }
}

/// A duration as people write it: whole days, hours, minutes or seconds.
fn shown(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let units = [(24 * 60 * 60, "d"), (60 * 60, "h"), (60, "m")];
    match units.iter().find(|(unit, _)| seconds >= *unit && seconds.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", seconds / unit),
        None if duration.subsec_millis() == 0 => format!("{seconds}s"),
        None => format!("{}ms", duration.as_millis()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn within(longest: Duration) -> Redelivery {
        Redelivery::Within { longest, because: "max_age 8d".to_owned() }
    }

    #[test]
    fn a_retention_shorter_than_what_can_be_delivered_again_is_refused_with_the_arithmetic() {
        let settings = Settings { retention: 7 * DAY, ..Settings::default() };
        assert_eq!(shortfall(&settings, &within(7 * DAY)), None);
        let wrong = shortfall(&settings, &within(8 * DAY)).unwrap();
        assert!(wrong.contains("kept for 7d") && wrong.contains("again for 8d (max_age 8d)"), "{wrong}");
        let endless = Redelivery::Unlimited { because: "the stream has no max_age".to_owned() };
        assert!(shortfall(&settings, &endless).unwrap().contains("without end (the stream has no max_age)"));
    }

    #[test]
    fn what_is_kept_for_ever_is_never_too_short() {
        for recognition in [Recognition::Sequence, Recognition::Offset] {
            let settings = Settings { recognition, ..Settings::default() };
            let endless = Redelivery::Unlimited { because: String::new() };
            assert_eq!(shortfall(&settings, &endless), None);
        }
    }

    #[test]
    fn durations_are_told_in_their_largest_whole_unit() {
        let cases =
            [(7 * DAY, "7d"), (DAY + Duration::from_secs(3600), "25h"), (Duration::from_millis(1500), "1500ms")];
        for (duration, expected) in cases {
            assert_eq!(shown(duration), expected);
        }
    }
}
