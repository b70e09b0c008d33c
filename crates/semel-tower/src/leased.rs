//! A keyed request whose work outlives one transaction.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use semel::disposition::Mark;
use semel::lease::KeepAlive;
use semel::{Ask, Claim, Error, Finished, Lease, LeaseTerms, Next, Reply, Semel, Store, failpoint, observe};
use tracing::Instrument;

use crate::code;
use crate::extract::Keyed;
use crate::handle::LeaseHandle;
use crate::policy::Leased;
use crate::problem::Problem;
use crate::replay;
use crate::run::{self, Inner, Ran, failed, first_answer, settled};
use crate::service::Shared;
use crate::tally::Tally;

/// Leases the key and runs the handler while the lease is renewed; the answer completes the key.
///
/// Lease and work are one task of their own: a client that disconnects neither leaves a lease that nobody works under,
/// nor work half done. After a crash the lease runs out, and the next request resumes at the recovery point or is told
/// that the outcome is unknown.
pub(crate) async fn serve<I: Inner, S: Store>(
    shared: Arc<Shared<S>>,
    inner: I,
    leased: Leased,
    ask: Ask,
    request: Request,
    tally: Tally,
) -> Result<Response, I::Error> {
    let serving = tokio::spawn(lease(shared, inner, leased, ask, request, tally).in_current_span());
    serving.await.unwrap_or_else(|_| {
        Ok(Problem::unavailable("the work was interrupted; ask again with the same key").into_response())
    })
}

async fn lease<I: Inner, S: Store>(
    shared: Arc<Shared<S>>,
    inner: I,
    leased: Leased,
    ask: Ask,
    request: Request,
    mut tally: Tally,
) -> Result<Response, I::Error> {
    let terms = LeaseTerms {
        lease_for: leased.lease_for,
        holder: leased.holder,
        on_expiry: leased.on_expiry,
        retain: shared.semel.settings().retention.keep(),
    };
    let asked = Instant::now();
    let claim = shared.semel.lease(&ask, &terms).await;
    observe::claim_took(asked.elapsed());
    let lease = match claim {
        Ok(Claim::Fresh(lease) | Claim::Resume(lease)) => lease,
        Ok(claim) => return Ok(settled(claim, &mut tally)),
        Err(error) => return Ok(failed(error, &mut tally)),
    };
    failpoint::reach(failpoint::CLAIMED).await;
    work(&shared, inner, lease, leased.limit, request, tally).await
}

async fn work<I: Inner, S: Store>(
    shared: &Shared<S>,
    inner: I,
    lease: Lease,
    limit: Duration,
    mut request: Request,
    mut tally: Tally,
) -> Result<Response, I::Error> {
    let Shared { semel, policy } = shared;
    request.extensions_mut().insert(Keyed {
        scope: lease.scope().clone(),
        key: lease.key().clone(),
        execution: lease.execution,
        leased: true,
    });
    let mut alive = semel.keep_alive(&lease);
    let retry_after = lease.lease_for;
    let handle = LeaseHandle::new(semel.clone(), lease);
    request.extensions_mut().insert(handle.clone());
    let reply_limit = semel.settings().reply_limit;
    let ran = tokio::select! {
        biased;
        () = alive.lost() => {
            tally.set("in_flight");
            return Ok(Problem::in_flight(retry_after).into_response());
        }
        ran = run::run(inner, request, policy, reply_limit, limit, || handle.begun()) => ran,
    };
    let (parts, body, mark) = match ran {
        Ran::Answered { parts, body, mark } => (parts, body, mark),
        ran => {
            give_up(semel, &handle, alive).await;
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
            give_up(semel, &handle, alive).await;
            let detail = format!("the reply cannot be stored: {invalid}");
            return Ok(Problem::of(&code::INTERNAL_ERROR, detail).into_response());
        }
    };
    failpoint::reach(failpoint::BEFORE_COMPLETION).await;
    match complete(semel, &handle, &reply).await {
        Ok(Finished::Forgotten) => {
            give_up(semel, &handle, alive).await;
            Ok(first_answer(parts, body))
        }
        Ok(Finished::Stored) => {
            failpoint::reach(failpoint::COMMIT_ACKNOWLEDGED).await;
            alive.stop().await;
            tally.set("fresh");
            Ok(first_answer(parts, body))
        }
        Err(error) => {
            if matches!(error, Error::Fenced | Error::Ambiguous(_)) {
                alive.stop().await;
            } else {
                give_up(semel, &handle, alive).await;
            }
            Ok(failed(error, &mut tally))
        }
    }
}

/// Stores the reply under the lease's fence, at the recovery point that the last step left. Nothing of the handler's
/// runs here, so a conflict is simply tried again.
async fn complete<S: Store>(semel: &Semel<S>, handle: &LeaseHandle<S>, reply: &Reply) -> Result<Finished, Error> {
    let _turn = handle.last_turn().await;
    let lease = handle.current();
    let mut attempt = 1;
    loop {
        let completed = match semel.store().begin_fenced(&lease).await {
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

/// Ends the lease now, so that a retry need not wait for it to run out: the key of work that never began is new again,
/// other work is there to be resumed. If that fails, the lease runs out by itself. The renewal ends first: it would
/// undo the release.
async fn give_up<S: Store>(semel: &Semel<S>, handle: &LeaseHandle<S>, alive: KeepAlive) {
    alive.stop().await;
    let lease = handle.current();
    let ended = if handle.begun() { semel.store().release(&lease).await } else { semel.store().abandon(&lease).await };
    if let Err(error) = ended {
        let operation = lease.scope().operation();
        tracing::warn!(operation, error = &error as &dyn std::error::Error, "a lease could not be given up");
    }
}
