//! A keyed request whose work outlives one transaction.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use semel::disposition::Mark;
use semel::lease::KeepAlive;
use semel::{Ask, Claim, Error, Finished, Lease, LeaseTerms, Next, Reply, Semel, Store, failpoint, observe};
use tracing::Instrument;

use crate::code;
use crate::extract::{Keyed, LeaseHandle};
use crate::problem::Problem;
use crate::replay;
use crate::run::{self, Inner, Ran, failed, first_answer, settled};
use crate::service::Shared;
use crate::tally::Tally;

/// Leases the key and runs the handler while the lease is renewed; the answer completes the key.
///
/// The work goes on in a task of its own: a client that disconnects does not leave it half done. After a crash the
/// lease runs out, and the next request resumes at the recovery point or is told that the outcome is unknown.
pub(crate) async fn serve<I: Inner, S: Store>(
    shared: Arc<Shared<S>>,
    inner: I,
    ask: Ask,
    request: Request,
    mut tally: Tally,
) -> Result<Response, I::Error> {
    let Some(leased) = &shared.policy.leased else {
        return Ok(Problem::of(&code::INTERNAL_ERROR, "the route does not lease").into_response());
    };
    let terms = LeaseTerms {
        lease_for: leased.lease_for,
        holder: leased.holder.clone(),
        on_expiry: leased.on_expiry,
        retain: shared.semel.settings().retention.keep(),
    };
    let limit = leased.limit;
    let lease = match shared.semel.lease(&ask, &terms).await {
        Ok(Claim::Fresh(lease) | Claim::Resume(lease)) => lease,
        Ok(claim) => return Ok(settled(claim, &mut tally)),
        Err(error) => return Ok(failed(error, &mut tally)),
    };
    failpoint::reach(failpoint::CLAIMED).await;
    let working = tokio::spawn(work(shared, inner, lease, limit, request, tally).in_current_span());
    working.await.unwrap_or_else(|_| {
        Ok(Problem::unavailable("the work was interrupted; ask again with the same key").into_response())
    })
}

async fn work<I: Inner, S: Store>(
    shared: Arc<Shared<S>>,
    inner: I,
    lease: Lease,
    limit: Duration,
    mut request: Request,
    mut tally: Tally,
) -> Result<Response, I::Error> {
    let Shared { semel, policy } = &*shared;
    request.extensions_mut().insert(Keyed {
        scope: lease.scope().clone(),
        key: lease.key().clone(),
        execution: lease.execution,
        leased: true,
    });
    request.extensions_mut().insert(LeaseHandle::new(semel.clone(), lease.clone()));
    let mut alive = semel.keep_alive(&lease);
    let ran = tokio::select! {
        biased;
        () = alive.lost() => {
            tally.set("in_flight");
            return Ok(Problem::in_flight(lease.lease_for).into_response());
        }
        ran = run::run(inner, request, policy, semel.settings().reply_limit, limit, || true) => ran,
    };
    let (parts, body, mark) = match ran {
        Ran::Answered { parts, body, mark } => (parts, body, mark),
        ran => {
            give_up(semel, &lease, alive).await;
            return match ran {
                Ran::Refused(response) => {
                    tally.refused(&response);
                    Ok(response)
                }
                Ran::Failed(problem) => Ok(problem.into_response()),
                Ran::Error(error) => Err(error),
                Ran::Answered { .. } => unreachable!("the case stands above"),
            };
        }
    };
    // The steps of leased work are committed already, so a 4xx is stored beside them instead of undoing them.
    let mark = if parts.status.is_client_error() { Mark::Keep } else { mark };
    let reply = match replay::reply_of(&parts, &body, mark, policy) {
        Ok(reply) => reply,
        Err(invalid) => {
            tracing::error!(operation = tally.operation(), %invalid, "a reply cannot be stored");
            give_up(semel, &lease, alive).await;
            let detail = format!("the reply cannot be stored: {invalid}");
            return Ok(Problem::of(&code::INTERNAL_ERROR, detail).into_response());
        }
    };
    failpoint::reach(failpoint::BEFORE_COMPLETION).await;
    match complete(semel, &lease, &reply).await {
        Ok(Finished::Forgotten) => {
            give_up(semel, &lease, alive).await;
            Ok(first_answer(parts, body))
        }
        Ok(Finished::Stored) => {
            failpoint::reach(failpoint::COMMIT_ACKNOWLEDGED).await;
            tally.set("fresh");
            Ok(first_answer(parts, body))
        }
        Err(error) => {
            if !matches!(error, Error::Fenced | Error::Ambiguous(_)) {
                give_up(semel, &lease, alive).await;
            }
            Ok(failed(error, &mut tally))
        }
    }
}

/// Stores the reply under the lease's fence. Nothing of the handler's runs here, so a conflict is simply tried again.
async fn complete<S: Store>(semel: &Semel<S>, lease: &Lease, reply: &Reply) -> Result<Finished, Error> {
    let mut attempt = 1;
    loop {
        let completed = match semel.store().begin_fenced(lease).await {
            Ok(tx) => semel.finish(&lease.ask, tx, reply).await,
            Err(error) => {
                if matches!(error, Error::Fenced) {
                    observe::fenced_write();
                }
                Err(error)
            }
        };
        match completed {
            Err(error) if error.next() == Next::RunAgain && attempt < semel.settings().attempts => {
                observe::serialization_retry(lease.scope().operation());
                tokio::time::sleep(Duration::from_millis(1 << attempt.min(7))).await;
                attempt += 1;
            }
            completed => return completed,
        }
    }
}

/// Ends the lease now, so that a retry need not wait for it to run out. If that fails, it runs out by itself.
/// The renewal ends first: it would undo the release.
async fn give_up<S: Store>(semel: &Semel<S>, lease: &Lease, alive: KeepAlive) {
    alive.stop().await;
    if let Err(error) = semel.store().release(lease).await {
        let operation = lease.scope().operation();
        tracing::warn!(operation, error = &error as &dyn std::error::Error, "a lease could not be released");
    }
}
