//! The problem codes that this service adds to those of the HTTP layer, in one table that documentation and tests
//! follow.

use semel_tower::code::Code;

/// The account exists with another currency.
pub const ACCOUNT_DIFFERS: Code = Code {
    code: "account-differs",
    status: 409,
    title: "The account exists with another currency",
    meaning: "The id is taken by an account of another currency. Nothing was changed.",
    what_to_do: "Use another id, or the currency that the detail names.",
};

/// The account id is not valid.
pub const ACCOUNT_INVALID: Code = Code {
    code: "account-invalid",
    status: 422,
    title: "The account id is not valid",
    meaning: "An account id is empty, too long, or has a character outside A-Z a-z 0-9 _ . and -. Nothing ran.",
    what_to_do: "Correct the id; the key is still new.",
};

/// There is no such account.
pub const ACCOUNT_NOT_FOUND: Code = Code {
    code: "account-not-found",
    status: 404,
    title: "There is no such account",
    meaning: "The tenant has no account of this id. Under a key this answer is stored.",
    what_to_do: "Open the account with PUT /accounts/{id}, then send the request with a new key.",
};

/// The amount is not valid.
pub const AMOUNT_INVALID: Code = Code {
    code: "amount-invalid",
    status: 422,
    title: "The amount is not valid",
    meaning: "The amount is not a whole number of minor units between 1 and 2^53. Nothing ran.",
    what_to_do: "Correct the amount; the key is still new.",
};

/// The balance would pass its limit.
pub const BALANCE_LIMIT: Code = Code {
    code: "balance-limit",
    status: 422,
    title: "The balance would pass its limit",
    meaning: "The credit would take the account's balance past 2^53. Under a key this answer is stored.",
    what_to_do: "Use another account, with a new key.",
};

/// The body is not what the route takes.
pub const BODY_INVALID: Code = Code {
    code: "body-invalid",
    status: 422,
    title: "The body is not what the route takes",
    meaning: "A member is missing, unknown, repeated or of the wrong type. Nothing ran.",
    what_to_do: "Correct the body as the detail says; the key is still new.",
};

/// The card was declined.
pub const CARD_DECLINED: Code = Code {
    code: "card-declined",
    status: 402,
    title: "The card was declined",
    meaning: "The card processor declined the charge. What the order had reserved was given back, and this answer is \
              stored.",
    what_to_do: "Use another card, with a new key: the old one repeats this answer.",
};

/// The card is not valid.
pub const CARD_INVALID: Code = Code {
    code: "card-invalid",
    status: 422,
    title: "The card is not valid",
    meaning: "The card's token is not 1 to 255 visible ASCII characters. Nothing ran.",
    what_to_do: "Correct the token; the key is still new.",
};

/// The charge exists with another body.
pub const CHARGE_DIFFERS: Code = Code {
    code: "charge-differs",
    status: 409,
    title: "The charge exists with another body",
    meaning: "The id is taken by a charge of another account, amount or currency. Nothing was changed.",
    what_to_do: "Use another id for another charge.",
};

/// The charge id is not valid.
pub const CHARGE_INVALID: Code = Code {
    code: "charge-invalid",
    status: 422,
    title: "The charge id is not valid",
    meaning: "A charge id is empty, too long, or has a character outside A-Z a-z 0-9 _ . and -. Nothing ran.",
    what_to_do: "Correct the id.",
};

/// The body must be JSON.
pub const CONTENT_TYPE_UNSUPPORTED: Code = Code {
    code: "content-type-unsupported",
    status: 415,
    title: "The body must be JSON",
    meaning: "The request's content type is not JSON. Nothing ran.",
    what_to_do: "Send Content-Type: application/json; the key is still new.",
};

/// The currency is not valid.
pub const CURRENCY_INVALID: Code = Code {
    code: "currency-invalid",
    status: 422,
    title: "The currency is not valid",
    meaning: "The currency is not three upper-case letters. Nothing ran.",
    what_to_do: "Correct the currency; the key is still new.",
};

/// The currencies differ.
pub const CURRENCY_MISMATCH: Code = Code {
    code: "currency-mismatch",
    status: 422,
    title: "The currencies differ",
    meaning: "The charge or the order and the account, or the two accounts, have different currencies. Under a key \
              this answer is stored.",
    what_to_do: "Use accounts of that currency, with a new key.",
};

/// The mail address is not valid.
pub const EMAIL_INVALID: Code = Code {
    code: "email-invalid",
    status: 422,
    title: "The mail address is not valid",
    meaning: "The address has no single @ between two parts, is longer than 254 bytes, or has a character that no \
              address has. Nothing ran.",
    what_to_do: "Correct the address; the key is still new.",
};

/// The account has too little money.
pub const INSUFFICIENT_FUNDS: Code = Code {
    code: "insufficient-funds",
    status: 402,
    title: "The account has too little money",
    meaning: "The balance is smaller than the transfer. This answer is stored.",
    what_to_do: "Add funds, then send the transfer with a new key: the old one repeats this answer.",
};

/// The body is not JSON.
pub const JSON_INVALID: Code = Code {
    code: "json-invalid",
    status: 400,
    title: "The body is not JSON",
    meaning: "The body could not be parsed. Nothing ran.",
    what_to_do: "Correct the body; the key is still new.",
};

/// The path does not take this method.
pub const METHOD_NOT_ALLOWED: Code = Code {
    code: "method-not-allowed",
    status: 405,
    title: "The path does not take this method",
    meaning: "The path exists and the method does not.",
    what_to_do: "Use a method that the Allow header names.",
};

/// There is nothing at this path.
pub const NOT_FOUND: Code = Code {
    code: "not-found",
    status: 404,
    title: "There is nothing at this path",
    meaning: "No route has this path.",
    what_to_do: "Check the path.",
};

/// There is no such order.
pub const ORDER_NOT_FOUND: Code = Code {
    code: "order-not-found",
    status: 404,
    title: "There is no such order",
    meaning: "The tenant has no order of this id.",
    what_to_do: "Check the id; the answer to POST /orders has it.",
};

/// There are too few pieces.
pub const OUT_OF_STOCK: Code = Code {
    code: "out-of-stock",
    status: 422,
    title: "There are too few pieces",
    meaning: "The stock has fewer pieces than the order asks for. Nothing was reserved or charged, and this answer is \
              stored.",
    what_to_do: "Order fewer pieces, or wait for more; both with a new key.",
};

/// There is no card processor.
pub const PROVIDER_MISSING: Code = Code {
    code: "provider-missing",
    status: 503,
    title: "There is no card processor",
    meaning: "The service was started without the address of a card processor, so no order can be paid. Nothing ran.",
    what_to_do: "Call the operator: provider.url is not set. The key is still new.",
};

/// The number of pieces is not valid.
pub const QUANTITY_INVALID: Code = Code {
    code: "quantity-invalid",
    status: 422,
    title: "The number of pieces is not valid",
    meaning: "The quantity is not a whole number up to 10^9, or an order asks for none. Nothing ran.",
    what_to_do: "Correct the quantity; the key is still new.",
};

/// The two accounts are the same.
pub const SAME_ACCOUNT: Code = Code {
    code: "same-account",
    status: 422,
    title: "The two accounts are the same",
    meaning: "A transfer names one account twice, or an order is referred by its own account. Nothing ran.",
    what_to_do: "Name two accounts; the key is still new.",
};

/// The article's name is not valid.
pub const SKU_INVALID: Code = Code {
    code: "sku-invalid",
    status: 422,
    title: "The article's name is not valid",
    meaning: "A sku is empty, too long, or has a character outside A-Z a-z 0-9 _ . and -. Nothing ran.",
    what_to_do: "Correct the sku; the key is still new.",
};

/// The transaction id is not valid.
pub const TRANSACTION_ID_INVALID: Code = Code {
    code: "transaction-id-invalid",
    status: 422,
    title: "The transaction id is not valid",
    meaning: "The bank's id is not 1 to 255 visible ASCII characters. Nothing ran.",
    what_to_do: "Correct the id.",
};

/// The token is missing or unknown.
pub const UNAUTHORIZED: Code = Code {
    code: "unauthorized",
    status: 401,
    title: "The token is missing or unknown",
    meaning: "The request has no bearer token that the service knows. Nothing was read or claimed.",
    what_to_do: "Send a valid token; the same key then gets its reply.",
};

/// The transaction id came with other contents.
pub const WEBHOOK_DIFFERS: Code = Code {
    code: "webhook-differs",
    status: 409,
    title: "The transaction id came with other contents",
    meaning: "The bank sent this id before with another account or amount. Nothing was credited.",
    what_to_do: "Call the operator: the bank's two messages contradict each other.",
};

/// Every code.
pub const ALL: &[Code] = &[
    ACCOUNT_DIFFERS,
    ACCOUNT_INVALID,
    ACCOUNT_NOT_FOUND,
    AMOUNT_INVALID,
    BALANCE_LIMIT,
    BODY_INVALID,
    CARD_DECLINED,
    CARD_INVALID,
    CHARGE_DIFFERS,
    CHARGE_INVALID,
    CONTENT_TYPE_UNSUPPORTED,
    CURRENCY_INVALID,
    CURRENCY_MISMATCH,
    EMAIL_INVALID,
    INSUFFICIENT_FUNDS,
    JSON_INVALID,
    METHOD_NOT_ALLOWED,
    NOT_FOUND,
    ORDER_NOT_FOUND,
    OUT_OF_STOCK,
    PROVIDER_MISSING,
    QUANTITY_INVALID,
    SAME_ACCOUNT,
    SKU_INVALID,
    TRANSACTION_ID_INVALID,
    UNAUTHORIZED,
    WEBHOOK_DIFFERS,
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_code_means_two_things() {
        let codes = ALL.iter().chain(semel_tower::code::ALL);
        let distinct: HashSet<&str> = codes.clone().map(|code| code.code).collect();
        assert_eq!(distinct.len(), codes.count());
    }
}
