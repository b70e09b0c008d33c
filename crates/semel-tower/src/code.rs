//! The problem codes of this layer, in one table: documentation and tests follow it.

/// A problem that the layer answers with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    /// The name: the member `code`, and the end of `type`.
    pub code: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// The member `title`.
    pub title: &'static str,
    /// What happened.
    pub meaning: &'static str,
    /// What the client should do.
    pub what_to_do: &'static str,
}

/// The route needs a key and the request has none.
pub const KEY_MISSING: Code = Code {
    code: "key-missing",
    status: 400,
    title: "Idempotency-Key is missing",
    meaning: "The route requires an Idempotency-Key and the request has none. Nothing ran.",
    what_to_do: "Mint a key for this intent, keep it, and send the request again with it.",
};

/// The header cannot be read as a key.
pub const KEY_INVALID: Code = Code {
    code: "key-invalid",
    status: 400,
    title: "Idempotency-Key is not valid",
    meaning: "The Idempotency-Key is empty, too long or too short, has characters outside visible ASCII, is badly \
              quoted, or was sent twice. Nothing ran.",
    what_to_do: "Correct the header as the detail says; a UUID in quotes always works.",
};

/// Another request with the same key is running.
pub const KEY_IN_FLIGHT: Code = Code {
    code: "key-in-flight",
    status: 409,
    title: "The same key is being processed",
    meaning: "Another request with this key is running now.",
    what_to_do: "Send the same request with the same key again after Retry-After; it will be answered with the reply.",
};

/// The key belongs to another request.
pub const KEY_REUSED: Code = Code {
    code: "key-reused",
    status: 422,
    title: "The key was used for another request",
    meaning: "This key has been used with another method, target, content type or body. The first request's record is \
              untouched.",
    what_to_do: "Use a new key for a new intent, or repeat the first request exactly. Do not retry this one unchanged.",
};

/// Leased work was interrupted and must not be resumed, or a flow is held for a person.
pub const OUTCOME_UNKNOWN: Code = Code {
    code: "outcome-unknown",
    status: 409,
    title: "The outcome is not known",
    meaning: "The work under this key was interrupted, and whether it took effect is not known yet.",
    what_to_do: "Do not use a new key: that could repeat the effect. Ask the operator to find out what happened.",
};

/// The store could not be asked, or the transaction was rolled back for a passing reason.
pub const STORE_UNAVAILABLE: Code = Code {
    code: "store-unavailable",
    status: 503,
    title: "The store is unavailable",
    meaning: "The database could not be asked, its acknowledgement was lost, or the transaction conflicted with \
              another. Either nothing was committed or the same key tells what was.",
    what_to_do: "Send the same request with the same key again after Retry-After.",
};

/// The work took longer than the transaction deadline.
pub const DEADLINE_EXCEEDED: Code = Code {
    code: "deadline-exceeded",
    status: 503,
    title: "The work took too long",
    meaning: "The work took longer than the deadline and was rolled back; the key stays new.",
    what_to_do: "Send the same request with the same key again after Retry-After; if it persists, call the operator.",
};

/// The handler claimed success without using the transaction.
pub const EFFECT_OUTSIDE: Code = Code {
    code: "effect-outside",
    status: 500,
    title: "The effect did not use the transaction",
    meaning: "The service answered success without its effect standing in the key's transaction, so a retry could \
              repeat it. Nothing was stored. This is a mistake in the service.",
    what_to_do: "Call the operator; do not retry blindly.",
};

/// The reply cannot be stored.
pub const REPLY_TOO_LARGE: Code = Code {
    code: "reply-too-large",
    status: 500,
    title: "The reply is too large to be stored",
    meaning: "The service's reply is larger than the limit for stored replies. The effect was rolled back, because an \
              effect whose reply cannot be replayed never commits.",
    what_to_do: "Call the operator: a retry will fail in the same way until the limit or the reply changes.",
};

/// The flow under this key was begun by another version of the service.
pub const FLOW_CHANGED: Code = Code {
    code: "flow-changed",
    status: 500,
    title: "The flow does not fit the service's code",
    meaning: "The work under this key cannot go on because the service's code does not fit what is recorded of it, as \
              after a step was renamed. Nothing that was recorded is lost, and it goes on once the service is mended.",
    what_to_do: "Call the operator. The same request with the same key gets the reply later; do not use a new key.",
};

/// The request's body is larger than the route allows.
pub const BODY_TOO_LARGE: Code = Code {
    code: "body-too-large",
    status: 413,
    title: "The request body is too large",
    meaning: "The request's body is larger than the route allows. Nothing ran and the key stays new.",
    what_to_do: "Send a smaller body.",
};

/// The request's body did not arrive.
pub const BODY_INCOMPLETE: Code = Code {
    code: "body-incomplete",
    status: 400,
    title: "The request body did not arrive",
    meaning: "The request's body broke off or did not arrive in time. Nothing ran and the key stays new.",
    what_to_do: "Send the same request with the same key again.",
};

/// Something failed in a way that only the operator can mend.
pub const INTERNAL_ERROR: Code = Code {
    code: "internal-error",
    status: 500,
    title: "Something failed inside the service",
    meaning: "The service failed or is set up wrongly. Everything was rolled back and nothing is stored.",
    what_to_do: "A retry with the same key is safe and may run; if it persists, call the operator.",
};

/// Every code.
pub const ALL: &[Code] = &[
    KEY_MISSING,
    KEY_INVALID,
    KEY_IN_FLIGHT,
    KEY_REUSED,
    OUTCOME_UNKNOWN,
    STORE_UNAVAILABLE,
    DEADLINE_EXCEEDED,
    EFFECT_OUTSIDE,
    REPLY_TOO_LARGE,
    FLOW_CHANGED,
    BODY_TOO_LARGE,
    BODY_INCOMPLETE,
    INTERNAL_ERROR,
];

/// Looks a code up by its name.
pub fn find(code: &str) -> Option<&'static Code> {
    ALL.iter().find(|known| known.code == code)
}
