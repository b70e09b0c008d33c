//! Writing staged jobs at the end of a transaction.

use semel::flow::{Job, MAX_JOBS};
use semel::{Error, Execution};
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::parameter::{Parameter, Typed};

pub(crate) const STAGE: &str = "SELECT semel.stage_all($1, $2, $3, $4, $5)";

/// Jobs as `semel.stage_all` takes them: one call, and within the completion's flight no further round trip.
pub(crate) struct Staging<'a> {
    run: Uuid,
    tenants: Typed<Vec<&'a str>>,
    flows: Typed<Vec<&'a str>>,
    inputs: Typed<Vec<&'a [u8]>>,
    fingerprints: Typed<Vec<&'a [u8]>>,
}

impl<'a> Staging<'a> {
    /// Of a run. Fails if there are more jobs than one transaction may have (I12). The database counts them too.
    pub(crate) fn new(run: Execution, jobs: &'a [Job]) -> Result<Staging<'a>, Error> {
        if jobs.len() > MAX_JOBS {
            return Err(Error::TooManyEvents { what: format!("{} jobs", jobs.len()), limit: MAX_JOBS });
        }
        let fingerprints = jobs.iter().map(|job| job.fingerprint.as_bytes().as_slice());
        Ok(Staging {
            run: run.as_uuid(),
            tenants: Typed(jobs.iter().map(|job| job.scope.tenant()).collect(), Type::TEXT_ARRAY),
            flows: Typed(jobs.iter().map(|job| job.flow.as_str()).collect(), Type::TEXT_ARRAY),
            inputs: Typed(jobs.iter().map(|job| job.input.as_slice()).collect(), Type::BYTEA_ARRAY),
            fingerprints: Typed(fingerprints.collect(), Type::BYTEA_ARRAY),
        })
    }

    pub(crate) fn params(&self) -> [&dyn Parameter; 5] {
        [&self.run, &self.tenants, &self.flows, &self.inputs, &self.fingerprints]
    }
}
