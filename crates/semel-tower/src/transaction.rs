//! A keyed request that runs in one transaction.

use std::time::Duration;

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::response;
use semel::disposition::Mark;
use semel::{Ask, Claim, Error, Finished, Reply, Semel, Store, Tx as _, failpoint};
use tracing::Instrument;

use crate::code;
use crate::extract::Keyed;
use crate::policy::Policy;
use crate::problem::Problem;
use crate::replay;
use crate::run::{self, Inner, Ran, failed, first_answer, settled};
use crate::service::Shared;
use crate::slot::{Closed, Slot};
use crate::tally::Tally;

/// How long a failed transaction may take to end before its key is taken to be in flight.
const ASK_AGAIN_FOR: Duration = Duration::from_secs(1);

/// Claims the key, runs the handler in the claim's transaction, and commits effect and reply together (I1).
///
/// A client that disconnects while the handler runs drops this future and with it the transaction, which rolls back.
/// Once the commit has begun it goes on in a task of its own.
pub(crate) async fn serve<I: Inner, S: Store>(
    shared: &Shared<S>,
    inner: I,
    ask: Ask,
    mut request: Request,
    mut tally: Tally,
) -> Result<Response, I::Error> {
    let Shared { semel, policy } = shared;
    let tx = match semel.claim(&ask).await {
        Ok(Claim::Fresh(tx)) => tx,
        Ok(claim) => return Ok(settled(claim, &mut tally)),
        Err(error) => return Ok(failed(error, &mut tally)),
    };
    failpoint::reach(failpoint::CLAIMED).await;

    let keyed = Keyed { scope: ask.scope.clone(), key: ask.key.clone(), execution: tx.execution(), leased: false };
    let slot = Slot::<S>::holding(tx);
    request.extensions_mut().insert(keyed);
    request.extensions_mut().insert(slot.clone());
    let settings = semel.settings();
    let begun = || slot.may_have_begun();
    let ran = run::run(inner, request, policy, settings.reply_limit, settings.deadline, begun).await;

    match (ran, slot.close()) {
        (Ran::Answered { parts, body, mark }, Closed::Home { tx, taken }) => {
            let answer = match checked(&parts, &body, mark, taken, policy, &tally) {
                Ok(reply) => Answer { reply, parts, body },
                Err(problem) => {
                    tx.rollback().await;
                    return Ok(problem.into_response());
                }
            };
            failpoint::reach(failpoint::BEFORE_COMPLETION).await;
            let committing = conclude(semel.clone(), ask, tx, answer, tally).in_current_span();
            Ok(tokio::spawn(committing).await.unwrap_or_else(|_| {
                Problem::unavailable("the commit was interrupted; ask again with the same key").into_response()
            }))
        }
        (Ran::Answered { .. }, Closed::Away) => Ok(outside(
            "the handler answered without giving the transaction back; nothing was committed. Tx must be dropped \
             before the answer, not moved into a task",
            &tally,
        )
        .into_response()),
        (ran, closed) => {
            let mut conflicted = false;
            if let Closed::Home { tx, .. } = closed {
                conflicted = tx.conflicted();
                tx.rollback().await;
            }
            match ran {
                Ran::Error(error) => Err(error),
                _ if conflicted => Ok(ask_again(semel, &ask, &mut tally).await),
                Ran::Refused(response) => {
                    tally.refused(&response);
                    Ok(response)
                }
                Ran::Failed(problem) => Ok(problem.into_response()),
                Ran::Answered { .. } => unreachable!("both cases stand above"),
            }
        }
    }
}

/// What the handler answered, and what would be stored of it.
struct Answer {
    reply: Reply,
    parts: response::Parts,
    body: Bytes,
}

/// The reply to be stored, or the mistake that keeps it from being stored.
fn checked(
    parts: &response::Parts,
    body: &Bytes,
    mark: Mark,
    taken: bool,
    policy: &Policy,
    tally: &Tally,
) -> Result<Reply, Problem> {
    if !taken && (200..400).contains(&parts.status.as_u16()) {
        return Err(outside(
            "the handler answered success without taking the transaction, so its effect cannot be in it; take Tx and \
             run the effect's statements through it",
            tally,
        ));
    }
    replay::reply_of(parts, body, mark, policy).map_err(|invalid| {
        tracing::error!(operation = tally.operation(), %invalid, "a reply cannot be stored; it is rolled back");
        Problem::of(&code::INTERNAL_ERROR, format!("the reply cannot be stored: {invalid}"))
    })
}

/// Commits, and answers by what became of it. Runs to its end whether or not the client still listens.
async fn conclude<S: Store>(semel: Semel<S>, ask: Ask, tx: S::Tx, answer: Answer, mut tally: Tally) -> Response {
    let Answer { reply, parts, body } = answer;
    match semel.finish(&ask, tx, &reply).await {
        Ok(Finished::Stored) => {
            failpoint::reach(failpoint::COMMIT_ACKNOWLEDGED).await;
            tally.set("fresh");
            first_answer(parts, body)
        }
        Ok(Finished::Forgotten) => first_answer(parts, body),
        Err(Error::Raced | Error::RolledBack | Error::Conflict(_)) => ask_again(&semel, &ask, &mut tally).await,
        Err(error) => failed(error, &mut tally),
    }
}

/// After a rollback that was not the handler's doing, asks once what became of the key. The handler is not run again:
/// where the key is still new, the client may retry. The question waits a little, because the transaction that failed
/// may be still on its way out.
async fn ask_again<S: Store>(semel: &Semel<S>, ask: &Ask, tally: &mut Tally) -> Response {
    match semel.claim(&ask.clone().waiting(ask.wait.max(ASK_AGAIN_FOR))).await {
        Ok(Claim::Fresh(tx)) => {
            tx.rollback().await;
            tracing::warn!(operation = tally.operation(), "a transaction conflicted with another and was rolled back");
            tally.set("unavailable");
            Problem::unavailable(
                "the transaction conflicted with another and was rolled back; try again with the same key",
            )
            .into_response()
        }
        Ok(claim) => settled(claim, tally),
        Err(error) => failed(error, tally),
    }
}

fn outside(detail: &str, tally: &Tally) -> Problem {
    tracing::error!(operation = tally.operation(), "{detail}");
    Problem::of(&code::EFFECT_OUTSIDE, detail)
}
