//! What can be asked of the provider.

use serde::{Deserialize, Serialize};

/// A kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Charge,
    Refund,
    Mail,
}

impl Kind {
    pub(crate) const ALL: [Kind; 3] = [Kind::Charge, Kind::Refund, Kind::Mail];

    /// The name in the ledger and in JSON.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Kind::Charge => "charge",
            Kind::Refund => "refund",
            Kind::Mail => "mail",
        }
    }

    /// Where it is asked for.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Kind::Charge => "/charges",
            Kind::Refund => "/refunds",
            Kind::Mail => "/mails",
        }
    }

    /// Whose keys it uses. A processor takes a charge's key on a refund for a mistake; a mailer knows neither.
    pub(crate) fn desk(self) -> &'static str {
        match self {
            Kind::Charge | Kind::Refund => "cards",
            Kind::Mail => "mails",
        }
    }

    /// A new id of this kind.
    pub(crate) fn new_id(self) -> String {
        let prefix = match self {
            Kind::Charge => "ch",
            Kind::Refund => "re",
            Kind::Mail => "ma",
        };
        format!("{prefix}_{}", uuid::Uuid::new_v4().simple())
    }
}
