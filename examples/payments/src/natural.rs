//! Requests that carry a natural key: a client-chosen id, or the id of the bank.

use std::time::Duration;

use semel::error::Next;
use semel::{Error, Tx};
use semel_tower::Problem;

use crate::ledger::Ledger;

/// How often the work is run in all when serialization failures roll it back.
const ATTEMPTS: u32 = 10;

/// Runs `work` in one transaction without an idempotency key and commits it if it succeeds.
///
/// After an error nothing was committed, save where the store says that it does not know: then the client sends the
/// same request again, and the UNIQUE constraint that `work` inserts into decides. Running the work twice is safe for
/// the same reason, so a serialization failure runs it again, bounded.
pub(crate) async fn transact<S, T, F>(ledger: &S, work: F) -> Result<T, Problem>
where
    S: Ledger,
    F: AsyncFn(&mut S::Tx) -> Result<T, Problem>,
{
    let mut attempt = 1;
    loop {
        let mut tx = ledger.transaction().await?;
        let refused = match work(&mut tx).await {
            Ok(done) => match S::commit(tx).await {
                Ok(()) => return Ok(done),
                Err(error) if runs_again(&error) => Problem::from(error),
                Err(error) => return Err(Problem::from(error)),
            },
            Err(problem) => {
                let conflicted = tx.conflicted();
                tx.rollback().await;
                if !conflicted {
                    return Err(problem);
                }
                problem
            }
        };
        if attempt == ATTEMPTS {
            return Err(refused);
        }
        tokio::time::sleep(Duration::from_millis(1 << attempt.min(6))).await;
        attempt += 1;
    }
}

fn runs_again(error: &Error) -> bool {
    error.next() == Next::RunAgain
}
